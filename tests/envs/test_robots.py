"""The six robots beside Gymnasium's own, bit for bit; and their cost columns beside slow and obvious loops."""

import functools
import math
import warnings
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

from rcpo import envs
from rcpo.envs import robots
from rcpo.envs.base import Box
from rcpo.envs.mujoco import MujocoCopies, MujocoEnvironment
from rcpo.envs.settings import RobotSettings
from rcpo.types import EnvStep

NAMES = tuple(envs.ROBOTS)
FALLING = ("Walker2d-v5", "Hopper-v5", "Humanoid-v5", "Ant-v5")
FEELING = ("Humanoid-v5", "Ant-v5")
FREE = {"Walker2d-v5": 1, "Hopper-v5": 1, "Humanoid-v5": 2, "Ant-v5": 2}
"""How many of the first coordinates say where a robot is; the others are its posture."""
LIMITS = {name: 0.4 if name == "Humanoid-v5" else 1.0 for name in NAMES}
"""The largest action of every motor, as Gymnasium's documentation has it."""
HOLD = 3
"""After so many steps a hand puts a robot that is to last its whole episode back into its posture."""


@dataclass(frozen=True)
class Beside:
    """The same actions, played here and by Gymnasium: every array has a first axis of time and a second of copies."""

    action: np.ndarray
    begun: np.ndarray
    """What each copy saw first, here."""
    begun_there: np.ndarray
    ours: EnvStep
    there: dict[str, np.ndarray]
    """Gymnasium's `next_obs`, `reward`, `terminated`, `truncated`, and `obs`: after a reset where an episode ended."""
    info: list[list[dict[str, Any]]]
    contact: np.ndarray
    """Gymnasium's contact forces after the step."""

    @property
    def ended(self) -> np.ndarray:
        return self.there["terminated"] | self.there["truncated"]


def opened(name: str, copies: int, **settings: Any) -> MujocoCopies:
    environment = envs.make(name, RobotSettings(threads=1, **settings))
    assert isinstance(environment, MujocoEnvironment)
    return environment.open(copies)


def open_there(name: str, seed: int, copies: int) -> list[Any]:
    """Gymnasium's own, each with the random stream that the copy of that number has here."""
    made = []
    for stream in np.random.SeedSequence(seed).spawn(copies + 1)[:copies]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what MuJoCo thinks of Gymnasium's models
            made.append(gymnasium.make(name, disable_env_checker=True))
        made[-1].unwrapped.np_random = np.random.default_rng(stream)
    return made


def play(name: str, seed: int, copies: int, steps: int, held: tuple[int, ...], dtype: type = np.float32) -> Beside:
    """Random actions, three in ten of them beyond the range. The copies `held` never fall: a hand holds them."""
    here, there = opened(name, copies), open_there(name, seed, copies)
    begun, begun_there = here.reset(seed).copy(), np.stack([env.reset()[0] for env in there])
    posture = there[0].unwrapped.init_qpos[FREE.get(name, 0) :]
    size = (steps, copies, len(there[0].action_space.low))
    action: np.ndarray = (np.random.default_rng(seed).normal(0.0, 0.97, size) * LIMITS[name]).astype(dtype)
    ours: list[EnvStep] = []
    answers: list[list[tuple[Any, ...]]] = []
    info: list[list[dict[str, Any]]] = []
    contact = []
    for t in range(steps):
        if t % HOLD == 0:
            for i in held:
                for qpos, qvel in (
                    (here.batch.qpos[i], here.batch.qvel[i]),
                    (there[i].unwrapped.data.qpos, there[i].unwrapped.data.qvel),
                ):
                    qpos[FREE[name] :], qvel[:] = posture, 0.0
        ours.append(jax.tree.map(np.array, here.step(action[t])))
        answers.append([env.step(action[t, i]) for i, env in enumerate(there)])
        info.append([answer[4] for answer in answers[-1]])
        contact.append([env.unwrapped.data.cfrc_ext.copy() for env in there])
        for i, (next_obs, reward, terminated, truncated, _) in enumerate(answers[-1]):
            obs = there[i].reset()[0] if terminated or truncated else next_obs
            answers[-1][i] = (next_obs, reward, terminated, truncated, obs)
    names = ("next_obs", "reward", "terminated", "truncated", "obs")
    seen = {key: np.array([[row[k] for row in rows] for rows in answers]) for k, key in enumerate(names)}
    stacked = jax.tree.map(lambda *parts: np.stack(parts), *ours)
    return Beside(action, begun, begun_there, stacked, seen, info, np.array(contact))


