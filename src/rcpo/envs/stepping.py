"""Copies of a Gymnasium environment, stepped one after the other into arrays that stay where they are.

Light, without JAX: this is what a worker process runs. In the training process it runs as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from rcpo.envs import sources, spaces
from rcpo.errors import EnvironmentFault, UsageError

Cost = Callable[[np.ndarray, np.ndarray, np.ndarray, Sequence[Mapping[str, Any]]], Any]
"""`cost(obs, action, next_obs, info)` on batches: arrays with one row a copy, and each copy's info."""
HOPELESS: Final = 100
"""After so many broken episodes in a row of one copy, none of which was sound, it is given up."""


@final
@dataclass(frozen=True)
class Task:
    """All that a copy has to know; it travels to the worker processes."""

    source: sources.Source
    images: bool
    max_steps: int
    reward_scale: float
    from_info: tuple[tuple[int, str], ...]
    """Which cost columns are read from `info`, and their names."""
    from_obs: tuple[tuple[int, int], ...]
    """Which cost columns are a component of what is seen, and which one."""
    from_call: tuple[tuple[int, Cost], ...]
    """Which cost columns a function works out."""


FIELDS: Final = ("action", "obs", "next_obs", "reward", "costs", "terminated", "truncated", "faulty", "elapsed", "at")


@final
@dataclass(frozen=True)
class Arrays:
    """What goes into a step of N copies, and what comes out."""

    action: np.ndarray
    obs: np.ndarray
    next_obs: np.ndarray
    reward: np.ndarray
    costs: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    faulty: np.ndarray
    elapsed: np.ndarray
    """How long each copy's episode has lasted."""
    at: np.ndarray
    """Which copy is at work, of those that share a process: whoever waits in vain can say for whom."""

    def part(self, rows: slice, worker: int) -> "Arrays":
        """The rows of one worker."""
        parts = {name: getattr(self, name)[rows] for name in FIELDS[:-1]}
        return Arrays(**parts, at=self.at[worker : worker + 1])


Layout = tuple[tuple[tuple[int, ...], np.dtype], ...]


def layout(
    copies: int, workers: int, action: tuple[tuple[int, ...], type], sight: tuple[tuple[int, ...], type], columns: int
) -> Layout:
    """The shape and kind of each of the arrays, in the order of `FIELDS`."""
    shapes: list[tuple[tuple[int, ...], Any]] = [
        ((copies, *action[0]), action[1]),
        ((copies, *sight[0]), sight[1]),
        ((copies, *sight[0]), sight[1]),
        ((copies,), np.float64),
        ((copies, columns), np.float64),
        *[((copies,), np.bool_)] * 3,
        ((copies,), np.int64),
        ((workers,), np.int64),
    ]
    return tuple((shape, np.dtype(kind)) for shape, kind in shapes)


