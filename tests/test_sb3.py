"""Learners of Stable-Baselines3 meet a constraint that they break without it; their replay buffers keep up."""

import importlib.util
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from worlds import Script, costs

import rcpo

pytest.importorskip("stable_baselines3")

import torch
from stable_baselines3 import DQN
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from rcpo.sb3 import LogConstraints, PenalisedReplayBuffer, RewardConstrainedVecEnv

EPISODES = [costs(1.0, 0.0, 2.0), costs(0.0, 0.0), costs(3.0)]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def example(name: str) -> ModuleType:
    path = Path(__file__).parents[1] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The paper's claim, on learners with and without a policy gradient


def test_ppo_keeps_a_probability() -> None:
    """Exact values of what it has learned, beside the best there is."""
    module = example("sb3_ppo")
    kept, free = module.main([]).values()
    (time, crash), best = kept, module.best_time(0.05)
    assert crash <= 0.05 and best <= time <= 1.1 * best
    assert free[1] > 0.5 and free[0] < 3.2


def test_the_best_time_is_that_of_the_linear_program() -> None:
    """The policies on either side of the multiplier, mixed so that the limit is just kept."""
    module = example("sb3_ppo")
    fastest, safest = (np.eye(3)[np.full(module.CELLS, speed)] for speed in (2, 0))
    assert module.worth(safest) == pytest.approx((12.0, 0.0)) and module.best_time(1.0) == pytest.approx(3.06, abs=0.01)
    assert module.worth(fastest)[0] >= module.best_time(1.0)
    assert module.best_time(0.0) > module.best_time(0.05) > module.best_time(0.1)


def test_sac_keeps_a_mean() -> None:
    module = example("sb3_sac")
    (distance, power), free = module.main([]).values()
    assert power <= 0.25 and 0.9 * module.best_distance(0.25) < distance <= module.best_distance(power)
    assert free[1] > 0.9


def test_dqn_keeps_a_sum() -> None:
    """Exactly the best five of ten."""
    module = example("sb3_dqn")
    kept, free = module.main([]).values()
    assert kept == pytest.approx((4.0, 5.0)) and free == pytest.approx((5.0, 10.0))


# The wrapper of a VecEnv


def late(obs: Any, action: Any, following: Any, info: Any) -> Any:
    return following[1] - obs[1] + 10.0 * action


@pytest.mark.parametrize("kind", [DummyVecEnv, SubprocVecEnv])
def test_a_vecenv_pays_what_single_environments_pay(kind: Any) -> None:
    """Each copy as an environment alone, the multiplier moved by all, also where each has its process."""
    bounds = ["sum(cost) <= 1", rcpo.Constraint(rcpo.Sum(), late, 1.0)]
    settings: dict[str, Any] = {"step_size": 0.1, "initial": 0.5, "episodes_per_update": 2}
    makers = [partial(Script, EPISODES[first:] + EPISODES[:first]) for first in range(3)]
    venv = RewardConstrainedVecEnv(kind(makers), bounds, **settings)
    shared = rcpo.Multipliers(bounds, **settings)
    alone = [rcpo.RewardConstrained(make(), shared) for make in makers]
    venv.reset()
    for env in alone:
        env.reset()
    for _ in range(12):
        _, rewards, dones, infos = venv.step(np.ones(3, int))
        for n, env in enumerate(alone):
            _, reward, terminated, _, info = env.step(1)
            assert rewards[n] == pytest.approx(reward, rel=1e-6) and infos[n]["rcpo"] == info["rcpo"]
            assert dones[n] == terminated
            if terminated:
                env.reset()
    assert venv.multipliers.updates == shared.updates > 4
    venv.freeze()
    for _ in range(12):
        venv.step(np.ones(3, int))
    assert venv.multipliers.updates == shared.updates
    venv.close()


def test_what_is_no_vecenv() -> None:
    with pytest.raises(rcpo.UsageError, match="an object of type Script, which is no VecEnv"):
        RewardConstrainedVecEnv(Script(EPISODES), "sum(cost) <= 1")


# The replay buffer and the logger


def test_a_replay_buffer_weighs_old_rewards_as_of_today() -> None:
    env = rcpo.RewardConstrained(Script(EPISODES[:1]), "sum(cost) <= 1", step_size=0.1, episodes_per_update=1)
    keep = {"multipliers": env.multipliers}
    learner = DQN("MlpPolicy", env, learning_starts=1000, replay_buffer_class=PenalisedReplayBuffer,
                  replay_buffer_kwargs=keep, buffer_size=64, device="cpu")  # fmt: skip
    for steps in (3, 30):
        learner.learn(steps, reset_num_timesteps=False)
        multiplier = env.multipliers.value["sum(cost)"]
        buffer = learner.replay_buffer
        assert isinstance(buffer, PenalisedReplayBuffer)
        sample = buffer.sample(200)
        cost = sample.next_observations[:, 1].numpy().astype(int)
        expected = 1.0 - multiplier * np.array([np.nan, 1.0, 0.0, 2.0])[cost]
        np.testing.assert_allclose(sample.rewards[:, 0].numpy(), expected, rtol=1e-5)
    assert multiplier == pytest.approx(0.2 * env.multipliers.updates) and env.multipliers.updates > 10


def test_a_replay_buffer_wants_the_wrapper() -> None:
    learner = DQN("MlpPolicy", Script(EPISODES), replay_buffer_class=PenalisedReplayBuffer,
                  replay_buffer_kwargs={"multipliers": rcpo.Multipliers("sum(cost) <= 1")}, device="cpu")  # fmt: skip
    with pytest.raises(rcpo.UsageError, match="needs an environment in RewardConstrained"):
        learner.learn(3)


def test_the_logger_shows_true_rewards_values_and_multipliers() -> None:
    """A Monitor inside the wrapper, too, sees the true reward."""
    env = rcpo.RewardConstrained(Monitor(Script(EPISODES[:1])), "sum(cost) <= 1", initial=0.5, rule="fixed")
    learner = DQN("MlpPolicy", env, learning_starts=1000, device="cpu")
    learner.learn(30, callback=LogConstraints(), log_interval=1000)
    shown = learner.logger.name_to_value
    assert shown["rcpo/reward"] == 3.0 and shown["rcpo/length"] == 3.0
    assert shown["constraint/sum(cost)/value"] == 3.0 and shown["constraint/sum(cost)/multiplier"] == 0.5
    assert {episode["r"] for episode in learner.ep_info_buffer or []} == {3.0}
