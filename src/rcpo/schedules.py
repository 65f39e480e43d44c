"""Numbers that change as training goes on, and the paper's conditions on them (Assumption 3)."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, final

from rcpo.errors import UsageError


@final
@dataclass(frozen=True)
class Schedule:
    """A number for each iteration k."""

    initial: float
    """Its value at the first iteration."""
    kind: Literal["constant", "linear", "power", "geometric"] = "constant"
    """How it changes: not; in a line to `final` over the first `over` of the run; initial / (1 + k / offset)^exponent;
    initial * factor^k."""
    final: float = 0.0
    """linear: where it ends."""
    over: float = 1.0
    """linear: the share of the run after which it has ended."""
    exponent: float = 1.0
    """power: the exponent."""
    offset: float = 1.0
    """power: the iterations after which the decay begins to show."""
    factor: float = 1.0
    """geometric: the factor per iteration (the paper's kappa)."""

    def __post_init__(self) -> None:
        if self.kind == "linear" and not 0.0 < self.over <= 1.0:
            raise UsageError(f"got a linear schedule over {self.over} of the run; `over` lies in (0, 1]")
        if self.kind == "power" and self.offset <= 0.0:
            raise UsageError(f"got offset {self.offset} in a power schedule; give a number above 0")
        if self.kind == "geometric" and not 0.0 < self.factor <= 1.0:
            raise UsageError(f"got factor {self.factor} in a geometric schedule; it lies in (0, 1]")

    def at(self, iteration: Any, iterations: int) -> Any:
        """The value at `iteration` of `iterations`: plain arithmetic, so it takes numbers and arrays alike."""
        if self.kind == "linear":
            left = 1.0 - iteration / (self.over * max(iterations, 1))
            return self.final + (self.initial - self.final) * left * (left > 0.0)
        if self.kind == "power":
            return self.initial / (1.0 + iteration / self.offset) ** self.exponent
        if self.kind == "geometric":
            return self.initial * self.factor**iteration
        return self.initial + 0.0 * iteration

    @property
    def order(self) -> float:
        """p where the value falls like k^-p: 0 for a constant, infinite where it ends or falls geometrically."""
        if self.kind == "power":
            return self.exponent
        if self.kind == "linear" or (self.kind == "geometric" and self.factor < 1.0):
            return float("inf") if self.kind == "geometric" or self.final == 0.0 else 0.0
        return 0.0


def broken_conditions(multiplier: Schedule | None, actor: Schedule, critic: Schedule | None) -> list[str]:
    """Which of the paper's step-size conditions do not hold, a sentence each (Algorithm 1 and Assumption 3).

    eta_1 (multiplier) < eta_2 (actor) < eta_3 (critic); the sum of each diverges; the sum of the squares converges;
    eta_1 / eta_2 -> 0 and eta_2 / eta_3 -> 0. A part that is not there sets no
    condition: a fixed multiplier, a missing critic.
    """
    named = [("multiplier", multiplier), ("actor", actor), ("critic", critic)]
    parts = [(name, schedule) for name, schedule in named if schedule is not None]
    broken = []
    for name, schedule in parts:
        if schedule.order > 1.0:
            broken.append(f"the {name}'s step sizes have a finite sum: it may stop before it has arrived")
        if schedule.order <= 0.5:
            broken.append(f"the {name}'s step sizes have an infinite sum of squares: its noise never dies out")
    for (slow_name, slow), (fast_name, fast) in pairwise(parts):
        if slow.initial >= fast.initial:
            broken.append(
                f"the {slow_name}'s first step size {slow.initial:g} is not below the {fast_name}'s {fast.initial:g}"
            )
        if slow.order <= fast.order:
            broken.append(f"the {slow_name}'s step size does not vanish against the {fast_name}'s")
    return broken
