"""The paper's baseline: the Lagrangian itself, optimised by Monte Carlo, without a critic (its Eq. 7)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rcpo.advantage import monte_carlo_return
from rcpo.algorithms.a2c import Estimate, descend, loss
from rcpo.config import LearnerConfig
from rcpo.envs.base import JaxEnvironment
from rcpo.rollout import first_episodes, look
from rcpo.types import Agent, Metrics, Rollout


def lagrangian_return(
    config: LearnerConfig, rollout: Rollout, multiplier: Float[Array, " K"], sign: Float[Array, " K"]
) -> Float[Array, "T N"]:
    """R(s_t) - lambda . C for every step of each environment's first episode, and 0 after it (the paper's Eq. 7).

    R is the discounted reward to go. C is the value of the whole episode, whatever function of its costs that is: it
    has no "to go", so every step of the episode answers for all of it.
    """
    running = first_episodes(rollout)
    ended = rollout.terminated | rollout.truncated
    last = (ended & running)[..., None]
    worth = jnp.sum(rollout.episode.value * last, axis=0) @ (sign * multiplier)
    return (monte_carlo_return(rollout.reward, running, config.discount) - worth) * running


def update(
    config: LearnerConfig,
    environment: JaxEnvironment,
    agent: Agent,
    rollout: Rollout,
    multiplier: Float[Array, " K"],
    sign: Float[Array, " K"],
    iteration: Int[Array, ""],
    iterations: int,
) -> tuple[Agent, Metrics]:
    """One step of the likelihood-ratio gradient over complete episodes; the critic is neither used nor trained.

    The one help it gets is a constant baseline, the mean return of the batch, which leaves the gradient unbiased up to
    1 / N; without it every return here is negative and the policy collapses onto whatever it did first.
    """
    running = first_episodes(rollout).astype(jnp.float32)
    weight = running / running.sum()
    total = lagrangian_return(config, rollout, multiplier, sign)
    centred = total - jnp.sum(weight * total)
    if config.normalise_advantage:
        centred = centred / (jnp.sqrt(jnp.sum(weight * centred**2)) + 1e-8)
    entropy_weight = config.entropy.at(iteration, iterations)
    logits, pull_back = jax.vjp(
        lambda network: look(network, environment, rollout.reward.size)(rollout.obs)[0], agent.network
    )
    slope, metrics = jax.grad(loss, has_aux=True)(
        logits, total, rollout.action, Estimate(centred, total), entropy_weight, 0.0, weight
    )
    (gradient,) = pull_back(slope)
    return descend(config, agent, gradient, iteration, iterations), metrics
