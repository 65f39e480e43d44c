"""RCPO around anybody's learner: the environment pays r - lambda c, and lambda follows its finished episodes.

Nothing here needs JAX, MuJoCo or the learner. What each step was about is in `info["rcpo"]`:

    reward       the true reward, without any penalty
    costs        what the step cost, by column
    penalties    what the learner feels of each constraint, before it is weighted
    multipliers  the weights, as this step has paid them
    episode      on an episode's last step its reward, its length and its values, one for each constraint
"""

import copy
from typing import Any, Final, final

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper

from rcpo.columns import Columns
from rcpo.controller import Multipliers, shared
from rcpo.errors import UsageError
from rcpo.functionals import BUILT_IN, Functional

KEY: Final = "rcpo"


@final
class Told(dict):
    """What there is to tell about a step. Nobody changes it, so it is its own copy: `DummyVecEnv` copies every info,
    and `copy.deepcopy` would take longer than the step has taken."""

    __slots__ = ()

    def __deepcopy__(self, memo: Any) -> "Told":
        return self


@final
class Account:
    """The running episode of one environment: what its steps cost the learner, and what it was worth in the end."""

    def __init__(self, multipliers: Multipliers, columns: Columns):
        self.multipliers, self.columns = multipliers, columns
        bounds = multipliers.constraints
        self._names = multipliers.names
        self._functionals = tuple(bound.functional for bound in bounds)
        self._terms = tuple(
            (k, self._names[k], bound.functional.step, _felt(bound.functional), bound.column, bound.event, bound.sign)
            for k, bound in enumerate(bounds)
        )
        self.open()

    def open(self) -> None:
        """Begin an episode; one that is still running is forgotten."""
        self._totals = [functional.start(_nothing(functional)) for functional in self._functionals]
        self._reward, self._length = 0.0, 0

    def step(
        self, reward: float, obs: Any, action: Any, next_obs: Any, info: Any, ended: bool, training: bool
    ) -> tuple[float, dict[str, Any]]:
        """The penalised reward of one step, and what there is to tell about it."""
        multipliers, totals, length = self.multipliers, self._totals, self._length
        costs = self.columns.read(obs, action, next_obs, info)
        weights, paid, penalties = multipliers.weights, 0.0, {}
        for k, name, add, felt, column, event, sign in self._terms:
            before, cost = totals[k], costs[column]
            if event is not None:
                cost = event(cost)
            totals[k] = after = add(before, cost, length)
            penalties[name] = penalty = sign * (float(felt(before, after, cost)) if felt else cost)
            paid += weights[k] * penalty
        self._reward += reward
        self._length = length + 1
        told = Told(
            reward=reward,
            costs=costs,
            penalties=penalties,
            multipliers=multipliers.shown.copy(),
        )
        penalised = multipliers.scale * reward + multipliers.rebate - paid
        if ended:
            told["episode"] = self._close(training)
        return penalised, told

    def _close(self, training: bool) -> dict[str, Any]:
        pairs = zip(self._functionals, self._totals, strict=True)
        values = [float(functional.value(total, self._length)) for functional, total in pairs]
        if training:
            self.multipliers.record(values)
        told = Told(reward=self._reward, length=self._length, values=dict(zip(self._names, values, strict=True)))
        self.open()
        return told


def _felt(functional: Functional) -> Any:
    """What the learner feels of a step; None where that is the cost itself, which need not be asked for."""
    return None if type(functional).penalty is Functional.penalty else functional.penalty


def _nothing(functional: Functional) -> Any:
    """Zero as the functional adds it up: a plain float is fastest, but a user's own may ask for an array's methods."""
    return 0.0 if type(functional) in BUILT_IN.values() else np.float64(0.0)


