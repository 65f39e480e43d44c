"""What running episodes add up to, against lists of what was paid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcpo.constraints import parse
from rcpo.episodes import add_up, close, open_tally, where_ended

pytestmark = pytest.mark.usefixtures("quick_compile")

NAMES = ("heat", "push")
CONSTRAINTS = tuple(
    parse(text)
    for text in (
        "mean(push) <= 0.2",
        "sum(heat) >= 1",
        "discounted(push, 0.5) <= 2",
        "P(heat) <= 0.5",
        "P(push) >= 0.1",
    )
)
add_up_of = jax.jit(lambda tally, reward, costs: add_up(CONSTRAINTS, NAMES, tally, reward, costs))


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 9]))
@settings(max_examples=15)
def test_an_episode_adds_up(seed: int, length: int) -> None:
    """Every functional from the list of an episode's costs; and what each step is felt as."""
    rng = np.random.default_rng(seed)
    from_start = rng.random(3) < 0.5
    reward = rng.normal(size=(length, 3)).astype(np.float32)
    costs = np.maximum(rng.normal(size=(length, 3, 2)), -0.3).astype(np.float32)
    tally = open_tally(CONSTRAINTS, 2, jnp.asarray(from_start))
    for t in range(length):
        tally, penalty = add_up_of(tally, jnp.asarray(reward[t]), jnp.asarray(costs[t]))
        for n in range(3):
            heat, push = costs[t, n]
            hot, pushed = (costs[: t + 1, n] > 0).sum(axis=0)
            first = [float(now > 0 and so_far == 1) for now, so_far in ((heat, hot), (push, pushed))]
            np.testing.assert_allclose(penalty[n], [push, -heat, push, first[0], -first[1]], atol=1e-6)
    sound, truncated = jnp.array([True, True, False]), jnp.array([True, False, False])
    found = close(CONSTRAINTS, tally, sound, truncated)
    for n in range(3):
        heat, push = costs[:, n].T.tolist()
        worth = [
            sum(push) / length,
            sum(heat),
            sum(0.5**t * cost for t, cost in enumerate(push)),
            float(max(heat) > 0),
            float(max(push) > 0),
        ]
        np.testing.assert_allclose(found.value[n], worth, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.columns[n], [sum(heat), sum(push)], rtol=1e-5, atol=1e-5)
        assert found.reward[n] == pytest.approx(reward[:, n].sum(), abs=1e-5)
        assert found.length[n] == length
        assert bool(found.counted[n]) == (from_start[n] and n < 2)
    np.testing.assert_array_equal(found.truncated, truncated)


def test_an_episode_without_steps_is_worth_nothing() -> None:
    tally = open_tally(CONSTRAINTS, 2, jnp.ones(4, bool))
    found = close(CONSTRAINTS, tally, jnp.ones(4, bool), jnp.zeros(4, bool))
    np.testing.assert_array_equal(found.value, np.zeros((4, 5)))
    np.testing.assert_array_equal(found.length, np.zeros(4))


def test_only_what_ended_begins_anew() -> None:
    """Leaves of any shape, each row by its own flag."""
    fresh = {"state": jnp.zeros((3, 2, 2)), "time": jnp.zeros(3, jnp.int32)}
    running = {"state": jnp.arange(12.0).reshape(3, 2, 2), "time": jnp.array([5, 6, 7])}
    found = where_ended(jnp.array([False, True, False]), fresh, running)
    np.testing.assert_array_equal(found["time"], [5, 0, 7])
    np.testing.assert_array_equal(found["state"][1], np.zeros((2, 2)))
    np.testing.assert_array_equal(found["state"][2], [[8, 9], [10, 11]])
