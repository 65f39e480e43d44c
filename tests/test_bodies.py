"""Networks beside the perceptron, against slow loops; and acting, in numpy or compiled, against the distribution."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcpo.bodies import LARGE, MIDDLE, SMALL, Convolutional, convolutional, custom, layers_for
from rcpo.envs.base import Box, Choices, EnvSpec
from rcpo.networks import perceptrons, with_bodies
from rcpo.policy import acting

pytestmark = pytest.mark.usefixtures("quick_compile")
RNG = np.random.default_rng(3)


def by_hand(network: Convolutional, picture: np.ndarray) -> np.ndarray:
    """One picture through the layers, window by window."""
    x = picture.astype(np.float64) / 255.0
    for layer, (_, kernel, stride) in zip(network.trunk, network.layers, strict=True):
        rows, columns = ((side - kernel) // stride + 1 for side in x.shape[:2])
        following = np.zeros((rows, columns, layer.bias.shape[0]))
        for i in range(rows):
            for j in range(columns):
                window = x[i * stride : i * stride + kernel, j * stride : j * stride + kernel].reshape(-1)
                following[i, j] = np.maximum(window @ np.asarray(layer.weight) + np.asarray(layer.bias), 0.0)
        x = following
    features = np.maximum(x.reshape(-1) @ np.asarray(network.features.weight) + np.asarray(network.features.bias), 0.0)
    return features @ np.asarray(network.last.weight) + np.asarray(network.last.bias)


@pytest.mark.parametrize("shape", [(5, 6, 3), (13, 12, 2), (36, 40, 1)])
def test_convolutions_window_by_window(shape: tuple[int, ...]) -> None:
    network = Convolutional(jax.random.key(0), shape, 4, 1.0)
    pictures = RNG.integers(0, 256, (2, 3, *shape), dtype=np.uint8)
    found = network(jnp.asarray(pictures))
    assert found.shape == (2, 3, 4)
    np.testing.assert_allclose(found[1, 2], by_hand(network, pictures[1, 2]), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(network(jnp.asarray(pictures[0])), found[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(network(jnp.asarray(pictures[0, 1])), found[0, 1], rtol=1e-4, atol=1e-6)


def test_layers_go_by_the_shorter_side() -> None:
    sides = {5: SMALL, 11: SMALL, 12: MIDDLE, 35: MIDDLE, 36: LARGE, 84: LARGE}
    assert {side: layers_for((side, 200, 3)) for side in sides} == sides
    assert layers_for((200, 12, 3)) == MIDDLE


ACTIONS = {"one": 3, "several": Choices((2, 3)), "motors": Box((-1.0, -2.0), (1.0, 2.0))}


@pytest.mark.parametrize("kind", ["perceptron", "custom", "picture"])
@pytest.mark.parametrize("actions", ACTIONS.values(), ids=ACTIONS)
def test_acting_is_drawing_from_the_distribution(kind: str, actions: Any) -> None:
    picture = kind == "picture"
    spec = EnvSpec("", (), actions, (5, 6, 3) if picture else (4,), 1, pixels=picture)
    key = jax.random.key(1)
    actor: Any
    critic: Any
    if picture:
        actor, critic = convolutional(key, spec)
        obs = RNG.integers(0, 256, (7, 5, 6, 3), dtype=np.uint8)
    else:
        actor, critic = perceptrons(key, 4, spec.outputs, (8,))
        obs = RNG.normal(size=(7, 4)).astype(np.float32)
        if kind == "custom":
            actor = custom(eqx.nn.MLP(4, spec.outputs, 8, 1, activation=jnp.sin, key=key), spec, spec.outputs)
    network = with_bodies(actor, critic, actions, 0.5, None if picture else (4,))
    policy = network.distribution(jnp.asarray(obs))
    noise = RNG.gumbel(size=(7, spec.outputs)).astype(np.float32)
    np.testing.assert_allclose(acting(network)(obs, noise), policy.draw(jnp.asarray(noise)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(acting(network, greedy=True)(obs, noise), policy.mode(), rtol=1e-4, atol=1e-6)
    assert network.value(jnp.asarray(obs)).shape == (7,)


def test_a_custom_module_over_any_leading_axes() -> None:
    spec = EnvSpec("", (), 2, (2, 3), 1)

    class Own(eqx.Module):
        weight: jax.Array

        def __call__(self, x: Any) -> Any:
            return self.weight @ x.sum(axis=0)

    weight = RNG.normal(size=(2, 3)).astype(np.float32)
    module = custom(Own(jnp.asarray(weight)), spec, 2)
    seen = RNG.normal(size=(4, 5, 2, 3)).astype(np.float32)
    expected = np.einsum("od,tnrd->tno", weight, seen)
    np.testing.assert_allclose(module(jnp.asarray(seen)), expected, rtol=1e-4, atol=1e-5)
