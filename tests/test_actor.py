"""Policies for numpy users: the networks' own actions, as often as they say, and nothing that is not seen."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import gyms
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from policies import finished, networks
from scipy.stats import chisquare, kstest

import rcpo
from rcpo import folder as folders
from rcpo.actor import Actor
from rcpo.envs import spaces
from rcpo.envs.base import Environment
from rcpo.errors import UsageError
from rcpo.host import in_range
from rcpo.policy import action_probabilities, mix, single

pytestmark = pytest.mark.usefixtures("quick_compile")


@pytest.fixture(scope="module")
def hopper() -> tuple[Environment, list[Any]]:
    return networks("Hopper-v5", 2)


@pytest.fixture(scope="module")
def rover() -> tuple[Environment, list[Any]]:
    return networks("mars-rover", 2)


# The same as the network's own


def test_a_robots_likeliest_actions_are_the_networks_in_the_motors_units(hopper: Any) -> None:
    environment, (network, _) = hopper
    run = finished(environment, single(network, False), "Hopper-v5", "mean(torque) <= 0.25")
    obs = np.random.default_rng(0).normal(size=(200, 11)) * 3
    expected = in_range(
        environment.spec.actions, np.asarray(network.distribution(jnp.asarray(obs, jnp.float32)).mode())
    )
    got = run.act(obs)
    assert got.dtype == np.float32 and got.shape == (200, 3)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    for alone in (obs[3], obs[3].tolist()):
        np.testing.assert_allclose(run.act(alone), got[3], atol=1e-6)
    assert np.abs(got).max() <= 1.0 and np.abs(got).max() > 0.1


def test_a_robots_drawn_actions_are_distributed_as_the_network_says(hopper: Any) -> None:
    environment, (network, _) = hopper
    network = jax.tree.map(lambda leaf: leaf, network)
    actor = Actor(environment, single(network, False), seed=3)
    obs = np.random.default_rng(0).normal(size=11).astype(np.float32)
    seen = network.distribution(jnp.asarray(obs))
    drawn = actor.act(np.tile(obs, (4000, 1)))
    for motor in range(3):
        mean, std = float(seen.mode()[motor]), float(np.exp(network.actor.log_std[motor]))
        inside = drawn[np.abs(drawn[:, motor]) < 1.0, motor]  # what lies beyond the range is cut off
        assert len(inside) > 1500
        truncated = _truncated_normal(mean, std)
        assert kstest(inside, truncated.cdf).pvalue > 1e-3


def _truncated_normal(mean: float, std: float) -> Any:
    from scipy.stats import truncnorm

    return truncnorm((-1 - mean) / std, (1 - mean) / std, mean, std)


def test_the_rovers_actions_are_the_networks(rover: Any) -> None:
    environment, (network, _) = rover
    policy = single(network, False)
    run = finished(environment, policy, "mars-rover")
    pictures = np.asarray(environment.states())[100:110]
    chances = action_probabilities(environment, policy)[0, 100:110]
    np.testing.assert_array_equal(run.act(pictures), chances.argmax(axis=1))
    drawn = run.act(np.repeat(pictures[:1], 4000, axis=0), deterministic=False, seed=1)
    assert chisquare(np.bincount(drawn, minlength=4), 4000 * chances[0] / chances[0].sum()).pvalue > 1e-3
    action = run.act(pictures[0])
    assert action.dtype == np.int64 and np.ndim(action) == 0


def test_gymnasium_takes_the_actions(rover: Any) -> None:
    """Each is one of the space's, and the same seeds lead the same way."""
    environment, (network, _) = rover
    run = finished(environment, single(network, False), "mars-rover")
    ways = []
    for _ in range(2):
        actor, world = run.actor(seed=5), gymnasium.make("rcpo:rcpo/MarsRover-v0")
        obs, _ = world.reset(seed=1)
        actions, seen = [], [obs]
        for _ in range(10):
            actions.append(actor.act(obs))
            assert world.action_space.contains(actions[-1])
            obs, *_ = world.step(actions[-1])
            seen.append(obs)
        ways.append((actions, np.stack(seen)))
    (first, one_way), (second, other_way) = ways
    assert first == second and len(set(map(int, first))) > 1
    np.testing.assert_array_equal(one_way, other_way)


