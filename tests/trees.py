"""Problems of a few steps in which every sequence of actions is a state, so that every answer can be counted."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse
from scipy.optimize import linprog

from rcpo.constraints import Constraint
from rcpo.envs.finite import FiniteEnvironment
from rcpo.exact import FiniteCMDP

Table = Sequence[Sequence[float]]
"""What each action earns or costs in each step."""


def tree(reward: Table, columns: Mapping[str, Table]) -> FiniteCMDP:
    """As many steps as there are rows. The state is what was done before."""
    steps, actions = np.shape(reward)
    histories = [past for length in range(steps) for past in itertools.product(range(actions), repeat=length)]
    number = {past: n for n, past in enumerate(histories)}
    moves = np.zeros((len(histories), actions, len(histories)))
    for past, n in number.items():
        for action in range(actions):
            if len(past) + 1 < steps:
                moves[n, action, number[*past, action]] = 1.0
    time = [len(past) for past in histories]
    return FiniteCMDP(
        transitions=scipy.sparse.csr_array(moves.reshape(-1, len(histories))),
        reward=np.asarray(reward, dtype=float)[time],
        columns={name: np.asarray(costs, dtype=float)[time] for name, costs in columns.items()},
        initial=np.eye(len(histories))[0],
        outcomes={"end": 1.0 - moves.sum(axis=-1)},
    )


def environment(cmdp: FiniteCMDP) -> FiniteEnvironment:
    return FiniteEnvironment.build(cmdp, "tree")


def best(
    reward: Table, columns: Mapping[str, Table], constraints: Sequence[Constraint]
) -> tuple[float, np.ndarray, np.ndarray]:
    """The best mixture of all sequences of actions: its reward, each constraint's value, and each multiplier."""
    steps, actions = np.shape(reward)
    sequences = list(itertools.product(range(actions), repeat=steps))

    def along(table: Table, sequence: Sequence[int]) -> list[float]:
        return [table[step][action] for step, action in enumerate(sequence)]

    earned = np.array([sum(along(reward, sequence)) for sequence in sequences])
    worth = np.array([[value(one, along(columns[one.column], sequence)) for sequence in sequences]
                      for one in constraints])  # fmt: skip
    sign, limit = np.array([[one.sign, one.limit] for one in constraints]).T
    found = linprog(-earned, sign[:, None] * worth, sign * limit, np.ones((1, len(sequences))), [1.0], method="highs")
    assert found.success
    return -found.fun, worth @ found.x, -found.ineqlin.marginals


def value(constraint: Constraint, costs: Sequence[float]) -> float:
    """What one episode is worth."""
    total = constraint.functional.start(0.0)
    for elapsed, cost in enumerate(costs):
        total = constraint.functional.step(total, constraint.paid(cost), elapsed)
    return float(constraint.functional.value(total, len(costs)))