def arrays(layout: Layout, memory: Any = None) -> Arrays:
    """New arrays, one behind the other in `memory` if there is some to be shared."""
    if memory is None:
        return Arrays(*(np.zeros(shape, kind) for shape, kind in layout))
    found, place = [], 0
    for shape, kind in layout:
        count = int(np.prod(shape))
        found.append(np.frombuffer(memory, kind, count, place).reshape(shape))
        place += -(-count * kind.itemsize // 64) * 64
    return Arrays(*found)


def needed(layout: Layout) -> int:
    """How many bytes the arrays take in shared memory."""
    return sum(-(-int(np.prod(shape)) * kind.itemsize // 64) * 64 for shape, kind in layout) or 64


@final
class Stepper:
    """Some of the copies: `first` is the number of the first one among all."""

    def __init__(self, task: Task, arrays: Arrays, first: int = 0):
        self._task, self._arrays, self._first = task, arrays, first
        self._envs = [task.source.make() for _ in arrays.reward]
        self._write = spaces.sight(self._envs[0].observation_space, task.images, task.source.name).write
        self._act = spaces.actor(self._envs[0].action_space)
        self._paths = [(k, name, name.split(".")) for k, name in task.from_info]
        self._steps, self._faults, self._broken = 0, 0, [0] * len(self._envs)

    @property
    def faults(self) -> int:
        return self._faults

    def reset(self, seeds: Sequence[int]) -> None:
        """Every copy at the beginning of an episode, from a seed of its own."""
        self._steps, self._faults, self._broken = 0, 0, [0] * len(self._envs)
        for i, seed in enumerate(seeds):
            self._restart(i, int(seed))

    def step(self) -> None:
        """One step of every copy, the next episode begun where one ended."""
        task, a, write, six = self._task, self._arrays, self._write, False
        next_obs, reward, costs, elapsed = a.next_obs, a.reward, a.costs, a.elapsed
        terminated, truncated = a.terminated, a.truncated
        action = a.action.copy()  # an environment may keep what it was given
        infos: list[Mapping[str, Any]] = []
        i, cost = 0, 0.0
        try:
            for i, (env, chosen) in enumerate(zip(self._envs, self._act(action), strict=True)):
                a.at[0] = i
                outcome = env.step(chosen)
                if len(outcome) == 5:
                    seen, gain, over, cut, info = outcome
                else:
                    seen, gain, cost, over, cut, info = outcome
                    six = True
                if (over or cut) and "final_info" in info:
                    seen, info = final_of(seen, info)
                write(next_obs[i], seen)
                reward[i] = gain if type(gain) is float else number(gain)
                terminated[i], truncated[i] = over, cut
                if six:
                    info = {**info, "cost": cost}
                for k, name, path in self._paths:
                    costs[i, k] = number(look_up(info, name, path))
                infos.append(info)
        except Exception as error:
            raise self._fault(i, "raised", error) from error
        self._steps += 1
        elapsed += 1
        if task.reward_scale != 1.0:
            reward *= task.reward_scale
        for k, component in task.from_obs:
            costs[:, k] = next_obs[:, component]
        for k, function in task.from_call:
            costs[:, k] = self._worked_out(k, function(a.obs, action, next_obs, infos))
        np.logical_or(truncated, elapsed >= task.max_steps, out=truncated)
        self._set_broken_apart()
        a.obs[...] = next_obs
        for ended in np.flatnonzero(terminated | truncated):
            self._restart(int(ended), None)

    def _set_broken_apart(self) -> None:
        """A copy whose numbers are no numbers: its episode is cut here, and shows what it showed before."""
        a, pixels = self._arrays, self._arrays.next_obs.dtype == np.uint8
        a.faulty[...] = False
        # One sum is quickly looked at; it is no number if any of its parts is none.
        with np.errstate(all="ignore"):
            total = a.reward.sum() + a.costs.sum() + (0.0 if pixels else a.next_obs.sum(dtype=np.float64))
        if np.isfinite(total):
            return
        sound = np.isfinite(a.reward) & np.isfinite(a.costs).all(axis=1)
        if not pixels:
            sound &= np.isfinite(a.next_obs).all(axis=1)
        a.faulty[...] = ~sound
        for i in np.flatnonzero(a.faulty):
            self._broken[i] += 1
            if self._broken[i] >= HOPELESS:
                raise self._fault(int(i), f"gives numbers that are not finite, in each of its last {HOPELESS} episodes "
                                  f"(reward {a.reward[i]}, observation {a.next_obs[i]})")  # fmt: skip
            a.next_obs[i] = a.obs[i]
        self._faults += int(a.faulty.sum())
        a.reward[a.faulty], a.costs[a.faulty] = 0.0, 0.0
        a.terminated[a.faulty], a.truncated[a.faulty] = False, True

    def _restart(self, i: int, seed: int | None) -> None:
        a = self._arrays
        a.at[0] = i
        if not a.faulty[i]:
            self._broken[i] = 0
        try:
            seen, _ = self._envs[i].reset(seed=seed)
            self._write(a.obs[i], seen)
        except Exception as error:
            raise self._fault(i, "raised in reset", error) from error
        if a.obs.dtype != np.uint8 and not np.isfinite(a.obs[i]).all():
            raise self._fault(i, f"begins an episode with numbers that are not finite: {a.obs[i]}")
        a.elapsed[i] = 0

    def _worked_out(self, k: int, cost: Any) -> Any:
        if np.shape(cost) not in ((), (len(self._envs),)):
            raise UsageError(f"the cost function of column {k + 1} of {self._task.source.name} gives shape "
                             f"{np.shape(cost)}, expected ({len(self._envs)},): one number for each copy")  # fmt: skip
        return cost

    def _fault(self, i: int, what: str, error: Exception | None = None) -> EnvironmentFault:
        steps = int(self._arrays.elapsed[i])
        reason = f" {type(error).__name__}: {sources.one_line(error)}" if error else ""
        return EnvironmentFault(f"the environment {self._task.source.name} {what}{reason} (copy {self._first + i}, "
                                f"after {steps} steps of its episode, {self._steps} since training or evaluation "
                                "began)")  # fmt: skip

    def close(self) -> None:
        """Let go of the copies; one that cannot be closed is left to Python."""
        for env in self._envs:
            try:
                env.close()
            except Exception:
                continue


def look_up(info: Mapping[str, Any], name: str, path: Sequence[str]) -> Any:
    """A key of `info`, as it stands or nested along the dots of its name; 0 where it is missing."""
    if name in info:
        return info[name]
    here: Any = info
    for key in path:
        if not isinstance(here, Mapping) or key not in here:
            return 0.0
        here = here[key]
    return here


def final_of(seen: Any, info: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """What an environment that resets itself showed before it did, and what it said."""
    inner = info["final_info"]
    return info.get("final_obs", info.get("final_observation", seen)), inner if isinstance(inner, Mapping) else info


def number(value: Any) -> float:
    """A number, also where it comes as an array of one."""
    if isinstance(value, int | float | np.number | np.bool_):
        return float(value)
    array = np.asarray(value)
    if array.size != 1 or not (np.issubdtype(array.dtype, np.number) or array.dtype == np.bool_):
        raise TypeError(f"got {value!r}, expected a number")
    return float(array.reshape(-1)[0])
