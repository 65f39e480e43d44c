"""Which policy a run hands over: the best one that fresh episodes prove to keep every limit.

Candidates are judged by few episodes each, so the one that looks best owes part of that to luck. Hence two more rounds
on fresh episodes: a shortlist that measures again whatever was chosen, until the choice rests on careful measurements
alone; and the verification, whose errors are shared among all the looks that were taken.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, final

import jax
import numpy as np
from jaxtyping import Float, PyTree
from scipy.optimize import linprog
from scipy.special import ndtri

from rcpo.config import EvaluationConfig
from rcpo.constraints import Constraint
from rcpo.envs.base import Environment
from rcpo.evaluation import Evaluation, Sample, sample, summarise
from rcpo.intervals import Interval, Verdict, clopper_pearson, judge, student_t
from rcpo.policy import Policy, mix, single

Outcome = Literal["verified", "unverified", "infeasible as far as we can tell"]
MARGINS = (1.0, 2.0, 4.0, 8.0)
"""How far inside the limit each look aims, in standard errors beyond the interval's own width."""


@final
@dataclass(frozen=True)
class Candidate:
    """A network met during training, and what its episodes said so far."""

    iteration: int
    network: PyTree
    greedy: bool
    episodes: int
    reward: float
    value: Float[np.ndarray, " K"]
    spread: Float[np.ndarray, " K"]
    """The standard deviation of one episode's value."""
    careful: bool = False
    """Whether it was measured with the shortlist's number of episodes."""


@final
@dataclass(frozen=True)
class Handover:
    """The policy, the evaluation that it was handed over with, and what that proves."""

    policy: Policy
    evaluation: Evaluation
    verified: bool
    confidence: float
    """Of the statement that every constraint holds, all looks counted."""
    looks: int
    iterations: tuple[int, ...]
    """The iteration of training that each component comes from."""
    evidence: str = ""
    """Why it seems that no policy keeps every limit; empty where one does, or where one still may."""

    @property
    def outcome(self) -> Outcome:
        """The verdict on the run in words."""
        if self.verified:
            return "verified"
        return "infeasible as far as we can tell" if self.evidence else "unverified"


def judge_candidate(candidate: Candidate, drawn: Sample, careful: bool = False) -> Candidate:
    """The candidate with what a sample says about it."""
    return replace(
        candidate,
        episodes=len(drawn.reward),
        reward=float(drawn.reward.mean()),
        value=drawn.value.mean(axis=0),
        spread=drawn.value.std(axis=0),
        careful=careful,
    )


def interval(candidate: Candidate, constraint: Constraint, k: int, confidence: float) -> Interval:
    """What the candidate's episodes so far say of its k-th constraint."""
    episodes, value = candidate.episodes, float(candidate.value[k])
    if constraint.is_probability:
        return clopper_pearson(round(value * episodes), episodes, confidence)
    deviation = float(candidate.spread[k]) * math.sqrt(episodes / max(episodes - 1, 1))
    return student_t(value, deviation, episodes, confidence)


def verdicts(candidate: Candidate, constraints: Sequence[Constraint], confidence: float) -> tuple[Verdict, ...]:
    """What the candidate's episodes so far say of every limit."""
    return tuple(judge(interval(candidate, c, k, confidence), c.limit, c.at_least) for k, c in enumerate(constraints))


def error_per_look(config: EvaluationConfig, spent: int | None = None) -> float:
    """The error that a look may make. Those along the way get equal parts of the whole, those at the end too.

    Given how many were `spent` along the way, those at the end share all that was left.
    """
    whole, planned = 1.0 - config.confidence, config.training_looks + config.looks
    return whole / planned if spent is None else whole * (1.0 - spent / planned) / config.looks


def best_mixture(
    candidates: Sequence[Candidate], constraints: Sequence[Constraint], margin: Float[np.ndarray, " K"]
) -> Float[np.ndarray, " M"] | None:
    """The weights that maximise the measured reward with every limit kept by its margin: a linear program.

    At most K + 1 candidates get a weight. None where no mixture is expected to keep the limits.
    """
    reward = np.array([candidate.reward for candidate in candidates])
    excess = np.array([[c.excess(candidate.value[k]) for candidate in candidates] for k, c in enumerate(constraints)])
    answer = linprog(
        -reward,
        A_ub=excess if len(constraints) else None,
        b_ub=-margin if len(constraints) else None,
        A_eq=np.ones((1, len(reward))),
        b_eq=[1.0],
        method="highs",
    )
    if not answer.success:
        return None
    weights = np.where(answer.x > 1e-6, answer.x, 0.0)
    return weights / weights.sum()


def closest(candidates: Sequence[Candidate], constraints: Sequence[Constraint]) -> Float[np.ndarray, " M"]:
    """All the weight on the candidate whose worst violation, in units of its limit, is the smallest.

    Of several, such as all that an event never happened to, the one with the most reward.
    """
    worst = [
        max(c.excess(candidate.value[k]) / scale(c) for k, c in enumerate(constraints)) for candidate in candidates
    ]
    order = [(violation, -candidate.reward) for violation, candidate in zip(worst, candidates, strict=True)]
    return np.eye(len(candidates))[order.index(min(order))]


