"""The slow timescale's formulas, in arithmetic that the arrays of numpy and of JAX share: one rule for all learners."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rcpo.config import MultiplierConfig
from rcpo.constraints import Constraint
from rcpo.errors import UsageError

Rules = tuple[MultiplierConfig, ...]
"""How each multiplier moves."""


def rules(config: MultiplierConfig, constraints: Sequence[Constraint]) -> Rules:
    """The run's rule for each multiplier, with what its constraint says differently."""
    return tuple(_rule(config, constraint) for constraint in constraints)


def _rule(config: MultiplierConfig, constraint: Constraint) -> MultiplierConfig:
    own: dict[str, Any] = dict(constraint.settings)
    if "proportional" in own and config.rule == "integral":
        raise UsageError(f"'{constraint}' gives a proportional gain, which the rule 'integral' does not have; "
                         "use --multipliers.rule pi")  # fmt: skip
    if "step_size" in own:
        own["step_size"] = replace(config.step_size, initial=own["step_size"])
    try:
        return replace(config, **own)
    except UsageError as error:
        raise UsageError(f"{error} (in '{constraint}')") from None


def each(rules: Rules, of: Callable[[MultiplierConfig], float]) -> np.ndarray:
    """One number of every rule [K]."""
    return np.array([of(rule) for rule in rules], float)


def aim(rules: Rules, limit: Any, sign: Any, first: Any, known: Any, iteration: Any, iterations: int) -> Any:
    """What the multipliers [K] steer towards now: the limit, a margin inside it, reached along a ramp if there is one.

    A ramp comes down from what the untrained policy spends, where that is beyond the limit: the agent learns to move
    first and to save then. It falls by the same factor in every iteration (by the same amount where the numbers are not
    both above 0): halving what is spent takes an agent as long at 20 % as at 10 %. `first` is what was spent first,
    where it is `known`.
    """
    place = limit - sign * each(rules, lambda rule: rule.margin) * abs(limit)
    if all(rule.ramp == 0.0 for rule in rules):
        return place
    ramp, there = each(rules, lambda rule: rule.ramp or 1.0), each(rules, lambda rule: float(rule.ramp > 0.0))
    beyond = known * (sign * (each(rules, lambda rule: rule.ramp_start) * first - place)).clip(0.0)
    left = there * (1.0 - iteration / (ramp * iterations)).clip(0.0, 1.0)
    far = place + sign * beyond
    above = 1.0 * ((far > 0.0) & (place > 0.0))
    start, end = (above * number + (1.0 - above) for number in (far, place))
    return above * end * (start / end) ** left + (1.0 - above) * (place + sign * beyond * left)


def climb(rules: Rules, integral: Any, updates: Any, violation: Any, limit: Any, iterations: int) -> tuple[Any, Any]:
    """lambda <- Gamma[lambda + eta_1(k) (J_C - alpha)], Gamma projecting onto [0, lambda_max] (paper, Eq. 5 and 8).

    Returns the integral I, which is this rule, and the multiplier [K]. With a proportional gain p the multiplier is
    Gamma[I + p (J_C - alpha)]: the same place of rest, but damped on the way there. I itself is projected, so it does
    not wind up. `updates` is the k of the step size.
    """
    sizes = (rule.gains[0].at(updates, iterations) for rule in rules)
    step_size = sum(size * own for size, own in zip(sizes, np.eye(len(rules)), strict=True))
    proportional, maximum = each(rules, lambda rule: rule.gains[1]), each(rules, lambda rule: rule.maximum)
    relative, clip = each(rules, lambda rule: float(rule.relative)), each(rules, lambda rule: rule.clip)
    in_limits = (violation / (abs(limit) + (limit == 0.0))).clip(-clip, clip)
    violation = relative * in_limits + (1.0 - relative) * violation
    integral = (integral + step_size * violation).clip(0.0, maximum)
    return integral, (integral + proportional * violation).clip(0.0, maximum)
