"""A run's policy for whoever has observations in numpy: one of them or a batch in, actions in the env's units out."""

import warnings
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from rcpo.envs.base import Box, Environment, HostEnvironment
from rcpo.errors import UsageError
from rcpo.host import in_range
from rcpo.networks import ActorCritic, SeparateActorCritic
from rcpo.policy import Policy, acting

Seed = int | np.random.Generator


@final
class Actor:
    """Plays a policy: `reset` at the start of every episode, `act` at every step.

    A mixture draws one of its networks at each `reset` and follows it until the next: that is how it was verified.
    """

    def __init__(self, environment: Environment, policy: Policy, deterministic: bool = False, seed: Seed = 0):
        self._spec, self._deterministic = environment.spec, deterministic
        self._seen: Callable[[Any], Any] = np.asarray
        self._taken, states = _as_numbers, None
        if isinstance(environment, HostEnvironment):
            self._seen, self._taken = environment.as_seen, environment.as_taken
        else:
            states = environment.states()
        self._states = 0 if states is None or self._spec.observation_shape else len(states)
        self._weights = np.asarray(policy.weights, dtype=np.float64)
        self._greedy = np.asarray(policy.greedy)
        self._networks = [jax.tree.map(lambda leaf, m=m: leaf[m], policy.networks) for m in range(policy.components)]
        self._acts: dict[tuple[int, bool], Callable[[np.ndarray, np.ndarray], np.ndarray]] = {}
        self.generator = np.random.default_rng(seed)
        self.component = 0
        self.reset()

    def reset(self) -> None:
        """A new episode begins."""
        if len(self._weights) > 1:
            self.component = int(self.generator.choice(len(self._weights), p=self._weights / self._weights.sum()))

    def act(self, obs: Any) -> Any:
        """The action for one observation, or the actions for a batch of them."""
        return self.act_as(obs, self.component, self._deterministic, self.generator)

    def act_as(self, obs: Any, component: int, deterministic: bool, generator: np.random.Generator) -> Any:
        """The same as one network of the policy does it."""
        batch, alone = self._checked(obs)
        actions = self._taken(self._drawn(batch, component, deterministic, generator))
        return actions[0] if alone else actions

    def rows(self, seen: np.ndarray) -> np.ndarray:
        """The actions for a batch that live copies show, as they take them."""
        return self._drawn(seen, self.component, self._deterministic, self.generator)

    def _drawn(
        self, batch: np.ndarray, component: int, deterministic: bool, generator: np.random.Generator
    ) -> np.ndarray:
        greedy = deterministic or bool(self._greedy[component])
        if (component, greedy) not in self._acts:
            self._acts[component, greedy] = _act(self._networks[component], greedy)
        shape = (len(batch), self._spec.outputs)
        noise = np.zeros(shape, np.float32) if greedy else self._noise(generator, shape)
        return in_range(self._spec.actions, self._acts[component, greedy](batch, noise))

    def _noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """What the policy's distribution needs to be drawn from (see `distributions`)."""
        drawn = generator.normal(size=shape) if isinstance(self._spec.actions, Box) else generator.gumbel(size=shape)
        return drawn.astype(np.float32)

    def _checked(self, obs: Any) -> tuple[np.ndarray, bool]:
        """The observations as a batch, and whether it was one alone; whatever the policy cannot see is refused."""
        shape, name = self._spec.observation_shape, self._spec.name
        try:
            array = np.asarray(self._seen(obs))
        except ValueError:
            raise UsageError("got an observation whose rows differ in length; give one array") from None
        axes = array.ndim - len(shape)
        if axes not in (0, 1) or array.shape[axes:] != shape:
            batch_shape = ", ".join(map(str, ("N", *shape)))
            raise UsageError(f"got an observation of shape {array.shape}; {name} shows one of shape {shape}, "
                             f"or a batch of shape ({batch_shape})")  # fmt: skip
        alone = axes == 0
        batch = array[None] if alone else array
        if not shape:
            if array.dtype.kind not in "iu" or ((array < 0) | (array >= self._states)).any():
                raise UsageError(f"got the observation {_short(array)}; {name} shows the state's number, "
                                 f"an integer from 0 to {self._states - 1}")  # fmt: skip
            return batch, alone
        if self._spec.pixels:
            if array.dtype != np.uint8:
                raise UsageError(f"got a picture of {array.dtype}; {name} shows bytes (uint8, from 0 to 255)")
            return batch, alone
        if array.dtype.kind not in "fiub":
            raise UsageError(f"got an observation of {array.dtype}; give numbers")
        with np.errstate(over="ignore"):
            batch = batch.astype(np.float32)
        if not np.isfinite(batch).all():
            raise UsageError("got an observation with numbers that are not finite (NaN or too large); "
                             "look at where it comes from")  # fmt: skip
        return batch, alone


def _as_numbers(action: np.ndarray) -> np.ndarray:
    return action.astype(np.int64)


def _short(array: np.ndarray) -> str:
    return f"{array.tolist()!r:.40} of {array.dtype}"


def _act(network: ActorCritic | SeparateActorCritic, greedy: bool) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """What a network does, given what is seen and the noise to draw with."""
    if isinstance(network, SeparateActorCritic):
        return acting(network, greedy)

    def act(obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        logits = np.asarray(_logits(network, jnp.asarray(obs)))
        return np.argmax(logits if greedy else logits + noise, axis=-1)

    return act


@jax.jit
def _logits(network: PyTree, obs: Array) -> Float[Array, "N A"]:
    return network(obs)[0]


def weightiest(policy: Policy) -> int:
    """The network that a mixture follows most often; a mixture is more than that, so whoever asks is told once."""
    if policy.components > 1:
        warnings.warn(
            f"this policy is a mixture of {policy.components} networks, of which one is drawn for each episode, and "
            "its verdict is about the mixture; run.act() follows the weightiest alone: use run.actor(), "
            "or name one with component=0",
            stacklevel=5,
        )
    return int(np.argmax(np.asarray(policy.weights)))
