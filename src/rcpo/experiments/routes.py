"""Where a policy drives: exact visits, and the way it most likely takes."""

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from rcpo.envs.grid import GridMap
from rcpo.exact import FiniteCMDP


def occupancy(
    cmdp: FiniteCMDP, probabilities: Float[np.ndarray, "M S A"], weights: Float[np.ndarray, " M"], cap: int
) -> Float[np.ndarray, "S A"]:
    """Expected visits of each state and action in an episode that is cut after `cap` steps.

    x(s,a) = sum_m w_m sum_{t < cap} P_m(s_t = s) pi_m(a | s), with P_m(s_t) carried forward from the start.
    """
    total = np.zeros(cmdp.reward.shape)
    onward = csr_array(cmdp.transitions.T)
    for policy, weight in zip(probabilities, weights, strict=True):
        here = cmdp.initial.astype(float)
        visits = np.zeros_like(here)
        for _ in range(cap):
            visits += here
            here = onward @ (here[:, None] * policy).ravel()
        total += weight * visits[:, None] * policy
    return total


def likely_path(grid: GridMap, policy: Float[np.ndarray, "S A"], cap: int) -> list[int]:
    """The states that the likeliest actions lead to without slipping, up to a goal, a rock, a repetition or the cap."""
    path = [grid.start]
    while len(path) <= cap and not grid.terminal[path[-1]]:
        following = int(grid.next_state[path[-1], policy[path[-1]].argmax()])
        if following in path:
            break
        path.append(following)
    return path
