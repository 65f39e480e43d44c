"""Environments of a few lines on the host, whose answers are known in closed form."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from rcpo.envs.base import Box, Column, EnvSpec, HostCopies, HostEnvironment
from rcpo.types import EnvStep


class Outcome(NamedTuple):
    """What one step of N copies led to, before anything is reset."""

    state: np.ndarray
    reward: np.ndarray
    costs: np.ndarray
    terminated: np.ndarray
    faulty: Any = False


@dataclass(frozen=True)
class Probe(HostEnvironment):
    """N copies as formulas over rows of state; cutting and beginning episodes is written once, below."""

    columns: ClassVar[tuple[str, ...]] = ("cost",)
    actions: ClassVar[int | Box] = Box((-1.0,), (1.0,))
    width: ClassVar[int] = 1
    """How many numbers a state has."""
    seen: ClassVar[int] = 1
    """How many of them are observed."""
    max_steps: int = 1
    side_by_side: bool = False

    @property
    def spec(self) -> EnvSpec:
        columns = tuple(Column(name, "", "") for name in self.columns)
        return EnvSpec(type(self).__name__, columns, self.actions, (self.seen,), self.max_steps)

    def open(self, copies: int, parts: int = 1) -> "ProbeCopies":
        return ProbeCopies(self, copies)

    def begin(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Fresh states."""
        return np.zeros((count, self.width))

    @abstractmethod
    def outcome(self, generator: np.random.Generator, state: np.ndarray, action: np.ndarray) -> Outcome:
        """One step."""


@final
class ProbeCopies(HostCopies):
    """Live copies of a probe, which remember how long each of their episodes was."""

    resumable = False

    def __init__(self, probe: Probe, copies: int):
        self.probe = probe
        self.lengths: list[list[int]] = [[] for _ in range(copies)]

    @property
    def count(self) -> int:
        return len(self.lengths)

    def reset(self, seed: int | tuple[int, ...], spread: bool = False) -> np.ndarray:
        self.generator = np.random.default_rng(seed)
        self.state = self.probe.begin(self.generator, self.count)
        self.elapsed = np.zeros(self.count, int)
        if spread:
            self.elapsed = self.generator.integers(self.probe.max_steps, size=self.count)
        return self.state[:, : self.probe.seen]

    def step(self, action: np.ndarray) -> EnvStep:
        probe = self.probe
        state, reward, costs, terminated, faulty = probe.outcome(self.generator, self.state, action)
        faulty = np.broadcast_to(faulty, terminated.shape)
        self.faults += int(faulty.sum())
        self.elapsed = self.elapsed + 1
        truncated = faulty | (~terminated & (self.elapsed >= probe.max_steps))
        terminated = terminated & ~faulty
        ended = terminated | truncated
        for n in np.flatnonzero(ended):
            self.lengths[n].append(int(self.elapsed[n]))
        self.elapsed[ended] = 0
        self.state = np.where(ended[:, None], probe.begin(self.generator, self.count), state)
        return EnvStep(
            obs=self.state[:, : probe.seen],
            next_obs=state[:, : probe.seen],
            reward=np.asarray(reward, float),
            costs=np.asarray(costs, float).reshape(self.count, len(probe.columns)),
            terminated=terminated,
            truncated=truncated,
            faulty=faulty,
        )

    def save(self) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def restore(self, saved: Mapping[str, np.ndarray]) -> np.ndarray:
        raise NotImplementedError


def always(reward: np.ndarray) -> np.ndarray:
    return np.ones(reward.shape, bool)


def never(reward: np.ndarray) -> np.ndarray:
    return np.zeros(reward.shape, bool)


@final
@dataclass(frozen=True)
class Target(Probe):
    """One step: reward -(a - target)^2 with the target 1 + 0.8 x. In units of half the range that is 0.4 x."""

    actions = Box((-1.0,), (3.0,))

    def begin(self, generator: np.random.Generator, count: int) -> np.ndarray:
        return generator.uniform(-1.0, 1.0, (count, 1))

    def outcome(self, generator: np.random.Generator, state: np.ndarray, action: np.ndarray) -> Outcome:
        reward = -((action[:, 0] - 1.0 - 0.8 * state[:, 0]) ** 2)
        return Outcome(state, reward, 0.0 * reward, always(reward))


@final
@dataclass(frozen=True)
class Choice(Probe):
    """One step: three choices, of which the one that is shown pays 1."""

    actions = 3
    width = seen = 3

    def begin(self, generator: np.random.Generator, count: int) -> np.ndarray:
        return np.eye(3)[generator.integers(3, size=count)]

    def outcome(self, generator: np.random.Generator, state: np.ndarray, action: np.ndarray) -> Outcome:
        reward = 1.0 * (state.argmax(axis=1) == action)
        return Outcome(state, reward, 0.0 * reward, always(reward))


