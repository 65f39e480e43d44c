"""Networks beside the perceptron: convolutions for pictures, and modules of a user's own."""

from collections.abc import Sequence
from typing import Any, Final, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num, PRNGKeyArray, PyTree

from rcpo.envs.base import EnvSpec
from rcpo.errors import UsageError
from rcpo.networks import Linear, patches

Layers = tuple[tuple[int, int, int], ...]
"""(channels, kernel, stride) of each layer."""
LARGE: Final[Layers] = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Of Mnih et al. (2015), for pictures of screens."""
MIDDLE: Final[Layers] = ((32, 4, 2), (64, 3, 1))
SMALL: Final[Layers] = ((32, 3, 1), (64, 3, 1))
FEATURES: Final = 256


def layers_for(shape: tuple[int, ...]) -> Layers:
    """By the picture's shorter side: 36 and more, 12 and more, 5 and more."""
    side = min(shape[:2])
    return LARGE if side >= 36 else MIDDLE if side >= 12 else SMALL


def unit_scale(x: Num[Array, "..."]) -> Float[Array, "..."]:
    """Bytes as numbers from 0 to 1."""
    return x.astype(jnp.float32) / 255.0 if x.dtype == jnp.uint8 else x


@final
class Convolutional(eqx.Module):
    """Convolutions over a picture [H, W, C], one layer of features, and a linear one on top."""

    trunk: tuple[Linear, ...]
    features: Linear
    last: Linear
    layers: Layers = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, shape: Sequence[int], outputs: int, last_gain: float):
        *sides, channels = shape
        self.layers = layers_for(tuple(shape))
        *trunk_keys, features_key, last_key = jax.random.split(key, len(self.layers) + 2)
        trunk = []
        for layer_key, (wide, kernel, stride) in zip(trunk_keys, self.layers, strict=True):
            trunk.append(Linear(layer_key, kernel * kernel * channels, wide))
            sides, channels = [(side - kernel) // stride + 1 for side in sides], wide
        self.trunk = tuple(trunk)
        self.features = Linear(features_key, sides[0] * sides[1] * channels, FEATURES)
        self.last = Linear(last_key, FEATURES, outputs, last_gain)

    def __call__(self, picture: Num[Array, "... H W C"]) -> Float[Array, "... outputs"]:
        if picture.ndim > 4:  # a whole rollout at once would not fit into memory
            return jax.lax.map(self, picture)
        x = unit_scale(picture if picture.ndim == 4 else picture[None])
        for layer, (_, kernel, stride) in zip(self.trunk, self.layers, strict=True):
            x = jax.nn.relu(layer(patches(x, kernel, stride)))
        x = self.last(jax.nn.relu(self.features(x.reshape(len(x), -1))))
        return x if picture.ndim == 4 else x[0]


def convolutional(key: PRNGKeyArray, spec: EnvSpec) -> tuple[Convolutional, Convolutional]:
    """The actor's and the critic's body for pictures."""
    actor_key, critic_key = jax.random.split(key)
    actor = Convolutional(actor_key, spec.observation_shape, spec.outputs, last_gain=0.01)
    return actor, Convolutional(critic_key, spec.observation_shape, 1, last_gain=1.0)


@final
class Custom(eqx.Module):
    """A module of the user's, which maps one observation, over any number of leading axes.

    What is no array (an activation function, say) stays apart: it is neither learned nor saved.
    """

    arrays: PyTree
    rest: Any = eqx.field(static=True)
    axes: int = eqx.field(static=True)
    """How many axes one observation has."""

    def __call__(self, x: Num[Array, "..."]) -> Float[Array, "..."]:
        module = eqx.combine(self.arrays, self.rest)
        leading = x.shape[: x.ndim - self.axes]
        flat = unit_scale(x).reshape(-1, *x.shape[x.ndim - self.axes :])
        outputs = jax.vmap(module)(flat)
        return outputs.reshape(*leading, -1)


def custom(module: Any, spec: EnvSpec, outputs: int) -> Custom:
    """A user's module, refused where it does not fit the environment."""
    if not isinstance(module, eqx.Module) or not callable(module):
        raise UsageError(f"got {type(module).__name__} from the network's factory; expected two Equinox modules that "
                         "map an observation to numbers")  # fmt: skip
    arrays, rest = eqx.partition(module, eqx.is_array)
    if any(not jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(arrays)):
        raise UsageError(f"the network {type(module).__name__} has arrays that are no floating-point numbers; keep "
                         "them as static fields")  # fmt: skip
    try:
        seen = jax.ShapeDtypeStruct(spec.observation_shape, jnp.float32)
        shape = eqx.filter_eval_shape(module, seen).shape
    except Exception as error:
        raise UsageError(f"the network {type(module).__name__} cannot take an observation of shape "
                         f"{spec.observation_shape}: {' '.join(str(error).split())[:200]}") from error  # fmt: skip
    if shape != (outputs,) and (outputs != 1 or shape != ()):
        raise UsageError(f"the network {type(module).__name__} gives shape {shape} for one observation, "
                         f"expected ({outputs},)")  # fmt: skip
    return Custom(arrays, rest, len(spec.observation_shape))
