import numpy as np
import pytest
from scipy.stats import trim_mean

from rcpo.errors import UsageError
from rcpo.experiments.stats import interquartile_band, interquartile_mean


@pytest.mark.parametrize("seeds", range(1, 21))
def test_interquartile_mean_is_scipys_trimmed_mean(seeds: int) -> None:
    scores = np.random.default_rng(seeds).standard_cauchy((seeds, 7))
    np.testing.assert_allclose(interquartile_mean(scores), trim_mean(scores, 0.25, axis=0), rtol=1e-12)


def test_interquartile_mean_ignores_a_broken_and_a_lucky_seed() -> None:
    scores = np.array([[-1e9], [3.0], [1.0], [2.0], [4.0], [1e9], [2.5], [2.5]])
    assert interquartile_mean(scores) == pytest.approx([2.5])


@pytest.mark.parametrize(("confidence", "least", "most"), [(0.95, 0.90, 0.97), (0.5, 0.45, 0.55)])
def test_the_band_covers_the_truth_as_often_as_it_says(confidence: float, least: float, most: float) -> None:
    # Each of the 2,000 points is a study of its own; the interquartile mean of a symmetric distribution is its centre.
    scores = 3.0 + np.random.default_rng(0).standard_t(df=3, size=(32, 2000))
    band = interquartile_band(scores, confidence, resamples=500)
    covered = np.mean((band.low <= 3.0) & (band.high >= 3.0))
    assert least < covered < most
    # Neither side is missed much more often than the other.
    assert np.mean(band.low > 3.0) == pytest.approx(np.mean(band.high < 3.0), abs=0.04)


def test_the_band_of_two_seeds_by_hand() -> None:
    """Drawing twice from {0, 1} gives the mean 0, 1/2, 1 with probability 1/4, 1/2, 1/4."""
    band = interquartile_band(np.array([[0.0], [1.0]]), confidence=0.8)
    assert (band.value[0], band.low[0], band.high[0]) == (0.5, 0.0, 1.0)
    narrow = interquartile_band(np.array([[0.0], [1.0]]), confidence=0.4)
    assert (narrow.low[0], narrow.high[0]) == (0.5, 0.5)


def test_seeds_are_drawn_as_a_whole() -> None:
    """Two points that mirror each other have mirrored bands only if both saw the same seeds in every resample."""
    scores = np.random.default_rng(1).normal(size=(10, 1))
    band = interquartile_band(np.hstack([scores, -scores]), resamples=200)
    np.testing.assert_allclose(band.low[0], -band.high[1], rtol=1e-12)
    np.testing.assert_allclose(band.high[0], -band.low[1], rtol=1e-12)


def test_the_band_depends_on_nothing_but_its_seed() -> None:
    scores = np.random.default_rng(2).normal(size=(10, 3))
    first, again, other = (interquartile_band(scores, resamples=100, seed=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.low, again.low)
    assert np.any(first.low != other.low)


def test_scores_that_trimming_would_hide_are_refused() -> None:
    scores = np.ones((8, 2))
    scores[3, 1] = np.nan
    with pytest.raises(UsageError, match="not finite"):
        interquartile_band(scores)
    with pytest.raises(UsageError, match="no seed"):
        interquartile_mean(np.ones((0, 2)))
