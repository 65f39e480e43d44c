import numpy as np
import pytest

from rcpo import exact
from rcpo.envs import make_finite
from rcpo.envs.grid import MOVE_NAMES, GridMap, parse_map
from rcpo.exact import FiniteCMDP
from rcpo.experiments.routes import likely_path, occupancy

MAP = """
S..#
.W..
...G
"""


def tables(name: str) -> FiniteCMDP:
    cmdp = make_finite(name).cmdp()
    assert cmdp is not None
    return cmdp


def slow_occupancy(cmdp: FiniteCMDP, policy: np.ndarray, cap: int) -> np.ndarray:
    """Every step, state, action and next state in turn."""
    states, actions = cmdp.reward.shape
    chances = cmdp.transitions.toarray().reshape(states, actions, states)
    here, total = cmdp.initial.copy(), np.zeros((states, actions))
    for _ in range(cap):
        following = np.zeros(states)
        for state in range(states):
            for action in range(actions):
                total[state, action] += here[state] * policy[state, action]
                for target in range(states):
                    following[target] += here[state] * policy[state, action] * chances[state, action, target]
        here = following
    return total


@pytest.mark.parametrize("cap", [1, 2, 5, 40])
def test_occupancy_against_a_slow_loop(cap: int) -> None:
    cmdp = tables("fork")
    policies = np.random.default_rng(cap).dirichlet(np.ones(2), size=(3, 5))
    weights = np.array([0.2, 0.5, 0.3])
    slow = sum(weight * slow_occupancy(cmdp, policy, cap) for weight, policy in zip(weights, policies, strict=True))
    np.testing.assert_allclose(occupancy(cmdp, policies, weights, cap), slow, rtol=1e-12, atol=1e-15)


def test_occupancy_adds_up_to_what_the_mixture_is_worth() -> None:
    cmdp = tables("mars-rover")
    policies = np.random.default_rng(0).dirichlet(np.full(4, 0.3), size=(2, len(cmdp.initial)))
    weights = np.array([0.3, 0.7])
    visits = occupancy(cmdp, policies, weights, cap=60)
    worth = exact.mixture([exact.evaluate(cmdp, policy, cap=60) for policy in policies], weights)
    assert visits.sum() == pytest.approx(worth.steps)
    assert (visits * cmdp.columns["crash"]).sum() == pytest.approx(worth.values["crash"])


def moves(grid: GridMap, **chosen: str) -> np.ndarray:
    """A policy from directions by cell, `y2x3="up"`; elsewhere it is undecided, and a little in favour of right."""
    policy = np.full((len(grid.positions), 4), 0.2)
    policy[:, MOVE_NAMES.index("right")] = 0.4
    for state, (y, x) in enumerate(grid.positions):
        if direction := chosen.get(f"y{y}x{x}"):
            policy[state] = np.eye(4)[MOVE_NAMES.index(direction)]
    return policy


def cells(grid: GridMap, path: list[int]) -> list[tuple[int, int]]:
    return [(int(y), int(x)) for y, x in grid.positions[path]]


def test_the_likely_path_ends_at_goal_rock_repetition_or_cap() -> None:
    grid = parse_map(MAP, "test")
    to_rock = [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert cells(grid, likely_path(grid, moves(grid), cap=100)) == to_rock
    around = moves(grid, y0x0="down", y1x0="down", y2x0="right")
    assert cells(grid, likely_path(grid, around, cap=100)) == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (2, 3)]
    assert cells(grid, likely_path(grid, around, cap=2)) == [(0, 0), (1, 0), (2, 0)]
    there_and_back = moves(grid, y0x0="down", y1x0="up")
    assert cells(grid, likely_path(grid, there_and_back, cap=100)) == [(0, 0), (1, 0)]
    against_the_wall = moves(grid, y0x0="down", y1x0="right")
    assert cells(grid, likely_path(grid, against_the_wall, cap=100)) == [(0, 0), (1, 0)]
