"""Pictures of policies at work: what is counted beside them is true, and what cannot be drawn is one sentence."""

import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import gyms
import numpy as np
import pytest
from PIL import Image
from policies import finished, networks

from rcpo import envs, video
from rcpo.constraints import Constraint
from rcpo.envs.gymnasium_rover import ROVER_COLOUR
from rcpo.envs.settings import RobotSettings
from rcpo.errors import UsageError
from rcpo.functionals import Sum
from rcpo.playing import play
from rcpo.policy import single
from rcpo.report import LARGEST_PICTURE
from rcpo.run import Run
from rcpo.video import film_strip, frames, record

pytestmark = pytest.mark.usefixtures("quick_compile")


@pytest.fixture(scope="module")
def rover() -> Run:
    environment, (network,) = networks("mars-rover", 1)
    return finished(environment, single(network, False), "mars-rover", "P(crash) <= 0.1")


@pytest.fixture(scope="module")
def hopper() -> Run:
    _, (network,) = networks("Hopper-v5", 1)
    short = envs.make("Hopper-v5", RobotSettings(max_steps=12))
    return finished(short, single(network, False), "Hopper-v5", "mean(torque) <= 0.25")


def drawable() -> None:
    if video.backend() is None:
        pytest.skip("nothing draws MuJoCo's models here")


# What is counted


def test_a_robots_episode_is_what_gymnasium_plays(hopper: Run) -> None:
    """The same actions from the same state give the same reward; torque is the mean of |action| for these motors."""
    played = play(hopper, seed=3)
    world = gymnasium.make("Hopper-v5")
    world.reset(seed=0)
    inner: Any = world.unwrapped
    actor = hopper.actor(3)
    environment: Any = hopper.environment
    with environment.open(1) as copies:
        copies.reset(3)
        inner.set_state(copies.batch.qpos[0], copies.batch.qvel[0])
        np.testing.assert_array_equal(played.states[0], copies.batch.qpos[0])
    rewards: list[float] = []
    efforts: list[float] = []
    obs = inner._get_obs()
    for t in range(played.steps):
        action = actor.act(obs)
        obs, reward, *_ = world.step(action)
        rewards.append(float(reward))
        efforts.append(np.abs(action).mean())
        if t < played.steps - 1:
            np.testing.assert_allclose(played.states[t + 1], inner.data.qpos, atol=1e-9)
    np.testing.assert_allclose(played.reward[1:], np.cumsum(rewards), atol=1e-4)
    expected = np.cumsum(efforts) / np.arange(1, played.steps + 1)
    np.testing.assert_allclose(played.value[1:, 0], expected, atol=1e-5)
    assert played.seconds == pytest.approx(0.008)


def test_the_rovers_episode_ends_as_it_should(rover: Run) -> None:
    """Every step costs 0.01; the value is 1 once it crashed, and it ends in a rock, in the goal or at the cap."""
    played = play(rover, seed=1)
    grid = rover.environment.grid()  # type: ignore[union-attr]
    np.testing.assert_allclose(played.reward, -0.01 * np.arange(played.steps + 1), atol=1e-9)
    last = played.states[-1]
    assert grid.rock[last] or grid.goal[last] or played.steps == 200
    assert not any(grid.terminal[state] for state in played.states[:-1])
    np.testing.assert_array_equal(played.value[:, 0], [*np.zeros(played.steps), float(grid.rock[last])])


def test_a_robots_motors_get_what_the_policy_gives() -> None:
    """Those of the humanoid reach from -0.4 to 0.4."""
    _, (network,) = networks("Humanoid-v5", 1)
    short: Any = envs.make("Humanoid-v5", RobotSettings(max_steps=3))
    run = finished(short, single(network, False), "Humanoid-v5", "mean(torque) <= 0.25")
    played, actor, efforts = play(run, seed=3), run.actor(3), []
    with short.open(1) as copies:
        obs = copies.reset(3)
        for _ in range(played.steps):
            action = actor.act(np.array(obs))
            efforts.append(np.abs(action).mean() / 0.4)
            obs = copies.step(action).obs
    np.testing.assert_allclose(played.value[1:, 0], np.cumsum(efforts) / np.arange(1, len(efforts) + 1), rtol=1e-4)


class Drawn(gyms.Walk):
    """Draws itself as a picture of one grey, the brighter the longer the episode lasts."""

    def __init__(self, render_mode: str | None = None):
        self.render_mode, self.metadata = render_mode, {"render_modes": ["rgb_array"], "render_fps": 20}

    def render(self) -> Any:
        return np.full((40, 60, 3), 10 * self.steps, np.uint8)


