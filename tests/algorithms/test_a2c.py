"""Advantage actor-critic: gradients written by hand, and one network evaluation per state against one per step."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from rcpo import envs
from rcpo.algorithms import a2c
from rcpo.config import LearnerConfig
from rcpo.constraints import parse
from rcpo.envs.base import EnvSpec, JaxEnvironment
from rcpo.envs.mars_rover import MarsRover
from rcpo.envs.settings import MarsRoverSettings
from rcpo.networks import ConvolutionalActorCritic, TabularActorCritic
from rcpo.rollout import collect, look, start
from rcpo.schedules import Schedule
from rcpo.types import Agent, Episodes, Rollout, Transition

pytestmark = pytest.mark.usefixtures("quick_compile")

FORK = envs.make_finite("fork")
PLAIN = LearnerConfig(
    optimiser="sgd",
    gradient_clip=0.0,
    actor_step_size=Schedule(1.0),
    critic_step_size=Schedule(1.0),
    entropy=Schedule(0.05),
    value_coefficient=0.7,
    discount=0.9,
    gae_decay=0.8,
)
"""Its step is the gradient itself."""


class Pictures(JaxEnvironment):
    """A Mars Rover that does not list its states: what is seen is the picture, at every step anew."""

    rover: MarsRover

    @property
    def spec(self) -> EnvSpec:
        return self.rover.spec

    def reset(self, key: Array, batch: int, exploring: Any) -> tuple[Array, Array]:
        return self.rover.reset(key, batch, exploring)

    def step(self, key: Array, state: Array, action: Array) -> Transition:
        return self.rover.step(key, state, action)

    def observe(self, state: Array) -> Array:
        return self.rover.observations[state]


@partial(jax.jit, static_argnames=("constraints", "batch", "steps"))
def play(environment: JaxEnvironment, constraints: Any, network: Any, key: Array, batch: int, steps: int) -> Rollout:
    at = look(network, environment, 10**6)
    start_key, key = jax.random.split(key)
    worker = start(environment, constraints, start_key, batch, 0.5)

    def act(key: Array, obs: Array) -> Array:
        return jax.random.categorical(key, at(obs)[0])

    return collect(environment, constraints, act, worker, key, steps, 0.5)[1]


def gradient_of(
    config: LearnerConfig, environment: JaxEnvironment, network: Any, rollout: Rollout, multiplier: Any
) -> Any:
    """The gradient that `update` hands to the optimiser: what one step of size 1 takes away."""

    @jax.jit
    def taken(environment: JaxEnvironment, network: Any, rollout: Rollout) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(a2c, "descend", lambda config, agent, gradient, *rest: Agent(gradient, None))
            agent, metrics = a2c.update(
                config, environment, Agent(network, None), rollout, jnp.asarray(multiplier), jnp.array(3), 10
            )
        return agent.network, metrics

    return taken(environment, network, rollout)


def slow_advantage(config: LearnerConfig, rollout: Rollout, value: Any, next_value: Any, multiplier: Any) -> np.ndarray:
    seen: Any = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), rollout)
    value, next_value, multiplier = (np.asarray(part, np.float64) for part in (value, next_value, multiplier))
    reward = seen.reward - (seen.penalty * multiplier).sum(axis=-1)
    if config.divide_by_multiplier:
        reward = reward / (1 + multiplier.sum())
    advantage = np.zeros_like(reward)
    for n in range(reward.shape[1]):
        later = 0.0
        for t in reversed(range(len(reward))):
            if seen.terminated[t, n] or seen.truncated[t, n]:
                later = 0.0
            bootstrap = 0.0 if seen.terminated[t, n] else next_value[t, n]
            later = (
                reward[t, n] + config.discount * bootstrap - value[t, n] + config.discount * config.gae_decay * later
            )
            advantage[t, n] = later
    return advantage


# One evaluation per state, or one per step


@pytest.fixture(scope="module")
def rover(tmp_path_factory: pytest.TempPathFactory) -> MarsRover:
    """Small, but as large a picture as the network needs; short episodes, so that all that can happen happens."""
    path = tmp_path_factory.mktemp("map") / "map.txt"
    path.write_text("S..#...\n.#...#.\n...#...\n.#....G\n")
    return MarsRover.build(MarsRoverSettings(map=str(path), slip=0.2, max_steps=5))


@pytest.fixture(scope="module")
def paper_network() -> ConvolutionalActorCritic:
    """Away from the uniform policy and with biases, so that the gradient has all its terms."""
    rng = np.random.default_rng(3)
    shapes = jax.eval_shape(lambda: ConvolutionalActorCritic(jax.random.key(0), (1, 17, 17), 4))
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(scale=0.2, size=leaf.shape).astype(np.float32)), shapes)


@pytest.fixture(scope="module")
def rolled(rover: MarsRover, paper_network: ConvolutionalActorCritic) -> Rollout:
    """A real rollout, in which episodes end in both ways."""
    rollout = play(rover, CONSTRAINTS, paper_network, jax.random.key(4), 8, 12)
    assert rollout.terminated.any() and rollout.truncated.any()
    return rollout


CONSTRAINTS = (parse("P(crash) <= 0.1"), parse("sum(goal) >= 0.5"))
MULTIPLIER = np.array([0.6, 0.3], np.float32)


def test_the_paper_network_sees_the_small_map(rover: MarsRover) -> None:
    assert rover.spec.observation_shape == (1, 17, 17)


def test_not_listing_the_states_changes_nothing(rover: MarsRover, paper_network: Any, rolled: Rollout) -> None:
    """The same rollout, the same gradient, whether the network is looked up or evaluated at every step."""
    by_step = play(Pictures(rover), CONSTRAINTS, paper_network, jax.random.key(4), 8, 12)
    for name in ("action", "reward", "penalty", "terminated", "truncated", "episode"):
        for left, right in zip(
            jax.tree.leaves(getattr(rolled, name)), jax.tree.leaves(getattr(by_step, name)), strict=True
        ):
            np.testing.assert_array_equal(left, right)
    for name in ("obs", "next_obs"):
        np.testing.assert_array_equal(rover.observations[getattr(rolled, name)], getattr(by_step, name))
    left, left_metrics = gradient_of(PLAIN, rover, paper_network, rolled, MULTIPLIER)
    right, right_metrics = gradient_of(PLAIN, Pictures(rover), paper_network, by_step, MULTIPLIER)
    for (path, one), two in zip(jax.tree_util.tree_flatten_with_path(left)[0], jax.tree.leaves(right), strict=True):
        scale = float(jnp.abs(two).max())
        assert scale > 1e-4, f"{path} has a gradient"
        np.testing.assert_allclose(one, two, atol=2e-5 * scale, rtol=0)
    for name, number in left_metrics.items():
        assert number == pytest.approx(float(right_metrics[name]), rel=1e-4)


def test_the_gradient_is_that_of_the_loss_step_by_step(rover: MarsRover, paper_network: Any, rolled: Rollout) -> None:
    """One picture at a time through the network, one term of the loss at a time."""
    rollout = rolled
    pictures = jnp.asarray(rover.observations)
    values = np.asarray(jax.jit(lambda network: network(pictures)[1])(paper_network))
    obs, next_obs = np.asarray(rollout.obs), np.asarray(rollout.next_obs)
    advantage = slow_advantage(PLAIN, rollout, values[obs], values[next_obs], MULTIPLIER)
    target = advantage + values[obs]

    def step_loss(network: Any, picture: Array, action: Array, advantage: Array, target: Array) -> Array:
        logits, value = network(picture[None])
        policy = jax.nn.softmax(logits[0])
        entropy = -(policy * jnp.log(policy)).sum()
        return -advantage * jnp.log(policy[action]) + 0.7 * (target - value[0]) ** 2 - 0.05 * entropy

    one_step = jax.jit(jax.grad(step_loss))
    total: Any = None
    for t in range(12):
        for n in range(8):
            part = one_step(
                paper_network,
                pictures[obs[t, n]],
                rollout.action[t, n],
                jnp.float32(advantage[t, n]),
                jnp.float32(target[t, n]),
            )
            part = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64) / (12 * 8), part)
            total = part if total is None else jax.tree.map(np.add, total, part)
    found, _ = gradient_of(PLAIN, rover, paper_network, rollout, MULTIPLIER)
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(total), strict=True):
        np.testing.assert_allclose(one, two, atol=3e-5 * np.abs(two).max(), rtol=0)


# A table of parameters, with the gradient written by hand


def random_rollout(seed: int, steps: int = 11, batch: int = 6, states: int = 5, actions: int = 2) -> Rollout:
    rng = np.random.default_rng(seed)
    end = rng.choice(["", "terminated", "truncated"], size=(steps, batch), p=[0.7, 0.2, 0.1])
    obs = rng.integers(0, states, (steps + 1, batch))
    nothing = jnp.zeros((steps, batch))
    return Rollout(
        obs=jnp.asarray(obs[:-1]),
        next_obs=jnp.asarray(rng.integers(0, states, (steps, batch))),
        action=jnp.asarray(rng.integers(0, actions, (steps, batch))),
        reward=jnp.asarray(rng.normal(size=(steps, batch)).astype(np.float32)),
        penalty=jnp.asarray(rng.normal(size=(steps, batch, 2)).astype(np.float32)),
        terminated=jnp.asarray(end == "terminated"),
        truncated=jnp.asarray(end == "truncated"),
        episode=Episodes(
            counted=nothing > 0,
            value=jnp.zeros((steps, batch, 2)),
            columns=jnp.zeros((steps, batch, 1)),
            reward=nothing,
            length=nothing.astype(int),
            truncated=nothing > 0,
        ),
    )


def random_table(seed: int) -> TabularActorCritic:
    rng = np.random.default_rng(seed)
    logits, values = rng.normal(size=(5, 2)), rng.normal(size=5)
    return TabularActorCritic(jnp.asarray(logits, jnp.float32), jnp.asarray(values, jnp.float32))


def table_gradient(
    config: LearnerConfig, network: TabularActorCritic, rollout: Rollout, multiplier: Any, entropy_weight: float
) -> tuple[np.ndarray, np.ndarray]:
    """d logits = -E[A (1[a] - pi)] - w_h E[dH],  dH = -pi (log pi + H);  d values = -2 w_v E[target - V]."""
    logits, values = (np.asarray(part, np.float64) for part in (network.logits, network.values))
    obs, action = np.asarray(rollout.obs), np.asarray(rollout.action)
    advantage = slow_advantage(config, rollout, values[obs], values[np.asarray(rollout.next_obs)], multiplier)
    target = advantage + values[obs]
    if config.normalise_advantage:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    slopes, value_slopes = np.zeros_like(logits), np.zeros_like(values)
    for index in np.ndindex(obs.shape):
        state = obs[index]
        policy = np.exp(logits[state]) / np.exp(logits[state]).sum()
        entropy = -(policy * np.log(policy)).sum()
        slopes[state] -= advantage[index] * (np.eye(len(policy))[action[index]] - policy)
        slopes[state] += entropy_weight * policy * (np.log(policy) + entropy)
        value_slopes[state] -= 2 * config.value_coefficient * (target[index] - values[state])
    return slopes / obs.size, value_slopes / obs.size


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"normalise_advantage": True},
        {"divide_by_multiplier": True},
        {"gae_decay": 1.0, "discount": 1.0, "entropy": Schedule(1.0, "linear", final=0.0)},
    ],
)
def test_the_gradient_of_a_table_by_hand(changes: dict[str, Any]) -> None:
    config = replace(PLAIN, **changes)
    network, rollout = random_table(1), random_rollout(2)
    found, metrics = gradient_of(config, FORK, network, rollout, MULTIPLIER)
    # `gradient_of` stands at iteration 3 of 10.
    slopes, value_slopes = table_gradient(config, network, rollout, MULTIPLIER, float(config.entropy.at(3, 10)))
    np.testing.assert_allclose(found.logits, slopes, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.values, value_slopes, rtol=1e-4, atol=1e-6)
    values = np.asarray(network.values, np.float64)
    obs = np.asarray(rollout.obs)
    advantage = slow_advantage(config, rollout, values[obs], values[np.asarray(rollout.next_obs)], MULTIPLIER)
    assert metrics["loss/value"] == pytest.approx((advantage**2).mean(), rel=1e-5)
    policy = np.exp(network.logits) / np.exp(network.logits).sum(axis=1, keepdims=True)
    entropy = -(policy * np.log(policy)).sum(axis=1)
    assert metrics["policy/entropy"] == pytest.approx(entropy[obs].mean(), rel=1e-5)


# From the gradient to the step


def reference_step(
    config: LearnerConfig,
    parameters: dict[str, np.ndarray],
    gradients: list[dict[str, np.ndarray]],
    iterations: int,
) -> dict[str, np.ndarray]:
    """Clip by the norm of all, RMSprop or Adam as their papers write them, a step size for each group, the box."""
    parameters = {name: value.astype(np.float64) for name, value in parameters.items()}
    mean = {name: np.zeros_like(value) for name, value in parameters.items()}
    square = {name: np.zeros_like(value) for name, value in parameters.items()}
    for k, gradient in enumerate(gradients):
        norm = np.sqrt(sum((slope.astype(np.float64) ** 2).sum() for slope in gradient.values()))
        shrink = min(1.0, config.gradient_clip / norm) if config.gradient_clip else 1.0
        for name in parameters:
            slope = shrink * gradient[name].astype(np.float64)
            if config.optimiser == "rmsprop":
                square[name] = 0.99 * square[name] + 0.01 * slope**2
                slope = slope / (np.sqrt(square[name]) + 1e-5)
            elif config.optimiser == "adam":
                mean[name] = 0.9 * mean[name] + 0.1 * slope
                square[name] = 0.999 * square[name] + 0.001 * slope**2
                slope = mean[name] / (1 - 0.9 ** (k + 1)) / (np.sqrt(square[name] / (1 - 0.999 ** (k + 1))) + 1e-5)
            step_size = config.critic_step_size if name == "values" else config.actor_step_size
            parameters[name] = parameters[name] - float(step_size.at(k, iterations)) * slope
            if config.box is not None and name == "logits":
                parameters[name] = np.clip(parameters[name], -config.box, config.box)
    return parameters


@pytest.mark.parametrize(
    "config",
    [
        LearnerConfig(),
        LearnerConfig(gradient_clip=0.0),
        LearnerConfig(actor_step_size=Schedule(0.1, "linear"), critic_step_size=Schedule(0.2, "power"), box=1.0),
        LearnerConfig(optimiser="adam", actor_step_size=Schedule(0.01)),
        LearnerConfig(optimiser="sgd", critic_step_size=Schedule(0.3, "geometric", factor=0.5)),
        LearnerConfig(optimiser="sgd", gradient_clip=0.0, box=0.5, actor_step_size=Schedule(0.5)),
    ],
    ids=["paper", "unclipped", "scheduled", "adam", "sgd", "box"],
)
def test_optimisers_step_by_step(config: LearnerConfig) -> None:
    """Gradients of very different sizes, so that some are clipped, some are not, and the epsilon can be seen."""
    rng = np.random.default_rng(0)
    network = random_table(4)
    gradients = [
        {"logits": size * rng.normal(size=(5, 2)), "values": size * rng.normal(size=5)}
        for size in (1.0, 1e-3, 1e-6, 10.0, 0.05)
    ]
    gradients = [{name: value.astype(np.float32) for name, value in one.items()} for one in gradients]
    first = {"logits": np.asarray(network.logits), "values": np.asarray(network.values)}
    agent = Agent(network, a2c.optimiser(config).init(network))
    descend = jax.jit(a2c.descend, static_argnums=(0, 4))
    for k, gradient in enumerate(gradients):
        slope = TabularActorCritic(jnp.asarray(gradient["logits"]), jnp.asarray(gradient["values"]))
        agent = descend(config, agent, slope, jnp.array(k), 8)
        expected = reference_step(config, first, gradients[: k + 1], iterations=8)
        np.testing.assert_allclose(agent.network.logits, expected["logits"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(agent.network.values, expected["values"], rtol=1e-5, atol=1e-6)


def test_one_update_of_rmsprop_by_hand() -> None:
    """g / (sqrt(0.01 g^2) + 1e-5): ten times the sign of the gradient, as long as it is not tiny."""
    network = TabularActorCritic(jnp.zeros((1, 2)), jnp.zeros(1))
    config = LearnerConfig(gradient_clip=0.0, actor_step_size=Schedule(1e-3), critic_step_size=Schedule(5e-4))
    slope = TabularActorCritic(jnp.array([[2.0, -1e-4]]), jnp.array([3.0]))
    agent = a2c.descend(config, Agent(network, a2c.optimiser(config).init(network)), slope, jnp.array(0), 10)
    np.testing.assert_allclose(agent.network.logits, [[-1e-2, 1e-3 * 1e-4 / (1e-5 + 1e-5)]], rtol=1e-4)
    np.testing.assert_allclose(agent.network.values, [-5e-3], rtol=1e-4)


def test_who_moves_with_which_step_size(paper_network: Any) -> None:
    """The critic's own layers with eta_3, the rest with eta_2; the box is not for the critic."""
    config = LearnerConfig(
        optimiser="sgd",
        gradient_clip=0.0,
        actor_step_size=Schedule(0.25, "linear"),
        critic_step_size=Schedule(0.5, "linear", final=0.1),
        box=0.3,
    )
    ones = jax.tree.map(jnp.ones_like, paper_network)
    agent = a2c.descend(config, Agent(paper_network, a2c.optimiser(config).init(ones)), ones, jnp.array(4), 10)
    for part, step_size in (("trunk", 0.15), ("actor", 0.15), ("critic", 0.34)):
        before, after = (jax.tree.leaves(getattr(network, part)) for network in (paper_network, agent.network))
        assert len(before) >= 4
        for old, new in zip(before, after, strict=True):
            moved = np.asarray(old) - step_size
            expected = moved if part == "critic" else np.clip(moved, -0.3, 0.3)
            np.testing.assert_allclose(new, expected, atol=1e-6)


def test_a_whole_update_of_the_papers_learner() -> None:
    """Rollout to new parameters, twice, with the paper's settings: nothing here but numpy."""
    config = LearnerConfig(actor_step_size=Schedule(1e-2), critic_step_size=Schedule(5e-3))
    network = random_table(7)
    agent = Agent(network, a2c.optimiser(config).init(network))
    update = jax.jit(a2c.update, static_argnums=(0, 6))
    gradients: list[dict[str, np.ndarray]] = []
    first = {"logits": np.asarray(network.logits), "values": np.asarray(network.values)}
    for k in range(2):
        rollout = random_rollout(20 + k)
        slopes = table_gradient(config, agent.network, rollout, MULTIPLIER, 0.01)
        gradients.append(dict(zip(("logits", "values"), slopes, strict=True)))
        agent, _ = update(config, FORK, agent, rollout, jnp.asarray(MULTIPLIER), jnp.array(k), 10)
        expected = reference_step(config, first, gradients, iterations=10)
        np.testing.assert_allclose(agent.network.logits, expected["logits"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(agent.network.values, expected["values"], rtol=1e-4, atol=1e-5)
    assert np.abs(expected["logits"] - first["logits"]).max() > 0.01
