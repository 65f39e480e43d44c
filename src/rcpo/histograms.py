"""How an evaluation's episodes are spread: a few dozen counts instead of a hundred thousand numbers."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from jaxtyping import Num

BINS: Final = 40
NARROW: Final = 1e-9
"""Values that differ by less than this share of their size are all alike."""
LARGE: Final = 1e9
"""Beyond this, whole numbers are not counted one by one."""
LEVELS: Final = (0.05, 0.25, 0.5, 0.75, 0.95)


@final
@dataclass(frozen=True)
class Histogram:
    """Counts in bins of one width between `low` and `high`, and the quantiles at `LEVELS`."""

    name: str
    low: float
    high: float
    counts: tuple[int, ...]
    quantiles: tuple[float, ...]


def histogram(name: str, values: Num[np.ndarray, " E"]) -> Histogram:
    """Whole numbers that are close together get a bin each; all else is cut into `BINS` equal ones.

    A value that is no finite number has no place on an axis and is left out.
    """
    values = values[np.isfinite(values)]
    if not len(values):
        return Histogram(name, 0.0, 0.0, (0,), (0.0,) * len(LEVELS))
    low, high = float(values.min()), float(values.max())
    quantiles = tuple(map(float, np.quantile(values, LEVELS)))
    size = max(abs(low), abs(high))
    if high - low < BINS and size < LARGE and not (values % 1).any():
        low, high, bins = low - 0.5, high + 0.5, round(high - low) + 1
    elif high - low <= NARROW * size:
        return Histogram(name, low, high, (len(values),), quantiles)
    else:
        bins = BINS
    counts, _ = np.histogram(values, bins=bins, range=(low, high))
    return Histogram(name, low, high, tuple(map(int, counts)), quantiles)
