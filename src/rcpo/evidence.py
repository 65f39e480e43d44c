"""Whether a run that could not be verified says more than that: that no policy seems to keep its limits.

It is evidence, no proof. Training searches where its settings lead it; a finite environment's truth is in `rcpo solve`.
"""

from collections.abc import Sequence

import numpy as np

from rcpo.config import MultiplierConfig
from rcpo.constraints import Constraint, labels
from rcpo.handover import Candidate, Handover, closest, interval, scale, verdicts
from rcpo.loggers import Record

ENOUGH = 0.1
"""A half of the run that gains less than this share of the way that is left does not count as progress."""


def against(
    constraints: Sequence[Constraint],
    candidates: Sequence[Candidate],
    handed: Handover,
    records: Sequence[Record],
    rules: Sequence[MultiplierConfig],
) -> str:
    """Why it seems that no policy keeps every limit, in a sentence; empty where that cannot be said.

    The closest policy must break a limit beyond doubt. And either its multiplier has risen as far as it may, or all
    candidates break a limit beyond doubt and a rising multiplier brought the second half of them hardly closer.
    """
    verdicts_of = [estimate.verdict for estimate in handed.evaluation.constraints]
    broken = [k for k, verdict in enumerate(verdicts_of) if verdict == "violated" and rules[k].rule != "fixed"]
    if handed.verified or not broken or not records:
        return ""
    named = labels(constraints)
    for k in broken:
        if multiplier(records[-1], named[k]) >= rules[k].maximum:
            return (f"the multiplier of '{constraints[k]}' stands at its maximum {rules[k].maximum:g}, "
                    "and the closest policy still breaks this limit")  # fmt: skip
    counted = [one for one in candidates if one.episodes]
    half = len(counted) // 2
    confidence = handed.confidence
    if not half or not all("violated" in verdicts(one, constraints, confidence) for one in counted):
        return ""
    k = broken[0]
    before, after = multiplier(records[len(records) // 2], named[k]), multiplier(records[-1], named[k])
    if after <= before or comes_closer(counted[:half], counted[half:], constraints, confidence):
        return ""
    return (f"all {len(counted)} candidates break a limit, and the second half of them came hardly closer while the "
            f"multiplier of '{constraints[k]}' rose from {before:.4g} to {after:.4g}")  # fmt: skip


def multiplier(record: Record, label: str) -> float:
    return float(record[f"constraint/{label}/multiplier"])


def comes_closer(
    early: Sequence[Candidate], late: Sequence[Candidate], constraints: Sequence[Constraint], confidence: float
) -> bool:
    """Whether the closest of the later candidates is nearer to its worst limit: by more than it is uncertain, and by
    more than a tenth of the way that is left."""
    one, other = (pool[int(np.argmax(closest(pool, constraints)))] for pool in (early, late))
    left, k = max((float(c.excess(other.value[k])) / scale(c), k) for k, c in enumerate(constraints))
    before = max(float(c.excess(one.value[k])) / scale(c) for k, c in enumerate(constraints))
    seen = interval(other, constraints[k], k, confidence)
    return before - left > max(0.5 * (seen.high - seen.low) / scale(constraints[k]), ENOUGH * left)
