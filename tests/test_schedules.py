"""Schedules against closed forms, and the paper's conditions on them one by one."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from rcpo.errors import UsageError
from rcpo.schedules import Schedule, broken_conditions

THREE = ("multiplier", "actor", "critic")


def power(initial: float, exponent: float) -> Schedule:
    return Schedule(initial, "power", exponent=exponent, offset=10.0)


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (Schedule(0.3), [0.3, 0.3, 0.3, 0.3]),
        (Schedule(1.0, "linear"), [1.0, 0.75, 0.5, 0.0]),
        (Schedule(1.0, "linear", final=0.2), [1.0, 0.8, 0.6, 0.2]),
        (Schedule(1.0, "linear", final=0.2, over=0.5), [1.0, 0.6, 0.2, 0.2]),
        (Schedule(0.0, "linear", final=2.0), [0.0, 0.5, 1.0, 2.0]),
        (Schedule(2.0, "power"), [2.0, 2 / 26, 2 / 51, 2 / 101]),
        (Schedule(2.0, "power", exponent=0.5, offset=25.0), [2.0, math.sqrt(2), 2 / math.sqrt(3), 2 / math.sqrt(5)]),
        (Schedule(3.0, "geometric", factor=0.9), [3.0, 3 * 0.9**25, 3 * 0.9**50, 3 * 0.9**100]),
    ],
)
def test_values_at_0_25_50_and_100_of_100_iterations(schedule: Schedule, values: list[float]) -> None:
    iterations = [0, 25, 50, 100]
    assert [schedule.at(k, 100) for k in iterations] == pytest.approx(values)
    as_array = schedule.at(jnp.array(iterations), 100)
    np.testing.assert_allclose(as_array, values, rtol=1e-5, atol=1e-7)


def test_the_papers_decay_of_the_multipliers_step_size() -> None:
    """Appendix B: 5e-7, decaying by kappa = 1 - 1e-9 each iteration: after a million of them hardly at all."""
    schedule = Schedule(5e-7, "geometric", factor=1 - 1e-9)
    assert schedule.at(1_000_000, 1_000_000) == pytest.approx(5e-7 * math.exp(-1e-3), rel=1e-9)


def test_a_linear_schedule_without_iterations_is_still_a_number() -> None:
    assert Schedule(1.0, "linear").at(0, 0) == 1.0


def test_step_sizes_that_keep_the_conditions() -> None:
    assert broken_conditions(power(0.1, 1.0), power(1.0, 0.8), power(2.0, 0.6)) == []


@pytest.mark.parametrize(("part", "other"), [(0, "actor"), (1, "critic")])
def test_too_large_a_first_step(part: int, other: str) -> None:
    schedules = [power(0.1, 1.0), power(1.0, 0.8), power(2.0, 0.6)]
    schedules[part] = power(schedules[part + 1].initial, schedules[part].exponent)
    (sentence,) = broken_conditions(*schedules)
    assert THREE[part] in sentence and other in sentence and "not below" in sentence


@pytest.mark.parametrize("part", [0, 1])
def test_timescales_that_do_not_part(part: int) -> None:
    schedules = [power(0.1, 1.0), power(1.0, 0.8), power(2.0, 0.6)]
    schedules[part] = power(schedules[part].initial, schedules[part + 1].exponent)
    broken = broken_conditions(*schedules)
    assert any(f"the {THREE[part]}'s step size does not vanish against the {THREE[part + 1]}'s" in s for s in broken)
    # Nothing else is wrong with them.
    assert len(broken) == 1


@pytest.mark.parametrize(
    ("critic", "finite_sum", "infinite_squares"),
    [
        (power(1.0, 0.4), False, True),
        (power(1.0, 0.5), False, True),
        (power(1.0, 0.51), False, False),
        (power(1.0, 1.0), False, False),
        (power(1.0, 1.01), True, False),
        (Schedule(1.0), False, True),
        (Schedule(1.0, "linear"), True, False),
        (Schedule(1.0, "linear", final=0.1), False, True),
        (Schedule(1.0, "geometric", factor=0.999), True, False),
        (Schedule(1.0, "geometric", factor=1.0), False, True),
    ],
)
def test_sums_of_each_kind(critic: Schedule, finite_sum: bool, infinite_squares: bool) -> None:
    """Only the sums: alone, the critic has nobody to be faster than. Checked against the sums themselves."""
    broken = broken_conditions(None, critic, None)
    assert any("finite sum:" in sentence and "infinite" not in sentence for sentence in broken) == finite_sum
    assert any("infinite sum of squares" in sentence for sentence in broken) == infinite_squares
    assert len(broken) == finite_sum + infinite_squares


def test_orders_agree_with_the_slope_of_the_values() -> None:
    """p in k^-p, read off the values between iterations 1e6 and 1e8."""
    for schedule in (Schedule(0.5), power(2.0, 0.7), power(2.0, 1.3), Schedule(1.0, "geometric", factor=1.0)):
        slope = math.log(schedule.at(10**6, 10**9) / schedule.at(10**8, 10**9)) / math.log(100)
        assert schedule.order == pytest.approx(slope, abs=1e-3)


def test_parts_that_are_not_there_set_no_condition() -> None:
    assert broken_conditions(None, power(1.0, 0.8), None) == []
    assert broken_conditions(power(0.1, 1.0), power(1.0, 0.8), None) == []
    # Without an actor's neighbour the multiplier is not compared with the critic.
    assert broken_conditions(None, power(1.0, 0.8), power(2.0, 0.6)) == []


def test_constant_step_sizes_break_all_but_the_order() -> None:
    broken = broken_conditions(Schedule(1e-5), Schedule(1e-3), Schedule(1e-2))
    assert sum("sum of squares" in sentence for sentence in broken) == 3
    assert sum("does not vanish" in sentence for sentence in broken) == 2
    assert len(broken) == 5


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"kind": "linear", "over": 0.0}, "over 0"),
        ({"kind": "linear", "over": 1.5}, "over 1.5"),
        ({"kind": "linear", "over": math.nan}, "over nan"),
        ({"kind": "power", "offset": 0.0}, "offset 0"),
        ({"kind": "power", "offset": -1.0}, "offset -1"),
        ({"kind": "geometric", "factor": 0.0}, "factor 0"),
        ({"kind": "geometric", "factor": 1.1}, "factor 1.1"),
    ],
)
def test_settings_that_make_no_schedule(settings: dict, word: str) -> None:
    with pytest.raises(UsageError, match=word) as refused:
        Schedule(1.0, **settings)
    assert "\n" not in str(refused.value)
