"""Advantages against loops that follow one environment, one step at a time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcpo.advantage import generalised_advantage, monte_carlo_return, penalise

pytestmark = pytest.mark.usefixtures("quick_compile")

SEEDS = st.integers(0, 2**32 - 1)
SHAPES = st.sampled_from([(9, 20), (1, 3)])
DECAYS = st.sampled_from([(0.0, 0.5), (0.9, 0.0), (0.99, 0.95), (1.0, 1.0)])
DISCOUNTS = st.sampled_from([0.0, 0.9, 1.0])
# Compiled once for each shape and decay: without this JAX would compile the scan anew in every call.
advantage_of = jax.jit(generalised_advantage, static_argnames=("discount", "gae_decay"))
return_of = jax.jit(monte_carlo_return, static_argnames="discount")


def episodes(rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
    """Random numbers, and ends of both kinds: never both at once."""
    end = rng.choice(["", "terminated", "truncated"], size=(steps, batch), p=[0.6, 0.2, 0.2])
    floats = {name: rng.normal(size=(steps, batch)).astype(np.float32) for name in ("reward", "value", "next_value")}
    return floats | {"terminated": end == "terminated", "truncated": end == "truncated"}


def on_device(case: dict[str, Any]) -> dict[str, Any]:
    return {name: jnp.asarray(array) for name, array in case.items()}


def slow_advantage(
    reward: Any, value: Any, next_value: Any, terminated: Any, truncated: Any, discount: float, gae_decay: float
) -> np.ndarray:
    """A_t = sum_l (gamma tau)^l delta_{t+l}, summed forwards from every step to the end of its episode."""
    steps, batch = reward.shape
    advantage = np.zeros((steps, batch))
    for n in range(batch):
        for t in range(steps):
            factor = 1.0
            for k in range(t, steps):
                bootstrap = 0.0 if terminated[k, n] else float(next_value[k, n])
                advantage[t, n] += factor * (float(reward[k, n]) + discount * bootstrap - float(value[k, n]))
                if terminated[k, n] or truncated[k, n]:
                    break
                factor *= discount * gae_decay
    return advantage


@given(SEEDS, SHAPES, DECAYS)
@settings(max_examples=60)
def test_advantage_is_the_slow_sum(seed: int, shape: tuple[int, int], decays: tuple[float, float]) -> None:
    discount, gae_decay = decays
    case = episodes(np.random.default_rng(seed), *shape)
    found = advantage_of(**on_device(case), discount=discount, gae_decay=gae_decay)
    expected = slow_advantage(**case, discount=discount, gae_decay=gae_decay)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@given(SEEDS, SHAPES, DISCOUNTS, st.floats(0.0, 3.0, width=32))
@settings(max_examples=60)
def test_without_decay_it_is_the_papers_algorithm_2(
    seed: int, shape: tuple[int, int], discount: float, multiplier: float
) -> None:
    """R <- 0 if terminal else V(s_t); then backwards R <- r - lambda c + gamma R; the advantage is R - V(s)."""
    rng = np.random.default_rng(seed)
    case = episodes(rng, *shape)
    # Where an episode goes on, what a step led to is what the next step starts from.
    ended = case["terminated"] | case["truncated"]
    case["next_value"][:-1] = np.where(ended[:-1], case["next_value"][:-1], case["value"][1:])
    cost = rng.uniform(0.0, 1.0, (*shape, 1)).astype(np.float32)
    expected = np.zeros(shape)
    for n in range(shape[1]):
        total = 0.0
        for t in reversed(range(shape[0])):
            if ended[t, n] or t == shape[0] - 1:
                total = 0.0 if case["terminated"][t, n] else float(case["next_value"][t, n])
            total = float(case["reward"][t, n]) - multiplier * float(cost[t, n, 0]) + discount * total
            expected[t, n] = total - float(case["value"][t, n])
    arrays = on_device(case)
    arrays["reward"] = penalise(arrays["reward"], jnp.asarray(cost), jnp.array([multiplier], jnp.float32))
    found = advantage_of(**arrays, discount=discount, gae_decay=1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_by_hand() -> None:
    """Three steps of 1, V = 2 everywhere, gamma = 1/2, tau = 1: delta = 1 + 1 - 2 = 0, but 1 - 2 = -1 where it ends."""
    ones = jnp.ones((3, 1))
    never, last = jnp.zeros((3, 1), bool), jnp.array([[False], [False], [True]])
    ends = generalised_advantage(ones, 2 * ones, 2 * ones, last, never, 0.5, 1.0)
    np.testing.assert_allclose(ends[:, 0], [-0.25, -0.5, -1.0])
    cut = generalised_advantage(ones, 2 * ones, 2 * ones, never, last, 0.5, 1.0)
    np.testing.assert_allclose(cut[:, 0], [0.0, 0.0, 0.0])


def test_what_comes_after_an_end_does_not_matter() -> None:
    case = episodes(np.random.default_rng(3), 6, 2)
    case["terminated"][2], case["truncated"][2] = [True, False], [False, True]
    changed = {name: array.copy() for name, array in case.items()}
    for name in ("reward", "value", "next_value"):
        changed[name][3:] += 100.0
    before, after = (
        np.asarray(generalised_advantage(**on_device(one), discount=0.9, gae_decay=0.9)) for one in (case, changed)
    )
    np.testing.assert_array_equal(before[:3], after[:3])
    assert not np.array_equal(before[3:], after[3:])


@given(SEEDS, SHAPES, st.sampled_from([0, 1, 3]))
@settings(max_examples=30)
def test_penalised_reward(seed: int, shape: tuple[int, int], constraints: int) -> None:
    rng = np.random.default_rng(seed)
    reward = rng.normal(size=shape).astype(np.float32)
    cost = rng.normal(size=(*shape, constraints)).astype(np.float32)
    multiplier = rng.uniform(0, 5, constraints).astype(np.float32)
    expected = reward.astype(float)
    for k in range(constraints):
        expected = expected - float(multiplier[k]) * cost[:, :, k]
    found = penalise(jnp.asarray(reward), jnp.asarray(cost), jnp.asarray(multiplier))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@given(SEEDS, SHAPES, DISCOUNTS)
@settings(max_examples=40)
def test_monte_carlo_return_is_the_slow_sum(seed: int, shape: tuple[int, int], discount: float) -> None:
    """An episode is the first so many steps of a column; the reward after it must not be seen."""
    rng = np.random.default_rng(seed)
    reward = rng.normal(size=shape).astype(np.float32)
    lengths = rng.integers(0, shape[0] + 1, shape[1])
    expected = np.zeros(shape)
    for n, length in enumerate(lengths):
        for t in range(length):
            expected[t, n] = sum(discount ** (k - t) * float(reward[k, n]) for k in range(t, length))
    running = jnp.asarray(np.arange(shape[0])[:, None] < lengths)
    found = return_of(jnp.asarray(reward), running, discount)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_shapes_are_checked() -> None:
    """The tests run with every shape checked: a transposed array is an error, not a broadcast."""
    with pytest.raises(TypeError):
        penalise(jnp.zeros((3, 2)), jnp.zeros((2, 3, 1)), jnp.zeros(1))
