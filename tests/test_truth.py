"""Constraints as bounds on tables: against counting every episode of small problems, and what has no exact answer."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import rcpo
from rcpo import envs, exact, truth
from rcpo.constraints import Constraint, parse
from rcpo.errors import UsageError
from rcpo.exact import FiniteCMDP
from rcpo.functionals import Sum

LEVEL = np.array([[0.0, 1.0], [2.0, 0.5], [0.25, 3.0], [1.0, 0.0]])


def ladder() -> FiniteCMDP:
    """Three rungs, each reached after one number of steps, and a fourth; a slip may end it on any."""
    rng = np.random.default_rng(4)
    moves, crash, goal = np.zeros((4, 2, 4)), np.zeros((4, 2)), np.zeros((4, 2))
    for state, following in ((0, (1, 2)), (1, (3,)), (2, (3,)), (3, ())):
        for action in range(2):
            chances = rng.dirichlet(np.ones(len(following) + 2))
            moves[state, action, list(following)] = chances[2:]
            crash[state, action], goal[state, action] = chances[:2]
    return FiniteCMDP(
        transitions=scipy.sparse.csr_array(moves.reshape(8, 4)),
        reward=rng.normal(size=(4, 2)),
        columns={"crash": crash, "level": LEVEL},
        initial=np.array([1.0, 0.0, 0.0, 0.0]),
        outcomes={"crash": crash, "goal": goal},
    )


def loop() -> FiniteCMDP:
    """Two states that lead to each other and to the goal."""
    moves = np.array([[[0.5, 0.3], [0.0, 0.6]], [[0.4, 0.4], [0.7, 0.2]]])
    goal = 1.0 - moves.sum(axis=-1)
    return FiniteCMDP(
        transitions=scipy.sparse.csr_array(moves.reshape(4, 2)),
        reward=np.full((2, 2), -1.0),
        columns={"level": LEVEL[:2], "goal": goal},
        initial=np.array([0.5, 0.5]),
        outcomes={"goal": goal},
    )


def episodes(cmdp: FiniteCMDP, policy: np.ndarray, cap: int) -> Any:
    """Every episode that there is: its probability, and its costs as (state, action, outcome or None)."""
    states, actions = cmdp.reward.shape
    moves = cmdp.transitions.toarray().reshape(states, actions, states)

    def go_on(state: int, chance: float, steps: list[Any]) -> Any:
        for action in range(actions):
            chosen = chance * policy[state, action]
            for name, table in cmdp.outcomes.items():
                yield chosen * table[state, action], [*steps, (state, action, name)]
            for following in range(states):
                onward = chosen * moves[state, action, following]
                if onward and len(steps) + 1 == cap:
                    yield onward, [*steps, (state, action, None)]
                elif onward:
                    yield from go_on(following, onward, [*steps, (state, action, None)])

    for state in range(states):
        yield from go_on(state, cmdp.initial[state], [])


def counted(cmdp: FiniteCMDP, policy: np.ndarray, text: str, cap: int) -> float:
    """A constraint's value by going through every episode."""
    constraint, total = parse(text), 0.0
    for chance, steps in episodes(cmdp, policy, cap):
        accumulated = constraint.functional.start(0.0)
        for elapsed, (state, action, outcome) in enumerate(steps):
            in_outcomes = constraint.column in cmdp.outcomes
            cost = 1.0 * (outcome == constraint.column) if in_outcomes else LEVEL[state, action]
            accumulated = constraint.functional.step(accumulated, constraint.paid(cost), elapsed)
        total += chance * constraint.functional.value(accumulated, len(steps))
    return total


