"""Actor-critic networks: pytrees of arrays, evaluated on a whole batch of observations at once."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, Protocol, final, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, PRNGKeyArray

from rcpo.distributions import Categorical, Distribution, Gaussian, MultiCategorical
from rcpo.envs.base import Actions, Box, Choices, EnvSpec
from rcpo.normalise import RunningStatistics, no_statistics, standardise

CONVOLUTIONS: Final = ((16, 5, 3), (32, 3, 2), (32, 2, 1))
"""The paper's appendix B: (channels, kernel, stride) of each layer."""
HIDDEN: Final = 64


@runtime_checkable
class ActorCritic(Protocol):
    """Anything that turns observations into action logits and values."""

    def __call__(self, observation: Array) -> tuple[Float[Array, "B A"], Float[Array, " B"]]: ...


def orthogonal(key: PRNGKeyArray, inputs: int, outputs: int, gain: float) -> Float[Array, "inputs outputs"]:
    return jax.nn.initializers.orthogonal(gain)(key, (inputs, outputs), jnp.float32)


@final
class Linear(eqx.Module):
    """`x @ weight + bias`."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int, gain: float = float(np.sqrt(2.0))):
        self.weight = orthogonal(key, inputs, outputs, gain)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        return x @ self.weight + self.bias


def patches(x: Float[Array, "B H W C"], kernel: int, stride: int) -> Float[Array, "B h w K"]:
    """Every window that a convolution would see, laid out flat; K = kernel * kernel * C.

    Inside `lax.scan` XLA's convolution on a CPU is several times slower than these slices and one matrix product.
    """
    height, width = ((side - kernel) // stride + 1 for side in x.shape[1:3])
    windows = [
        x[:, dy : dy + (height - 1) * stride + 1 : stride, dx : dx + (width - 1) * stride + 1 : stride]
        for dy in range(kernel)
        for dx in range(kernel)
    ]
    return jnp.concatenate(windows, axis=-1)


@final
class ConvolutionalActorCritic(eqx.Module):
    """The paper's network for the Mars Rover (appendix B): a shared trunk of convolutions, two heads of two layers."""

    trunk: tuple[Linear, ...]
    actor: tuple[Linear, Linear]
    critic: tuple[Linear, Linear]

    def __init__(self, key: PRNGKeyArray, observation_shape: Sequence[int], actions: int):
        channels, *sides = observation_shape
        keys = iter(jax.random.split(key, len(CONVOLUTIONS) + 4))
        trunk = []
        for outputs, kernel, stride in CONVOLUTIONS:
            trunk.append(Linear(next(keys), kernel * kernel * channels, outputs))
            sides = [(side - kernel) // stride + 1 for side in sides]
            channels = outputs
        features = channels * sides[0] * sides[1]
        self.trunk = tuple(trunk)
        # A nearly uniform first policy: no direction is preferred before anything was seen.
        self.actor = (Linear(next(keys), features, HIDDEN), Linear(next(keys), HIDDEN, actions, gain=0.01))
        self.critic = (Linear(next(keys), features, HIDDEN), Linear(next(keys), HIDDEN, 1, gain=1.0))

    def __call__(self, observation: Float[Array, "B C H W"]) -> tuple[Float[Array, "B A"], Float[Array, " B"]]:
        x = jnp.moveaxis(observation, 1, -1)
        for layer, (_, kernel, stride) in zip(self.trunk, CONVOLUTIONS, strict=True):
            x = jax.nn.relu(layer(patches(x, kernel, stride)))
        x = x.reshape(len(x), -1)
        logits = self.actor[1](jax.nn.relu(self.actor[0](x)))
        value = self.critic[1](jax.nn.relu(self.critic[0](x)))
        return logits, value[:, 0]


@final
class TabularActorCritic(eqx.Module):
    """A softmax policy and a value with one parameter per state and action: observations are state numbers."""

    logits: Float[Array, "S A"]
    values: Float[Array, " S"]

    def __call__(self, observation: Array) -> tuple[Float[Array, "B A"], Float[Array, " B"]]:
        return self.logits[observation], self.values[observation]


def is_critic(path: tuple) -> bool:
    """Whether a parameter, named by its path in the network, belongs to the critic alone."""
    return isinstance(path[0], jax.tree_util.GetAttrKey) and path[0].name in {"critic", "values"}


@final
class Perceptron(eqx.Module):
    """Layers of tanh units and a linear one on top."""

    layers: tuple[Linear, ...]

    def __init__(self, key: PRNGKeyArray, sizes: Sequence[int], last_gain: float):
        keys = jax.random.split(key, len(sizes) - 1)
        gains = [*[float(np.sqrt(2.0))] * (len(sizes) - 2), last_gain]
        self.layers = tuple(
            Linear(key, inputs, outputs, gain)
            for key, (inputs, outputs), gain in zip(keys, pairwise(sizes), gains, strict=True)
        )

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        for layer in self.layers[:-1]:
            x = jnp.tanh(layer(x))
        return self.layers[-1](x)


@final
class Actor(eqx.Module):
    """Action means and one standard deviation per motor (the paper's DiagGaussian), or the logits of choices."""

    body: Any
    """A `Perceptron`, or what else maps `[..., *observation]` to `[..., A]`."""
    log_std: Float[Array, " A"] | None
    options: tuple[int, ...] = eqx.field(static=True, default=())
    """Of each choice, where there are several at once."""

    def __call__(self, seen: Num[Array, "..."]) -> Distribution:
        outputs = self.body(seen)
        if self.log_std is not None:
            return Gaussian(outputs, self.log_std)
        return MultiCategorical(outputs, self.options) if self.options else Categorical(outputs)


@final
class SeparateActorCritic(eqx.Module):
    """The paper's networks for the robots (appendix B): actor and critic share nothing but how they see.

    Actions are in units of half the range of each motor, around its middle.
    """

    sight: RunningStatistics | None
    """How observations are standardised; None: seen as they are."""
    actor: Actor
    critic: Any
    """A `Perceptron`, or what else maps `[..., *observation]` to `[..., 1]`."""

    def see(self, obs: Num[Array, "..."]) -> Num[Array, "..."]:
        return obs if self.sight is None else standardise(self.sight, obs)

    def distribution(self, obs: Num[Array, "..."]) -> Distribution:
        return self.actor(self.see(obs))

    def value(self, obs: Num[Array, "..."]) -> Float[Array, "..."]:
        return self.critic(self.see(obs))[..., 0]


def perceptrons(key: PRNGKeyArray, inputs: int, outputs: int, hidden: Sequence[int]) -> tuple[Perceptron, Perceptron]:
    """The actor's and the critic's body."""
    actor_key, critic_key = jax.random.split(key)
    # A first policy that hardly depends on what it sees: only its noise moves the motors.
    actor = Perceptron(actor_key, (inputs, *hidden, outputs), last_gain=0.01)
    return actor, Perceptron(critic_key, (inputs, *hidden, 1), last_gain=1.0)


def with_bodies(
    actor: Any, critic: Any, actions: Actions, initial_std: float, standardised: tuple[int, ...] | None
) -> SeparateActorCritic:
    """Networks made of two bodies; `standardised` is the shape of observations that are to be so."""
    log_std = jnp.full(len(actions.low), float(np.log(initial_std))) if isinstance(actions, Box) else None
    return SeparateActorCritic(
        sight=None if standardised is None else no_statistics(standardised),
        actor=Actor(actor, log_std, actions.options if isinstance(actions, Choices) else ()),
        critic=critic,
    )


def separate_actor_critic(
    key: PRNGKeyArray, observation_size: int, actions: Actions, hidden: Sequence[int], initial_std: float, see: bool
) -> SeparateActorCritic:
    """New perceptrons for an environment."""
    spec = EnvSpec("", (), actions, (observation_size,), 1)
    actor, critic = perceptrons(key, observation_size, spec.outputs, hidden)
    return with_bodies(actor, critic, actions, initial_std, (observation_size,) if see else None)