@functools.cache
def beside(name: str) -> Beside:
    """A thousand steps and a few more of two copies: one that lasts its whole episode, and one that may fall."""
    return play(name, seed=3, copies=2, steps=1005, held=(0,) if name in FALLING else ())


def check_bits(played: Beside) -> None:
    assert played.begun.dtype == played.begun_there.dtype == np.float64
    np.testing.assert_array_equal(played.begun, played.begun_there)
    for key, there in played.there.items():
        here = getattr(played.ours, key)
        assert here.dtype == there.dtype
        np.testing.assert_array_equal(here, there, err_msg=key)
    assert played.ours.reward.dtype == played.ours.next_obs.dtype == np.float64
    assert not played.ours.faulty.any()


@pytest.mark.parametrize("name", NAMES)
def test_every_number_is_gymnasiums_to_the_last_bit(name: str) -> None:
    played = beside(name)
    check_bits(played)
    terminated, truncated = played.there["terminated"], played.there["truncated"]
    assert truncated[999, 0] and not terminated[:1000, 0].any(), "one copy lasts the whole episode"
    if name in FALLING:
        assert terminated[:, 1].sum() >= 3, "the other one falls, and begins again"
    else:
        assert truncated[999, 1] and truncated.sum() == 2
    beyond = np.abs(played.action) > LIMITS[name]
    assert 0.2 < beyond.mean() < 0.4


@pytest.mark.parametrize("name", FEELING)
def test_contact_forces_are_felt_in_that_comparison(name: str) -> None:
    played = beside(name)
    felt = played.contact[:, :, 1:].reshape(*played.ours.reward.shape, -1)
    expected = np.clip(felt, -1.0, 1.0) if name == "Ant-v5" else felt
    seen = played.ours.next_obs[:, :, -felt.shape[-1] :]
    np.testing.assert_array_equal(seen, expected)
    # The held copy hangs in the air for much of the time, the other one does not.
    assert (np.abs(seen[:, 1]).max(axis=-1) > 0.5).mean() > 0.2, "in many a step something is touched"
    assert len(np.unique(np.nonzero(seen)[-1])) > 20, "by many a part of the robot"
    charged = np.array([[info["reward_contact"] for info in row] for row in played.info])
    assert (charged[:, 1] < 0.0).mean() > 0.2, "and it is charged for"
    # A new episode begins without.
    assert not played.ours.obs[played.ended][:, -felt.shape[-1] :].any()


@pytest.mark.parametrize(("name", "copies", "steps"), [("Swimmer-v5", 5, 40), ("Hopper-v5", 5, 120), ("Ant-v5", 3, 40)])
def test_the_same_bits_for_actions_in_double_precision(name: str, copies: int, steps: int) -> None:
    check_bits(play(name, seed=11, copies=copies, steps=steps, held=(), dtype=np.float64))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits_in_many_copies(name: str) -> None:
    played = play(name, seed=5, copies=16, steps=1100, held=(0, 7) if name in FALLING else ())
    check_bits(played)
    assert played.ended.sum() >= 16


def columns_of(name: str) -> tuple[str, ...]:
    return envs.make(name).spec.column_names


def column(name: str, which: str) -> np.ndarray:
    return np.asarray(beside(name).ours.costs)[:, :, columns_of(name).index(which)]


def written_limits(name: str) -> list[float]:
    """The motors' limits, read from the model's text: `motor` elements and what they inherit."""
    model: Any = robots.ROBOTS[name]()
    root = ElementTree.parse(Path(model.xml)).getroot()
    (default,) = [m.get("ctrlrange") for m in root.findall("./default/motor")] or [None]
    ranges = [motor.get("ctrlrange", default) for motor in root.findall("./actuator/motor")]
    limits = [[float(word) for word in str(text).split()] for text in ranges]
    assert all(low == -high for low, high in limits)
    return [high for _, high in limits]