TEXTS = [
    "sum(level) <= 1",
    "sum(level > 0.5) <= 1",
    "sum(level <= 0.5) <= 1",
    "sum(crash > 0.5) <= 1",
    "sum(crash < 0.5) <= 1",
    "P(crash) <= 1",
    "P(crash >= 1) <= 1",
    "P(crash < 1) <= 1",
    "P(crash > 2) <= 1",
    "P(level) <= 1",
    "P(level > 0.75) <= 1",
    "P(level < 0.75) <= 1",
    "discounted(level, 0.7) <= 1",
    "discounted(level > 0.5, 0.7) <= 1",
    "discounted(crash, 0.7) <= 1",
    "discounted(level, 1) <= 1",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_policys_exact_value_is_that_of_all_its_episodes(text: str) -> None:
    cmdp, policy = ladder(), np.random.default_rng(0).dirichlet([1.0, 1.0], size=4)
    for cap in (1, 2, 5):
        (value,) = truth.values(cmdp, policy, [parse(text)], cap)
        assert value == pytest.approx(counted(cmdp, policy, text, cap), abs=1e-12)


@pytest.mark.parametrize(
    "text", ["sum(level > 1) <= 1", "P(level > 1) <= 1", "P(goal) <= 1", "discounted(level, 0.5) <= 1"]
)
def test_with_loops_too(text: str) -> None:
    cmdp, policy = loop(), np.array([[0.3, 0.7], [0.6, 0.4]])
    (value,) = truth.values(cmdp, policy, [parse(text)], 5)
    assert value == pytest.approx(counted(cmdp, policy, text, 5), abs=1e-12)


@pytest.mark.parametrize("text", TEXTS)
def test_the_bound_of_an_optimum_is_the_value_of_its_policy(text: str) -> None:
    """In the tables that the optimum is found in, a bound that binds is met exactly, and by no policy better."""
    cmdp, constraint = ladder(), parse(text)
    every = [np.eye(2)[list(choice)] for choice in itertools.product(range(2), repeat=4)]
    reached = [truth.values(cmdp, policy, [constraint], None)[0] or 0.0 for policy in every]
    limit = 0.5 * (min(reached) + max(reached))
    found = truth.as_bounds(cmdp, [replace(constraint, limit=limit)])
    optimum = exact.solve(*found)
    assert optimum.feasible and optimum.values[0] <= limit + 1e-9
    rewards = [exact.evaluate(cmdp, policy, None).reward for policy in every]
    kept = [reward for reward, value in zip(rewards, reached, strict=True) if value <= limit]
    assert optimum.reward >= max(kept) - 1e-9
    plain = exact.solve(cmdp, []).reward
    assert optimum.multipliers[0] > 0.0 or optimum.reward == pytest.approx(plain)


def test_memory_helps_where_an_event_is_to_be_had_once() -> None:
    """Two steps, each calm (0 reward) or loud (reward 1, level 1): with P(level) <= 0.5 both are loud in half of the
    episodes, 1 in all; a policy that forgets is loud with p in each, 1 - (1 - p)^2 <= 0.5, 0.586."""
    cmdp = FiniteCMDP(
        transitions=scipy.sparse.csr_array(np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]])),
        reward=np.array([[0.0, 1.0], [0.0, 1.0]]),
        columns={"level": np.array([[0.0, 1.0], [0.0, 1.0]])},
        initial=np.array([1.0, 0.0]),
        outcomes={"goal": np.array([[0.0, 0.0], [1.0, 1.0]])},
    )
    tables, bounds = truth.as_bounds(cmdp, [parse("P(level) <= 0.5")])
    optimum = exact.solve(tables, bounds)
    assert optimum.reward == pytest.approx(1.0) and optimum.multipliers == pytest.approx((2.0,))
    assert optimum.policy.shape == (4, 2)
    np.testing.assert_allclose(optimum.policy[3], [0.0, 1.0], atol=1e-9)


def test_several_at_once_by_name() -> None:
    """On the fork: walking and the detour half and half take 3.5 steps, and nothing shorter keeps P(crash)."""
    plain = rcpo.solve("fork", ["P(crash) <= 0.05"])
    assert (plain.reward, plain.multipliers[0]) == pytest.approx((-0.35, 1.0))
    both = rcpo.solve("fork", ["P(crash > 0.5) <= 0.05", "sum(crash >= 0) <= 3.5"])
    assert both.reward == pytest.approx(-0.35) and both.values == pytest.approx((0.05, 3.5))
    tighter = rcpo.solve("fork", ["P(crash) <= 0.05", "sum(crash >= 0) <= 3.4"])
    assert not tighter.feasible and "'" not in tighter.message and "sum(crash >= 0) <= 3.4" in tighter.message


def function(obs: Any, action: Any, next_obs: Any, info: Any) -> Any:
    return action


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (
            "mean(crash) <= 1",
            "cannot solve 'mean(crash) <= 1' exactly: mean is not linear in how often",
        ),
        ("max(crash) <= 1", "cannot solve 'max(crash) <= 1' exactly: max is not linear"),
        ("discounted(crash, 0.9) <= 1", "some state is reached after different numbers of steps"),
        (Constraint(Sum(), function, 1.0), "cannot solve 'sum(function()) <= 1' exactly: function() is a function"),
    ],
)
def test_what_has_no_exact_optimum(constraint: Any, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        rcpo.solve("fork", [constraint])
    assert words in str(refused.value)


def test_what_has_no_exact_value_is_left_out() -> None:
    cmdp, policy = envs.tables("fork"), np.full((5, 2), 0.5)
    constraints = [parse(text) for text in ("mean(crash) <= 1", "max(crash) <= 1", "P(crash) <= 1")]
    found = truth.values(cmdp, policy, [*constraints, Constraint(Sum(), function, 1.0)], 100)
    assert found[:2] == (None, None) and found[2] is not None and found[3] is None


def test_times() -> None:
    np.testing.assert_array_equal(truth.times(ladder()), [0, 1, 1, 2])
    assert truth.times(loop()) is None and truth.times(envs.tables("fork")) is None
