"""What a run hands over: networks, how they are mixed, and what they do."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Num, PRNGKeyArray, PyTree

from rcpo.distributions import Categorical, Gaussian
from rcpo.envs.base import JaxEnvironment
from rcpo.networks import Actor, Perceptron, SeparateActorCritic
from rcpo.normalise import CLIP, SMALLEST_VARIANCE, RunningStatistics
from rcpo.rollout import look


@final
class Policy(eqx.Module):
    """What a run hands over: M networks, one of which is drawn at the start of each episode and then followed.

    A constrained optimum randomises; drawing once per episode is the simplest way to randomise between two policies.
    """

    networks: PyTree
    """Every leaf has a leading axis M."""
    weights: Float[Array, " M"]
    greedy: Bool[Array, " M"]
    """Whether a network's likeliest action is taken, or one drawn from its distribution."""

    @property
    def components(self) -> int:
        return int(self.weights.shape[0])

    def deterministic(self) -> "Policy":
        """The same networks, each taking its likeliest action."""
        return Policy(self.networks, self.weights, jnp.ones_like(self.greedy))


def single(network: PyTree, greedy: bool) -> Policy:
    """The policy of one network."""
    networks = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], network)
    return Policy(networks, jnp.ones(1), jnp.array([greedy]))


def mix(policies: Sequence[Policy], weights: Sequence[float]) -> Policy:
    """One policy that draws one of `policies` at the start of each episode."""
    total = sum(weights)
    return Policy(
        networks=jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(policy.networks for policy in policies)),
        weights=jnp.concatenate([p.weights * (w / total) for p, w in zip(policies, weights, strict=True)]),
        greedy=jnp.concatenate([policy.greedy for policy in policies]),
    )


def logits_of(environment: JaxEnvironment, policy: Policy) -> Callable[[Array, Array], Array]:
    """The logits in each of N environments, of the component that each of them follows."""
    if environment.states() is not None:
        tables = jax.vmap(lambda network: network(environment.states())[0])(policy.networks)
        return lambda obs, component: tables[component, obs]

    def evaluate(obs: Array, component: Array) -> Array:
        every = jax.vmap(lambda network: look(network, environment, len(obs))(obs)[0])(policy.networks)
        return every[component, jnp.arange(len(component))]

    return evaluate


def action_probabilities(environment: JaxEnvironment, policy: Policy) -> Float[np.ndarray, "M S A"]:
    """What each component does in each state, in double precision."""
    logits = jax.vmap(lambda network: network(environment.states())[0])(policy.networks)
    wide = np.asarray(logits, dtype=np.float64)
    wide = np.exp(wide - wide.max(axis=-1, keepdims=True))
    drawn = wide / wide.sum(axis=-1, keepdims=True)
    best = np.eye(wide.shape[-1])[np.asarray(jnp.argmax(logits, axis=-1))]
    return np.where(np.asarray(policy.greedy)[:, None, None], best, drawn)


@partial(jax.jit, static_argnames="shape")
def rollout_noise(network: SeparateActorCritic, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "T N A"]:
    """What `act` needs to be random, for all steps of a rollout at once."""
    kind = Categorical if network.actor.log_std is None else Gaussian
    return kind.noise(key, shape)


@partial(jax.jit, static_argnames="greedy")
def decide(
    sight: RunningStatistics | None, actor: Actor, obs: Num[Array, "N ..."], noise: Float[Array, "N A"], greedy: bool
) -> Num[Array, "N ..."]:
    """The same for any network, compiled."""
    policy = actor(SeparateActorCritic(sight, actor, None).see(obs))
    return policy.mode() if greedy else policy.draw(noise)


def acting(network: SeparateActorCritic, greedy: bool = False) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """What a network does, given what is seen and the noise to draw with: actions drawn, or the likeliest ones.

    In numpy: for a few dozen copies the arithmetic takes less time than calling a compiled program and waking the
    threads that run it, while all cores are busy with the physics.
    """
    sight, log_std, ends = network.sight, network.actor.log_std, np.cumsum(network.actor.options)
    if not isinstance(network.actor.body, Perceptron):
        return lambda obs, noise: np.asarray(decide(sight, network.actor, obs, noise, greedy))
    layers = [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in network.actor.body.layers]
    std = None if log_std is None else np.exp(np.asarray(log_std))
    mean, scale = np.zeros(()), np.ones(())
    if sight is not None:
        mean = np.asarray(sight.mean)
        scale = 1.0 / np.sqrt(np.asarray(sight.variance) + np.float32(SMALLEST_VARIANCE))

    def act(obs: Num[np.ndarray, "N D"], noise: Float[np.ndarray, "N A"]) -> np.ndarray:
        x = obs if sight is None else np.minimum(np.maximum((obs - mean) * scale, -CLIP), CLIP)
        for weight, bias in layers[:-1]:
            x = np.tanh(x @ weight + bias)
        outputs = x @ layers[-1][0] + layers[-1][1]
        if std is None:
            outputs = outputs if greedy else outputs + noise
            if len(ends):
                parts = np.split(outputs, ends[:-1], axis=-1)
                return np.stack([part.argmax(axis=-1) for part in parts], axis=-1).astype(np.int32)
            return np.argmax(outputs, axis=-1).astype(np.int32)
        return outputs if greedy else outputs + std * noise

    return act
