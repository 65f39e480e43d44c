"""What one episode is worth, built up step by step from the costs of one column.

A functional is a small class: where an episode starts, what one more step adds, what it is worth when it ends. It works
on N episodes at once, in arithmetic that numpy and JAX arrays share, so the same class serves training, evaluation and
an environment on the host.
"""

import dataclasses
import inspect
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from rcpo.errors import UsageError


def where(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` where the condition holds, else `no`: what a functional says instead of `if`, for numpy and JAX arrays."""
    space = condition.__array_namespace__() if hasattr(condition, "__array_namespace__") else np
    return space.where(condition, yes, no)


class Functional(ABC):
    """The value of an episode. An accumulator is an array [N], one entry an episode, or a tuple of such arrays."""

    @abstractmethod
    def start(self, like: Any) -> Any:
        """The accumulator of an episode without steps, shaped like `like`."""

    @abstractmethod
    def step(self, total: Any, cost: Any, elapsed: Any) -> Any:
        """The accumulator after one more step, the `elapsed`-th counted from 0."""

    @abstractmethod
    def value(self, total: Any, length: Any) -> Any:
        """The value of an episode that ended after `length` steps."""

    def penalty(self, before: Any, after: Any, cost: Any) -> Any:
        """What actor and critic feel at this step: the cost itself unless a functional says otherwise."""
        return cost

    def from_steps(self, mean_cost: Any, length: Any) -> Any | None:
        """The value expected if steps cost so much on average and episodes have so many; None if that cannot tell."""
        return None

    def allowance(self, limit: Any) -> Any:
        """What a step may cost, if all cost the same, in an episode that just keeps the limit; 0 where it depends."""
        return 0.0 * limit

    @property
    def arguments(self) -> tuple[float, ...]:
        """The numbers that it is written with behind the column: the fields of a dataclass, in their order."""
        return tuple(getattr(self, name) for name in argument_names(type(self)))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *sorted(vars(self).items())))


@final
@dataclass(frozen=True)
class Sum(Functional):
    """sum_t c_t"""

    def start(self, like: Any) -> Any:
        return 0.0 * like

    def step(self, total: Any, cost: Any, elapsed: Any) -> Any:
        return total + cost

    def value(self, total: Any, length: Any) -> Any:
        return total

    def from_steps(self, mean_cost: Any, length: Any) -> Any:
        return mean_cost * length


@final
@dataclass(frozen=True)
class Mean(Functional):
    """(1 / T) sum_t c_t"""

    def start(self, like: Any) -> Any:
        return 0.0 * like

    def step(self, total: Any, cost: Any, elapsed: Any) -> Any:
        return total + cost

    def value(self, total: Any, length: Any) -> Any:
        return total / (length + (length == 0))

    def from_steps(self, mean_cost: Any, length: Any) -> Any:
        return mean_cost

    def allowance(self, limit: Any) -> Any:
        return limit


@final
@dataclass(frozen=True)
class Discounted(Functional):
    """sum_t gamma^t c_t"""

    discount: float = 0.99

    def __post_init__(self) -> None:
        if not 0.0 < self.discount <= 1.0:
            raise UsageError(f"got the discount {self.discount:g}; a discount lies in (0, 1]")

    def start(self, like: Any) -> Any:
        return 0.0 * like

    def step(self, total: Any, cost: Any, elapsed: Any) -> Any:
        return total + self.discount**elapsed * cost

    def value(self, total: Any, length: Any) -> Any:
        return total


@final
@dataclass(frozen=True)
class Probability(Functional):
    """1 if c_t > 0 at any step, else 0: its expectation is the probability that it happens in an episode."""

    def start(self, like: Any) -> Any:
        return 0.0 * like

    def step(self, total: Any, cost: Any, elapsed: Any) -> Any:
        return total + (1.0 - total) * (cost > 0.0)

    def value(self, total: Any, length: Any) -> Any:
        return total

    def penalty(self, before: Any, after: Any, cost: Any) -> Any:
        return after - before  # paid at the first event only


@final
@dataclass(frozen=True)
class Maximum(Functional):
    """max_t c_t"""

    def start(self, like: Any) -> Any:
        return 0.0 * like

    def step(self, total: Any, cost: Any, elapsed: Any) -> Any:
        return where((cost > total) | (elapsed == 0), cost, total)

    def value(self, total: Any, length: Any) -> Any:
        return total

    def penalty(self, before: Any, after: Any, cost: Any) -> Any:
        return after - before  # the first cost, then every rise above it: together the maximum, whatever its sign


BUILT_IN: Final[dict[str, type[Functional]]] = {
    "mean": Mean,
    "sum": Sum,
    "discounted": Discounted,
    "P": Probability,
    "max": Maximum,
}
FUNCTIONALS: Final[dict[str, type[Functional]]] = dict(BUILT_IN)
"""By the word that each is written with; those of the user's own among them."""

WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def argument_names(kind: type[Functional]) -> list[str]:
    """What it is written with behind the column."""
    return [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


def name_of(functional: Functional) -> str:
    """The word that a functional is written with; the name of its class where it was given none."""
    kind = type(functional)
    return next((name for name, known in FUNCTIONALS.items() if known is kind), kind.__name__)


def register_functional(name: str, kind: Any) -> None:
    """Let a functional of one's own be written: after `register_functional("longest", Longest)`, `longest(cost) <= 5`.

    What it is written with behind the column are the fields of its dataclass: `longest(cost, 2) <= 5`.
    """
    if not isinstance(name, str) or not WORD.fullmatch(name):
        raise UsageError(f"cannot name a functional {name!r}; a name is letters, digits and underscores")
    if name in BUILT_IN:
        raise UsageError(f"the functional {name!r} is there already; choose another name")
    if not (isinstance(kind, type) and issubclass(kind, Functional)):
        raise UsageError(f"got {kind!r} for the functional {name!r}; give a class derived from rcpo.Functional")
    if inspect.isabstract(kind):
        lacking = ", ".join(sorted(kind.__abstractmethods__))
        raise UsageError(f"the functional {name!r} cannot be used: {kind.__name__} lacks {lacking}")
    if inspect.signature(kind).parameters and not dataclasses.is_dataclass(kind):
        raise UsageError(f"the functional {name!r} takes arguments that cannot be written: "
                         f"make them fields, with @dataclass(frozen=True) above {kind.__name__}")  # fmt: skip
    _check_frozen(name, kind)
    FUNCTIONALS[name] = kind


def make(name: str, arguments: tuple[float, ...]) -> Functional:
    """The functional of that name, with the numbers that are written behind the column."""
    kind = FUNCTIONALS[name]
    names = argument_names(kind)
    if len(arguments) > len(names):
        takes = f"no number but {' and '.join(names)}" if names else "no number"
        raise UsageError(f"{name} takes {takes} behind the column")
    needed = [parameter.default is inspect.Parameter.empty for parameter in inspect.signature(kind).parameters.values()]
    if len(arguments) < sum(needed):
        raise UsageError(f"{name} needs numbers behind the column: {', '.join(names[: sum(needed)])}")
    return kind(*arguments)


def check(functional: Functional) -> None:
    """Run a functional of the user's own on a short episode, so that a mistake in it is said before a run begins."""
    if type(functional) in BUILT_IN.values():
        return
    name, costs = name_of(functional), np.array([[0.5, -1.0], [2.0, 0.0], [0.25, 1.0]])
    _check_frozen(name, type(functional))
    try:
        totals = [functional.start(np.zeros(2))]
        for elapsed, cost in enumerate(costs):
            totals.append(functional.step(totals[-1], cost, np.full(2, elapsed)))
        value, penalty = functional.value(totals[-1], np.full(2, 3)), functional.penalty(totals[0], totals[1], costs[0])
    except Exception as error:
        raise UsageError(f"the functional {name} fails on arrays of episodes: {type(error).__name__}: {error}; "
                         "use arithmetic, and rcpo.where instead of if") from error  # fmt: skip
    for method, parts in (("start", totals[0]), ("step", totals[-1]), ("value", (value,)), ("penalty", (penalty,))):
        for part in parts if isinstance(parts, tuple) else (parts,):
            if np.shape(part) != (2,):
                raise UsageError(f"the functional {name} gives the shape {np.shape(part)} for 2 episodes in {method}; "
                                 "give one number for each, shape (2,)")  # fmt: skip


def _check_frozen(name: str, kind: type[Functional]) -> None:
    if kind.__hash__ is None:
        raise UsageError(f"the functional {name!r} could change during a run; "
                         f"write @dataclass(frozen=True) above {kind.__name__}")  # fmt: skip