def margins(
    constraints: Sequence[Constraint], candidates: Sequence[Candidate], episodes: int, confidence: float, extra: float
) -> Float[np.ndarray, " K"]:
    """How far inside each limit to aim so that the interval of a fresh evaluation is likely to lie inside it."""
    found = []
    deviations = float(ndtri(0.5 + confidence / 2.0)) + extra
    for k, constraint in enumerate(constraints):
        if constraint.is_probability:
            spread, room = math.sqrt(constraint.limit * (1.0 - constraint.limit)), _room(constraint)
        else:
            spread, room = float(np.median([candidate.spread[k] for candidate in candidates])), math.inf
        found.append(min(spread / math.sqrt(episodes) * deviations, room))
    return np.array(found)


def _room(constraint: Constraint) -> float:
    """How far inside its limit a probability can be at all: few episodes prove a small one only if none has it."""
    return 1.0 - constraint.limit if constraint.at_least else constraint.limit


def hand_over(
    environment: Environment,
    constraints: tuple[Constraint, ...],
    candidates: Sequence[Candidate],
    config: EvaluationConfig,
    key: jax.Array,
    say: Callable[[str], None] = lambda text: None,
    spent: int = 0,
    verified: Handover | None = None,
) -> Handover:
    """The best policy that is verified to keep every limit, or the closest one, said to be unverified.

    `verified` is the best that the looks `spent` along the way have proved: only a better one takes its place.
    """
    # A candidate without an episode to its name says nothing; if there is no other, the last network has to do.
    pool = [candidate for candidate in candidates if candidate.episodes] or list(candidates[-1:])
    share = 1.0 - error_per_look(config, spent)
    best: Handover | None = None
    for look in range(config.looks):
        margin = margins(constraints, pool, config.verdict_episodes, share, MARGINS[min(look, len(MARGINS) - 1)])
        weights, key = _careful_choice(environment, constraints, pool, config, margin, key)
        chosen = np.flatnonzero(weights)
        policy = mix([single(pool[i].network, pool[i].greedy) for i in chosen], [float(weights[i]) for i in chosen])
        key, fresh = jax.random.split(key)
        drawn = sample(environment, constraints, policy, config.verdict_episodes, fresh)
        evaluation = summarise(environment, constraints, drawn, share)
        found = Handover(
            policy,
            evaluation,
            evaluation.satisfied,
            config.confidence,
            spent + look + 1,
            tuple(pool[i].iteration for i in chosen),
        )
        say(f"look {look + 1} of {config.looks}: {describe(evaluation)}")
        if found.verified and (verified is None or evaluation.reward.value >= verified.evaluation.reward.value):
            return found
        if found.verified and verified is not None:
            return replace(verified, looks=found.looks)
        if best is None or _shortfall(found.evaluation) < _shortfall(best.evaluation):
            best = found
    assert best is not None  # looks >= 1
    return replace(verified or best, looks=spent + config.looks)


def _careful_choice(
    environment: Environment,
    constraints: tuple[Constraint, ...],
    pool: list[Candidate],
    config: EvaluationConfig,
    margin: Float[np.ndarray, " K"],
    key: jax.Array,
) -> tuple[Float[np.ndarray, " M"], jax.Array]:
    """The best mixture, once all that it is made of was measured carefully. The pool learns what was measured."""
    while True:
        weights = best_mixture(pool, constraints, margin)
        if weights is None or (not config.mixture and np.count_nonzero(weights) > 1):
            weights = _best_alone(pool, constraints, margin)
        hasty = [i for i in np.flatnonzero(weights) if not pool[i].careful]
        if not hasty:
            return weights, key
        for i in hasty:
            key, fresh = jax.random.split(key)
            policy = single(pool[i].network, pool[i].greedy)
            drawn = sample(environment, constraints, policy, config.shortlist_episodes, fresh)
            pool[i] = judge_candidate(pool[i], drawn, careful=True)


def _best_alone(
    pool: Sequence[Candidate], constraints: Sequence[Constraint], margin: Float[np.ndarray, " K"]
) -> Float[np.ndarray, " M"]:
    """The best single candidate that is expected to keep the limits, or the closest one."""
    keeps = [all(c.excess(one.value[k]) <= -margin[k] for k, c in enumerate(constraints)) for one in pool]
    if not any(keeps):
        return closest(pool, constraints)
    reward = [one.reward if kept else -math.inf for one, kept in zip(pool, keeps, strict=True)]
    return np.eye(len(pool))[int(np.argmax(reward))]


def scale(constraint: Constraint) -> float:
    """The unit in which violations of different constraints are compared: the limit, or 1 where that is 0."""
    return abs(constraint.limit) or 1.0


def _shortfall(evaluation: Evaluation) -> float:
    """How far beyond its limit the worst constraint's interval reaches, in units of the limit."""
    return max(
        e.constraint.excess(e.interval.low if e.constraint.at_least else e.interval.high)
        / (abs(e.constraint.limit) or 1)
        for e in evaluation.constraints
    )


def describe(evaluation: Evaluation) -> str:
    """One line: the reward, and each constraint with its interval and verdict."""
    parts = [f"reward {evaluation.reward}"]
    parts += [f"{e.constraint.quantity} {e.interval} {e.verdict}" for e in evaluation.constraints]
    return "; ".join(parts)