@final
class RewardConstrained(gymnasium.Wrapper, RecordConstructorArgs):
    """Any Gymnasium environment, made to pay r - lambda c.

    `constraints` are texts, `Constraint`s, or `Multipliers` that several environments share; `settings` are those of
    `Multipliers`. `costs` and `missing` say where cost columns come from (see `Columns`). A step of six values is
    welcome: (obs, reward, cost, terminated, truncated, info), with the cost as column `cost`.
    """

    def __init__(
        self,
        env: Any,
        constraints: Any,
        *,
        costs: Any = None,
        missing: float | None = None,
        training: bool = True,
        **settings: Any,
    ):
        if not isinstance(env, gymnasium.Env):
            raise UsageError(f"got {_kind(env)}, which is no Gymnasium environment; "
                             "for gymnasium.vector there is RewardConstrainedVector, "
                             "for Stable-Baselines3's VecEnv rcpo.sb3.RewardConstrainedVecEnv")  # fmt: skip
        RecordConstructorArgs.__init__(
            self,
            _disable_deepcopy=True,
            **{"constraints": constraints, "costs": costs, "missing": missing, "training": training, **settings},
        )
        gymnasium.Wrapper.__init__(self, env)
        self.multipliers = shared(constraints, settings)
        self.training = training
        self._account = Account(self.multipliers, Columns(self.multipliers.constraints, costs, missing))
        self._obs: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._obs, info = self.env.reset(seed=seed, options=options)
        self._account.open()
        return self._obs, info

    def step(self, action: Any) -> tuple[Any, float, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, info = five(self.env.step(action))
        ended = bool(terminated or truncated)
        reward, told = self._account.step(float(reward), self._obs, action, obs, info, ended, self.training)
        self._obs = obs
        return obs, reward, terminated, truncated, {**info, KEY: told}

    def freeze(self) -> None:
        """From here on this environment's episodes move no multiplier."""
        self.training = False

    def unfreeze(self) -> None:
        self.training = True


def five(outcome: Any) -> Any:
    """The values of a step as Gymnasium orders them, a sixth one put into `info`."""
    if len(outcome) == 5:
        return outcome
    if len(outcome) != 6:
        raise UsageError(f"the environment's step returned {len(outcome)} values; Gymnasium's returns five "
                         "(obs, reward, terminated, truncated, info), Safety-Gymnasium's six")  # fmt: skip
    obs, reward, cost, terminated, truncated, info = outcome
    if "final_info" in info:
        info = {**info, "final_info": {**info["final_info"], "cost": cost}}
    return obs, reward, terminated, truncated, {**info, "cost": cost}


def _kind(value: Any) -> str:
    name = value.__name__ if isinstance(value, type) else type(value).__name__
    return f"the class {name}" if isinstance(value, type) else f"an object of type {name}"


@final
class RewardConstrainedVector(VectorWrapper):
    """Any `gymnasium.vector.VectorEnv`, made to pay r - lambda c, with one set of multipliers for all copies.

    A function that works out a cost is given arrays of all copies, and what the step really led to as `next_obs`.
    `info["rcpo"]` is always about the step itself, also where a copy has been reset within it; arrays have one entry a
    copy, `_episode` says whose episode ended. In the step that only resets a copy nothing is paid.
    """

    def __init__(
        self,
        envs: Any,
        constraints: Any,
        *,
        costs: Any = None,
        missing: float | None = None,
        training: bool = True,
        **settings: Any,
    ):
        if not isinstance(envs, VectorEnv):
            raise UsageError(f"got {_kind(envs)}, which is no gymnasium.vector.VectorEnv; "
                             "for a single environment there is RewardConstrained")  # fmt: skip
        super().__init__(envs)
        self.multipliers = shared(constraints, settings)
        self.training = training
        self._columns = Columns(self.multipliers.constraints, costs, missing)
        self._names = self.multipliers.names
        # Gymnasium 1.0 knew one mode only, and did not name it.
        mode = envs.metadata.get("autoreset_mode", "NextStep")
        self._next_step = getattr(mode, "value", mode) == "NextStep"
        self._obs: Any = None
        self._open(np.ones(envs.num_envs, bool))

    def _open(self, copies: np.ndarray) -> None:
        """Begin an episode in these copies [N]."""
        nothing = np.zeros(len(copies))
        fresh = [bound.functional.start(nothing) for bound in self.multipliers.constraints]
        if copies.all():
            self._totals, self._rewards, self._lengths = fresh, nothing.copy(), np.zeros(len(copies), int)
            self._ended = np.zeros(len(copies), bool)
            return
        self._totals = [_choose(copies, new, old) for new, old in zip(fresh, self._totals, strict=True)]
        self._rewards, self._lengths = np.where(copies, 0.0, self._rewards), np.where(copies, 0, self._lengths)
        self._ended = self._ended & ~copies

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        # The environment takes the mask out of the options.
        mask = (options or {}).get("reset_mask")
        obs, info = self.env.reset(seed=seed, options=options)
        self._open(np.ones(self.num_envs, bool) if mask is None else np.asarray(mask, bool))
        self._remember(obs)
        return obs, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, rewards, terminated, truncated, info = five(self.env.step(actions))
        ended = terminated | truncated
        live = ~self._ended if self._next_step else np.ones(len(ended), bool)
        followed = _final(obs, info, ended) if self._columns.called else obs
        costs = self._columns.read_batch((self._obs, actions, followed), info, live, ended)
        penalties = self._add_up(rewards, costs, live)
        penalised = np.where(live, self.multipliers.penalise(rewards, penalties), rewards)
        told = {
            "reward": np.array(rewards, float),
            "costs": dict(zip(self._columns.names, costs, strict=True)),
            "penalties": dict(zip(self._names, penalties.T, strict=True)),
            "multipliers": {name: np.full(len(ended), value) for name, value in self.multipliers.shown.items()},
        }
        if ended.any():
            told["episode"], told["_episode"] = self._close(ended), ended.copy()
        self._ended = ended
        self._remember(obs)
        return obs, penalised, terminated, truncated, {**info, KEY: told, f"_{KEY}": live}

    def _add_up(self, rewards: np.ndarray, costs: list[np.ndarray], live: np.ndarray) -> np.ndarray:
        """The step's penalties [N, K]; running episodes grow by it where copies are `live`."""
        penalties = np.zeros((len(live), len(self._totals)))
        for k, (bound, column) in enumerate(zip(self.multipliers.constraints, self._columns.place, strict=True)):
            before, cost = self._totals[k], bound.paid(costs[column])
            after = bound.functional.step(before, cost, self._lengths)
            penalties[:, k] = bound.sign * bound.functional.penalty(before, after, cost) * live
            self._totals[k] = _choose(live, after, before)
        self._rewards = self._rewards + rewards * live
        self._lengths = self._lengths + live
        return penalties

    def _close(self, ended: np.ndarray) -> dict[str, Any]:
        bounds = self.multipliers.constraints
        pairs = zip(bounds, self._totals, strict=True)
        values = [np.asarray(bound.functional.value(total, self._lengths), float) for bound, total in pairs]
        if self.training:
            for n in np.flatnonzero(ended):
                self.multipliers.record([float(value[n]) for value in values])
        told = {
            "reward": np.where(ended, self._rewards, 0.0),
            "length": np.where(ended, self._lengths, 0),
            "values": {name: np.where(ended, value, 0.0) for name, value in zip(self._names, values, strict=True)},
        }
        self._open(ended)
        return told

    def _remember(self, obs: Any) -> None:
        # Copied, for an environment may write the next observations into the same memory.
        self._obs = copy.deepcopy(obs) if self._columns.called else None

    def freeze(self) -> None:
        """From here on these environments' episodes move no multiplier."""
        self.training = False

    def unfreeze(self) -> None:
        self.training = True


def _choose(where: np.ndarray, new: Any, old: Any) -> Any:
    """`new` in the copies [N] where it says so, else `old`; a total may be an array or a tuple of them."""
    if isinstance(new, tuple):
        return tuple(_choose(where, *pair) for pair in zip(new, old, strict=True))
    return np.where(where, new, old)


def _final(obs: Any, info: dict[str, Any], ended: np.ndarray) -> Any:
    """What the step led to: of copies that were reset within it, the observation before that."""
    last = info.get("final_obs")
    if last is None or not ended.any():
        return obs
    return _replace(obs, ended, [last[i] for i in np.flatnonzero(ended)])


def _replace(obs: Any, where: np.ndarray, rows: list[Any]) -> Any:
    if isinstance(obs, dict):
        return {key: _replace(part, where, [row[key] for row in rows]) for key, part in obs.items()}
    if isinstance(obs, tuple):
        return tuple(_replace(part, where, [row[i] for row in rows]) for i, part in enumerate(obs))
    replaced = np.array(obs)
    replaced[where] = rows
    return replaced
