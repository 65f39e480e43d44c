"""Proximal policy optimisation on the penalised reward (Schulman et al. 2017), for environments on the host.

Actor and critic share no parameters, so their updates do not depend on each other. As one compiled program they would
run one after the other on one core; as two programs in two threads they use two.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray, Shaped

from rcpo.advantage import generalised_advantage, penalise
from rcpo.config import LearnerConfig
from rcpo.constraints import Constraint
from rcpo.networks import Actor, SeparateActorCritic
from rcpo.normalise import merge, merge_returns, scale_reward
from rcpo.threads import side_by_side
from rcpo.types import Agent, Metrics, Rollout

ADVANTAGE_EPSILON: Final = 1e-5


class Batch(NamedTuple):
    """A rollout as one row of B = T x N steps, with all that stays the same while it is gone through."""

    seen: Num[Array, "B ..."]
    action: Shaped[Array, "B ..."]
    log_probability: Float[Array, " B"]
    """Of the action, under the policy that took it."""
    advantage: Float[Array, " B"]
    value: Float[Array, " B"]
    target: Float[Array, " B"]


@final
class Optimisers(eqx.Module):
    """Adam's memory for actor and critic, each over all of its parameters in one row."""

    actor: optax.OptState
    critic: optax.OptState


def optimiser(config: LearnerConfig) -> optax.GradientTransformation:
    """The gradient, clipped and preconditioned; the step sizes come with each update."""
    clip = optax.clip_by_global_norm(config.gradient_clip) if config.gradient_clip > 0.0 else optax.identity()
    return optax.chain(clip, optax.scale_by_adam(eps=1e-5))


def start(config: LearnerConfig, network: SeparateActorCritic) -> Optimisers:
    """Optimisers that remember nothing."""
    init = optimiser(config).init
    return Optimisers(init(ravel_pytree(network.actor)[0]), init(ravel_pytree(network.critic)[0]))


def penalised_reward(
    config: LearnerConfig,
    constraints: tuple[Constraint, ...],
    agent: Agent,
    rollout: Rollout,
    multiplier: Float[Array, " K"],
    aim: Float[Array, " K"],
) -> tuple[Agent, Float[Array, "T N"]]:
    """r_hat = r - lambda . c (the paper's Eq. 10) in units of the returns' size; and the agent that has learned these.

    The paper's order is to penalise first and to normalise the sum. The other order frees the multiplier from the
    reward's scale.
    """
    ppo, penalty = config.ppo, rollout.penalty
    if ppo.centred_penalty:
        penalty = penalty - jnp.array([c.sign * c.functional.allowance(aim[k]) for k, c in enumerate(constraints)])
    paid = penalise(jnp.zeros_like(rollout.reward), penalty, multiplier)
    reward = rollout.reward if ppo.penalise_normalised else rollout.reward + paid
    if agent.returns is not None:
        ended = rollout.terminated | rollout.truncated
        returns = merge_returns(agent.returns, reward, ended, config.discount)
        agent, reward = Agent(agent.network, agent.optimiser, returns), scale_reward(returns, reward)
    if ppo.penalise_normalised:
        reward = reward + paid
    if config.divide_by_multiplier:
        reward = reward / (1.0 + multiplier.sum())
    return agent, reward


@partial(jax.jit, static_argnames=("config", "constraints"))
def prepare(
    config: LearnerConfig,
    constraints: tuple[Constraint, ...],
    agent: Agent,
    rollout: Rollout,
    multiplier: Float[Array, " K"],
    aim: Float[Array, " K"],
) -> tuple[Agent, Batch]:
    """Advantages and targets; and the agent that has also learned how large rewards are and what there is to see.

    The probabilities are those of the policy that acted, which saw by the statistics of before: the ratios of the
    update are right although the statistics move.
    """
    agent, reward = penalised_reward(config, constraints, agent, rollout, multiplier, aim)
    network: SeparateActorCritic = agent.network
    log_probability = network.distribution(rollout.obs).log_probability(rollout.action)
    if network.sight is not None:
        sight = merge(network.sight, rollout.obs.reshape(-1, *rollout.obs.shape[2:]))
        network = SeparateActorCritic(sight, network.actor, network.critic)
    seen, value, next_value = network.see(rollout.obs), network.value(rollout.obs), network.value(rollout.next_obs)
    advantage = generalised_advantage(
        reward, value, next_value, rollout.terminated, rollout.truncated, config.discount, config.gae_decay
    )
    target = advantage + value
    if config.normalise_advantage:
        advantage = (advantage - advantage.mean()) / (advantage.std() + ADVANTAGE_EPSILON)
    batch = Batch(seen, rollout.action, log_probability, advantage, value, target)
    row = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), batch)
    return Agent(network, agent.optimiser, agent.returns), row


