"""What the user wants bounded: `"P(crash) <= 0.01"` <-> Constraint.

    constraint := functional "(" cost {"," number} ")" ("<=" | ">=") number ["with" setting {"," setting}]
    cost       := column [(">" | ">=" | "<" | "<=") number]
    column     := word {"." word}
    setting    := ("initial" | "maximum" | "step_size" | "proportional" | "margin" | "ramp") number

Functionals are in `functionals.py`; settings are those of the constraint's own multiplier, as in `MultiplierConfig`.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, cast, final, runtime_checkable

import numpy as np

from rcpo.errors import UsageError, nearest
from rcpo.functionals import (
    FUNCTIONALS,
    Discounted,
    Functional,
    Maximum,
    Mean,
    Probability,
    Sum,
    check,
    make,
    name_of,
)

__all__ = ["FUNCTIONALS", "Constraint", "Cost", "Discounted", "Event", "Functional", "Maximum", "Mean", "Probability",
           "Sum", "labels", "parse", "parse_all"]  # fmt: skip

Cost = Callable[[Any, Any, Any, Mapping[str, Any]], Any]
"""`cost(obs, action, next_obs, info)` of a batch of steps: a number for each. `info` holds the cost columns by name."""
Comparison = Literal[">", ">=", "<", "<="]
COMPARISONS: Final = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
SETTINGS: Final = ("initial", "maximum", "step_size", "proportional", "margin", "ramp")
"""What a constraint may set of its own multiplier."""


@final
@dataclass(frozen=True)
class Event:
    """Turns a column into an indicator: 1 on the steps where it compares so with the threshold, else 0."""

    comparison: Comparison
    threshold: float

    def __post_init__(self) -> None:
        if self.comparison not in COMPARISONS:
            raise UsageError(f"got the comparison {self.comparison!r}; give one of {', '.join(COMPARISONS)}")
        check_finite(self.threshold, "the threshold")

    def __call__(self, cost: Any) -> Any:
        return 1.0 * COMPARISONS[self.comparison](cost, self.threshold)

    def __str__(self) -> str:
        return f"{self.comparison} {number(self.threshold)}"


@final
@dataclass(frozen=True)
class Constraint:
    """A bound on the expectation of an episode's value."""

    functional: Functional
    column: Any
    """A column's name, an event as it is written (`"speed > 2.5"`), or a function `cost(obs, action, next_obs, info)`.
    From then on it is the name alone."""
    limit: float
    at_least: bool = False
    event: Event | None = None
    initial: float | None = None
    """Where its multiplier starts. These are as in `MultiplierConfig`, and None where that is to decide."""
    maximum: float | None = None
    step_size: float | None = None
    """Where the step sizes of its multiplier begin."""
    proportional: float | None = None
    margin: float | None = None
    ramp: float | None = None
    cost: Cost | None = None
    """The function whose values the column holds, where there is one."""

    def __post_init__(self) -> None:
        if not isinstance(self.functional, Functional):
            raise UsageError(f"got {self.functional!r} as a functional; give one such as rcpo.Mean() or rcpo.Sum()")
        self._read_column()
        check(self.functional)
        check_finite(self.limit, f"the limit of {self.quantity},")
        if self.is_probability and not 0.0 <= self.limit <= 1.0:
            raise UsageError(f"got the limit {self.limit:g} for {self.quantity}; a probability lies in [0, 1]")
        for name, value in self.settings.items():
            check_finite(value, f"{name} for {self.quantity},")
            if value < 0.0:
                raise UsageError(f"got {name} {value:g} for {self.quantity}; give a number that is not negative")

    def _read_column(self) -> None:
        """Turn what was given as a column into its name, and an event or a function beside it."""
        if isinstance(self.column, str):
            if self.cost is None:
                column, event = _Reader(self.column, "cost", '"torque" or "speed > 2.5"').whole_cost()
                if event is not None and self.event is not None:
                    raise UsageError(f"got the event {event} in {self.column!r} and {self.event} beside it; give one")
                _set(self, column=column, event=event or self.event)
        elif callable(self.column):
            _set(self, column=f"{function_name(self.column)}()", cost=self.column)
        else:
            raise UsageError(f"got {self.column!r} as a column; give its name, or a function "
                             "cost(obs, action, next_obs, info)")  # fmt: skip

    @property
    def is_probability(self) -> bool:
        return isinstance(self.functional, Probability)

    @property
    def settings(self) -> dict[str, float]:
        """What it sets of its own multiplier."""
        return {name: getattr(self, name) for name in SETTINGS if getattr(self, name) is not None}

    @property
    def functional_name(self) -> str:
        """The word that the functional is written with."""
        return name_of(self.functional)

    @property
    def quantity(self) -> str:
        """What is bounded, as it is written: `P(crash)`, `sum(speed > 2.5)`."""
        event = f" {self.event}" if self.event else ""
        arguments = "".join(f", {number(argument)}" for argument in self.functional.arguments)
        return f"{self.functional_name}({self.column}{event}{arguments})"

    @property
    def bound(self) -> str:
        """What has to hold, without what its multiplier is like: `P(crash) <= 0.01`."""
        return f"{self.quantity} {'>=' if self.at_least else '<='} {number(self.limit)}"

    def __str__(self) -> str:
        settings = ", ".join(f"{name} {number(value)}" for name, value in self.settings.items())
        return f"{self.bound} with {settings}" if settings else self.bound

    @property
    def sign(self) -> float:
        """+1 for an upper bound, -1 for a lower one: `sign * (J_C - limit)` is the violation."""
        return -1.0 if self.at_least else 1.0

    def excess(self, value: Any) -> Any:
        """How far a value lies beyond the limit; negative inside it."""
        return self.sign * (value - self.limit)

    def paid(self, cost: Any) -> Any:
        """What the functional is given for the column's cost: the cost, or 1 where the event happens and else 0."""
        return cost if self.event is None else self.event(cost)


