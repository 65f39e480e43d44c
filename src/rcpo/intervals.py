"""Confidence intervals, and what they say about a limit."""

import math
from typing import Literal, NamedTuple

from scipy import special

Verdict = Literal["satisfied", "violated", "undecided"]


class Interval(NamedTuple):
    """A measured value and the interval around it."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


NOTHING = Interval(math.nan, -math.inf, math.inf)
"""What is known after no episode at all."""


def clopper_pearson(events: int, trials: int, confidence: float = 0.95) -> Interval:
    """The exact binomial interval (Clopper and Pearson 1934): it covers at least as often as it says."""
    if trials == 0:
        return NOTHING
    tail = (1.0 - confidence) / 2.0
    low = special.betaincinv(events, trials - events + 1, tail) if events > 0 else 0.0
    high = special.betaincinv(events + 1, trials - events, 1.0 - tail) if events < trials else 1.0
    return Interval(events / trials, float(low), float(high))


def student_t(mean: float, deviation: float, trials: int, confidence: float = 0.95) -> Interval:
    """Student's t interval for a mean; `deviation` is the sample's, with n - 1 in the denominator."""
    if trials < 2:
        return Interval(mean if trials else math.nan, -math.inf, math.inf)
    width = float(special.stdtrit(trials - 1, 0.5 + confidence / 2.0)) * deviation / math.sqrt(trials)
    return Interval(mean, mean - width, mean + width)


def judge(interval: Interval, limit: float, at_least: bool) -> Verdict:
    """`satisfied` when the whole interval keeps the limit, `violated` when none of it does."""
    low, high = (-interval.high, -interval.low) if at_least else (interval.low, interval.high)
    bound = -limit if at_least else limit
    if high <= bound:
        return "satisfied"
    return "violated" if low > bound else "undecided"
