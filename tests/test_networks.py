"""The networks against JAX's own convolution and against a table read by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from rcpo.networks import CONVOLUTIONS, ConvolutionalActorCritic, TabularActorCritic, is_critic

pytestmark = pytest.mark.usefixtures("quick_compile")


def filled(shape: tuple[int, ...] = (1, 30, 30), seed: int = 0) -> ConvolutionalActorCritic:
    """The paper's network with every parameter, biases too, drawn at random."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(lambda: ConvolutionalActorCritic(jax.random.key(0), shape, 4))
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(scale=0.2, size=leaf.shape).astype(np.float32)), shapes)


def convolve(network: ConvolutionalActorCritic, x: Array) -> Array:
    """The trunk by `conv_general_dilated`; a window's weights are laid out [row, column, channel]."""
    for layer, (outputs, kernel, stride) in zip(network.trunk, CONVOLUTIONS, strict=True):
        weight = layer.weight.reshape(kernel, kernel, -1, outputs)
        x = jax.lax.conv_general_dilated(
            x, weight, (stride, stride), "VALID", dimension_numbers=("NCHW", "HWIO", "NCHW")
        )
        x = jnp.maximum(x + layer.bias[:, None, None], 0.0)
    return x


@pytest.mark.parametrize("shape", [(1, 30, 30), (2, 17, 20)])
def test_patches_are_the_papers_convolutions(shape: tuple[int, ...]) -> None:
    network = filled(shape)
    picture = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (3, *shape)).astype(np.float32))
    features = jnp.moveaxis(convolve(network, picture), 1, -1).reshape(3, -1)
    hidden = {name: jnp.maximum(features @ head[0].weight + head[0].bias, 0.0)
              for name, head in (("actor", network.actor), ("critic", network.critic))}  # fmt: skip
    logits, value = jax.jit(lambda network, picture: network(picture))(network, picture)
    expected = hidden["actor"] @ network.actor[1].weight + network.actor[1].bias
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    expected = hidden["critic"] @ network.critic[1].weight + network.critic[1].bias
    np.testing.assert_allclose(value, expected[:, 0], rtol=1e-4, atol=1e-4)


def test_the_papers_layers() -> None:
    """Appendix B: 288 features of the 30 x 30 grid, 64 hidden, 4 logits and 1 value."""
    network = jax.eval_shape(lambda: ConvolutionalActorCritic(jax.random.key(0), (1, 30, 30), 4))
    assert [layer.weight.shape for layer in network.trunk] == [(25, 16), (9 * 16, 32), (4 * 32, 32)]
    assert [layer.weight.shape for layer in network.actor] == [(288, 64), (64, 4)]
    assert [layer.weight.shape for layer in network.critic] == [(288, 64), (64, 1)]


def test_the_first_policy_is_nearly_uniform() -> None:
    pictures = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (20, 1, 17, 17)).astype(np.float32))

    @jax.jit
    def begin(key: Array) -> tuple[ConvolutionalActorCritic, tuple[Array, Array]]:
        network = ConvolutionalActorCritic(key, (1, 17, 17), 4)
        return network, network(pictures)

    network, (logits, value) = begin(jax.random.key(0))
    np.testing.assert_allclose(jax.nn.softmax(logits), 0.25, atol=0.02)
    assert np.std(value) > 0.0
    # Orthogonal weights: columns of unit length times the gain, at right angles to each other.
    weight = np.asarray(network.trunk[2].weight)
    np.testing.assert_allclose(weight.T @ weight, 2.0 * np.eye(32), atol=1e-4)


def test_a_table_is_read_where_it_is_asked() -> None:
    logits = np.arange(6, dtype=np.float32).reshape(3, 2)
    values = np.array([7.0, 8.0, 9.0], np.float32)
    found = TabularActorCritic(jnp.asarray(logits), jnp.asarray(values))(jnp.array([2, 0, 2]))
    np.testing.assert_array_equal(found[0], [[4, 5], [0, 1], [4, 5]])
    np.testing.assert_array_equal(found[1], [9, 7, 9])


def test_what_belongs_to_the_critic_alone() -> None:
    table = TabularActorCritic(jnp.zeros((3, 2)), jnp.zeros(3))
    kinds = {
        jax.tree_util.keystr(path): is_critic(path)
        for network in (table, filled())
        for path, _ in jax.tree_util.tree_flatten_with_path(network)[0]
    }
    critic = {name for name, alone in kinds.items() if alone}
    assert critic == {".values"} | {f".critic[{i}].{part}" for i in (0, 1) for part in ("weight", "bias")}
    assert len(kinds) == 2 + 7 * 2