def test_a_table_is_asked_by_the_states_number() -> None:
    environment, (network, _) = networks("fork", 2)
    run = finished(environment, single(network, False), "fork")
    np.testing.assert_array_equal(run.act(np.arange(5)), np.argmax(network.logits, axis=-1))
    assert run.act(2) == int(np.argmax(network.logits[2]))


# Gymnasium's environments: what they show goes in, what they take comes out


@pytest.mark.parametrize("kind", [gyms.Walk, gyms.Several, gyms.Picture])
def test_an_environment_is_played_as_it_is(kind: Any) -> None:
    """A choice that is counted from -1, a dictionary, a picture with its channels first; all as the network says."""
    environment, (network,) = networks(kind, 1)
    column = "wrong" if kind is gyms.Picture else "cost"
    run = finished(environment, single(network, False), "own", f"sum({column}) <= 1")
    world, start = kind(), getattr(kind.action_space, "start", 0)
    sight = spaces.sight(world.observation_space, True, "own")
    taken = []
    for seed in range(40):
        obs, _ = world.reset(seed=seed)
        for _ in range(3):
            row = np.zeros(sight.shape, sight.kind)
            sight.write(row, obs)
            expected = np.asarray(network.distribution(jnp.asarray(row)[None]).mode())[0]
            action = run.act(obs)
            assert world.action_space.contains(action)
            np.testing.assert_array_equal(action, expected + start)
            np.testing.assert_array_equal(run.act(row[None])[0], action)
            obs, *_ = world.step(action)
            taken.append(np.ravel(action).tolist())
    assert len(np.unique(taken, axis=0)) > 1


def test_several_choices_are_drawn_as_often_as_the_network_says() -> None:
    environment, (network,) = networks(gyms.Several, 1)
    actor = Actor(environment, single(network, False), seed=4)
    row = np.random.default_rng(0).normal(size=9).astype(np.float32)
    logits = np.asarray(network.distribution(jnp.asarray(row)).logits, float)
    drawn = actor.act(np.tile(row, (6000, 1)))
    for d, (part, first) in enumerate(((logits[:3], 1), (logits[3:], 0))):
        chances = np.exp(part) / np.exp(part).sum()
        counted = np.bincount(drawn[:, d] - first, minlength=len(part))
        assert chisquare(counted, 6000 * chances / chances.sum()).pvalue > 1e-3


def test_a_batch_of_pictures_with_their_channels_first() -> None:
    environment, (network,) = networks(gyms.Picture, 1)
    actor = Actor(environment, single(network, False), deterministic=True)
    pictures = np.random.default_rng(0).integers(0, 256, (20, 3, 8, 9), dtype=np.uint8)
    np.testing.assert_array_equal(actor.act(pictures), [actor.act(picture) for picture in pictures])
    np.testing.assert_array_equal(actor.act(pictures), actor.act(np.moveaxis(pictures, 1, -1)))
    with pytest.raises(UsageError, match=r"^got a picture of float64; .* shows bytes \(uint8, from 0 to 255\)$"):
        actor.act(pictures / 255.0)


@pytest.mark.parametrize("obs", [{"b": 1.0}, {"a": 0, "b": np.zeros(3)}, 4, np.zeros(8)])
def test_what_an_environment_does_not_show_is_one_sentence(obs: Any) -> None:
    environment, (network,) = networks(gyms.Several, 1)
    with pytest.raises(UsageError, match=r"^got an observation of shape .*; .* shows one of shape \(9,\), or a batch"):
        Actor(environment, single(network, False)).act(obs)


# Drawing