@pytest.mark.parametrize("name", NAMES)
def test_torque_energy_and_action_change(name: str) -> None:
    played = beside(name)
    limits = written_limits(name)
    assert limits == [LIMITS[name]] * played.action.shape[-1]
    steps, copies = played.ours.reward.shape
    torque, energy, change = (np.empty((steps, copies)) for _ in range(3))
    for n in range(copies):
        previous: list[float] | None = None
        for t in range(steps):
            applied = [min(max(float(a), -limit), limit) for a, limit in zip(played.action[t, n], limits, strict=True)]
            shares = [abs(a) / limit for a, limit in zip(applied, limits, strict=True)]
            torque[t, n] = sum(shares) / len(shares)
            energy[t, n] = sum(share**2 for share in shares) / len(shares)
            moved = [] if previous is None else [abs(a - b) for a, b in zip(applied, previous, strict=True)]
            ranges = [2.0 * limit for limit in limits]
            change[t, n] = sum(m / r for m, r in zip(moved, ranges, strict=False)) / len(shares)
            previous = None if played.ended[t, n] else applied
    np.testing.assert_allclose(column(name, "torque"), torque, rtol=1e-6)
    np.testing.assert_allclose(column(name, "energy"), energy, rtol=1e-6)
    np.testing.assert_allclose(column(name, "action_change"), change, rtol=1e-6, atol=1e-12)
    first = np.vstack((np.ones((1, copies), bool), played.ended[:-1]))
    assert np.all(column(name, "action_change")[first] == 0.0)
    assert np.mean(column(name, "action_change")[~first] > 0.0) > 0.9
    assert torque.max() <= 1.0 and torque.max() > 0.75


@pytest.mark.parametrize("name", NAMES)
def test_speed(name: str) -> None:
    played = beside(name)
    along, across = (np.array([[i.get(key, 0.0) for i in row] for row in played.info])
                     for key in ("x_velocity", "y_velocity"))  # fmt: skip
    planar = name in ("Ant-v5", "Humanoid-v5")
    assert across.any() == (planar or name == "Swimmer-v5")
    expected = [math.hypot(x, y) for x, y in zip(along.flat, across.flat, strict=True)] if planar else along.ravel()
    np.testing.assert_allclose(column(name, "speed").ravel(), expected, rtol=1e-12)
    assert np.ptp(along) > 0.1


@pytest.mark.parametrize("name", NAMES)
def test_a_fall_is_paid_for_once_on_the_step_that_ends_the_episode(name: str) -> None:
    if name not in FALLING:
        assert "fall" not in columns_of(name)
        return
    fall = column(name, "fall")
    np.testing.assert_array_equal(fall, np.where(beside(name).there["terminated"], 1.0, 0.0))
    assert fall[:1000, 0].sum() == 0.0, "a cut is no fall"


@pytest.mark.parametrize("name", NAMES)
def test_the_reward_scale_and_the_cap_are_settings(name: str) -> None:
    played = beside(name)
    copies = opened(name, 2, reward_scale=0.25, max_steps=7)
    copies.reset(3)
    unheld = slice(1, 2) if name in FALLING else slice(0, 2)
    for t in range(7):
        step = copies.step(played.action[t])
        np.testing.assert_array_equal(np.asarray(step.costs)[unheld], played.ours.costs[t, unheld])
        np.testing.assert_array_equal(np.asarray(step.reward)[unheld], 0.25 * played.ours.reward[t, unheld])
        assert (np.asarray(step.truncated) == (t == 6)).all()
        assert not np.asarray(step.terminated).any()
    settings = RobotSettings(max_steps=7)
    assert envs.make(name, settings).spec.max_steps == 7
    assert envs.make(name).spec.max_steps == 1000


@pytest.mark.parametrize("name", NAMES)
def test_what_is_known_of_a_robot_without_running_it(name: str) -> None:
    spec = envs.make(name).spec
    (there,) = open_there(name, 0, 1)
    assert spec.name == there.spec.id == name
    assert spec.observation_shape == there.observation_space.shape
    assert spec.max_steps == there.spec.max_episode_steps
    assert isinstance(spec.actions, Box)
    np.testing.assert_array_equal(np.array(spec.actions.low, np.float32), there.action_space.low)
    np.testing.assert_array_equal(np.array(spec.actions.high, np.float32), there.action_space.high)
    assert f"{spec.outputs} motors" in envs.ROBOTS[name]
