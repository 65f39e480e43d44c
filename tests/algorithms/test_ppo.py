"""Proximal policy optimisation against plain numpy in double precision, with every derivative written by hand."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcpo.algorithms import ppo
from rcpo.config import LearnerConfig, PPOConfig
from rcpo.constraints import parse
from rcpo.envs.base import Box
from rcpo.networks import SeparateActorCritic, separate_actor_critic
from rcpo.normalise import ReturnStatistics, RunningStatistics
from rcpo.schedules import Schedule
from rcpo.types import Agent, Episodes, Rollout

pytestmark = pytest.mark.usefixtures("quick_compile")

STEPS, BATCH, SEEN, MOTORS = 6, 8, 3, 2
CONSTRAINTS = tuple(parse(text) for text in ("mean(a) <= 0.3", "mean(b) >= 0.7", "sum(a) <= 4", "P(b) <= 0.1"))
LIMIT, SIGN, IS_MEAN = np.array([0.3, 0.7, 4.0, 0.1]), np.array([1.0, -1.0, 1.0, 1.0]), np.array([1.0, 1.0, 0.0, 0.0])
MULTIPLIER, AIM = np.array([0.6, 0.3, 0.05, 1.2]), np.array([0.45, 0.65, 6.0, 0.2])
PLAIN = LearnerConfig(
    algorithm="ppo",
    environments=BATCH,
    rollout_steps=STEPS,
    actor_step_size=Schedule(3e-3, "linear"),
    critic_step_size=Schedule(5e-3, "linear"),
    optimiser="adam",
    gradient_clip=0.5,
    entropy=Schedule(0.02),
    value_coefficient=0.7,
    discount=0.9,
    gae_decay=0.8,
    normalise_advantage=True,
    ppo=PPOConfig(epochs=1, minibatches=1, clip=Schedule(0.2, "linear"), hidden=(5, 4), initial_std=0.5),
)


def floats(rng: np.random.Generator, *shape: int) -> Any:
    return jnp.asarray(rng.normal(size=shape).astype(np.float32))


def made_up_rollout(rng: np.random.Generator, action: Any) -> Rollout:
    """Random numbers, and ends of both kinds."""
    end = rng.choice(["", "terminated", "truncated"], size=(STEPS, BATCH), p=[0.6, 0.2, 0.2])
    nothing = jnp.zeros((STEPS, BATCH))
    k = len(CONSTRAINTS)
    episode = Episodes(
        counted=nothing > 0,
        value=jnp.zeros((STEPS, BATCH, k)),
        columns=jnp.zeros((STEPS, BATCH, 2)),
        reward=nothing,
        length=nothing.astype(jnp.int32),
        truncated=nothing > 0,
    )
    return Rollout(
        obs=3.0 + 2.0 * floats(rng, STEPS, BATCH, SEEN),
        next_obs=3.0 + 2.0 * floats(rng, STEPS, BATCH, SEEN),
        action=action,
        reward=1.0 + floats(rng, STEPS, BATCH),
        penalty=floats(rng, STEPS, BATCH, k),
        terminated=jnp.asarray(end == "terminated"),
        truncated=jnp.asarray(end == "truncated"),
        episode=episode,
    )


def made_up_agent(rng: np.random.Generator, config: LearnerConfig) -> Agent:
    """Every parameter drawn at random, and statistics that have seen something."""
    box = Box((-1.0,) * MOTORS, (1.0,) * MOTORS)
    network = separate_actor_critic(jax.random.key(0), SEEN, box, config.ppo.hidden, config.ppo.initial_std, see=False)
    network = jax.tree.map(lambda leaf: 0.5 * floats(rng, *leaf.shape), network)
    sight = RunningStatistics(2.0 + floats(rng, SEEN), jnp.array([4.0, 2.0, 1.0]), jnp.asarray(100.0))
    network = SeparateActorCritic(sight, network.actor, network.critic)
    seen = RunningStatistics(jnp.asarray(2.0), jnp.asarray(5.0), jnp.asarray(40.0))
    returns = ReturnStatistics(seen, floats(rng, BATCH)) if config.ppo.normalise_rewards else None
    return Agent(network, ppo.start(config, network), returns)


@pytest.fixture(scope="module")
def case() -> Any:
    rng = np.random.default_rng(11)
    rollout = made_up_rollout(rng, floats(rng, STEPS, BATCH, MOTORS))
    assert rollout.terminated.any() and rollout.truncated.any()
    return made_up_agent(rng, PLAIN), rollout


# The reference: loops, matrix products, and the chain rule by hand


Layers = list[np.ndarray]
"""Weight, bias, weight, bias, ..."""


def wide(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


def layers_of(perceptron: Any) -> Layers:
    return [wide(part) for layer in perceptron.layers for part in (layer.weight, layer.bias)]


def forward(layers: Layers, x: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The output, and what every layer was given."""
    given = []
    for i in range(0, len(layers), 2):
        given.append(x)
        x = x @ layers[i] + layers[i + 1]
        if i + 2 < len(layers):
            x = np.tanh(x)
    return x, given