def _set(constraint: Constraint, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(constraint, name, value)


def number(value: float) -> str:
    """A number as it is written, to the last digit: 25, not 25.0."""
    return repr(float(value)).removesuffix(".0")


def check_finite(value: Any, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not math.isfinite(value):
        raise UsageError(f"got {what} {value!r}; give a finite number")


def function_name(cost: Any) -> str:
    """What a cost function is called in names and records."""
    cost = getattr(cost, "func", cost)  # functools.partial
    name = re.sub(r"\W", "", getattr(cost, "__name__", type(cost).__name__))
    return name or "cost"


_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)"
    r"|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<sign><=|>=|[(),<>]))"
)


def parse(text: str) -> Constraint:
    """Read one constraint; a mistake is shown with the character where it lies."""
    reader = _Reader(text)
    name = reader.take("name", f"one of {', '.join(FUNCTIONALS)}")
    if name not in FUNCTIONALS:
        raise reader.mistake(f"unknown functional {name!r}{nearest(name, FUNCTIONALS)}", reader.last)
    reader.take("sign", "'('", "(")
    column, event = reader.cost()
    arguments: list[float] = []
    while reader.peek() == ",":
        reader.take("sign", "','", ",")
        arguments.append(reader.number("a number"))
    at_arguments = reader.last
    reader.take("sign", "')'" if event or arguments else "')', or a comparison such as > 2.5", ")")
    with reader.blaming(at_arguments):
        functional = make(name, tuple(arguments))
    comparison = reader.take("sign", "'<=' or '>='", "<=", ">=")
    limit = reader.number("the limit, a number")
    with reader.blaming(reader.last):
        Constraint(functional, column, limit)
    settings = reader.settings() if reader.peek() == "with" else {}
    reader.end("the end" if settings else "'with' or the end")
    return Constraint(functional, column, limit, comparison == ">=", event, **settings)  # type: ignore[arg-type]


