"""Histograms of episodes: nothing is lost, and whole numbers keep their own bins."""

import numpy as np
import pytest

from rcpo.histograms import BINS, histogram


def test_a_probability_has_two_bins() -> None:
    made = histogram("P(crash)", np.array([0.0, 1.0, 0.0, 0.0]))
    assert made.counts == (3, 1)
    assert (made.low, made.high) == (-0.5, 1.5)


def test_whole_numbers_are_counted_one_by_one() -> None:
    made = histogram("steps", np.array([3, 5, 5, 9]))
    assert made.counts == (1, 0, 2, 0, 0, 0, 1)
    assert (made.low, made.high) == (2.5, 9.5)


def test_counts_and_quantiles_against_numpy() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, 5000)
    made = histogram("reward", values)
    assert len(made.counts) == BINS and sum(made.counts) == 5000
    edges = np.linspace(made.low, made.high, BINS + 1)
    slow = [int(((values >= a) & ((values < b) | (b == edges[-1]))).sum()) for a, b in zip(edges, edges[1:])]  # noqa: RUF007, B905
    assert np.abs(np.array(slow) - made.counts).max() <= 1  # a value on an edge may be rounded to either side
    assert made.quantiles[2] == pytest.approx(np.median(values))
    assert made.quantiles == tuple(sorted(made.quantiles))


@pytest.mark.parametrize("value", [0.25, 7.0, 0.0, 1e9, -1e300])
def test_episodes_that_are_all_alike(value: float) -> None:
    made = histogram("reward", np.full(10, value))
    assert sum(made.counts) == 10
    assert made.quantiles == (value,) * 5
    assert made.low <= value <= made.high


def test_what_is_no_number_is_left_out() -> None:
    assert histogram("reward", np.array([1.0, np.nan, np.inf, 1.0])).counts == (2,)
    assert histogram("reward", np.array([np.nan])).counts == (0,)
