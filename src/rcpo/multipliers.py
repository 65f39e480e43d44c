"""The slow timescale: how the multipliers of a run follow the measured violation."""

from typing import Final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rcpo import ascent
from rcpo.ascent import Rules, each, rules
from rcpo.types import Episodes, MultiplierState

__all__ = ["Rules", "aim", "ascend", "remember_first", "remember_lengths", "rules", "start"]

MEMORY: Final = 32
"""After so many more episodes, what earlier ones said of an episode's length weighs 1 / e."""


def start(rules: Rules, max_steps: int = 1) -> MultiplierState:
    """Multipliers before anything was measured; until an episode ends, all are taken to be as long as can be."""
    value, nothing = jnp.asarray(each(rules, lambda rule: rule.initial), jnp.float32), jnp.zeros(len(rules))
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
    """What the multipliers steer towards now. `measured` says whose first value has just been remembered."""
    known = (state.updates > 0) | measured
    return ascent.aim(rules, limit, sign, state.first, known, iteration, iterations)


def ascend(
    rules: Rules,
    state: MultiplierState,
    violation: Float[Array, " K"],
    limit: Float[Array, " K"],
    measured: Bool[Array, " K"],
    iterations: int,
) -> MultiplierState:
    """The multipliers after one iteration; where no episode finished nothing was `measured`, and they stay."""
    integral, value = ascent.climb(rules, state.integral, state.updates, violation, limit, iterations)
    moved, kept = (value, integral, state.updates + 1), (state.value, state.integral, state.updates)
    return eqx.tree_at(
        lambda state: (state.value, state.integral, state.updates),
        state,
        tuple(jnp.where(measured, new, old) for new, old in zip(moved, kept, strict=True)),
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
