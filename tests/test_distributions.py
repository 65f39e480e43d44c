"""The two distributions against scipy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from rcpo.distributions import Categorical, Gaussian, MultiCategorical

pytestmark = pytest.mark.usefixtures("quick_compile")

RNG = np.random.default_rng(0)
MEAN = RNG.normal(size=(3, 4, 2)).astype(np.float32)
LOG_STD = np.array([-1.2, 0.3], np.float32)
LOGITS = RNG.normal(scale=2.0, size=(3, 4, 5)).astype(np.float32)


def test_a_gaussian_is_scipys() -> None:
    policy = Gaussian(jnp.asarray(MEAN), jnp.asarray(LOG_STD))
    action = MEAN + np.exp(LOG_STD) * RNG.normal(scale=2.0, size=MEAN.shape).astype(np.float32)
    truth = stats.norm(MEAN.astype(float), np.exp(LOG_STD.astype(float)))
    expected = truth.logpdf(action).sum(axis=-1)
    np.testing.assert_allclose(policy.log_probability(jnp.asarray(action)), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(policy.entropy(), truth.entropy().sum(axis=-1), rtol=1e-5)
    np.testing.assert_array_equal(policy.mode(), MEAN)


def test_a_gaussian_draws_from_the_noise_it_is_given() -> None:
    policy = Gaussian(jnp.asarray(MEAN), jnp.asarray(LOG_STD))
    noise = RNG.normal(size=MEAN.shape).astype(np.float32)
    np.testing.assert_allclose(policy.draw(jnp.asarray(noise)), MEAN + np.exp(LOG_STD) * noise, rtol=1e-5, atol=1e-6)
    standard = np.asarray(Gaussian.noise(jax.random.key(0), (4000, 3)))
    for column in standard.T:
        assert stats.kstest(column, "norm").pvalue > 0.001
    assert np.abs(np.corrcoef(standard.T) - np.eye(3)).max() < 4.5 / np.sqrt(4000)


def test_choices_are_numpys() -> None:
    policy = Categorical(jnp.asarray(LOGITS))
    log_policy = special.log_softmax(LOGITS.astype(float), axis=-1)
    action = RNG.integers(5, size=(3, 4)).astype(np.int32)
    expected = [[log_policy[i, j, action[i, j]] for j in range(4)] for i in range(3)]
    np.testing.assert_allclose(policy.log_probability(jnp.asarray(action)), expected, rtol=1e-5)
    entropy = stats.entropy(np.exp(log_policy), axis=-1)
    np.testing.assert_allclose(policy.entropy(), entropy, rtol=1e-5)
    np.testing.assert_array_equal(policy.mode(), LOGITS.argmax(axis=-1))


def test_choices_are_drawn_as_often_as_they_are_likely() -> None:
    logits = LOGITS[0, 0]
    noise = Categorical.noise(jax.random.key(1), (6000, 5))
    drawn = np.asarray(Categorical(jnp.broadcast_to(jnp.asarray(logits), (6000, 5))).draw(noise))
    assert drawn.dtype == np.int32
    expected = 6000 * special.softmax(logits.astype(float))
    assert stats.chisquare(np.bincount(drawn, minlength=5), expected).pvalue > 0.001
    # The same noise, the same choice; without any the likeliest.
    again = np.asarray(Categorical(jnp.broadcast_to(jnp.asarray(logits), (6000, 5))).draw(noise))
    np.testing.assert_array_equal(drawn, again)
    assert Categorical(jnp.asarray(logits)).draw(jnp.zeros(5)) == logits.argmax()


def test_what_is_all_but_certain_stays_a_number() -> None:
    policy = Categorical(jnp.array([[200.0, -200.0], [-200.0, 200.0]]))
    np.testing.assert_allclose(policy.entropy(), [0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(policy.log_probability(jnp.array([0, 0])), [0.0, -400.0], atol=1e-6)


def test_several_choices_are_as_many_single_ones() -> None:
    options = (2, 3)
    policy = MultiCategorical(jnp.asarray(LOGITS), options)
    first, second = Categorical(jnp.asarray(LOGITS[..., :2])), Categorical(jnp.asarray(LOGITS[..., 2:]))
    noise = MultiCategorical.noise(jax.random.key(2), (3, 4, 5))
    drawn = policy.draw(noise)
    np.testing.assert_array_equal(drawn[..., 0], first.draw(noise[..., :2]))
    np.testing.assert_array_equal(drawn[..., 1], second.draw(noise[..., 2:]))
    np.testing.assert_array_equal(policy.mode(), np.stack([first.mode(), second.mode()], axis=-1))
    expected = np.zeros((3, 4))
    for part, logits in enumerate((LOGITS[..., :2], LOGITS[..., 2:])):
        log_policy = special.log_softmax(logits.astype(float), axis=-1)
        expected += np.take_along_axis(log_policy, np.asarray(drawn)[..., part, None], axis=-1)[..., 0]
    np.testing.assert_allclose(policy.log_probability(drawn), expected, rtol=1e-5)
    np.testing.assert_allclose(policy.entropy(), first.entropy() + second.entropy(), rtol=1e-5)
    # Over all pairs the probabilities add up to one.
    pairs = jnp.stack(jnp.meshgrid(jnp.arange(2), jnp.arange(3), indexing="ij"), axis=-1).reshape(-1, 1, 1, 2)
    six = MultiCategorical(jnp.broadcast_to(jnp.asarray(LOGITS), (6, 3, 4, 5)), options)
    chances = jnp.exp(six.log_probability(jnp.broadcast_to(pairs, (6, 3, 4, 2))))
    np.testing.assert_allclose(chances.sum(axis=0), np.ones((3, 4)), rtol=1e-5)
