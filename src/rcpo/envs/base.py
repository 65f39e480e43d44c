"""What an environment written in JAX offers. All of it works on N environments at once."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from rcpo.exact import FiniteCMDP
from rcpo.types import Transition


@final
@dataclass(frozen=True)
class Column:
    """A cost column: what the environment pays per step under this name."""

    name: str
    unit: str
    meaning: str


@final
@dataclass(frozen=True)
class EnvSpec:
    """What one has to know of an environment without running it."""

    name: str
    columns: tuple[Column, ...]
    actions: int
    observation_shape: tuple[int, ...]
    max_steps: int
    """Episodes are cut (truncated, not terminated) after so many steps."""
    success: str | None = None
    """The column that is 1 on the step that reaches the goal, if there is a goal."""

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


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
