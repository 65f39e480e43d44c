"""The verdict on a run in plain sentences."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rcpo.handover import Handover
    from rcpo.run import Run


def verdict_lines(run: "Run") -> list[str]:
    """What was proved and how surely; where nothing was, how far the closest policy is, and what one can do."""
    handed = run.handover
    looks = f"{handed.looks} look" + ("s" if handed.looks > 1 else "")
    if not run.constraints:
        return ["no constraint was asked for; this is the policy with the best reward"]
    if handed.verified:
        return [f"VERIFIED at {handed.confidence:.0%} confidence, all looks counted: the policy keeps every limit "
                f"({looks}; {handed.evaluation.episodes:,} fresh episodes in the one that proved it)"]  # fmt: skip
    if handed.outcome == "unverified":
        head = f"NOT VERIFIED: no policy of this run could be shown to keep every limit in {looks}"
    else:
        head = f"INFEASIBLE AS FAR AS WE CAN TELL: {handed.evidence}"
    return [head, *_closest(handed), f"  {_advice(run)}"]


def _closest(handed: "Handover") -> list[str]:
    """How far the closest policy is from each limit."""
    lines = []
    for estimate in handed.evaluation.constraints:
        beyond = estimate.constraint.excess(estimate.interval.value)
        place = f"{beyond:.4g} beyond" if beyond > 0 else f"{-beyond:.4g} inside"
        lines.append(f"  the closest policy measures {estimate.constraint.quantity} {estimate.interval}, "
                     f"{place} the limit {estimate.constraint.limit:g}: {estimate.verdict}")  # fmt: skip
    return lines


def _advice(run: "Run") -> str:
    from rcpo import envs

    if run.handover.outcome != "unverified":
        sure = "; `rcpo solve` knows for sure" if run.environment_name in envs.FINITE else ""
        return ("this is evidence, no proof: relax the limit, or give the search more room "
                f"(--multipliers.maximum, --steps){sure}")  # fmt: skip
    if any(estimate.verdict == "violated" for estimate in run.handover.evaluation.constraints):
        return "train longer (--steps), or give the multiplier larger steps (--multipliers.step-size.initial)"
    return "more episodes can decide it (--evaluation.verdict-episodes), or aim further inside (--multipliers.margin)"