def walks(kind: Any = Drawn, *constraints: Any) -> Run:
    environment, (network,) = networks(kind, 1)
    run = finished(environment, single(network, False), "own", "sum(cost) <= 1")
    return replace(run, constraints=(*run.constraints, *constraints))


def test_an_environment_of_gymnasiums_is_played_and_drawn(tmp_path: Path) -> None:
    """From the same seed the same episode, step by step; the last picture shows its end."""
    ages = Constraint(Sum(), age, 3.0)
    run = walks(Drawn, ages)
    played, actor = play(run, seed=5), run.actor(5)
    environment: Any = run.environment
    costs, rewards = [], []
    with environment.open(1) as copies:
        obs, ended = np.array(copies.reset(5)), False
        while not ended:
            step = copies.step(actor.rows(obs))
            costs.append(step.costs[0, environment.spec.column_names.index("cost")])
            rewards.append(float(step.reward[0]))
            obs, ended = np.array(step.obs), bool(step.terminated[0] or step.truncated[0])
    assert played.steps == len(costs) > 1 and played.seconds == 0.05
    np.testing.assert_allclose(played.value[1:, 0], np.cumsum(costs), rtol=1e-5)
    np.testing.assert_allclose(played.value[1:, 1], np.cumsum(np.arange(1, len(costs) + 1) / 10), rtol=1e-5)
    np.testing.assert_allclose(played.reward[1:], np.cumsum(rewards), rtol=1e-5)
    assert [int(picture[0, 0, 0]) for picture in played.states] == [10 * t for t in range(played.steps + 1)]
    record(run, tmp_path / "a.gif", seed=5)
    with Image.open(tmp_path / "a.gif") as image:
        assert image.size[0] == 60 and getattr(image, "n_frames", 1) > 1


def age(obs: Any, action: Any, next_obs: Any, info: Any) -> Any:
    """How long the episode has lasted, in tens of steps."""
    return next_obs[:, 1]


class Loud(Drawn):
    def render(self) -> Any:
        raise ImportError("no screen\n here")


class Flat(Drawn):
    def render(self) -> Any:
        return np.zeros((40, 60))


def drawn() -> Any:
    return Drawn()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (gyms.Walk, r"^there is no picture of Walk \(factory\): it does not offer the render_mode 'rgb_array'$"),
        (drawn, r"^there is no picture of drawn \(factory\), which cannot be made with render_mode='rgb_array': "),
        (Drawn(), r"^there is no picture of Drawn \(object\), which cannot be made with render_mode='rgb_array': "),
        (Loud, r"^there is no picture of Loud \(factory\): ImportError: no screen here$"),
        (Flat, r"its render gives float64 of shape \(40, 60\), expected bytes of shape \(height, width, 3\)$"),
    ],
)
def test_an_environment_that_cannot_be_drawn_is_one_sentence(kind: Any, said: str, tmp_path: Path) -> None:
    run = walks(kind)
    with pytest.raises(UsageError, match=said):
        record(run, tmp_path / "a.gif")
    assert film_strip(run) is None


def test_cartpole_is_drawn() -> None:
    pytest.importorskip("pygame")
    environment, (network,) = networks("CartPole-v1", 1)
    played = play(finished(environment, single(network, False), "CartPole-v1", "sum(obs_0) <= 1"), seed=1)
    assert played.seconds == 0.02 and {picture.shape for picture in played.states} == {(400, 600, 3)}
    assert len(played.states) == played.steps + 1 and (played.states[0] != played.states[-1]).any()


def test_an_object_that_draws_itself_already() -> None:
    assert play(walks(Drawn("rgb_array")), seed=1).states[0].shape == (40, 60, 3)


# Pictures


