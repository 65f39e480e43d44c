"""Running statistics against numpy over all the data, in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcpo.normalise import (
    ReturnStatistics,
    RunningStatistics,
    merge,
    merge_returns,
    no_statistics,
    scale_reward,
    standardise,
)

pytestmark = pytest.mark.usefixtures("quick_compile")

SEEDS = st.integers(0, 2**32 - 1)
SPLITS = st.lists(st.sampled_from([1, 2, 7, 64]), min_size=1, max_size=8)
merge_of = jax.jit(merge)
merge_returns_of = jax.jit(merge_returns, static_argnames="discount")


@given(SEEDS, SPLITS, st.sampled_from([0.0, 3.0, -1000.0]), st.sampled_from([0.1, 1.0, 50.0]))
@settings(max_examples=60)
def test_any_split_gives_the_statistics_of_all(seed: int, sizes: list[int], offset: float, spread: float) -> None:
    """The start, mean 0 and variance 1, weighs nothing."""
    data = np.random.default_rng(seed).normal(offset, spread, size=(sum(sizes), 3)).astype(np.float32)
    statistics = no_statistics((3,))
    for part in np.split(data, np.cumsum(sizes)[:-1]):
        statistics = merge_of(statistics, jnp.asarray(part))
    wide, count = data.astype(float), sum(sizes)
    mean, variance = wide.mean(axis=0), wide.var(axis=0)
    assert statistics.count == pytest.approx(count, rel=1e-6)
    np.testing.assert_allclose(statistics.mean, mean, rtol=1e-5, atol=1e-5 * spread)
    # What single precision leaves of a variance far from zero: the square of the mean's last digits.
    np.testing.assert_allclose(statistics.variance, variance, rtol=1e-3, atol=(1e-6 * offset) ** 2)


def test_a_long_run_far_from_zero_keeps_its_digits() -> None:
    """Five hundred batches around 1,000 with a spread of 1: what E[x^2] - E[x]^2 in single precision would not show."""
    data = np.random.default_rng(0).normal(1e3, 1.0, size=(500, 64, 2)).astype(np.float32)
    statistics = no_statistics((2,))
    for part in data:
        statistics = merge_of(statistics, jnp.asarray(part))
    wide = data.reshape(-1, 2).astype(float)
    np.testing.assert_allclose(statistics.mean, wide.mean(axis=0), atol=2e-3)
    np.testing.assert_allclose(statistics.variance, wide.var(axis=0), rtol=0.02)


def test_what_is_seen_is_standardised_and_cut_off() -> None:
    statistics = RunningStatistics(jnp.array([1.0, -2.0]), jnp.array([4.0, 0.25]), jnp.asarray(10.0))
    found = standardise(statistics, jnp.array([[1.0, -2.0], [3.0, -2.5], [1000.0, -1000.0]]))
    np.testing.assert_allclose(found, [[0.0, 0.0], [1.0, -1.0], [10.0, -10.0]], rtol=1e-6)
    # A number that never changed has no spread to divide by: it is seen as 0, not as something that is no number.
    still = merge(no_statistics((1,)), jnp.full((100_000, 1), 7.0))
    assert np.abs(standardise(still, jnp.array([[7.0]]))).max() < 0.01


def test_before_anything_was_seen_nothing_changes() -> None:
    x = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    np.testing.assert_allclose(standardise(no_statistics((3,)), jnp.asarray(x)), x, rtol=1e-6)


def none_yet(batch: int) -> ReturnStatistics:
    return ReturnStatistics(no_statistics(()), jnp.zeros(batch))


@given(SEEDS, st.sampled_from([0.0, 0.9, 1.0]))
@settings(max_examples=20)
def test_returns_against_a_loop_over_episodes(seed: int, discount: float) -> None:
    """Three rollouts in a row: the discounted sum so far of every step, episode by episode."""
    rng = np.random.default_rng(seed)
    reward = rng.normal(2.0, 3.0, size=(30, 4)).astype(np.float32)
    ended = rng.random((30, 4)) < 0.2
    statistics = none_yet(4)
    for t in (0, 10, 20):
        statistics = merge_returns_of(
            statistics, jnp.asarray(reward[t : t + 10]), jnp.asarray(ended[t : t + 10]), discount
        )
    totals, running = [], np.zeros(4)
    for n in range(4):
        begun = 0
        for t in range(30):
            totals.append(sum(discount ** (t - k) * float(reward[k, n]) for k in range(begun, t + 1)))
            begun = t + 1 if ended[t, n] else begun
        running[n] = sum(discount ** (29 - k) * float(reward[k, n]) for k in range(begun, 30))
    np.testing.assert_allclose(statistics.running, running, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(statistics.seen.mean, np.mean(totals), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(statistics.seen.variance, np.var(totals), rtol=1e-3)


def test_scaled_rewards_keep_their_sign_and_zero() -> None:
    """Divided by a standard deviation, never shifted: what is worth nothing stays worth nothing."""
    statistics = ReturnStatistics(
        RunningStatistics(jnp.asarray(50.0), jnp.asarray(4.0), jnp.asarray(9.0)), jnp.zeros(2)
    )
    found = scale_reward(statistics, jnp.array([[1.0, -1.0], [0.0, 3.0], [1e6, -1e6]]))
    np.testing.assert_allclose(found, [[0.5, -0.5], [0.0, 1.5], [10.0, -10.0]], rtol=1e-6)


@pytest.mark.parametrize("unit", [0.01, 100.0])
def test_the_unit_of_the_rewards_does_not_matter(unit: float) -> None:
    """Rewards of a robot's size: the start and the smallest variance do have units of their own, but hardly weigh."""
    rng = np.random.default_rng(2)
    reward, ended = rng.normal(1.0, 1.0, size=(6, 32, 64)).astype(np.float32), rng.random((6, 32, 64)) < 0.01
    plain, other = none_yet(64), none_yet(64)
    for now, over in zip(reward, ended, strict=True):
        plain = merge_returns_of(plain, jnp.asarray(now), jnp.asarray(over), 0.99)
        other = merge_returns_of(other, jnp.asarray(np.float32(unit) * now), jnp.asarray(over), 0.99)
        expected = np.asarray(scale_reward(plain, jnp.asarray(now)))
        found = scale_reward(other, jnp.asarray(np.float32(unit) * now))
        np.testing.assert_allclose(found, expected, rtol=2e-5)
        assert 0.05 < np.abs(expected).max() < 2.0
