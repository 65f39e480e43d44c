"""Verification along the way: a few candidates are put to the test while training goes on.

A look draws fresh episodes of one candidate, from a random stream of its own. How many looks there may be, when they
fall due, and how much of the error each may spend is fixed before the run begins: so the chance that any policy which
breaks a limit is ever called verified stays within the error of the whole, however the looks were chosen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import jax

from rcpo.checkpoint import from_json, shortly
from rcpo.config import EvaluationConfig
from rcpo.constraints import Constraint
from rcpo.envs.base import Environment
from rcpo.errors import UsageError
from rcpo.evaluation import Evaluation, sample, summarise
from rcpo.folder import evaluation_document, read_evaluation
from rcpo.handover import Candidate, Handover, describe, error_per_look, judge_candidate, verdicts
from rcpo.policy import single

LOOKS_STREAM = 3
"""Whether and how often one looks does not change what is learned, nor what is drawn at the end."""


@final
@dataclass(frozen=True)
class Look:
    """A candidate that was put to the test, and what its fresh episodes said."""

    candidate: int
    """Its place among the run's candidates."""
    evaluation: Evaluation


def due(config: EvaluationConfig, point: int, points: int) -> int:
    """How many looks may have been taken by the `point`-th of so many points, counted from 1: spread evenly."""
    return config.training_looks * point // points


def choose(
    candidates: Sequence[Candidate], constraints: Sequence[Constraint], looks: Sequence[Look], confidence: float
) -> int | None:
    """The best candidate worth a look: one that seems to keep every limit, and is better than what is verified."""
    known = best_verified(looks)
    bar = known.evaluation.reward.value if known else float("-inf")
    seen = {look.candidate for look in looks}
    worth = [
        i
        for i, one in enumerate(candidates)
        if i not in seen
        and one.episodes
        and one.reward > bar
        and all(verdict == "satisfied" for verdict in verdicts(one, constraints, confidence))
    ]
    return max(worth, key=lambda i: candidates[i].reward, default=None)


def look_along_the_way(
    environment: Environment,
    constraints: tuple[Constraint, ...],
    candidates: list[Candidate],
    looks: tuple[Look, ...],
    config: EvaluationConfig,
    seed: int,
    point: int,
    points: int,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Look, ...]:
    """The looks so far, with one more where one is due and somebody is worth it. `candidates` learns what it saw."""
    if len(looks) >= due(config, point, points):
        return looks
    chosen = choose(candidates, constraints, looks, config.confidence)
    if chosen is None:
        return looks
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), LOOKS_STREAM), len(looks))
    one = candidates[chosen]
    drawn = sample(environment, constraints, single(one.network, one.greedy), config.shortlist_episodes, key)
    look = Look(chosen, summarise(environment, constraints, drawn, 1.0 - error_per_look(config)))
    candidates[chosen] = judge_candidate(one, drawn, careful=True)
    verdict = "verified" if look.evaluation.satisfied else "not verified"
    say(f"look {len(looks) + 1} of {config.training_looks} along the way: {verdict}; {describe(look.evaluation)}")
    return (*looks, look)


def best_verified(looks: Sequence[Look]) -> Look | None:
    """The look with the best reward among those that proved every limit kept."""
    proved = [look for look in looks if look.evaluation.satisfied]
    return max(proved, key=lambda look: look.evaluation.reward.value, default=None)


def verified_so_far(
    candidates: Sequence[Candidate], looks: Sequence[Look], config: EvaluationConfig
) -> Handover | None:
    """The best verified policy of the looks so far, as it would be handed over."""
    best = best_verified(looks)
    if best is None:
        return None
    one = candidates[best.candidate]
    policy = single(one.network, one.greedy)
    return Handover(policy, best.evaluation, True, config.confidence, len(looks), (one.iteration,))


def looks_record(looks: Sequence[Look]) -> dict[str, float | None]:
    """The looks as part of a record; nothing before the first."""
    best = best_verified(looks)
    return {"looks": len(looks), "verified/reward": best and best.evaluation.reward.value} if looks else {}


def to_document(looks: Sequence[Look]) -> list[dict[str, Any]]:
    """The looks for JSON."""
    return [{"candidate": look.candidate, **evaluation_document(look.evaluation)} for look in looks]


def from_document(document: Any, constraints: tuple[Constraint, ...], candidates: int, path: Path) -> tuple[Look, ...]:
    """The looks that `to_document` wrote; what can be none is refused."""
    try:
        looks = tuple(
            Look(from_json(int, one["candidate"], "candidate"), read_evaluation(one, constraints)) for one in document
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, UsageError) as error:
        reason = error if isinstance(error, UsageError) else f"{type(error).__name__} {shortly(str(error))}"
        raise UsageError(f"{str(path)!r} does not hold this run: what was verified on the way cannot be read: "
                         f"{reason}") from None  # fmt: skip
    if not all(0 <= look.candidate < candidates for look in looks):
        raise UsageError(f"{str(path)!r} does not hold this run: it verified a candidate that it does not have")
    return looks
