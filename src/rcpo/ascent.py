"""The slow timescale's formulas, in arithmetic that the arrays of numpy and of JAX share: one rule for every learner."""

from typing import Any

from rcpo.config import MultiplierConfig


def aim(
    config: MultiplierConfig, limit: Any, sign: Any, first: Any, known: Any, iteration: Any, iterations: int
) -> Any:
    """What the multipliers [K] steer towards now: the limit, a margin inside it, reached along a ramp if there is one.

    A ramp comes down from what the untrained policy spends, where that is beyond the limit: the agent learns to move
    first and to save then. `first` is that value, where it is `known`.
    """
    place = limit - sign * config.margin * abs(limit)
    if config.ramp == 0.0:
        return place
    beyond = known * (sign * (config.ramp_start * first - place)).clip(0.0)
    return place + sign * beyond * (1.0 - iteration / (config.ramp * iterations)).clip(0.0, 1.0)


def climb(
    config: MultiplierConfig, integral: Any, updates: Any, violation: Any, limit: Any, iterations: int
) -> tuple[Any, Any]:
    """lambda <- Gamma[lambda + eta_1(k) (J_C - alpha)], Gamma projecting onto [0, lambda_max] (paper, Eq. 5 and 8).

    Returns the integral I, which is this rule, and the multiplier [K]. With a proportional gain p the multiplier is
    Gamma[I + p (J_C - alpha)]: the same place of rest, but damped on the way there. I itself is projected, so it does
    not wind up. `updates` is the k of the step size.
    """
    step_size, proportional = config.gains
    if config.relative:
        violation = (violation / (abs(limit) + (limit == 0.0))).clip(-1.0, 1.0)
    integral = (integral + step_size.at(updates, iterations) * violation).clip(0.0, config.maximum)
    return integral, (integral + proportional * violation).clip(0.0, config.maximum)
