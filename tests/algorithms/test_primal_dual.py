"""The Lagrangian by Monte Carlo: its return by a loop, and its gradient against the exact one."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from rcpo import envs, exact
from rcpo.algorithms import a2c, primal_dual
from rcpo.config import LearnerConfig
from rcpo.constraints import Constraint, parse
from rcpo.envs.base import JaxEnvironment
from rcpo.envs.finite import FiniteEnvironment
from rcpo.networks import TabularActorCritic
from rcpo.rollout import collect, first_episodes, look, start
from rcpo.schedules import Schedule
from rcpo.types import Agent, Rollout

pytestmark = pytest.mark.usefixtures("quick_compile")

CONSTRAINTS = (parse("P(crash) <= 0.05"), parse("sum(goal) >= 0.9"))
MULTIPLIER = np.array([0.8, 0.3], np.float32)
FORK = envs.make_finite("fork")
SIGN = jnp.array([constraint.sign for constraint in CONSTRAINTS])


def table(seed: int) -> TabularActorCritic:
    logits = np.random.default_rng(seed).normal(size=(5, 2)).astype(np.float32)
    return TabularActorCritic(jnp.asarray(logits), jnp.zeros(5))


@partial(jax.jit, static_argnames=("constraints", "batch", "steps"))
def play(
    environment: JaxEnvironment, constraints: tuple[Constraint, ...], network: Any, key: Array, batch: int, steps: int
) -> Rollout:
    at = look(network, environment, 10**6)
    start_key, key = jax.random.split(key)
    worker = start(environment, constraints, start_key, batch, 0.0)

    def act(key: Array, obs: Array) -> Array:
        return jax.random.categorical(key, at(obs)[0])

    return collect(environment, constraints, act, worker, key, steps, 0.0)[1]


@pytest.mark.parametrize("discount", [0.0, 0.9, 1.0])
def test_the_return_of_every_step_by_a_loop(discount: float) -> None:
    """Discounted reward to go, less what the whole first episode is worth; a lower bound counts the other way."""
    rollout = play(FORK, CONSTRAINTS, table(0), jax.random.key(1), 32, 15)
    config = LearnerConfig(discount=discount)
    returns = jax.jit(primal_dual.lagrangian_return, static_argnums=0)
    found = np.asarray(returns(config, rollout, jnp.asarray(MULTIPLIER), SIGN))
    ended = np.asarray(rollout.terminated | rollout.truncated)
    lengths = []
    for n in range(32):
        length = int(np.argmax(ended[:, n])) + 1
        lengths.append(length)
        worth = np.asarray(rollout.episode.value)[length - 1, n]
        penalty = 0.8 * worth[0] - 0.3 * worth[1]
        for t in range(15):
            expected = 0.0
            if t < length:
                expected = sum(discount ** (k - t) * -0.1 for k in range(t, length)) - penalty
            assert found[t, n] == pytest.approx(expected, abs=1e-6)
    assert min(lengths) == 2 and max(lengths) < 15, "later episodes began within the rollout"


def gradients(config: LearnerConfig, environment: Any, network: Any, batch: int, rounds: int) -> np.ndarray:
    """Estimates of d J / d logits [rounds, S, A], one a rollout: the loss weighs by steps, J by episodes."""

    @jax.jit
    def estimate(key: Array) -> Array:
        rollout = play(environment, CONSTRAINTS, network, key, batch, environment.spec.max_steps)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(primal_dual, "descend", lambda config, agent, gradient, *rest: Agent(gradient, None))
            agent, _ = primal_dual.update(
                config, environment, Agent(network, None), rollout, jnp.asarray(MULTIPLIER), SIGN, jnp.array(0), 10
            )
        steps = first_episodes(rollout).sum()
        return -agent.network.logits * steps / batch

    keys = jax.random.split(jax.random.key(11), rounds)
    return np.asarray(jax.lax.map(estimate, keys), np.float64)


def exact_gradient(environment: Any, logits: np.ndarray) -> np.ndarray:
    """Central differences of J_R - lambda . J_C, with the cap that cuts the episodes."""

    def lagrangian(logits: np.ndarray) -> float:
        policy = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        value = exact.evaluate(environment.cmdp(), policy, cap=environment.spec.max_steps)
        return value.reward - 0.8 * value.values["crash"] + 0.3 * value.values["goal"]

    slope = np.zeros_like(logits)
    for index in np.ndindex(logits.shape):
        step = np.zeros_like(logits)
        step[index] = 1e-5
        slope[index] = (lagrangian(logits + step) - lagrangian(logits - step)) / 2e-5
    return slope


def test_in_expectation_it_is_the_gradient_of_the_lagrangian() -> None:
    """A hundred thousand episodes, some cut by the cap: every entry within its standard error."""
    environment = FiniteEnvironment.build(envs.tables("fork"), "fork", max_steps=4)
    network = table(2)
    config = LearnerConfig(discount=1.0, entropy=Schedule(0.0))
    found = gradients(config, environment, network, batch=2000, rounds=50)
    expected = exact_gradient(environment, np.asarray(network.logits, np.float64))
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - expected) < 4 * error + 1e-7).all()
    # Sharp enough to tell: the errors are a few per cent of the gradient, where there is one.
    assert error.max() < 0.05 * np.abs(expected).max()


def test_normalised_it_points_the_same_way() -> None:
    network = table(2)
    plain, scaled = (
        gradients(LearnerConfig(discount=1.0, entropy=Schedule(0.0), normalise_advantage=flag), FORK, network, 100, 3)
        for flag in (False, True)
    )
    for one, two in zip(plain, scaled, strict=True):
        factor = (two * one).sum() / (one * one).sum()
        assert factor > 0.5
        np.testing.assert_allclose(two, factor * one, rtol=1e-3, atol=1e-5)


def test_the_critic_is_left_alone_and_the_actor_moves() -> None:
    network = TabularActorCritic(table(3).logits, jnp.arange(5.0))
    config = LearnerConfig(optimiser="sgd", gradient_clip=0.0, critic_step_size=Schedule(9.0))
    rollout = play(FORK, CONSTRAINTS, network, jax.random.key(1), 32, 15)
    update = jax.jit(primal_dual.update, static_argnums=(0, 7))
    agent = Agent(network, a2c.optimiser(config).init(network))
    agent, metrics = update(config, FORK, agent, rollout, jnp.asarray(MULTIPLIER), SIGN, jnp.array(0), 10)
    np.testing.assert_array_equal(agent.network.values, network.values)
    assert np.abs(np.asarray(agent.network.logits - network.logits)).max() > 1e-6
    assert all(np.isfinite(number) for number in metrics.values())


def test_where_every_return_is_the_same_nothing_is_preferred() -> None:
    """The baseline is the mean: without discounting ahead and without multipliers, every step here returns -0.1."""
    network = table(3)
    config = LearnerConfig(optimiser="sgd", gradient_clip=0.0, discount=0.0, entropy=Schedule(0.0))
    rollout = play(FORK, CONSTRAINTS, network, jax.random.key(1), 32, 15)
    update = jax.jit(primal_dual.update, static_argnums=(0, 7))
    agent = Agent(network, a2c.optimiser(config).init(network))
    agent, _ = update(config, FORK, agent, rollout, jnp.zeros(2), SIGN, jnp.array(0), 10)
    np.testing.assert_allclose(agent.network.logits, network.logits, atol=1e-9)