def backward(layers: Layers, given: list[np.ndarray], slope: np.ndarray) -> Layers:
    """d loss / d layers, from d loss / d output."""
    found: Layers = []
    for i in reversed(range(0, len(layers), 2)):
        x = given[i // 2]
        found = [x.T @ slope, slope.sum(axis=0), *found]
        slope = (slope @ layers[i].T) * (1.0 - x**2)  # what a layer was given came out of a tanh
    return found


@dataclass
class Steps:
    """A batch, or a part of one, as the reference has it."""

    seen: np.ndarray
    action: np.ndarray
    log_probability: np.ndarray
    advantage: np.ndarray
    value: np.ndarray
    target: np.ndarray

    def rows(self, rows: Any) -> "Steps":
        return Steps(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


def log_normal(action: np.ndarray, mean: np.ndarray, log_std: np.ndarray) -> np.ndarray:
    return (-0.5 * ((action - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)).sum(axis=-1)


def actor_by_hand(
    parameters: Layers, steps: Steps, clip: float, entropy_weight: float
) -> tuple[float, float, float, Layers]:
    """The whole loss, its two parts, and its gradient; the last parameter is log sigma."""
    *layers, log_std = parameters
    mean, given = forward(layers, steps.seen)
    ratio = np.exp(log_normal(steps.action, mean, log_std) - steps.log_probability)
    bounded = np.minimum(np.maximum(ratio, 1 - clip), 1 + clip)
    policy_loss = -np.mean(np.minimum(ratio * steps.advantage, bounded * steps.advantage))
    entropy = float(np.sum(log_std + 0.5 * np.log(2 * np.pi * np.e)))
    # Where the bound is what counts it is flat; else d ratio = ratio d log pi.
    live = ratio * steps.advantage <= bounded * steps.advantage
    by_log = -np.where(live, ratio * steps.advantage, 0.0) / len(ratio)
    apart = (steps.action - mean) / np.exp(log_std)
    by_mean = by_log[:, None] * apart / np.exp(log_std)
    by_log_std = (by_log[:, None] * (apart**2 - 1.0)).sum(axis=0) - entropy_weight
    gradient = [*backward(layers, given, by_mean), by_log_std]
    return policy_loss - entropy_weight * entropy, policy_loss, entropy, gradient


def critic_by_hand(
    layers: Layers, steps: Steps, clip: float, weight: float, clip_value: bool
) -> tuple[float, float, Layers]:
    """The weighted loss, the loss, and the former's gradient."""
    output, given = forward(layers, steps.seen)
    value = output[:, 0]
    error, slope = (steps.target - value) ** 2, 2 * (value - steps.target)
    if clip_value:
        moved = value - steps.value
        near = steps.value + np.minimum(np.maximum(moved, -clip), clip)
        error_near = (steps.target - near) ** 2
        slope_near = 2 * (near - steps.target) * (np.abs(moved) < clip)
        slope = np.where(error_near > error, slope_near, slope)
        error = np.maximum(error, error_near)
    loss = float(error.mean())
    gradient = backward(layers, given, weight * slope[:, None] / len(slope))
    return weight * loss, loss, gradient


def reference_reward(config: LearnerConfig, rollout: Rollout, returns: Any) -> tuple[np.ndarray, list[float]]:
    """r_hat step by step, and all returns that were added to the statistics."""
    reward, penalty = wide(rollout.reward), wide(rollout.penalty)
    paid = np.zeros_like(reward)
    for t, n, k in product(range(STEPS), range(BATCH), range(len(CONSTRAINTS))):
        felt = penalty[t, n, k]
        if config.ppo.centred_penalty and IS_MEAN[k]:
            felt -= SIGN[k] * AIM[k]
        paid[t, n] += MULTIPLIER[k] * felt
    first = reward if config.ppo.penalise_normalised else reward - paid
    totals: list[float] = []
    scaled = first
    if returns is not None:
        for n in range(BATCH):
            total = float(returns.running[n])
            for t in range(STEPS):
                total = config.discount * total + first[t, n]
                totals.append(total)
                if rollout.terminated[t, n] or rollout.truncated[t, n]:
                    total = 0.0
        variance = together(returns.seen, np.array(totals))[1]
        scaled = np.minimum(np.maximum(first / np.sqrt(variance + 1e-8), -10), 10)
    reward = scaled - paid if config.ppo.penalise_normalised else scaled
    return reward / (1.0 + MULTIPLIER.sum()) if config.divide_by_multiplier else reward, totals


def together(statistics: Any, batch: np.ndarray) -> tuple[Any, Any]:
    """Mean and variance of what was seen before and a batch, from sums of squares."""
    mean, variance, count = wide(statistics.mean), wide(statistics.variance), float(statistics.count)
    both = count + len(batch)
    new_mean = (count * mean + batch.sum(axis=0)) / both
    squares = count * (variance + mean**2) + (batch**2).sum(axis=0)
    return new_mean, squares / both - new_mean**2


def reference_batch(config: LearnerConfig, agent: Agent, rollout: Rollout) -> Steps:
    network = agent.network
    actor, critic, log_std = layers_of(network.actor.body), layers_of(network.critic), wide(network.actor.log_std)
    obs, next_obs = wide(rollout.obs), wide(rollout.next_obs)

    def standard(mean: Any, variance: Any, x: np.ndarray) -> np.ndarray:
        return np.minimum(np.maximum((x - mean) / np.sqrt(variance + 1e-8), -10), 10)

    acted_on = standard(wide(network.sight.mean), wide(network.sight.variance), obs)
    log_probability = log_normal(wide(rollout.action), forward(actor, acted_on)[0], log_std)
    mean, variance = together(network.sight, obs.reshape(-1, SEEN))
    seen = standard(mean, variance, obs)
    value = forward(critic, seen)[0][..., 0]
    next_value = forward(critic, standard(mean, variance, next_obs))[0][..., 0]
    reward, _ = reference_reward(config, rollout, agent.returns)
    advantage = np.zeros((STEPS, BATCH))
    for n in range(BATCH):
        later = 0.0
        for t in reversed(range(STEPS)):
            if rollout.terminated[t, n] or rollout.truncated[t, n]:
                later = 0.0
            bootstrap = 0.0 if rollout.terminated[t, n] else next_value[t, n]
            later = reward[t, n] + config.discount * (bootstrap + config.gae_decay * later) - value[t, n]
            advantage[t, n] = later
    target = advantage + value
    if config.normalise_advantage:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-5)
    flat = [part.reshape(-1) for part in (log_probability, advantage, value, target)]
    return Steps(seen.reshape(-1, SEEN), wide(rollout.action).reshape(-1, MOTORS), *flat)


@dataclass
class Adam:
    """Kingma and Ba 2015, after the gradient was clipped by its norm."""

    largest: float
    first: Layers
    second: Layers
    steps: int = 0

    @classmethod
    def of(cls, parameters: Layers, largest: float) -> "Adam":
        return cls(largest, [0 * p for p in parameters], [0 * p for p in parameters])

    def step(self, parameters: Layers, gradient: Layers, step_size: float) -> Layers:
        norm = np.sqrt(sum(float((g**2).sum()) for g in gradient))
        if self.largest and norm > self.largest:
            gradient = [g * self.largest / norm for g in gradient]
        self.steps += 1
        self.first = [0.9 * m + 0.1 * g for m, g in zip(self.first, gradient, strict=True)]
        self.second = [0.999 * v + 0.001 * g**2 for v, g in zip(self.second, gradient, strict=True)]
        return [
            p - step_size * (m / (1 - 0.9**self.steps)) / (np.sqrt(v / (1 - 0.999**self.steps)) + 1e-5)
            for p, m, v in zip(parameters, self.first, self.second, strict=True)
        ]


def parameters_of(network: Any) -> tuple[Layers, Layers]:
    return [*layers_of(network.actor.body), wide(network.actor.log_std)], layers_of(network.critic)


def reference_update(
    config: LearnerConfig, agent: Agent, rollout: Rollout, orders: np.ndarray, iteration: int, iterations: int
) -> tuple[Layers, Layers, dict[str, float]]:
    """Actor and critic after going through the batch in these orders."""
    batch = reference_batch(config, agent, rollout)
    actor, critic = parameters_of(agent.network)
    of_actor, of_critic = Adam.of(actor, config.gradient_clip), Adam.of(critic, config.gradient_clip)
    left = 1.0 - iteration / iterations
    clip, said = 0.2 * left, []
    for order in orders:
        for rows in np.split(order, config.ppo.minibatches):
            part = batch.rows(rows)
            _, policy_loss, entropy, by_actor = actor_by_hand(actor, part, clip, 0.02)
            _, value_loss, by_critic = critic_by_hand(
                critic, part, clip, config.value_coefficient, config.ppo.clip_value
            )
            actor = of_actor.step(actor, by_actor, 3e-3 * left)
            critic = of_critic.step(critic, by_critic, 5e-3 * left)
            said.append((policy_loss, entropy, value_loss))
    names = ("loss/policy", "policy/entropy", "loss/value")
    metrics = dict(zip(names, np.mean(said, axis=0).tolist(), strict=True))
    return actor, critic, metrics | {"policy/std": float(np.exp(actor[-1]).mean())}


# The reference itself


def far_batch(rng: np.random.Generator) -> Steps:
    """Probabilities and values that differ from the networks' own, so that every bound is met."""
    rows = 40
    return Steps(
        seen=rng.normal(size=(rows, SEEN)),
        action=rng.normal(size=(rows, MOTORS)),
        log_probability=rng.normal(-2.5, 0.5, size=rows),
        advantage=rng.normal(size=rows),
        value=rng.normal(size=rows),
        target=rng.normal(size=rows),
    )


@pytest.mark.parametrize("clip_value", [False, True])
def test_the_hand_written_gradients_are_the_slopes_of_the_losses(case: Any, clip_value: bool) -> None:
    """Central differences in double precision: what everything below is compared to."""
    steps = far_batch(np.random.default_rng(5))
    actor, critic = parameters_of(case[0].network)

    def losses(parameters: Layers, which: int) -> float:
        if which == 0:
            return actor_by_hand(parameters, steps, 0.2, 0.05)[0]
        return critic_by_hand(parameters, steps, 0.4, 0.7, clip_value)[0]

    gradients = (actor_by_hand(actor, steps, 0.2, 0.05)[3], critic_by_hand(critic, steps, 0.4, 0.7, clip_value)[2])
    for which, parameters in enumerate((actor, critic)):
        for i, parameter in enumerate(parameters):
            for place in np.ndindex(parameter.shape):
                moved = []
                for change in (1e-6, -1e-6):
                    other = [part.copy() for part in parameters]
                    other[i][place] += change
                    moved.append(losses(other, which))
                assert (moved[0] - moved[1]) / 2e-6 == pytest.approx(gradients[which][i][place], abs=1e-7)


# The losses


def as_batch(steps: Steps) -> ppo.Batch:
    return ppo.Batch(**{name: jnp.asarray(getattr(steps, name), jnp.float32) for name in steps.__dataclass_fields__})


def test_the_actors_loss_and_its_gradient(case: Any) -> None:
    steps, actor = far_batch(np.random.default_rng(5)), case[0].network.actor
    slope = jax.jit(jax.value_and_grad(ppo.actor_loss, has_aux=True))
    (total, metrics), gradient = slope(actor, as_batch(steps), 0.2, 0.05)
    parameters, _ = parameters_of(case[0].network)
    expected_total, policy_loss, entropy, expected = actor_by_hand(parameters, steps, 0.2, 0.05)
    assert total == pytest.approx(expected_total, rel=1e-5)
    assert metrics["loss/policy"] == pytest.approx(policy_loss, rel=1e-5)
    assert metrics["policy/entropy"] == pytest.approx(entropy, rel=1e-5)
    for found, wanted in zip([*layers_of(gradient.body), wide(gradient.log_std)], expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("clip_value", [False, True])
def test_the_critics_loss_and_its_gradient(case: Any, clip_value: bool) -> None:
    steps, critic = far_batch(np.random.default_rng(5)), case[0].network.critic
    slope = jax.jit(jax.value_and_grad(ppo.critic_loss, has_aux=True), static_argnums=(3, 4))
    (total, metrics), gradient = slope(critic, as_batch(steps), 0.4, 0.7, clip_value)
    _, parameters = parameters_of(case[0].network)
    expected_total, loss, expected = critic_by_hand(parameters, steps, 0.4, 0.7, clip_value)
    assert total == pytest.approx(expected_total, rel=1e-5)
    assert metrics["loss/value"] == pytest.approx(loss, rel=1e-5)
    for found, wanted in zip(layers_of(gradient), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    plain = critic_by_hand(parameters, steps, 0.4, 0.7, not clip_value)[1]
    assert (loss > plain) == clip_value, "the bound makes the loss larger, never smaller"


@pytest.mark.parametrize(
    ("advantage", "ratio", "expected", "moves"),
    [
        (1.0, 1.1, 1.1, True),
        (1.0, 1.5, 1.2, False),
        (1.0, 0.5, 0.5, True),
        (-1.0, 0.5, -0.8, False),
        (-1.0, 1.5, -1.5, True),
        (-1.0, 0.9, -0.9, True),
    ],
)
def test_a_ratio_counts_until_it_has_gained_enough(
    case: Any, advantage: float, ratio: float, expected: float, moves: bool
) -> None:
    """Schulman et al. 2017, figure 1, with epsilon = 0.2."""
    actor = case[0].network.actor
    seen, action = jnp.ones((1, SEEN)), jnp.ones((1, MOTORS))
    now = actor(seen).log_probability(action)
    nothing = jnp.zeros(1)
    batch = ppo.Batch(seen, action, now - np.log(ratio), jnp.array([advantage]), nothing, nothing)
    (_, metrics), gradient = jax.value_and_grad(ppo.actor_loss, has_aux=True)(actor, batch, 0.2, 0.0)
    assert metrics["loss/policy"] == pytest.approx(-expected, rel=1e-4)
    assert any(np.abs(leaf).max() > 1e-6 for leaf in jax.tree.leaves(gradient)) == moves


# The penalised reward


ORDERS = list(product([False, True], repeat=4))


@pytest.mark.parametrize(("normalise", "after", "centred", "divide"), ORDERS)
def test_the_penalised_reward_is_the_slow_loop(
    case: Any, normalise: bool, after: bool, centred: bool, divide: bool
) -> None:
    known, rollout = case
    agent: Any = known if normalise else Agent(known.network, known.optimiser, None)
    own = replace(PLAIN.ppo, normalise_rewards=normalise, penalise_normalised=after, centred_penalty=centred)
    config = replace(PLAIN, ppo=own, divide_by_multiplier=divide)
    multiplier, aim = jnp.asarray(MULTIPLIER, jnp.float32), jnp.asarray(AIM, jnp.float32)
    learned, found = ppo.penalised_reward(config, CONSTRAINTS, agent, rollout, multiplier, aim)
    expected, totals = reference_reward(config, rollout, agent.returns)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    if normalise:
        mean, variance = together(agent.returns.seen, np.array(totals))
        assert learned.returns is not None
        assert learned.returns.seen.mean == pytest.approx(mean, rel=1e-4)
        assert learned.returns.seen.variance == pytest.approx(variance, rel=1e-4)


def test_every_order_is_another_reward(case: Any) -> None:
    """So that none of the switches above was without effect."""
    agent, rollout = case
    rewards = []
    for normalise, after, centred, divide in ORDERS:
        own = replace(PLAIN.ppo, penalise_normalised=after, centred_penalty=centred)
        returns = agent.returns if normalise else None
        rewards.append(reference_reward(replace(PLAIN, ppo=own, divide_by_multiplier=divide), rollout, returns)[0])
    same = sum(np.allclose(one, other) for i, one in enumerate(rewards) for other in rewards[:i])
    assert same == 4, "only without normalisation is its order all the same, centred or not, divided or not"


@pytest.mark.parametrize("after", [False, True])
def test_the_rewards_unit_and_the_multiplier(case: Any, after: bool) -> None:
    """After the division the penalty weighs the same whatever the unit of the rewards, before it does not."""
    _, rollout = case
    config = replace(PLAIN, ppo=replace(PLAIN.ppo, penalise_normalised=after))
    multiplier, aim = jnp.asarray(MULTIPLIER, jnp.float32), jnp.asarray(AIM, jnp.float32)
    found = []
    for unit in (1.0, 100.0):
        seen = RunningStatistics(jnp.asarray(2.0 * unit), jnp.asarray(5.0 * unit**2), jnp.asarray(40.0))
        agent = Agent(None, None, ReturnStatistics(seen, jnp.zeros(BATCH)))
        parts = {name: getattr(rollout, name) for name in Rollout.__dataclass_fields__}
        scaled = Rollout(**parts | {"reward": unit * rollout.reward})
        found.append(ppo.penalised_reward(config, CONSTRAINTS, agent, scaled, multiplier, aim)[1])
    assert np.allclose(found[0], found[1], rtol=1e-4, atol=1e-5) == after


@pytest.mark.parametrize("centred", [False, True])
def test_without_constraints_the_reward_stays(case: Any, centred: bool) -> None:
    _, rollout = case
    parts = {name: getattr(rollout, name) for name in Rollout.__dataclass_fields__}
    free = Rollout(**parts | {"penalty": jnp.zeros((STEPS, BATCH, 0))})
    config = replace(PLAIN, divide_by_multiplier=True, ppo=replace(PLAIN.ppo, centred_penalty=centred))
    _, found = ppo.penalised_reward(config, (), Agent(None, None, None), free, jnp.zeros(0), jnp.zeros(0))
    np.testing.assert_array_equal(found, rollout.reward)


# A whole update


def updated(config: LearnerConfig, agent: Agent, rollout: Rollout, seed: int = 4) -> tuple[Agent, Any]:
    multiplier, aim = jnp.asarray(MULTIPLIER, jnp.float32), jnp.asarray(AIM, jnp.float32)
    key, now = jax.random.key(seed), jnp.array(3, jnp.int32)
    return ppo.update(config, CONSTRAINTS, agent, rollout, multiplier, aim, key, now, 10)


def orders_of(config: LearnerConfig, seed: int = 4) -> np.ndarray:
    """A new order of the batch for every epoch."""
    keys = jax.random.split(jax.random.key(seed), config.ppo.epochs)
    return np.stack([np.asarray(jax.random.permutation(key, STEPS * BATCH)) for key in keys])


def test_what_is_prepared(case: Any) -> None:
    agent, rollout = case
    multiplier, aim = jnp.asarray(MULTIPLIER, jnp.float32), jnp.asarray(AIM, jnp.float32)
    learned, batch = ppo.prepare(PLAIN, CONSTRAINTS, agent, rollout, multiplier, aim)
    expected = reference_batch(PLAIN, agent, rollout)
    for name in Steps.__dataclass_fields__:
        np.testing.assert_allclose(getattr(batch, name), getattr(expected, name), rtol=1e-4, atol=2e-5)
    mean, variance = together(agent.network.sight, wide(rollout.obs).reshape(-1, SEEN))
    np.testing.assert_allclose(learned.network.sight.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(learned.network.sight.variance, variance, rtol=1e-4)
    for one, other in zip(jax.tree.leaves(learned.network.actor), jax.tree.leaves(agent.network.actor), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("epochs", "minibatches", "clip_value", "gradient_clip"),
    [(1, 1, False, 0.01), (2, 1, False, 0.0), (3, 4, True, 0.5)],
)
def test_an_update_is_the_one_written_by_hand(
    case: Any, epochs: int, minibatches: int, clip_value: bool, gradient_clip: float
) -> None:
    agent, rollout = case
    own = replace(PLAIN.ppo, epochs=epochs, minibatches=minibatches, clip_value=clip_value)
    config = replace(PLAIN, ppo=own, gradient_clip=gradient_clip)
    found, metrics = updated(config, agent, rollout)
    actor, critic, expected = reference_update(config, agent, rollout, orders_of(config), 3, 10)
    before = parameters_of(agent.network)
    for part, (old, new, wanted) in enumerate(zip(before, parameters_of(found.network), (actor, critic), strict=True)):
        step_size = (3e-3, 5e-3)[part] * 0.7
        for one, other, truth in zip(old, new, wanted, strict=True):
            # In units of one step; where a gradient all but vanishes Adam's step hangs on its last digits.
            np.testing.assert_allclose((other - one) / step_size, (truth - one) / step_size, rtol=2e-3, atol=5e-3)
        assert max(np.abs(truth - one).max() for one, truth in zip(old, wanted, strict=True)) > 0.5 * step_size
    assert metrics.keys() == expected.keys()
    for name, number in expected.items():
        assert metrics[name] == pytest.approx(number, rel=1e-3, abs=1e-5)


def same(one: Any, other: Any) -> bool:
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes()
               for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))  # fmt: skip


def test_two_threads_give_the_bits_of_one(case: Any) -> None:
    """What the two updates give, called one after the other; and again; and with another key."""
    agent, rollout = case
    config = replace(PLAIN, ppo=replace(PLAIN.ppo, epochs=3, minibatches=4))
    multiplier, aim = jnp.asarray(MULTIPLIER, jnp.float32), jnp.asarray(AIM, jnp.float32)
    together = updated(config, agent, rollout)
    assert same(together, updated(config, agent, rollout))
    ready, batch = ppo.prepare(config, CONSTRAINTS, agent, rollout, multiplier, aim)
    common = (batch, jax.random.key(4), jnp.array(3, jnp.int32), 10)
    critic, critic_memory, more = ppo.update_critic(config, ready.network.critic, ready.optimiser.critic, *common)
    actor, actor_memory, metrics = ppo.update_actor(config, ready.network.actor, ready.optimiser.actor, *common)
    network = SeparateActorCritic(ready.network.sight, actor, critic)
    apart = Agent(network, ppo.Optimisers(actor_memory, critic_memory), ready.returns)
    assert same(together, (apart, metrics | more))
    assert not same(together[0].network, updated(config, agent, rollout, seed=5)[0].network)


def test_adam_remembers_from_one_update_to_the_next(case: Any) -> None:
    agent, rollout = case
    once, _ = updated(PLAIN, agent, rollout)
    forgetful = Agent(once.network, ppo.start(PLAIN, once.network), once.returns)
    assert not same(updated(PLAIN, once, rollout)[0].network, updated(PLAIN, forgetful, rollout)[0].network)


def test_choices_are_learned_by_the_same_rule() -> None:
    """One step on choices: the logits move by Adam along the gradient of the surrogate, written out for softmax."""
    rng = np.random.default_rng(2)
    config = replace(PLAIN, entropy=Schedule(0.0), ppo=replace(PLAIN.ppo, hidden=(), normalise_rewards=False))
    network = separate_actor_critic(jax.random.key(1), SEEN, 4, (), 1.0, see=False)
    agent = Agent(network, ppo.start(config, network), None)
    action = rng.integers(4, size=(STEPS, BATCH)).astype(np.int32)
    rollout = made_up_rollout(rng, jnp.asarray(action))
    found, _ = updated(config, agent, rollout)
    multiplier, aim = jnp.asarray(MULTIPLIER, jnp.float32), jnp.asarray(AIM, jnp.float32)
    batch = ppo.prepare(config, CONSTRAINTS, agent, rollout, multiplier, aim)[1]
    weight, bias = layers_of(network.actor.body)
    x, advantage = wide(batch.seen), wide(batch.advantage)
    logits = x @ weight + bias
    policy = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    log_probability = np.log(policy[np.arange(len(x)), action.reshape(-1)])
    np.testing.assert_allclose(batch.log_probability, log_probability, rtol=1e-5)
    by_logits = -advantage[:, None] * (np.eye(4)[action.reshape(-1)] - policy) / len(x)
    expected = Adam.of([weight, bias], 0.5).step([weight, bias], [x.T @ by_logits, by_logits.sum(axis=0)], 0.7 * 3e-3)
    for new, wanted in zip(layers_of(found.network.actor.body), expected, strict=True):
        np.testing.assert_allclose(new, wanted, atol=1e-5)
    assert found.network.actor.log_std is None
