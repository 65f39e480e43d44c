"""What an environment offers, written in JAX or running on the host. All of it works on N environments at once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from rcpo.exact import FiniteCMDP
from rcpo.types import EnvStep, Transition


@final
@dataclass(frozen=True)
class Column:
    """A cost column: what the environment pays per step under this name."""

    name: str
    unit: str
    meaning: str


@final
@dataclass(frozen=True)
class Box:
    """Continuous actions: a vector between two bounds. What lies outside is clipped by the environment."""

    low: tuple[float, ...]
    high: tuple[float, ...]


@final
@dataclass(frozen=True)
class Choices:
    """Several choices at once, and how many options each of them has."""

    options: tuple[int, ...]


Actions = int | Choices | Box
"""How many actions there are, how many options each of several choices has, or the box that actions lie in."""


@final
@dataclass(frozen=True)
class EnvSpec:
    """What one has to know of an environment without running it."""

    name: str
    columns: tuple[Column, ...]
    actions: Actions
    observation_shape: tuple[int, ...]
    max_steps: int
    """Episodes are cut (truncated, not terminated) after so many steps."""
    success: str | None = None
    """The column that is 1 on the step that reaches the goal, if there is a goal."""
    pixels: bool = False
    """What is seen is a picture of bytes [H, W, C]; networks divide it by 255."""

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def outputs(self) -> int:
        """How many numbers a policy gives: one per action, one per option of every choice, or one per motor."""
        if isinstance(self.actions, int):
            return self.actions
        return sum(self.actions.options) if isinstance(self.actions, Choices) else len(self.actions.low)

    @property
    def choices(self) -> int:
        """How many actions there are, where they can be counted."""
        assert isinstance(self.actions, int)
        return self.actions


class JaxEnvironment(eqx.Module):
    """N copies of an environment as pure functions. Resetting and cutting episodes is the collector's work."""

    @property
    @abstractmethod
    def spec(self) -> EnvSpec: ...

    @abstractmethod
    def reset(
        self, key: PRNGKeyArray, batch: int, exploring: Float[Array, ""] | float
    ) -> tuple[PyTree, Bool[Array, " N"]]:
        """Fresh states, each an exploring start with probability `exploring`; and which began at the true start."""

    @abstractmethod
    def step(self, key: PRNGKeyArray, state: PyTree, action: Int[Array, " N"]) -> Transition: ...

    @abstractmethod
    def observe(self, state: PyTree) -> Shaped[Array, "N ..."]:
        """What the agent sees; the state's number where the environment can list its `states`."""

    def states(self) -> Shaped[Array, "S ..."] | None:
        """What the agent sees in every state there is, where they can be listed.

        Then `observe` gives state numbers, and a network is evaluated once per state instead of once per step.
        """
        return None

    def cmdp(self) -> FiniteCMDP | None:
        """The same environment as tables for the exact solver, where it is finite; states numbered alike."""
        return None


NetworkFactory = Callable[[PRNGKeyArray, EnvSpec], tuple[Any, Any]]
"""`network(key, spec)`: the actor's and the critic's body, each an Equinox module that maps one observation to numbers:
`spec.outputs` of them, and one."""


class HostEnvironment(ABC):
    """An environment that runs on the host, in numpy: what is known of it, and how to open live copies of it."""

    @property
    @abstractmethod
    def spec(self) -> EnvSpec: ...

    side_by_side: bool = False
    """Whether copies are stepped outside Python's lock, so that two sets of them use more cores than one."""
    preset: str = "robot"
    """The preset to train with unless another is asked for."""
    network: NetworkFactory | None = None
    """What makes the networks, where they are to be others than the preset's."""

    @abstractmethod
    def open(self, copies: int, parts: int = 1) -> "HostCopies":
        """`copies` live copies, stepped together; `parts` such sets share the machine."""

    def as_seen(self, observation: Any) -> Any:
        """What the environment itself shows, once or several times, as policies see it; all else as it is."""
        return observation

    def as_taken(self, action: np.ndarray) -> np.ndarray:
        """A policy's actions [N ...] as the environment itself takes them."""
        return action


class HostCopies(ABC):
    """N live copies of an environment. Each ends its own episodes, and starts the next one within the same step."""

    faults: int = 0
    """How many episodes ended because a copy broke down (its numbers were no longer finite) and was reset."""
    resumable: bool = True
    """Whether `save` and `restore` are there. Where they are not, copies can only go on from a new `reset`."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many there are."""

    @abstractmethod
    def reset(self, seed: int | tuple[int, ...], spread: bool = False) -> Float[np.ndarray, "N ..."]:
        """Every copy at the start of a new episode, each with a random stream of its own; what they see.

        With `spread`, as if a random number of the first episode's steps had passed: copies then end one by one.
        """

    @abstractmethod
    def step(self, action: Shaped[np.ndarray, "N ..."]) -> EnvStep:
        """One step of every copy. The arrays may be written over by the next step: copy what is to be kept."""

    def simulate(self, action: Shaped[np.ndarray, "N ..."]) -> None:
        """A step of what is simulated and of nothing around it, for measuring how fast that is."""
        self.step(action)

    @abstractmethod
    def save(self) -> dict[str, np.ndarray]:
        """All that the copies go on from, random streams included."""

    @abstractmethod
    def restore(self, saved: Mapping[str, np.ndarray]) -> Float[np.ndarray, "N ..."]:
        """Go on exactly where `save` was called; what the copies see."""

    def close(self) -> None:
        """Let go of what the copies hold."""
        return None

    def __enter__(self) -> "HostCopies":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Environment = JaxEnvironment | HostEnvironment
