"""What Stable-Baselines3's learners want of their own: a VecEnv's wrapper, a replay buffer, a logger."""

from typing import Any, Final, final

import numpy as np

from rcpo.columns import Columns
from rcpo.controller import Multipliers, shared
from rcpo.errors import UsageError
from rcpo.wrappers import KEY, Account

try:
    from stable_baselines3.common.buffers import ReplayBuffer
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
except ImportError as error:
    raise ImportError(f"rcpo.sb3 needs Stable-Baselines3 ({error}); pip install 'rcpo[sb3]'") from error

RECORDED: Final = ("reward", "length")


@final
class RewardConstrainedVecEnv(VecEnvWrapper):
    """Any VecEnv, made to pay r - lambda c; one set of multipliers for all copies, also where each has its process."""

    def __init__(
        self,
        venv: Any,
        constraints: Any,
        *,
        costs: Any = None,
        missing: float | None = None,
        training: bool = True,
        **settings: Any,
    ):
        if not isinstance(venv, VecEnv):
            raise UsageError(f"got an object of type {type(venv).__name__}, which is no VecEnv of Stable-Baselines3; "
                             "make one with make_vec_env")  # fmt: skip
        super().__init__(venv)
        self.multipliers = shared(constraints, settings)
        self.training = training
        columns = Columns(self.multipliers.constraints, costs, missing)
        self._accounts = [Account(self.multipliers, columns) for _ in range(venv.num_envs)]
        self._keep, self._obs, self._actions = columns.called, [None] * venv.num_envs, [None] * venv.num_envs

    def reset(self) -> Any:
        obs = self.venv.reset()
        for account in self._accounts:
            account.open()
        self._remember(obs)
        return obs

    def step_async(self, actions: Any) -> None:
        if self._keep:
            self._actions = list(actions)
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        obs, rewards, dones, infos = self.venv.step_wait()
        before = self._obs
        self._remember(obs)
        penalised = np.empty_like(rewards)
        for n, (account, reward, done, info) in enumerate(
            zip(self._accounts, rewards.tolist(), dones.tolist(), infos, strict=True)
        ):
            following = info["terminal_observation"] if done and self._keep else self._obs[n]
            penalised[n], info[KEY] = account.step(
                reward, before[n], self._actions[n], following, info, done, self.training
            )
        return obs, penalised, dones, infos

    def _remember(self, obs: Any) -> None:
        """What each copy sees, where a cost is worked out from it."""
        if self._keep:
            self._obs = [_row(obs, n) for n in range(self.num_envs)]

    def freeze(self) -> None:
        """From here on these environments' episodes move no multiplier."""
        self.training = False

    def unfreeze(self) -> None:
        self.training = True


def _row(obs: Any, n: int) -> Any:
    if isinstance(obs, dict):
        return {key: part[n] for key, part in obs.items()}
    return tuple(part[n] for part in obs) if isinstance(obs, tuple) else obs[n]


@final
class PenalisedReplayBuffer(ReplayBuffer):
    """A replay buffer in which old rewards, too, are r - lambda c with the multipliers as they are now.

    A plain buffer keeps the reward of the day, with the multipliers of that day.
    """

    def __init__(self, *args: Any, multipliers: Multipliers, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.multipliers = multipliers
        self.true_rewards = np.zeros_like(self.rewards)
        self.penalties = np.zeros((*self.rewards.shape, len(multipliers.constraints)), self.rewards.dtype)
        self._seen = multipliers.shown

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        told = [info.get(KEY) for info in infos]
        if None in told:
            raise UsageError("PenalisedReplayBuffer needs an environment in RewardConstrained or "
                             "RewardConstrainedVecEnv; a step's info has no 'rcpo'")  # fmt: skip
        self.true_rewards[self.pos] = [step["reward"] for step in told]
        self.penalties[self.pos] = [list(step["penalties"].values()) for step in told]
        super().add(obs, next_obs, action, reward, done, infos)

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        if self._seen is not self.multipliers.shown:
            self.rewards[:] = self.multipliers.penalise(self.true_rewards, self.penalties)
            self._seen = self.multipliers.shown
        return super().sample(*args, **kwargs)


@final
class LogConstraints(BaseCallback):
    """Shows the learner's logger what the episodes were truly worth, and the multipliers."""

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            told = info.get(KEY, {})
            if "episode" not in told:
                continue
            for name in RECORDED:
                self.logger.record_mean(f"{KEY}/{name}", told["episode"][name])
            for text, value in told["episode"]["values"].items():
                self.logger.record_mean(f"constraint/{text}/value", value)
                self.logger.record(f"constraint/{text}/multiplier", told["multipliers"][text])
        return True
