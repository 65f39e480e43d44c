"""What the user wants bounded: `"P(crash) <= 0.01"` <-> Constraint, and what an episode is worth under it.

    constraint := functional "(" column ["," number] ")" ("<=" | ">=") number

An episode's value is built up step by step by one of the small classes below. They use arithmetic that numpy and JAX
arrays share, so the same class serves training, evaluation and an environment on the host.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from rcpo.errors import UsageError, nearest


class Functional(ABC):
    """The value of an episode, from the costs of one column. The accumulator is an array [N], one entry an episode."""

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

    def from_steps(self, mean_cost: Any) -> Any | None:
        """The value of an episode whose steps cost so much on average; None where the average does not tell."""
        return None

    def allowance(self, limit: Any) -> Any:
        """What a step may cost, if all cost the same, in an episode that just keeps the limit; 0 where it depends."""
        return 0.0 * limit


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

    def from_steps(self, mean_cost: Any) -> Any:
        return mean_cost

    def allowance(self, limit: Any) -> Any:
        return limit


@final
@dataclass(frozen=True)
class Discounted(Functional):
    """sum_t gamma^t c_t"""

    discount: float = 0.99

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


FUNCTIONALS: Final[dict[str, type[Functional]]] = {
    "mean": Mean,
    "sum": Sum,
    "discounted": Discounted,
    "P": Probability,
}


@final
@dataclass(frozen=True)
class Constraint:
    """A bound on the expectation of an episode's value."""

    functional: Functional
    column: str
    limit: float
    at_least: bool = False

    def __post_init__(self) -> None:
        if not math.isfinite(self.limit):
            raise UsageError(f"got the limit {self.limit} for {self.quantity}; give a finite number")
        if self.is_probability and not 0.0 <= self.limit <= 1.0:
            raise UsageError(f"got the limit {self.limit:g} for {self.quantity}; a probability lies in [0, 1]")

    @property
    def is_probability(self) -> bool:
        return isinstance(self.functional, Probability)

    @property
    def functional_name(self) -> str:
        """The word that the functional is written with."""
        return next(name for name, kind in FUNCTIONALS.items() if kind is type(self.functional))

    @property
    def quantity(self) -> str:
        """What is bounded, as it is written: `P(crash)`."""
        discount = f", {self.functional.discount!r}" if isinstance(self.functional, Discounted) else ""
        return f"{self.functional_name}({self.column}{discount})"

    def __str__(self) -> str:
        return f"{self.quantity} {'>=' if self.at_least else '<='} {self.limit!r}"

    @property
    def sign(self) -> float:
        """+1 for an upper bound, -1 for a lower one: `sign * (J_C - limit)` is the violation."""
        return -1.0 if self.at_least else 1.0

    def excess(self, value: Any) -> Any:
        """How far a value lies beyond the limit; negative inside it."""
        return self.sign * (value - self.limit)


_TOKEN: Final = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
                           r"|(?P<sign><=|>=|[(),]))")  # fmt: skip


def parse(text: str) -> Constraint:
    """Read one constraint; a mistake is shown with the character where it lies."""
    reader = _Reader(text)
    functional = reader.take("name", f"one of {', '.join(FUNCTIONALS)}")
    if functional not in FUNCTIONALS:
        raise UsageError(f"unknown functional {functional!r} in {text!r}{nearest(functional, FUNCTIONALS)}")
    reader.take("sign", "'('", "(")
    column = reader.take("name", "the name of a cost column")
    arguments = []
    if reader.peek() == ",":
        reader.take("sign", "','", ",")
        arguments.append(float(reader.take("number", "a discount")))
    reader.take("sign", "')'", ")")
    comparison = reader.take("sign", "'<=' or '>='", "<=", ">=")
    limit = float(reader.take("number", "the limit, a number"))
    reader.end()
    if arguments and FUNCTIONALS[functional] is not Discounted:
        raise UsageError(f"{functional} takes no second argument in {text!r}; only discounted(column, 0.99) does")
    if arguments and not 0.0 < arguments[0] <= 1.0:
        raise UsageError(f"got the discount {arguments[0]:g} in {text!r}; a discount lies in (0, 1]")
    return Constraint(FUNCTIONALS[functional](*arguments), column, limit, at_least=comparison == ">=")


@final
class _Reader:
    """Takes one token after the other from a constraint's text."""

    def __init__(self, text: str):
        self.text, self.position = text, 0

    def _match(self) -> re.Match[str] | None:
        return _TOKEN.match(self.text, self.position)

    def peek(self) -> str | None:
        match = self._match()
        return match.group().strip() if match else None

    def take(self, kind: str, wanted: str, *symbols: str) -> str:
        match = self._match()
        if match is None or match.lastgroup != kind or (symbols and match.group(kind) not in symbols):
            raise self._error(wanted)
        self.position = match.end()
        return match.group(kind)

    def end(self) -> None:
        if self.text[self.position :].strip():
            raise self._error("the end")

    def _error(self, wanted: str) -> UsageError:
        rest = self.text[self.position :].lstrip()
        at = len(self.text) - len(rest) + 1
        got = repr(rest[:12]) if rest else "the end"
        return UsageError(
            f"cannot read the constraint {self.text!r} at character {at}: got {got}, expected {wanted}; "
            f'write it like "P(crash) <= 0.01"'
        )


def parse_all(texts: Sequence[str | Constraint], columns: Sequence[str]) -> tuple[Constraint, ...]:
    """Read the constraints of a run, and check that the environment has their cost columns."""
    constraints = tuple(text if isinstance(text, Constraint) else parse(text) for text in texts)
    for constraint in constraints:
        if constraint.column not in columns:
            raise UsageError(f"unknown cost column {constraint.column!r} in '{constraint}'"
                             f"{nearest(constraint.column, columns)}")  # fmt: skip
    if len(set(constraints)) != len(constraints):
        raise UsageError("the same constraint was given twice; give each once")
    return constraints
