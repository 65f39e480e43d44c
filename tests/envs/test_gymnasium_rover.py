import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy.stats import chisquare

from rcpo.envs.grid import read_map
from rcpo.envs.gymnasium_rover import ENV_ID, ROVER_COLOUR, MarsRoverEnv
from rcpo.errors import UsageError

UP, RIGHT, DOWN, LEFT = range(4)
CROSS = "W.W\n.SG\nW#W"
TRAP = "S#\nG."


@pytest.fixture
def write_map(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        path = tmp_path / "map.txt"
        path.write_text(text)
        return str(path)

    return write


def position(observation: np.ndarray) -> tuple[int, int]:
    ((_, y, x),) = np.argwhere(observation == 1.0)
    return int(y), int(x)


def test_gymnasiums_own_checker_has_nothing_to_say() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(ENV_ID, render_mode="rgb_array")
        check_env(env.unwrapped)
        # And with the cap of the registration and Gymnasium's passive checker around it, for a whole episode.
        env.reset(seed=0)
        ended = False
        while not ended:
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            ended = terminated or truncated


def test_gymnasium_finds_it_by_name_without_jax() -> None:
    code = """
import sys, gymnasium
env = gymnasium.make("rcpo:rcpo/MarsRover-v0", slip=0.1)
assert env.unwrapped.settings.slip == 0.1
print(env.spec.id, [heavy for heavy in ("jax", "scipy", "matplotlib") if heavy in sys.modules])
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == [ENV_ID, "[]"]


def test_the_same_seed_gives_the_same_episodes() -> None:
    def drive(seed: int) -> list[Any]:
        env = MarsRoverEnv(slip=0.5, restart_probability=0.5)
        seen: list[Any] = [position(env.reset(seed=seed)[0])]
        actions = np.random.default_rng(7).integers(4, size=300)
        for action in actions:
            observation, reward, terminated, _, info = env.step(action)
            seen.append((position(observation), reward, terminated, info))
            if terminated:
                seen.append(position(env.reset()[0]))
        return seen

    assert drive(3) == drive(3)
    assert drive(3) != drive(4)


def test_a_move_slips_as_often_as_the_table_says(write_map: Any) -> None:
    """Every action from the middle of a cross, whose four neighbours tell the moves apart."""
    slip, draws = 0.4, 2000
    env = MarsRoverEnv(map=write_map(CROSS), slip=slip)
    env.reset(seed=0)
    neighbour = {UP: (0, 1), RIGHT: (1, 2), DOWN: (2, 1), LEFT: (1, 0)}
    for action in range(4):
        went: Counter[tuple[int, int]] = Counter()
        for _ in range(draws):
            env.reset()
            went[position(env.step(action)[0])] += 1
        observed = [went[neighbour[move]] for move in range(4)]
        assert sum(observed) == draws

        def expected(slip: float, action: int = action) -> list[float]:
            return [draws * (slip / 4 + (1 - slip) * (move == action)) for move in range(4)]

        assert chisquare(observed, expected(slip)).pvalue > 0.001
        # The same draws tell a slip that never picks the chosen move (a common misreading) from this one.
        misread = [draws * (slip / 3 if move != action else 1 - slip) for move in range(4)]
        assert chisquare(observed, misread).pvalue < 1e-4


def test_transitions_of_the_papers_map_follow_the_table() -> None:
    grid, slip, draws = read_map(None), 0.3, 8000
    env = MarsRoverEnv(slip=slip, restart_probability=1.0)
    actions = np.random.default_rng(1).integers(4, size=draws)
    env.reset(seed=1)
    as_sent, expected = 0, 0.0
    for action in actions:
        env.reset()
        before = env.state
        env.step(action)
        target = grid.next_state[before, action]
        assert env.state in grid.next_state[before]
        as_sent += env.state == target
        expected += 1 - slip + slip * np.mean(grid.next_state[before] == target)
    # Five standard deviations of a sum of coin flips.
    assert abs(as_sent - expected) < 5 * np.sqrt(draws * 0.25)


def test_without_slip_it_drives_as_told_and_walls_block() -> None:
    env = MarsRoverEnv(slip=0.0)
    observation, info = env.reset(seed=0)
    assert (position(observation), info) == ((1, 1), {})
    way = [(UP, (1, 1)), (LEFT, (1, 1)), (RIGHT, (1, 2)), (DOWN, (2, 2)), (LEFT, (2, 1)), (UP, (1, 1))]
    for action, reached in way:
        observation, reward, terminated, truncated, info = env.step(action)
        assert position(observation) == reached
        assert (reward, terminated, truncated) == (-0.01, False, False)
        assert info == {"crash": 0.0, "goal": 0.0}


def test_a_rock_ends_the_episode_and_is_a_crash(write_map: Any) -> None:
    env = MarsRoverEnv(map=write_map(TRAP), slip=0.0, step_reward=-0.5, goal_reward=3.0)
    env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(RIGHT)
    assert position(observation) == (0, 1)
    assert (reward, terminated, truncated, info) == (-0.5, True, False, {"crash": 1.0, "goal": 0.0})
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        env.step(RIGHT)


def test_the_goal_ends_the_episode_and_pays(write_map: Any) -> None:
    env = MarsRoverEnv(map=write_map(TRAP), slip=0.0, step_reward=-0.5, goal_reward=3.0)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(DOWN)
    assert (reward, terminated, truncated, info) == (2.5, True, False, {"crash": 0.0, "goal": 1.0})


@pytest.mark.parametrize(("arguments", "cap"), [({}, 200), ({"max_episode_steps": 7}, 7)])
def test_the_cap_truncates(arguments: dict[str, int], cap: int) -> None:
    env = gymnasium.make(ENV_ID, slip=0.0, **arguments)  # type: ignore[arg-type]
    env.reset(seed=0)
    ends = [env.step(UP)[2:4] for _ in range(cap)]
    assert ends == [(False, False)] * (cap - 1) + [(False, True)]


def test_restarts_are_uniform_over_the_cells_that_go_on(write_map: Any) -> None:
    path, draws = write_map("S.#\n.WG\n..."), 3000
    env = MarsRoverEnv(map=path, restart_probability=0.6)
    env.reset(seed=5)
    begun = Counter(position(env.reset()[0]) for _ in range(draws))
    cells = [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2)]
    assert set(begun) == set(cells)
    expected = [draws * (0.6 / 6 + (0.4 if cell == (0, 0) else 0.0)) for cell in cells]
    assert chisquare([begun[cell] for cell in cells], expected).pvalue > 0.001


def test_an_observation_is_the_callers_own() -> None:
    env = MarsRoverEnv(slip=0.0)
    first, _ = env.reset(seed=0)
    first[:] = 0.0
    again, _ = env.reset()
    assert position(again) == (1, 1)


def test_the_picture() -> None:
    env = MarsRoverEnv(slip=0.0, render_mode="rgb_array")
    env.reset(seed=0)
    for action in (RIGHT, RIGHT, DOWN):
        env.step(action)
    picture = env.render()
    assert picture is not None
    assert (picture.shape, picture.dtype) == ((480, 480, 3), np.uint8)

    def middle(y: int, x: int) -> tuple[int, ...]:
        assert picture is not None
        return tuple(picture[16 * y + 8, 16 * x + 8].tolist())

    assert middle(2, 3) == ROVER_COLOUR
    rover = np.argwhere(np.all(picture == ROVER_COLOUR, axis=-1)) // 16
    np.testing.assert_array_equal(np.unique(rover, axis=0), [[2, 3]])
    red, green, blue = middle(4, 28)
    assert red > 1.5 * green > 3 * blue, "the goal is orange"
    red, green, blue = middle(1, 20)
    assert min(red, green) > 3 * blue and green > 0.8 * red, "rocks are yellow"
    assert max(middle(0, 0)) < 100, "walls are dark"
    assert min(middle(20, 20)) > 200, "free ground is light"


def test_no_picture_without_a_render_mode() -> None:
    env = MarsRoverEnv()
    env.reset(seed=0)
    assert env.render() is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"slip": 1.5}, ["slip", "1.5", "[0, 1]"]),
        ({"slip": -0.1}, ["slip", "-0.1", "[0, 1]"]),
        ({"slip": float("nan")}, ["slip", "nan", "[0, 1]"]),
        ({"restart_probability": 2.0}, ["restart probability", "2", "[0, 1]"]),
        ({"render_mode": "ansi"}, ["'ansi'", "'rgb_array'"]),
        ({"map": "no/such/map.txt"}, ["'no/such/map.txt'", "No such file"]),
    ],
)
def test_bad_arguments_are_refused_in_one_sentence(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        MarsRoverEnv(**arguments)
    assert "\n" not in str(refused.value)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize("action", [-1, 4])
def test_an_action_that_does_not_exist_is_refused(action: int) -> None:
    env = MarsRoverEnv()
    env.reset(seed=0)
    with pytest.raises(UsageError, match=f"got the action {action}; give an integer from 0 to 3"):
        env.step(action)


def test_a_step_before_the_first_reset_is_refused() -> None:
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        MarsRoverEnv().step(UP)
