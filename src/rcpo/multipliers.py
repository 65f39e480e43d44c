"""The slow timescale: how the multipliers follow the measured violation."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rcpo.config import MultiplierConfig
from rcpo.constraints import Constraint
from rcpo.errors import UsageError
from rcpo.types import Episodes, MultiplierState

Rules = tuple[MultiplierConfig, ...]
"""How each multiplier moves."""
MEMORY: Final = 32
"""After so many more episodes, what earlier ones said of an episode's length weighs 1 / e."""


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


def each(rules: Rules, of: Callable[[MultiplierConfig], Any]) -> Float[Array, " K"]:
    """One number of every rule."""
    return jnp.array([of(rule) for rule in rules], jnp.float32)


def start(rules: Rules, max_steps: int = 1) -> MultiplierState:
    """Multipliers before anything was measured; until an episode ends, all are taken to be as long as can be."""
    value, nothing = each(rules, lambda rule: rule.initial), jnp.zeros(len(rules))
    return MultiplierState(
        value=value,
        integral=value,
        updates=nothing.astype(jnp.int32),
        first=nothing,
        lately=jnp.array([1.0, max_steps], jnp.float32),
    )


def aim(
    rules: Rules,
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
    place = limit - sign * each(rules, lambda rule: rule.margin) * jnp.abs(limit)
    ramp, ramp_start = each(rules, lambda rule: rule.ramp), each(rules, lambda rule: rule.ramp_start)
    far = jnp.where((state.updates > 0) | measured, ramp_start * state.first, place)
    beyond = jnp.maximum(sign * (far - place), 0.0)
    left = jnp.clip(1.0 - iteration / (jnp.where(ramp == 0.0, 1.0, ramp) * iterations), 0.0, 1.0)
    left = jnp.where(ramp == 0.0, 0.0, left)
    far, tiny = place + sign * beyond, jnp.finfo(place.dtype).tiny
    factor = jnp.maximum(far, tiny) / jnp.maximum(place, tiny)
    return jnp.where(jnp.minimum(far, place) > 0.0, place * factor**left, place + sign * beyond * left)


def ascend(
    rules: Rules,
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
    steps = [rule.gains[0].at(updates, iterations) for rule, updates in zip(rules, state.updates, strict=True)]
    step_size, proportional = jnp.array(steps, jnp.float32), each(rules, lambda rule: rule.gains[1])
    maximum = each(rules, lambda rule: rule.maximum)
    in_limits = jnp.clip(violation / jnp.where(limit == 0.0, 1.0, jnp.abs(limit)), -1.0, 1.0)
    violation = jnp.where(jnp.array([rule.relative for rule in rules], bool), in_limits, violation)
    moved = state.integral + step_size * violation
    integral = jnp.where(measured, jnp.clip(moved, 0.0, maximum), state.integral)
    value = jnp.clip(integral + proportional * violation, 0.0, maximum)
    return eqx.tree_at(
        lambda state: (state.value, state.integral, state.updates),
        state,
        (jnp.where(measured, value, state.value), integral, state.updates + measured),
    )


def remember_first(
    state: MultiplierState, value: Float[Array, " K"], measured: Bool[Array, " K"]
) -> Float[Array, " K"]:
    """The first value measured of each constraint."""
    return jnp.where(measured & (state.updates == 0), value, state.first)


def remember_lengths(state: MultiplierState, episode: Episodes) -> Float[Array, " 2"]:
    """How many episodes ended lately, and their steps in all."""
    ended = episode.counted.sum()
    steps = jnp.sum(episode.length * episode.counted)
    return state.lately * jnp.exp(-ended / MEMORY) + jnp.stack([ended, steps])