@final
@dataclass(frozen=True)
class TwoSteps(Probe):
    """The first choice leads to one of two places and pays nothing; there any choice pays: 1 in one, -1 in the other.

    Seen are three flags: the start, the good place, the bad place.
    """

    actions = 2
    width = seen = 3
    max_steps: int = 9

    def begin(self, generator: np.random.Generator, count: int) -> np.ndarray:
        return np.tile(np.eye(3)[0], (count, 1))

    def outcome(self, generator: np.random.Generator, state: np.ndarray, action: np.ndarray) -> Outcome:
        reward = state[:, 1] - state[:, 2]
        following = np.where(state[:, :1] > 0, np.eye(3)[1 + action], state)
        return Outcome(following, reward, 0.0 * reward, state[:, 0] == 0)


@final
@dataclass(frozen=True)
class Clock(Probe):
    """Reward 1 at every step; after five the episode is cut, or ends, which nothing that is seen announces."""

    max_steps: int = 5
    ends: bool = False
    width = 2
    """What is seen, always 0, and the time."""

    def outcome(self, generator: np.random.Generator, state: np.ndarray, action: np.ndarray) -> Outcome:
        following = state + np.array([0.0, 1.0])
        reward = np.ones(len(state))
        return Outcome(following, reward, 0.0 * reward, self.ends & (following[:, 1] >= 5))


@final
@dataclass(frozen=True)
class Effort(Probe):
    """One step: reward -(a - 1)^2, in some unit, and cost a^2.

    With a Gaussian policy of mean m and standard deviation s the reward is -(m - 1)^2 - s^2 and the cost m^2 + s^2:
    under the multiplier lambda the best mean is 1 / (1 + lambda), and on the limit m^2 + s^2 = limit.
    """

    actions = Box((-4.0,), (4.0,))
    unit: float = 1.0

    def outcome(self, generator: np.random.Generator, state: np.ndarray, action: np.ndarray) -> Outcome:
        action = action[:, 0]
        return Outcome(state, -self.unit * (action - 1.0) ** 2, action**2, always(action))


@final
@dataclass(frozen=True)
class Alive(Probe):
    """Every step either idles (reward 1, cost 1), makes an effort (reward 0.3, cost 0.5) or ends the episode (0, 0)."""

    actions = 3
    max_steps: int = 20

    def outcome(self, generator: np.random.Generator, state: np.ndarray, action: np.ndarray) -> Outcome:
        reward, cost = np.array([1.0, 0.3, 0.0])[action], np.array([1.0, 0.5, 0.0])[action]
        return Outcome(state, reward, cost, action == 2)


@final
@dataclass(frozen=True)
class Coin(Probe):
    """A coin at the start decides whether the episode has 2 steps or 60; action and coin are what the columns pay."""

    columns = ("long", "chosen")
    actions = 2
    max_steps: int = 1000
    width = 2
    """Whether it is a long one, and the time."""

    def begin(self, generator: np.random.Generator, count: int) -> np.ndarray:
        return np.stack([generator.integers(2, size=count), np.zeros(count)], axis=1).astype(float)

    def outcome(self, generator: np.random.Generator, state: np.ndarray, action: np.ndarray) -> Outcome:
        following = state + np.array([0.0, 1.0])
        costs = np.stack([state[:, 0], action], axis=1)
        return Outcome(following, np.ones(len(state)), costs, following[:, 1] >= np.where(state[:, 0] > 0, 60, 2))


@final
@dataclass(frozen=True)
class Noise(Probe):
    """All at random: rewards, costs of either sign, ends of both kinds, and every now and then a copy breaks down."""

    columns = ("push", "touch")
    actions = Box((-1.0, 0.0), (3.0, 0.5))
    width = seen = 2
    max_steps: int = 6

    def begin(self, generator: np.random.Generator, count: int) -> np.ndarray:
        return generator.normal(size=(count, 2))

    def outcome(self, generator: np.random.Generator, state: np.ndarray, action: np.ndarray) -> Outcome:
        count = len(state)
        costs = np.stack([action[:, 0], 1.0 * (generator.random(count) < 0.2)], axis=1)
        ends, breaks = generator.random((2, count)) < [[0.12], [0.06]]
        following = state + 0.1 * generator.normal(size=state.shape)
        return Outcome(following, generator.normal(size=count), costs, ends, breaks)
