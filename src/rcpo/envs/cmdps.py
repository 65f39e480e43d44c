"""The finite environments as tables for the exact solver: numpy and scipy only."""

import numpy as np
import scipy.sparse
from jaxtyping import Bool, Float

from rcpo.envs.grid import read_map
from rcpo.envs.settings import MarsRoverSettings
from rcpo.exact import FiniteCMDP


def mars_rover(settings: MarsRoverSettings) -> FiniteCMDP:
    """The Mars Rover; states are the map's cells, numbered as in `GridMap`."""
    grid = read_map(settings.map)
    states, moves = grid.next_state.shape
    # chance[a, b]: that move b happens when a was chosen.
    chance = (1.0 - settings.slip) * np.eye(moves) + settings.slip / moves
    source = np.repeat(np.arange(states * moves), moves)
    target = np.broadcast_to(grid.next_state[:, None, :], (states, moves, moves)).ravel()
    weight = np.broadcast_to(chance, (states, moves, moves)).ravel()
    goes_on = ~grid.terminal[target] & ~grid.terminal[source // moves]
    transitions = scipy.sparse.csr_array(
        (weight[goes_on], (source[goes_on], target[goes_on])), shape=(states * moves, states)
    )
    alive = ~grid.terminal[:, None]

    def chance_of(event: Bool[np.ndarray, " S"]) -> Float[np.ndarray, "S 4"]:
        return np.asarray((event[grid.next_state].astype(float) @ chance.T) * alive)

    outcomes = {"crash": chance_of(grid.rock), "goal": chance_of(grid.goal)}
    return FiniteCMDP(
        transitions=transitions,
        reward=(settings.step_reward + settings.goal_reward * outcomes["goal"]) * alive,
        columns=outcomes,
        initial=np.eye(states)[grid.start],
        outcomes=outcomes,
    )


def fork() -> FiniteCMDP:
    """A fork in the road, small enough to solve by hand; every step costs 0.1.

    From the fork, a bridge is crossed at a run (1 step, crash 0.3) or at a walk (2 steps on average, crash 0.1), or a
    detour of 3 more steps never crashes. So P(crash) and steps are (0.3, 2), (0.1, 3) or (0, 4): with P(crash) <= 0.05
    the best is to walk and to take the detour half of the time each, 3.5 steps, and the multiplier is 0.1 / 0.1 = 1.
    """
    fork, bridge, detour, meadow, hill = range(5)
    actions = 2
    moves = np.zeros((5, actions, 5))
    crash, goal = np.zeros((5, actions)), np.zeros((5, actions))
    moves[fork, 0, bridge] = moves[fork, 1, detour] = 1.0
    crash[bridge], goal[bridge] = (0.3, 0.05), (0.7, 0.45)
    moves[bridge, 1, bridge] = 0.5
    moves[detour, :, meadow] = moves[meadow, :, hill] = 1.0
    goal[hill] = 1.0
    return FiniteCMDP(
        transitions=scipy.sparse.csr_array(moves.reshape(-1, 5)),
        reward=np.full((5, actions), -0.1),
        columns={"crash": crash, "goal": goal},
        initial=np.eye(5)[fork],
        outcomes={"crash": crash, "goal": goal},
    )
