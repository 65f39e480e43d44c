"""Intervals against scipy's own."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rcpo.intervals import NOTHING, Interval, clopper_pearson, judge, student_t

CONFIDENCES = st.sampled_from([0.5, 0.9, 0.95, 0.9875, 0.999])


@given(st.integers(1, 60_000), st.floats(0.0, 1.0), CONFIDENCES)
def test_clopper_pearson_is_scipys(trials: int, share: float, confidence: float) -> None:
    events = round(share * trials)
    found = clopper_pearson(events, trials, confidence)
    expected = stats.binomtest(events, trials).proportion_ci(confidence, "exact")
    assert found.value == events / trials
    assert found.low == pytest.approx(expected.low, rel=1e-6, abs=1e-12)
    assert found.high == pytest.approx(expected.high, rel=1e-6, abs=1e-12)


def test_no_event_and_nothing_but_events() -> None:
    """1 - (alpha / 2)^(1 / n): the rule of three, for both tails."""
    none, all_of_them = clopper_pearson(0, 100), clopper_pearson(100, 100)
    assert (none.low, all_of_them.high) == (0.0, 1.0)
    assert none.high == pytest.approx(1 - 0.025 ** (1 / 100))
    assert all_of_them.low == pytest.approx(0.025 ** (1 / 100))


@given(st.integers(0, 2**32 - 1), st.integers(2, 300), CONFIDENCES)
def test_student_t_is_scipys(seed: int, trials: int, confidence: float) -> None:
    sample = np.random.default_rng(seed).normal(3.0, 2.0, trials)
    found = student_t(float(sample.mean()), float(sample.std(ddof=1)), trials, confidence)
    expected = stats.ttest_1samp(sample, 0.0).confidence_interval(confidence)
    assert found.value == sample.mean()
    np.testing.assert_allclose([found.low, found.high], [expected.low, expected.high], rtol=1e-9)


def test_what_little_is_known_of_no_and_of_one_episode() -> None:
    assert clopper_pearson(0, 0) == NOTHING
    assert math.isnan(NOTHING.value)
    nothing, one = student_t(math.nan, math.nan, 0), student_t(2.5, math.nan, 1)
    assert math.isnan(nothing.value) and one.value == 2.5
    for interval in (nothing, one, NOTHING):
        assert (interval.low, interval.high) == (-math.inf, math.inf)
        assert judge(interval, 1e9, at_least=False) == judge(interval, -1e9, at_least=True) == "undecided"


@pytest.mark.parametrize(
    ("low", "high", "upper_bound", "lower_bound"),
    [
        (0.1, 0.4, "satisfied", "violated"),
        (0.1, 0.5, "satisfied", "undecided"),
        (0.4, 0.6, "undecided", "undecided"),
        (0.5, 0.6, "undecided", "satisfied"),
        (0.6, 0.9, "violated", "satisfied"),
        (0.5, 0.5, "satisfied", "satisfied"),
    ],
)
def test_verdicts_for_a_limit_of_one_half(low: float, high: float, upper_bound: str, lower_bound: str) -> None:
    interval = Interval((low + high) / 2, low, high)
    assert judge(interval, 0.5, at_least=False) == upper_bound
    assert judge(interval, 0.5, at_least=True) == lower_bound


def test_an_interval_as_text() -> None:
    assert str(Interval(0.246012, 0.24401, 0.248)) == "0.246 [0.244, 0.248]"
