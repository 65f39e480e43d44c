"""Running statistics: observations and rewards on a scale that does not depend on the task."""

from typing import Final, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

CLIP: Final = 10.0
"""Normalised numbers are cut off at this many standard deviations (Dhariwal et al. 2017, as Kostrikov 2018 has it)."""
SMALLEST_VARIANCE: Final = 1e-8


@final
class RunningStatistics(eqx.Module):
    """Mean and variance of everything seen so far."""

    mean: Float[Array, "..."]
    variance: Float[Array, "..."]
    count: Float[Array, ""]


def no_statistics(shape: tuple[int, ...]) -> RunningStatistics:
    """Nothing seen yet: mean 0 and variance 1, which weigh nothing once anything was."""
    return RunningStatistics(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(()))


def merge(statistics: RunningStatistics, batch: Float[Array, "B ..."]) -> RunningStatistics:
    """The statistics with a batch added (Chan, Golub and LeVeque 1979)."""
    added = jnp.float32(len(batch))
    mean, variance = batch.mean(axis=0), batch.var(axis=0)
    count = statistics.count + added
    apart = mean - statistics.mean
    spread = statistics.variance * statistics.count + variance * added
    spread = spread + apart**2 * statistics.count * added / count
    return RunningStatistics(statistics.mean + apart * added / count, spread / count, count)


def standardise(statistics: RunningStatistics, x: Float[Array, "... D"]) -> Float[Array, "... D"]:
    """(x - mean) / standard deviation, cut off at +-10."""
    scaled = (x - statistics.mean) / jnp.sqrt(statistics.variance + SMALLEST_VARIANCE)
    return jnp.clip(scaled, -CLIP, CLIP)


@final
class ReturnStatistics(eqx.Module):
    """How large discounted returns are, and what each environment's running episode adds up to."""

    seen: RunningStatistics
    running: Float[Array, " N"]


def merge_returns(
    statistics: ReturnStatistics, reward: Float[Array, "T N"], ended: Bool[Array, "T N"], discount: float
) -> ReturnStatistics:
    """The statistics with G_t = gamma G_{t-1} + r_t of every step added; G starts anew where an episode ended."""

    def step(running: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, ended = now
        total = discount * running + reward
        return jnp.where(ended, 0.0, total), total

    running, totals = jax.lax.scan(step, statistics.running, (reward, ended))
    return ReturnStatistics(merge(statistics.seen, totals.reshape(-1)), running)


def scale_reward(statistics: ReturnStatistics, reward: Float[Array, "T N"]) -> Float[Array, "T N"]:
    """The reward in units of the returns' standard deviation, cut off at +-10; its sign and zero stay."""
    return jnp.clip(reward / jnp.sqrt(statistics.seen.variance + SMALLEST_VARIANCE), -CLIP, CLIP)
