"""What several seeds say together: the interquartile mean and a bootstrap band (Agarwal et al., NeurIPS 2021)."""

from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float

from rcpo.errors import UsageError

TRIMMED: Final = 0.25
"""The share of the seeds that is left out at either end."""


class Band(NamedTuple):
    """A curve and the band around it."""

    value: Float[np.ndarray, " P"]
    low: Float[np.ndarray, " P"]
    high: Float[np.ndarray, " P"]


def interquartile_mean(scores: Float[np.ndarray, "S P"]) -> Float[np.ndarray, " P"]:
    """The mean over the seeds of what is left at each point without the lowest and the highest quarter.

    It shrugs off a lucky or a broken seed like the median, and is nearly as exact as the mean. Whole seeds are left
    out, floor(S / 4) at either end, so that fewer than four seeds give the plain mean.
    """
    _check(scores)
    cut = int(TRIMMED * len(scores))
    return np.sort(scores, axis=0)[cut : len(scores) - cut].mean(axis=0)


def interquartile_band(
    scores: Float[np.ndarray, "S P"], confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Band:
    """The interquartile mean, with its percentile bootstrap band: seeds are drawn again, with replacement.

    A seed is drawn as a whole, with all its points. The band holds at each point, not for the curve as a whole.
    """
    _check(scores)
    generator = np.random.default_rng(seed)
    drawn = [interquartile_mean(scores[generator.integers(len(scores), size=len(scores))]) for _ in range(resamples)]
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(drawn, (tail, 1.0 - tail), axis=0)
    return Band(interquartile_mean(scores), low, high)


def _check(scores: Float[np.ndarray, "S P"]) -> None:
    if not len(scores):
        raise UsageError("got the scores of no seed; give at least one")
    if not np.isfinite(scores).all():
        raise UsageError("got scores that are not finite, which trimming would hide; leave out seeds without a score")
