"""Every kind of constraint is learned to its known answer; several at once, too, and those that do not bind let go."""

from collections.abc import Mapping
from dataclasses import replace

import jax
import numpy as np
import pytest
from learners import ANNEALED
from test_functionals import Longest
from trees import Table, best, environment, tree

from rcpo import exact, truth
from rcpo.config import MultiplierConfig, TrainConfig
from rcpo.constraints import Constraint, parse
from rcpo.learn import Plan, begin, iterate
from rcpo.schedules import Schedule

pytestmark = pytest.mark.usefixtures("quick_compile")


def learned(
    reward: Table, columns: Mapping[str, Table], constraints: tuple[Constraint, ...], initial: float = 0.0
) -> tuple[float, np.ndarray, np.ndarray]:
    """Reward, values and multipliers, averaged over the last eighth of a run."""
    iterations, played = 4000, environment(tree(reward, columns))
    rule = MultiplierConfig(rule="pi", initial=initial, maximum=10.0, step_size=Schedule(0.3), proportional=3.0)
    learner = replace(ANNEALED, rollout_steps=len(reward))
    plan = Plan(TrainConfig(constraints=(), learner=learner, multipliers=rule), constraints, iterations)
    state = jax.jit(begin, static_argnums=0)(plan, played)
    _, metrics = iterate(plan, played, state, iterations)
    late = {key: np.asarray(metrics[key])[-500:] for key in ("episodes", "reward", "value", "multiplier")}
    episodes = late["episodes"].sum()
    return late["reward"].sum() / episodes, late["value"].sum(axis=0) / episodes, late["multiplier"].mean(axis=0)


# Each step is still, quick (reward 1, level 1) or wild (reward 1.5, level 3).
REWARD, LEVEL = [[0.0, 1.0, 1.5]] * 2, [[0.0, 1.0, 3.0]] * 2
LAST = [[0.0] * 3, [0.0, 1.0, 3.0]]
LOUD = [[0.0, 1.0]] * 3


@pytest.mark.parametrize(
    ("constraint", "reward", "level", "best_reward", "multiplier"),
    [
        # Twice wild (3, level 3) in half of the episodes, twice quick (2, level 1) in the others: 1 for 2.
        (parse("max(level) <= 2"), REWARD, LEVEL, 2.5, 0.5),
        # Half of the steps wild, half quick, 0.5 for 2; the penalty is felt in each of two steps.
        pytest.param(parse("mean(level) <= 2"), REWARD, LEVEL, 2.5, 0.25, marks=pytest.mark.slow),
        # A wild step in half of the episodes; 0.5 for each.
        (parse("sum(level > 2) <= 0.5"), REWARD, LEVEL, 2.25, 0.5),
        # Who was wild once may be it again: twice in half of the episodes.
        (parse("P(level > 2) <= 0.5"), REWARD, LEVEL, 2.5, 1.0),
        # Only the second step counts, by half: 4 allowed of 0, 1 or 3, halved; the penalty is not discounted.
        (parse("discounted(level, 0.5) <= 1"), REWARD, LAST, 2.75, 0.25),
        # To be wild costs 1.5 now: 5 is one step of each kind but still.
        pytest.param(parse("sum(level) >= 5"), [[0.0, -1.0, -1.5]] * 2, LEVEL, -2.5, 0.5, marks=pytest.mark.slow),
        # Of three steps that earn 1 each all may be loud in half of the episodes, and two that are apart in the others.
        (Constraint(Longest(), "loud", 2.0), LOUD, LOUD, 2.5, 0.5),
    ],
    ids=["max", "mean", "sum of events", "P of an event", "discounted", "at least", "of one's own"],
)
def test_every_kind_is_learned(
    constraint: Constraint, reward: Table, level: Table, best_reward: float, multiplier: float
) -> None:
    columns = {constraint.column: level}
    counted = best(reward, columns, [constraint])
    assert counted[0] == pytest.approx(best_reward) and counted[1] == pytest.approx([constraint.limit])
    found = learned(reward, columns, (constraint,))
    assert found[0] == pytest.approx(best_reward, abs=0.02)
    assert found[1] == pytest.approx([constraint.limit], abs=0.02)
    assert found[2] == pytest.approx([multiplier], abs=0.06)


# Each step is loud (1), strong (0.8), far (0.7, which costs in the second step only) or still (0).
EARNED = [[1.0, 0.8, 0.7, 0.0]] * 2
PULLS = {
    "loud": [[1.0, 0.0, 0.0, 0.0]] * 2,
    "strong": [[0.0, 1.0, 0.0, 0.0]] * 2,
    "far": [[0.0] * 4, [0.0, 0.0, 1.0, 0.0]],
}


@pytest.mark.parametrize(
    ("texts", "initial"),
    [
        (("P(loud) <= 0.3", "sum(strong) <= 0.4", "discounted(far, 0.5) <= 0.1"), 0.0),
        pytest.param(
            ("P(loud) <= 0.3", "sum(strong) <= 0.4", "discounted(far, 0.5) <= 0.4"), 0.6, marks=pytest.mark.slow
        ),
        (("P(loud) <= 0.3", "sum(strong) <= 2.5", "discounted(far, 0.5) <= 0.4"), 0.6),
    ],
    ids=["all bind", "two bind", "only P binds"],
)
def test_of_three_that_pull_apart_those_that_bind_rise_and_the_others_stay_at_zero(
    texts: tuple[str, ...], initial: float
) -> None:
    """Against the linear program, which is itself checked by counting all sequences of actions."""
    constraints = tuple(parse(text) for text in texts)
    optimum = exact.solve(*truth.as_bounds(tree(EARNED, PULLS), constraints))
    counted = best(EARNED, PULLS, constraints)
    assert optimum.reward == pytest.approx(counted[0])
    np.testing.assert_allclose(optimum.multipliers, counted[2], atol=1e-6)
    # What the second step costs is halved in the value, and not in the penalty.
    expected = np.array(optimum.multipliers) * [1.0, 1.0, 0.5]
    reward, values, multipliers = learned(EARNED, PULLS, constraints, initial)
    assert reward == pytest.approx(optimum.reward, abs=0.03)
    binding = expected > 0.0
    np.testing.assert_allclose(multipliers, expected, atol=0.06)
    np.testing.assert_allclose(multipliers[~binding], 0.0, atol=1e-3)
    limits = np.array([constraint.limit for constraint in constraints])
    np.testing.assert_allclose(values[binding], limits[binding], atol=0.02)
    assert (values[~binding] < limits[~binding] + 0.01).all()
