"""The slow timescale: how the multipliers follow the measured violation."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rcpo.config import MultiplierConfig
from rcpo.types import MultiplierState


def start(config: MultiplierConfig, constraints: int) -> MultiplierState:
    value = jnp.full(constraints, config.initial, jnp.float32)
    nothing = jnp.zeros(constraints)
    return MultiplierState(value=value, integral=value, updates=nothing.astype(jnp.int32), first=nothing)


def aim(
    config: MultiplierConfig,
    state: MultiplierState,
    limit: Float[Array, " K"],
    sign: Float[Array, " K"],
    iteration: Int[Array, ""],
    iterations: int,
    measured: Bool[Array, " K"] | bool = False,
) -> Float[Array, " K"]:
    """What the multipliers steer towards now: the limit, a margin inside it, reached along a ramp if there is one.

    A ramp comes down from what the untrained policy spends, where that is beyond the limit: the agent learns to move
    first and to save then. It falls by the same factor in every iteration (by the same amount where the numbers are not
    all above 0): halving what is spent takes an agent as long at 20 % as at 10 %. `measured` says whose first value has
    just been remembered.
    """
    place = limit - sign * config.margin * jnp.abs(limit)
    if config.ramp == 0.0:
        return place
    far = jnp.where((state.updates > 0) | measured, config.ramp_start * state.first, place)
    beyond = jnp.maximum(sign * (far - place), 0.0)
    left = jnp.clip(1.0 - iteration / (config.ramp * iterations), 0.0, 1.0)
    far, tiny = place + sign * beyond, jnp.finfo(place.dtype).tiny
    factor = jnp.maximum(far, tiny) / jnp.maximum(place, tiny)
    return jnp.where(jnp.minimum(far, place) > 0.0, place * factor**left, place + sign * beyond * left)


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
        value=jnp.where(measured, value, state.value),
        integral=integral,
        updates=state.updates + measured,
        first=state.first,
    )


def remember_first(
    state: MultiplierState, value: Float[Array, " K"], measured: Bool[Array, " K"]
) -> Float[Array, " K"]:
    """The first value measured of each constraint."""
    return jnp.where(measured & (state.updates == 0), value, state.first)
