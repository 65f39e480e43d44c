"""Work side by side: what spends its time in compiled code, outside Python's lock, uses as many cores as there are."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Result = TypeVar("Result")

CREWS: Final = 2
"""Into how many parts work is divided. A constant: what comes out must not depend on the machine's cores."""
_POOL: Final = ThreadPoolExecutor(CREWS - 1, "rcpo")


def cores() -> int:
    """How many cores this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(first: Callable[[], Result], *others: Callable[[], Result]) -> list[Result]:
    """The results of all, the first one's work done by the calling thread."""
    beside = [_POOL.submit(other) for other in others]
    try:
        mine = first()
    finally:
        # Nothing may go on in the background once this has failed.
        for one in beside:
            one.exception()
    return [mine, *(one.result() for one in beside)]