def actor_loss(
    actor: Actor, batch: Batch, clip: Float[Array, ""] | float, entropy_weight: Float[Array, ""] | float
) -> tuple[Float[Array, ""], Metrics]:
    """-E[min(rho A, clip(rho, 1 - eps, 1 + eps) A)] - w_h E[H], rho = pi / pi_old (Schulman et al. 2017, Eq. 7)."""
    policy = actor(batch.seen)
    ratio = jnp.exp(policy.log_probability(batch.action) - batch.log_probability)
    bounded = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    policy_loss = -jnp.mean(jnp.minimum(ratio * batch.advantage, bounded * batch.advantage))
    entropy = policy.entropy().mean()
    return policy_loss - entropy_weight * entropy, {"loss/policy": policy_loss, "policy/entropy": entropy}


def critic_loss(
    critic: Any, batch: Batch, clip: Float[Array, ""] | float, weight: float, clip_value: bool
) -> tuple[Float[Array, ""], Metrics]:
    """w_v E[(target - V(s))^2]; with `clip_value` the larger of that and of V kept within eps of what it was."""
    value = critic(batch.seen)[..., 0]
    error = (batch.target - value) ** 2
    if clip_value:
        near = batch.value + jnp.clip(value - batch.value, -clip, clip)
        error = jnp.maximum(error, (batch.target - near) ** 2)
    loss = jnp.mean(error)
    return weight * loss, {"loss/value": loss}


def go_through(
    config: LearnerConfig,
    loss: Callable[[Any, Batch], tuple[Array, Metrics]],
    parameters: Any,
    memory: optax.OptState,
    batch: Batch,
    key: PRNGKeyArray,
    step_size: Float[Array, ""],
) -> tuple[Any, optax.OptState, Metrics]:
    """`epochs` passes over the batch, each in a new order, a gradient step for every minibatch.

    All parameters lie in one row: one update of one array instead of one for every layer.
    """
    row, unravel = ravel_pytree(parameters)
    epochs, size = config.ppo.epochs, len(batch.advantage)
    order = jax.vmap(lambda key: jax.random.permutation(key, size))(jax.random.split(key, epochs))
    order = order.reshape(epochs * config.ppo.minibatches, -1)
    gradient = jax.grad(lambda row, part: loss(unravel(row), part), has_aux=True)
    transform = optimiser(config)

    def step(carry: tuple[Array, optax.OptState], rows: Int[Array, " M"]) -> tuple[tuple, Metrics]:
        row, memory = carry
        slope, metrics = gradient(row, jax.tree.map(lambda leaf: leaf[rows], batch))
        change, memory = transform.update(slope, memory)
        return (row - step_size * change, memory), metrics

    (row, memory), metrics = jax.lax.scan(step, (row, memory), order)
    return unravel(row), memory, jax.tree.map(jnp.mean, metrics)


@partial(jax.jit, static_argnames=("config", "iterations"))
def update_actor(
    config: LearnerConfig,
    actor: Actor,
    memory: optax.OptState,
    batch: Batch,
    key: PRNGKeyArray,
    iteration: Int[Array, ""],
    iterations: int,
) -> tuple[Actor, optax.OptState, Metrics]:
    """The intermediate timescale."""
    clip, entropy_weight = config.ppo.clip.at(iteration, iterations), config.entropy.at(iteration, iterations)
    step_size = config.actor_step_size.at(iteration, iterations)
    loss = partial(actor_loss, clip=clip, entropy_weight=entropy_weight)
    actor, memory, metrics = go_through(config, loss, actor, memory, batch, key, step_size)
    return actor, memory, metrics if actor.log_std is None else metrics | {"policy/std": jnp.exp(actor.log_std).mean()}


@partial(jax.jit, static_argnames=("config", "iterations"))
def update_critic(
    config: LearnerConfig,
    critic: Any,
    memory: optax.OptState,
    batch: Batch,
    key: PRNGKeyArray,
    iteration: Int[Array, ""],
    iterations: int,
) -> tuple[Any, optax.OptState, Metrics]:
    """The fastest timescale."""
    clip = config.ppo.clip.at(iteration, iterations)
    loss = partial(critic_loss, clip=clip, weight=config.value_coefficient, clip_value=config.ppo.clip_value)
    step_size = config.critic_step_size.at(iteration, iterations)
    return go_through(config, loss, critic, memory, batch, key, step_size)


def update(
    config: LearnerConfig,
    constraints: tuple[Constraint, ...],
    agent: Agent,
    rollout: Rollout,
    multiplier: Float[Array, " K"],
    aim: Float[Array, " K"],
    key: PRNGKeyArray,
    iteration: Int[Array, ""],
    iterations: int,
) -> tuple[Agent, Metrics]:
    """Critic and actor, each in its own thread."""
    agent, batch = prepare(config, constraints, agent, rollout, multiplier, aim)
    network, memory = agent.network, agent.optimiser
    common = (batch, key, iteration)
    improve_actor = partial(update_actor, config, network.actor, memory.actor, *common, iterations)
    improve_critic = partial(update_critic, config, network.critic, memory.critic, *common, iterations)
    # Each thread waits for its own result: sent off one after the other, the two would run one after the other.
    (actor, actor_memory, metrics), (critic, critic_memory, more) = side_by_side(
        lambda: jax.block_until_ready(improve_actor()), lambda: jax.block_until_ready(improve_critic())
    )
    network = SeparateActorCritic(network.sight, actor, critic)
    return Agent(network, Optimisers(actor_memory, critic_memory), agent.returns), metrics | more