@final
class _Reader:
    """Takes one token after the other from a text."""

    def __init__(self, text: str, what: str = "constraint", example: str = '"P(crash) <= 0.01"'):
        self.text, self.what, self.example = text, what, example
        self.position = self.last = 0

    def _match(self) -> re.Match[str] | None:
        return _TOKEN.match(self.text, self.position)

    def peek(self) -> str | None:
        match = self._match()
        return match.group().strip() if match else None

    def take(self, kind: str, wanted: str, *symbols: str) -> str:
        match = self._match()
        if match is None or match.lastgroup != kind or (symbols and match.group(kind) not in symbols):
            raise self._unexpected(wanted)
        self.position, self.last = match.end(), match.start(kind)
        return match.group(kind)

    def number(self, wanted: str) -> float:
        written = self.take("number", wanted)
        if not math.isfinite(float(written)):
            raise self.mistake(f"{written} is too large; give a finite number", self.last)
        return float(written)

    def cost(self) -> tuple[str, Event | None]:
        """A column, and what makes an event of it."""
        column = self.take("name", "the name of a cost column")
        if self.peek() == "(":
            raise self.mistake(f"{column}() is a function in Python, which a text cannot hold; give the constraint as "
                               "an object (to load a run: rcpo.load(folder, environment, constraints=[...]))",
                               self.last)  # fmt: skip
        if self.peek() not in COMPARISONS:
            return column, None
        comparison = cast(Comparison, self.take("sign", "a comparison", *COMPARISONS))
        return column, Event(comparison, self.number("the threshold, a number"))

    def whole_cost(self) -> tuple[str, Event | None]:
        found = self.cost()
        self.end("the end")
        return found

    def settings(self) -> dict[str, float]:
        """What a constraint says of its own multiplier."""
        self.take("name", "'with'", "with")
        found: dict[str, float] = {}
        while True:
            name = self.take("name", f"one of {', '.join(SETTINGS)}")
            if name not in SETTINGS:
                raise self.mistake(f"unknown setting {name!r}{nearest(name, SETTINGS)}", self.last)
            if name in found:
                raise self.mistake(f"{name} was given twice; give it once", self.last)
            found[name] = self.number(f"a number for {name}")
            if found[name] < 0.0:
                raise self.mistake(f"got {name} {found[name]:g}; give a number that is not negative", self.last)
            if self.peek() != ",":
                return found
            self.take("sign", "','", ",")

    def end(self, wanted: str) -> None:
        if self.text[self.position :].strip():
            raise self._unexpected(wanted)

    def _unexpected(self, wanted: str) -> UsageError:
        rest = self.text[self.position :].lstrip()
        got = repr(rest[:12]) if rest else "the end"
        sentence = f"got {got}, expected {wanted}; write it like {self.example}"
        return self.mistake(sentence, len(self.text) - len(rest))

    def mistake(self, sentence: str, position: int) -> UsageError:
        return UsageError(f"cannot read the {self.what} {self.text!r} at character {position + 1}: {sentence}")

    @contextmanager
    def blaming(self, position: int) -> Iterator[None]:
        """Whatever is refused in here lies at this place of the text."""
        try:
            yield
        except UsageError as error:
            raise self.mistake(str(error), position) from error.__cause__


def parse_all(texts: Any, columns: Sequence[str]) -> tuple[Constraint, ...]:
    """Read the constraints of a run, and check that the environment has their cost columns."""
    if isinstance(texts, str | Constraint):
        raise UsageError(f"got the one constraint '{texts}' where several may stand; give a list: ['{texts}']")
    if strange := [text for text in texts if not isinstance(text, str | Constraint)]:
        raise UsageError(f"got {strange[0]!r} as a constraint; give a text or an rcpo.Constraint")
    constraints = tuple(text if isinstance(text, Constraint) else parse(text) for text in texts)
    functions: dict[str, Cost] = {}
    for constraint in constraints:
        if constraint.cost is not None:
            if functions.setdefault(constraint.column, constraint.cost) != constraint.cost:
                raise UsageError(f"two cost functions are called {constraint.column}; give them different names")
        elif constraint.column not in columns:
            raise UsageError(f"unknown cost column {constraint.column!r} in '{constraint}'"
                             f"{nearest(constraint.column, columns)}")  # fmt: skip
    if len({constraint.bound for constraint in constraints}) != len(constraints):
        raise UsageError("the same constraint was given twice; give each once")
    return constraints


@runtime_checkable
class Named(Protocol):
    """What can be told apart in records: a Constraint, or what is read back of one."""

    @property
    def quantity(self) -> str: ...
    @property
    def bound(self) -> str: ...


def labels(constraints: Iterable[Named]) -> list[str]:
    """What each is called in records: what it bounds, or the whole bound where another one bounds the same."""
    constraints = list(constraints)
    quantities = [constraint.quantity for constraint in constraints]
    return [one.bound if quantities.count(one.quantity) > 1 else one.quantity for one in constraints]