def test_the_rover_is_drawn_where_it_is(rover: Run) -> None:
    played = play(rover, seed=1)
    chosen = [0, played.steps // 2, played.steps]
    grid = rover.environment.grid()  # type: ignore[union-attr]
    for index, picture in zip(chosen, frames(rover, played, chosen), strict=True):
        red = np.argwhere((picture == ROVER_COLOUR).all(axis=-1))
        side = 480 // max(len(grid.cells), len(grid.cells[0]))
        cell = np.unique(red[red[:, 0] < side * len(grid.cells)] // side, axis=0)
        np.testing.assert_array_equal(cell, [grid.positions[played.states[index]]])
        assert picture.shape[0] % 2 == picture.shape[1] % 2 == 0


@pytest.mark.parametrize("suffix", [".gif", ".png"])
def test_without_ffmpeg(rover: Run, tmp_path: Path, suffix: str) -> None:
    (played,) = record(rover, tmp_path / f"a{suffix}", seed=1)
    with Image.open(tmp_path / f"a{suffix}") as image:
        shown = getattr(image, "n_frames", 1)
        assert image.format == suffix[1:].upper()
    if suffix == ".gif":
        assert shown == len(range(0, played.steps + 1, -(-(played.steps + 1) // video.GIF_FRAMES)))


def test_a_video_has_a_frame_for_every_step(rover: Run, tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    played = record(rover, tmp_path / "a.mp4", episodes=2, seed=1)
    count, seconds = ffmpeg.count_frames_and_secs(str(tmp_path / "a.mp4"))
    assert count == sum(one.steps + 1 for one in played)
    assert seconds == pytest.approx(count / 10, abs=0.2)
    assert [file.name for file in tmp_path.iterdir()] == ["a.mp4"]


def test_a_robot_is_drawn(hopper: Run) -> None:
    drawable()
    strip = film_strip(hopper, 6)
    assert strip is not None
    assert len(strip) < LARGEST_PICTURE  # so a report shows it
    with Image.open(io.BytesIO(strip)) as image:
        picture = np.asarray(image.convert("RGB"))
    assert picture.shape == (2 * (360 + 2 * 18 + 8), 3 * 480, 3)
    assert picture[:360, :480].std() > 10  # something is to be seen
    assert (picture[:360, :480] != picture[:360, 480:960]).any()  # and it moves


def test_the_floor_has_no_end(hopper: Run) -> None:
    drawable()
    here = np.asarray(play(hopper, seed=3).states[0])
    away = here.copy()
    away[0] += 500.0
    near, far = video.pictures(hopper, [here, away])
    assert min(picture[-60:].std() for picture in (near, far)) > 30  # a chequered floor, not the sky


def test_a_robot_in_a_video(hopper: Run, tmp_path: Path) -> None:
    drawable()
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    (played,) = record(hopper, tmp_path / "a.mp4")
    count, _ = ffmpeg.count_frames_and_secs(str(tmp_path / "a.mp4"))
    assert count == len(range(0, played.steps + 1, 4))  # 125 steps a second are shown at 31 frames a second


# What cannot be drawn


@pytest.fixture
def nothing_draws(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As on a machine where the first library crashes the process and the second hangs."""
    crash = "import os, time\nif os.environ['MUJOCO_GL'] == 'egl': os.abort()\ntime.sleep(60)"
    monkeypatch.setattr(video, "_command", lambda *_: [sys.executable, "-c", crash])
    monkeypatch.setattr(video, "PROBE_SECONDS", 1.0)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    video.backend.cache_clear()
    yield
    video.backend.cache_clear()


def test_a_crash_of_what_draws_is_one_sentence(hopper: Run, tmp_path: Path, nothing_draws: None) -> None:
    with pytest.raises(UsageError, match=r"^a robot cannot be drawn here: neither EGL nor OSMesa works; install"):
        record(hopper, tmp_path / "a.gif")
    assert film_strip(hopper, 4) is None


def test_what_has_no_picture(tmp_path: Path) -> None:
    environment, (network,) = networks("fork", 1)
    run = finished(environment, single(network, False), "fork")
    assert film_strip(run) is None
    with pytest.raises(UsageError, match="there is no picture of fork"):
        record(run, tmp_path / "a.gif")


@pytest.mark.parametrize(
    ("name", "episodes", "said"),
    [
        ("a.avi", 1, "^got 'a.avi'; give a file that ends in .mp4, .gif, .png$"),
        ("a.gif", 0, "^got 0 episodes; give at least 1$"),
        ("file/a.gif", 1, "^cannot write '.*a.gif': .*; give another path$"),
    ],
)
def test_a_mistake_is_one_sentence(rover: Run, tmp_path: Path, name: str, episodes: int, said: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=said):
        record(rover, tmp_path / name, episodes)


def test_a_video_without_ffmpeg_is_one_sentence(rover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UsageError, match=r"needs imageio_ffmpeg, which is not installed: pip install 'rcpo\[video\]'$"):
        record(rover, tmp_path / "a.mp4")
