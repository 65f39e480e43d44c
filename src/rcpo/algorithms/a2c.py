"""Advantage actor-critic on the penalised reward: the fast timescales of the paper's Algorithm 2."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from rcpo.advantage import generalised_advantage, penalise
from rcpo.config import LearnerConfig
from rcpo.envs.base import JaxEnvironment
from rcpo.networks import ActorCritic, is_critic
from rcpo.rollout import look
from rcpo.types import Agent, Metrics, Rollout


class Estimate(NamedTuple):
    """What the actor should do more of, and what the critic should have said."""

    advantage: Float[Array, "T N"]
    target: Float[Array, "T N"]


def estimate(
    config: LearnerConfig,
    rollout: Rollout,
    value: Float[Array, "T N"],
    next_value: Float[Array, "T N"],
    multiplier: Float[Array, " K"],
) -> Estimate:
    """The advantage of the penalised reward under one critic (the paper's Eq. 10 and 11)."""
    reward = penalise(rollout.reward, rollout.penalty, multiplier)
    if config.divide_by_multiplier:
        # The reward of a task keeps its size however large its multipliers grow; the best policy stays the same.
        reward = reward / (1.0 + multiplier.sum())
    advantage = generalised_advantage(
        reward, value, next_value, rollout.terminated, rollout.truncated, config.discount, config.gae_decay
    )
    return Estimate(advantage, advantage + value)


def loss(
    logits: Float[Array, "T N A"],
    value: Float[Array, "T N"],
    action: Int[Array, "T N"],
    estimate: Estimate,
    entropy_weight: Float[Array, ""] | float,
    value_weight: float,
    weight: Float[Array, "T N"] | float,
) -> tuple[Float[Array, ""], Metrics]:
    """-E[A log pi(a|s)] + w_v E[(target - V(s))^2] - w_h E[H(pi(.|s))] (the paper's Algorithm 2, lines 13 and 14).

    `weight` is what each step counts in the expectation; the weights add up to one.
    """
    log_policy = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(log_policy, action[..., None], axis=-1)[..., 0]
    policy_loss = -jnp.sum(weight * estimate.advantage * chosen)
    value_loss = jnp.sum(weight * (estimate.target - value) ** 2)
    entropy = -jnp.sum(weight * jnp.sum(jnp.exp(log_policy) * log_policy, axis=-1))
    total = policy_loss + value_weight * value_loss - entropy_weight * entropy
    return total, {"loss/policy": policy_loss, "loss/value": value_loss, "policy/entropy": entropy}


def optimiser(config: LearnerConfig) -> optax.GradientTransformation:
    """The gradient, clipped and preconditioned; the step sizes come with each update."""
    clip = optax.clip_by_global_norm(config.gradient_clip) if config.gradient_clip > 0.0 else optax.identity()
    if config.optimiser == "rmsprop":
        return optax.chain(clip, optax.scale_by_rms(decay=0.99, eps=1e-5, eps_in_sqrt=False))
    if config.optimiser == "adam":
        return optax.chain(clip, optax.scale_by_adam(eps=1e-5))
    return clip


def descend(config: LearnerConfig, agent: Agent, gradient: PyTree, iteration: Int[Array, ""], iterations: int) -> Agent:
    """One step of each group of parameters with its own step size, then the projection of the actor onto its box.

    The critic's own layers move with eta_3, everything that the policy depends on with eta_2 (the paper's Eq. 6).
    """
    update, state = optimiser(config).update(gradient, agent.optimiser)
    actor = config.actor_step_size.at(iteration, iterations)
    critic = config.critic_step_size.at(iteration, iterations)

    def move(path: tuple, parameter: Array, change: Array) -> Array:
        if is_critic(path):
            return parameter - critic * change
        moved = parameter - actor * change
        return moved if config.box is None else jnp.clip(moved, -config.box, config.box)

    return Agent(network=jax.tree_util.tree_map_with_path(move, agent.network, update), optimiser=state)


def update(
    config: LearnerConfig,
    environment: JaxEnvironment,
    agent: Agent,
    rollout: Rollout,
    multiplier: Float[Array, " K"],
    iteration: Int[Array, ""],
    iterations: int,
) -> tuple[Agent, Metrics]:
    """Critic and actor, one gradient step on one rollout."""

    def forward(network: ActorCritic) -> tuple[tuple[Array, Array], Array]:
        at = look(network, environment, rollout.reward.size)
        return at(rollout.obs), at(rollout.next_obs)[1]

    # One forward pass serves the estimate and the gradient; the next state's value is read off, not differentiated.
    (logits, value), pull_back, next_value = jax.vjp(forward, agent.network, has_aux=True)
    estimated = estimate(config, rollout, value, next_value, multiplier)
    if config.normalise_advantage:
        advantage = estimated.advantage
        estimated = estimated._replace(advantage=(advantage - advantage.mean()) / (advantage.std() + 1e-8))
    entropy_weight = config.entropy.at(iteration, iterations)
    slope, metrics = jax.grad(loss, argnums=(0, 1), has_aux=True)(
        logits, value, rollout.action, estimated, entropy_weight, config.value_coefficient, 1.0 / value.size
    )
    (gradient,) = pull_back(slope)
    return descend(config, agent, gradient, iteration, iterations), metrics