def test_the_same_seed_the_same_actions(hopper: Any) -> None:
    environment, (network, _) = hopper
    run = finished(environment, single(network, False), "Hopper-v5", "mean(torque) <= 0.25")
    obs = np.zeros((3, 11))
    one, two, other = (run.act(obs, deterministic=False, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert (one != other).sum() >= 6  # some are cut off at the range
    assert (run.act(obs, deterministic=False) != run.act(obs, deterministic=False)).any()
    generator = np.random.default_rng(1)
    first, second = (run.act(obs, deterministic=False, seed=generator) for _ in range(2))
    np.testing.assert_array_equal(first, one)
    assert (first != second).any()


def test_a_mixture_draws_a_network_per_episode(rover: Any) -> None:
    environment, (one, two) = rover
    actor = Actor(environment, mix([single(one, True), single(two, False)], [0.25, 0.75]), seed=2)
    drawn = []
    for _ in range(2000):
        actor.reset()
        drawn.append(actor.component)
    assert chisquare(np.bincount(drawn), [500, 1500]).pvalue > 1e-3
    picture = np.asarray(environment.states())[100]
    while actor.component != 0:
        actor.reset()
    assert len({int(actor.act(picture)) for _ in range(50)}) == 1  # this one is greedy, and stays until the next reset
    while actor.component != 1:
        actor.reset()
    assert len({int(actor.act(picture)) for _ in range(200)}) == 4


def test_a_mixture_without_episodes_is_its_weightiest_network_and_says_so(rover: Any) -> None:
    environment, (one, two) = rover
    run = finished(environment, mix([single(one, False), single(two, False)], [0.25, 0.75]), "mars-rover")
    pictures = np.asarray(environment.states())[:60]
    with pytest.warns(UserWarning, match="mixture of 2 networks.*use run.actor"):
        got = run.act(pictures)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(got, run.act(pictures))
        for component, network in enumerate((one, two)):
            expected = np.argmax(network(jnp.asarray(pictures))[0], axis=-1)
            np.testing.assert_array_equal(run.act(pictures, component=component), expected)
    with pytest.raises(UsageError, match=r"^got the component 2; this policy has 2, counted from 0$"):
        run.act(pictures, component=2)


# What is refused


@pytest.mark.parametrize(
    ("obs", "said"),
    [
        (np.zeros(10), r"^got an observation of shape \(10,\); Hopper-v5 shows one of shape \(11,\), or a batch of "
                       r"shape \(N, 11\)$"),
        (np.zeros((2, 3, 11)), r"^got an observation of shape \(2, 3, 11\)"),
        (3.0, r"^got an observation of shape \(\)"),
        ([[0.0] * 11, [0.0] * 10], "^got an observation whose rows differ in length; give one array$"),
        (np.full(11, np.nan), "^got an observation with numbers that are not finite"),
        (np.full(11, 1e300), "^got an observation with numbers that are not finite"),
        (np.array(["a"] * 11), "^got an observation of <U1; give numbers$"),
        (np.array([None] * 11), "^got an observation of object; give numbers$"),
        (np.zeros(11, complex), "^got an observation of complex128; give numbers$"),
    ],
)  # fmt: skip
def test_what_a_robot_cannot_see_is_one_sentence(hopper: Any, obs: Any, said: str) -> None:
    environment, (network, _) = hopper
    with pytest.raises(UsageError, match=said):
        Actor(environment, single(network, False)).act(obs)


@pytest.mark.parametrize("obs", [5, -1, 1.0, np.nan, [0, 7], True])
def test_a_state_that_does_not_exist_is_one_sentence(obs: Any) -> None:
    environment, (network,) = networks("fork", 1)
    with pytest.raises(UsageError, match=r"fork shows the state's number, an integer from 0 to 4$"):
        Actor(environment, single(network, False)).act(obs)


# A run read back


def test_a_loaded_run_acts(tmp_path: Path) -> None:
    environment, (network, _) = networks("fork", 2)
    run = finished(environment, single(network, False), "fork")
    folders.write_config(tmp_path, "fork", run.config)
    folders.write_result(run, tmp_path)
    (tmp_path / folders.METRICS).write_text("")
    np.testing.assert_array_equal(rcpo.load(tmp_path).act(np.arange(5)), run.act(np.arange(5)))
