"""What a run hands over: mixing, acting, and its probabilities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcpo import envs
from rcpo.networks import TabularActorCritic
from rcpo.policy import action_probabilities, logits_of, mix, single

pytestmark = pytest.mark.usefixtures("quick_compile")

FORK = envs.make_finite("fork")


def table(seed: int) -> TabularActorCritic:
    logits = np.random.default_rng(seed).normal(size=(5, 2)).astype(np.float32)
    return TabularActorCritic(jnp.asarray(logits), jnp.zeros(5))


def test_mixing_mixtures() -> None:
    """Weights need not add up to one; a mixture's own weights are shared out."""
    inner = mix([single(table(0), False), single(table(1), True)], [1.0, 3.0])
    np.testing.assert_allclose(inner.weights, [0.25, 0.75])
    outer = mix([inner, single(table(2), False)], [6.0, 2.0])
    np.testing.assert_allclose(outer.weights, [0.1875, 0.5625, 0.25])
    assert outer.components == 3
    np.testing.assert_array_equal(outer.greedy, [False, True, False])
    for component in range(3):
        np.testing.assert_array_equal(outer.networks.logits[component], table(component).logits)


def test_probabilities_by_hand() -> None:
    policy = mix([single(table(0), False), single(table(1), True)], [1.0, 1.0])
    drawn, greedy = action_probabilities(FORK, policy)
    for state in range(5):
        left, right = np.asarray(table(0).logits, np.float64)[state]
        assert drawn[state, 0] == pytest.approx(1 / (1 + np.exp(right - left)), rel=1e-9)
        assert greedy[state].tolist() == np.eye(2)[int(np.argmax(table(1).logits[state]))].tolist()
    np.testing.assert_allclose(drawn.sum(axis=1), 1.0, rtol=1e-12)
    assert drawn.dtype == np.float64


def test_the_likeliest_actions() -> None:
    policy = mix([single(table(0), False), single(table(1), True)], [0.3, 0.7])
    likeliest = policy.deterministic()
    np.testing.assert_array_equal(likeliest.weights, policy.weights)
    assert likeliest.greedy.all() and not policy.greedy.all()
    assert set(np.unique(action_probabilities(FORK, likeliest))) == {0.0, 1.0}


def test_everyone_follows_its_own_component() -> None:
    policy = mix([single(table(0), False), single(table(1), False)], [0.3, 0.7])
    obs, component = jnp.array([4, 4, 0, 2]), jnp.array([0, 1, 1, 0])
    found = jax.jit(lambda obs, component: logits_of(FORK, policy)(obs, component))(obs, component)
    for i in range(4):
        np.testing.assert_array_equal(found[i], table(int(component[i])).logits[obs[i]])
