"""What a policy draws its actions from. Noise comes from outside: it can be drawn for a whole rollout at once."""

import itertools
import math
from abc import abstractmethod
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped


class Distribution(eqx.Module):
    """A distribution over actions for each of the leading axes."""

    @staticmethod
    @abstractmethod
    def noise(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
        """What `draw` needs to be random; the last axis has one entry per motor or choice."""

    @abstractmethod
    def draw(self, noise: Float[Array, "... A"]) -> Shaped[Array, "..."]:
        """Actions."""

    @abstractmethod
    def mode(self) -> Shaped[Array, "..."]:
        """The likeliest actions."""

    @abstractmethod
    def log_probability(self, action: Any) -> Float[Array, "..."]:
        """log pi(a | s)"""

    @abstractmethod
    def entropy(self) -> Float[Array, "..."]:
        """H(pi(. | s))"""


@final
class Gaussian(Distribution):
    """Independent normal distributions, one per motor."""

    mean: Float[Array, "... A"]
    log_std: Float[Array, " A"]

    @staticmethod
    def noise(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
        return jax.random.normal(key, shape)

    def draw(self, noise: Float[Array, "... A"]) -> Float[Array, "... A"]:
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Float[Array, "... A"]:
        return self.mean

    def log_probability(self, action: Float[Array, "... A"]) -> Float[Array, "..."]:
        apart = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * apart**2 - self.log_std - 0.5 * math.log(2.0 * math.pi), axis=-1)

    def entropy(self) -> Float[Array, "..."]:
        per_motor = self.log_std + 0.5 * math.log(2.0 * math.pi * math.e)
        return jnp.broadcast_to(per_motor.sum(), self.mean.shape[:-1])


@final
class Categorical(Distribution):
    """One of A choices."""

    logits: Float[Array, "... A"]

    @staticmethod
    def noise(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
        return jax.random.gumbel(key, shape)

    def draw(self, noise: Float[Array, "... A"]) -> Int[Array, "..."]:
        return jnp.argmax(self.logits + noise, axis=-1).astype(jnp.int32)  # the Gumbel-max trick

    def mode(self) -> Int[Array, "..."]:
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    def log_probability(self, action: Int[Array, "..."]) -> Float[Array, "..."]:
        log_policy = jax.nn.log_softmax(self.logits)
        return jnp.take_along_axis(log_policy, action[..., None], axis=-1)[..., 0]

    def entropy(self) -> Float[Array, "..."]:
        log_policy = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_policy) * log_policy, axis=-1)


@final
class MultiCategorical(Distribution):
    """Several choices at once, independent of each other; their options' logits stand one behind the other."""

    logits: Float[Array, "... A"]
    options: tuple[int, ...] = eqx.field(static=True)

    @staticmethod
    def noise(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
        return jax.random.gumbel(key, shape)

    def _parts(self, numbers: Float[Array, "... A"]) -> list[Float[Array, "..."]]:
        ends = list(itertools.accumulate(self.options))
        return jnp.split(numbers, ends[:-1], axis=-1)

    def draw(self, noise: Float[Array, "... A"]) -> Int[Array, "... D"]:
        return MultiCategorical(self.logits + noise, self.options).mode()

    def mode(self) -> Int[Array, "... D"]:
        return jnp.stack([Categorical(part).mode() for part in self._parts(self.logits)], axis=-1)

    def log_probability(self, action: Int[Array, "... D"]) -> Float[Array, "..."]:
        parts = self._parts(self.logits)
        return jnp.sum(jnp.stack([Categorical(p).log_probability(action[..., d]) for d, p in enumerate(parts)]), axis=0)

    def entropy(self) -> Float[Array, "..."]:
        return jnp.sum(jnp.stack([Categorical(part).entropy() for part in self._parts(self.logits)]), axis=0)
