"""The slow timescale: how the multipliers follow the measured violation."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rcpo.config import MultiplierConfig
from rcpo.types import MultiplierState


def start(config: MultiplierConfig, constraints: int) -> MultiplierState:
    value = jnp.full(constraints, config.initial, jnp.float32)
    return MultiplierState(value=value, integral=value, updates=jnp.zeros(constraints, jnp.int32))


def ascend(
    config: MultiplierConfig,
    state: MultiplierState,
    violation: Float[Array, " K"],
    limit: Float[Array, " K"],
    measured: Bool[Array, " K"],
    iterations: int,
) -> MultiplierState:
    """lambda <- Gamma[lambda + eta_1(k) (J_C - alpha)], Gamma projecting onto [0, lambda_max] (paper, Eq. 5 and 8).

    With a proportional gain p the multiplier is Gamma[I + p (J_C - alpha)], where I is the rule above: the same place
    of rest, but damped on the way there. I itself is projected, so it does not wind up. Where no episode finished
    nothing was `measured`, and that multiplier stays as it is.
    """
    step_size, proportional = config.gains
    if config.relative:
        scale = jnp.where(limit == 0.0, 1.0, jnp.abs(limit))
        violation = jnp.clip(violation / scale, -1.0, 1.0)
    moved = state.integral + step_size.at(state.updates, iterations) * violation
    integral = jnp.where(measured, jnp.clip(moved, 0.0, config.maximum), state.integral)
    value = jnp.clip(integral + proportional * violation, 0.0, config.maximum)
    return MultiplierState(
        value=jnp.where(measured, value, state.value), integral=integral, updates=state.updates + measured
    )
