"""Copies of Gymnasium environments beside the same ones stepped one by one by hand."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import gyms
import numpy as np
import pytest
from gymnasium.spaces.utils import flatten

import rcpo
from rcpo import envs
from rcpo.envs.base import Box, Choices
from rcpo.envs.gym import GymEnvironment
from rcpo.envs.settings import GymSettings
from rcpo.errors import EnvironmentFault, UsageError

SAID = ("obs", "next_obs", "reward", "costs", "terminated", "truncated", "faulty")


def draws(environment: GymEnvironment, steps: int, copies: int) -> np.ndarray:
    """Actions as a policy gives them, in range."""
    stream, actions = np.random.default_rng(5), environment.spec.actions
    if isinstance(actions, int):
        return stream.integers(actions, size=(steps, copies)).astype(np.int32)
    if isinstance(actions, Choices):
        return stream.integers(actions.options, size=(steps, copies, len(actions.options))).astype(np.int32)
    return stream.uniform(actions.low, actions.high, size=(steps, copies, len(actions.low))).astype(np.float32)


def stepped(environment: GymEnvironment, actions: np.ndarray, seed: int = 3, spread: bool = False) -> list[dict]:
    """All that copies say."""
    with environment.open(actions.shape[1]) as copies:
        said = [{"obs": copies.reset(seed, spread).copy()}]
        for action in actions:
            step = copies.step(action)
            said.append({name: np.array(getattr(step, name)) for name in SAID})
    return said


def by_hand(make: Callable[[], Any], actions: np.ndarray, see: Any, do: Any, cap: int, seed: int = 3) -> list[dict]:
    """The same in the plainest way: one environment after the other, reset where an episode ended."""
    copies = actions.shape[1]
    said: list[dict] = [{name: [] for name in (*SAID[:3], "terminated", "truncated", "info")} for _ in actions]
    for n, stream in enumerate(np.random.SeedSequence(seed).spawn(copies + 1)[:-1]):
        env = make()
        env.reset(seed=int(stream.generate_state(1)[0]))
        elapsed = 0
        for t, action in enumerate(actions[:, n]):
            outcome = env.step(do(action))
            obs, reward, terminated, truncated, info = outcome
            elapsed += 1
            truncated |= elapsed >= cap
            here = said[t]
            here["next_obs"].append(see(obs))
            if terminated or truncated:
                obs, elapsed = env.reset()[0], 0
            here["obs"].append(see(obs))
            for name, value in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
                here[name].append(value)
            here["info"].append(info)
    return said


CASES: dict[str, tuple[Any, Any, Any]] = {
    "CartPole-v1": (partial(gymnasium.make, "CartPole-v1"), np.float32, np.int64),
    "Pendulum-v1": (partial(gymnasium.make, "Pendulum-v1"), np.float32, np.float32),
    "FrozenLake-v1": (partial(gymnasium.make, "FrozenLake-v1"), lambda obs: np.eye(16)[obs], np.int64),
    "walk": (gyms.Walk, np.float32, lambda action: action - 1),
    "several": (
        gyms.Several,
        lambda obs: flatten(gyms.Several.observation_space, obs),
        lambda action: action + np.array([1, 0]),
    ),
    "picture": (gyms.Picture, lambda obs: np.moveaxis(obs, 0, 2), np.int64),
}


@pytest.mark.parametrize("name", CASES)
def test_copies_are_plain_gymnasium_bit_for_bit(name: str) -> None:
    make, see, do = CASES[name]
    environment = GymEnvironment(name if name[0].isupper() else make, GymSettings(max_steps=60))
    actions = draws(environment, 150, 3)
    found = stepped(environment, actions)
    expected = by_hand(make, actions, see, do, 60)
    ends = 0
    for there, here in zip(expected, found[1:], strict=True):
        for field in ("obs", "next_obs", "terminated", "truncated"):
            np.testing.assert_array_equal(here[field], np.array(there[field], here[field].dtype), err_msg=field)
        np.testing.assert_array_equal(here["reward"], np.array(there["reward"], np.float64))
        assert not here["faulty"].any()
        ends += int((here["terminated"] | here["truncated"]).sum())
    assert ends >= 6


def test_costs_come_from_info_nested_rare_or_worked_out() -> None:
    def doubled(obs: np.ndarray, action: np.ndarray, next_obs: np.ndarray, info: Any) -> np.ndarray:
        assert len(info) == len(obs) == len(action) == 4
        return next_obs[:, 0] - obs[:, 0] + 0 * action

    environment = GymEnvironment(gyms.Walk, GymSettings(max_steps=9), costs={"moved": doubled})
    names = environment.spec.column_names
    assert names == ("obs_0", "obs_1", "cost", "inner.speed", "rare", "moved")
    actions = draws(environment, 60, 4)
    said = stepped(environment, actions)
    expected = by_hand(gyms.Walk, actions, np.float32, lambda action: action - 1, 9)
    for before, here, there in zip(said, said[1:], expected, strict=False):
        infos = there["info"]
        np.testing.assert_array_equal(here["costs"][:, 0], here["next_obs"][:, 0])
        np.testing.assert_array_equal(here["costs"][:, 2], [info["cost"] for info in infos])
        np.testing.assert_array_equal(here["costs"][:, 3], [info["inner"]["speed"] for info in infos])
        np.testing.assert_array_equal(here["costs"][:, 4], [float(info.get("rare", False)) for info in infos])
        np.testing.assert_array_equal(here["costs"][:, 5], here["next_obs"][:, 0] - before["obs"][:, 0])
    assert 0 < sum(here["costs"][:, 4].sum() for here in said[1:]) < 240


def test_six_values_and_what_is_put_aside_at_the_end() -> None:
    """Both pay what the plain walk pays, also in the last step, and show what it shows."""
    actions = draws(GymEnvironment(gyms.Walk), 80, 3)
    plain = stepped(GymEnvironment(gyms.Walk), actions)
    six = GymEnvironment(gyms.Six)
    assert six.spec.column_names == ("obs_0", "obs_1", "cost")
    for here, there in zip(stepped(six, actions)[1:], plain[1:], strict=True):
        np.testing.assert_array_equal(here["costs"][:, 2], there["costs"][:, 2])
        np.testing.assert_array_equal(here["next_obs"], there["next_obs"])
    resetting = GymEnvironment(gyms.SelfResetting)
    assert resetting.spec.column_names == ("obs_0", "obs_1", "cost", "inner.speed", "rare")
    found, ended = stepped(resetting, actions), False
    for here, there in zip(found[1:], plain[1:], strict=True):
        np.testing.assert_array_equal(here["costs"], there["costs"])
        np.testing.assert_array_equal(here["next_obs"], there["next_obs"])
        np.testing.assert_array_equal(here["terminated"], there["terminated"])
        ended |= bool(there["terminated"].any())
    assert ended


@pytest.mark.parametrize("workers", [1, 2])
def test_processes_of_their_own_change_no_bit(workers: int) -> None:
    for origin in ("CartPole-v1", gyms.Several, gyms.Picture()):
        costs = {"more": lambda obs, action, next_obs, info: np.arange(len(obs)) * 0.0 + 2.0}
        sync = GymEnvironment(origin, GymSettings(max_steps=20, reward_scale=0.5), costs=costs)
        settings = GymSettings(max_steps=20, reward_scale=0.5, vectorization="async", workers=workers)
        actions = draws(sync, 45, 3)
        here = stepped(GymEnvironment(origin, settings, costs=costs), actions, spread=True)
        for one, other in zip(here, stepped(sync, actions, spread=True), strict=True):
            for name, value in one.items():
                np.testing.assert_array_equal(value, other[name])


def test_every_seed_gives_its_own_numbers_and_always_the_same() -> None:
    environment = GymEnvironment("CartPole-v1")
    actions = draws(environment, 30, 4)
    first, again, other = (stepped(environment, actions, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a["obs"], b["obs"]) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0]["obs"], other[0]["obs"])
    assert len(np.unique(first[0]["obs"][:, 0])) == 4  # no two copies alike


def test_spread_starts_end_one_by_one() -> None:
    environment = GymEnvironment("Pendulum-v1")
    said = stepped(environment, draws(environment, 200, 8), spread=True)
    ends = np.stack([here["truncated"] for here in said[1:]])
    assert len(set(np.argmax(ends, axis=0))) > 4 and (ends.sum(axis=0) == 1).all()


def test_what_is_known_of_an_environment() -> None:
    spec = GymEnvironment("Pendulum-v1").spec
    assert (spec.name, spec.actions, spec.observation_shape, spec.max_steps) == (
        "Pendulum-v1",
        Box((-2.0,), (2.0,)),
        (3,),
        200,
    )
    assert GymEnvironment("Pendulum-v1", GymSettings(max_steps=30)).spec.max_steps == 30
    assert (
        GymEnvironment(gyms.Several).spec.actions == Choices((3, 2)) and GymEnvironment(gyms.Several).spec.outputs == 5
    )
    picture = GymEnvironment(gyms.Picture).spec
    assert picture.pixels and picture.observation_shape == (8, 9, 3) and picture.column_names == ("wrong",)
    flat = GymEnvironment(gyms.Picture, GymSettings(images=False)).spec
    assert not flat.pixels and flat.observation_shape == (216,)
    assert GymEnvironment(gyms.Walk).spec.max_steps == 1000
    assert GymEnvironment(gymnasium.wrappers.TimeLimit(gyms.Walk(), 12)).spec.max_steps == 12
    assert not GymEnvironment(gyms.Walk).open(1).resumable
    for refuse in (GymEnvironment(gyms.Walk).open(1).save, lambda: GymEnvironment(gyms.Walk).open(1).restore({})):
        with pytest.raises(UsageError, match="begin anew with reset"):
            refuse()


def test_arguments_reach_the_environment() -> None:
    strong, weak = (GymEnvironment("Pendulum-v1", GymSettings(arguments=f'{{"g": {g}}}')) for g in (10.0, 0.0))
    actions = np.zeros((1, 2, 1), np.float32)
    plain = GymEnvironment("Pendulum-v1")
    assert np.array_equal(stepped(plain, actions)[1]["obs"], stepped(strong, actions)[1]["obs"])
    assert not np.array_equal(stepped(plain, actions)[1]["obs"], stepped(weak, actions)[1]["obs"])


def test_an_object_given_is_copied_and_never_touched() -> None:
    mine = gyms.Walk()
    mine.reset(seed=11)
    place, state = mine.place, mine.np_random.bit_generator.state
    environment = GymEnvironment(mine)
    found = stepped(environment, draws(environment, 20, 3))
    assert (mine.place, mine.steps, mine.np_random.bit_generator.state) == (place, 0, state)
    by_class = stepped(GymEnvironment(gyms.Walk), draws(environment, 20, 3))
    assert all(np.array_equal(a["obs"], b["obs"]) for a, b in zip(found, by_class, strict=True))


def broken(trouble: str, after: int = 300, **settings: Any) -> GymEnvironment:
    return GymEnvironment(partial(gyms.Troubled, trouble, after), GymSettings(max_steps=1000, **settings))


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_one_that_raises_is_said_with_its_copy_and_step(vectorization: Any) -> None:
    environment = broken("raise", vectorization=vectorization, workers=2)
    actions = np.ones((310, 3), np.int32)
    with pytest.raises(EnvironmentFault) as fault:
        stepped(environment, actions)
    # The look before has taken some of its steps in another copy.
    sentence = str(fault.value)
    assert "raised ValueError: the arm is broken (copy 0, after 300 steps of its episode, 300 since" in sentence


def test_one_that_hangs_or_dies_is_noticed() -> None:
    with pytest.raises(
        EnvironmentFault, match=r"hangs: copy 0 gave no answer for 0.5 seconds while it took a step, after 300"
    ):
        stepped(broken("hang", vectorization="async", workers=1, timeout=0.5), np.ones((310, 2), np.int32))
    with pytest.raises(EnvironmentFault, match=r"the process of copy 0 .* ended with code 7, after 300 steps"):
        stepped(broken("die", vectorization="async", workers=1), np.ones((310, 2), np.int32))


def test_numbers_that_are_none_cut_the_episode_and_count() -> None:
    environment = broken("once", after=300)
    with environment.open(2) as copies:
        copies.reset(0)
        for _ in range(300):
            before = copies.step(np.ones(2, np.int32)).next_obs.copy()
        step = copies.step(np.ones(2, np.int32))
        assert step.faulty.all() and step.truncated.all() and not np.asarray(step.terminated).any()
        np.testing.assert_array_equal(step.next_obs, before)
        assert (np.asarray(step.reward) == 0).all() and (np.asarray(step.costs) == 0).all()
        assert np.asarray(step.obs)[0, 1] == 0.0 and copies.faults == 2
        assert not np.asarray(copies.step(np.ones(2, np.int32)).faulty).any()
    with pytest.raises(EnvironmentFault, match="not finite, in each of its last 100 episodes"):
        stepped(broken("nan"), np.ones((402, 1), np.int32))


def test_names_are_found_and_folders_named() -> None:
    assert envs.known("CartPole-v1") and envs.known("a/my.py:My") and envs.known("minigrid:MiniGrid-Empty-5x5-v0")
    assert not envs.known("P(crash) <= 0.01") and not envs.known("--out") and not envs.known("CartPole-v1 (own costs)")
    assert envs.label("a/my env.py:My") == "my-env.py-My" and envs.label("rcpo/MarsRover-v0") == "rcpo-MarsRover-v0"
    assert envs.preset_of("CartPole-v1") == "gym" and envs.preset_of("Hopper-v5") is None
    assert rcpo.EnvironmentFault is EnvironmentFault
