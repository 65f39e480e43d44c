"""One point of a run after the other: what its iterations measured, as a record, and the policy that they led to."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import final

import jax
import numpy as np
from jaxtyping import PyTree

from rcpo import folder as folders
from rcpo import host
from rcpo.config import EvaluationConfig
from rcpo.constraints import labels
from rcpo.envs.base import Environment, JaxEnvironment
from rcpo.errors import UsageError
from rcpo.evaluation import Evaluation, sample, summarise
from rcpo.handover import Candidate, judge_candidate
from rcpo.learn import Plan, begin, iterate, iterate_on_host
from rcpo.loggers import Record
from rcpo.looks import look_along_the_way, looks_record
from rcpo.policy import single
from rcpo.progress import Progress
from rcpo.types import Metrics, TrainState

Advance = Callable[[TrainState, int], tuple[TrainState, Metrics]]


@final
@dataclass(frozen=True)
class Session:
    """What trains: the state to begin with, and what goes on from a state by some iterations."""

    first: TrainState
    advance: Advance
    crews: host.Crews = ()

    @property
    def faults(self) -> int:
        """How many episodes ended because a copy broke down."""
        return sum(copies.faults for copies in self.crews)


@contextmanager
def training(plan: Plan, environment: Environment) -> Iterator[Session]:
    """All that is needed to train, for as long as it is needed."""
    if isinstance(environment, JaxEnvironment):
        yield Session(begin(plan, environment), partial(iterate, plan.for_any_seed(), environment))
        return
    with host.crews_of(environment, plan.config.learner.environments) as crews:
        advance = partial(iterate_on_host, plan.for_any_seed(), environment, crews)
        yield Session(begin(plan, environment, crews), advance, crews)


def next_point(
    plan: Plan,
    environment: Environment,
    session: Session,
    progress: Progress,
    chunk: int,
    started: float,
    say: Callable[[str], None] = lambda text: None,
) -> Progress:
    """Where the run stands `chunk` iterations later: what they measured, and the policy that they led to."""
    begun, faults = time.monotonic(), session.faults
    state, metrics = jax.block_until_ready(session.advance(progress.state, chunk))
    record = make_record(plan, environment, state, metrics, time.monotonic() - begun)
    seen, key, met = _present_policy(plan, environment, state, metrics, progress.evaluation_key)
    config, candidates, points = plan.config, [*progress.candidates, *met], plan.iterations // chunk
    looks = look_along_the_way(
        environment, plan.constraints, candidates, progress.looks, config.evaluation, config.seed,
        int(state.iteration) // chunk, points, say,
    )  # fmt: skip
    seconds = time.monotonic() - started
    record |= seen | looks_record(looks)
    record |= {"faults": progress.faults + session.faults - faults, "time/seconds": round(seconds, 3)}
    return Progress(state, key, (*progress.records, record), tuple(candidates), looks, seconds)


def _present_policy(
    plan: Plan, environment: Environment, state: TrainState, metrics: Metrics, key: jax.Array
) -> tuple[Record, jax.Array, list[Candidate]]:
    """What fresh episodes show of the present policy, and it as candidates for the hand-over."""
    if not plan.config.evaluation.episodes:
        return {}, key, [_seen_in_training(state, metrics)]
    candidates: list[Candidate] = []
    record: Record = {}
    for greedy in (False, True):
        key, fresh = jax.random.split(key)
        candidate, seen = _look(plan, environment, state, greedy, plan.config.evaluation, fresh)
        candidates.append(candidate)
        record |= evaluation_record(seen, "greedy" if greedy else "sampled")
    return record, key, candidates


def _seen_in_training(state: TrainState, metrics: Metrics) -> Candidate:
    """The present policy, judged by the episodes that it and its forerunners ended since the last point."""
    host = {key: np.asarray(metrics[key], dtype=np.float64).sum(axis=0) for key in
            ("episodes", "reward", "value", "value_squared")}  # fmt: skip
    episodes = int(host["episodes"])
    count = max(episodes, 1)
    value = host["value"] / count
    spread = np.sqrt(np.maximum(host["value_squared"] / count - value**2, 0.0))
    reward = float(host["reward"] / count)
    return Candidate(int(state.iteration), keep(state.agent.network), False, episodes, reward, value, spread)


def keep(network: PyTree) -> PyTree:
    """A copy that later updates cannot touch."""
    return jax.tree.map(np.asarray, network)


def make_record(plan: Plan, environment: Environment, state: TrainState, metrics: Metrics, seconds: float) -> Record:
    """The numbers of a chunk of iterations; None where no episode finished."""
    host = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), metrics)
    episodes = host["episodes"].sum()
    count = len(host["episodes"])
    per_iteration = plan.steps_per_iteration(environment)

    def per_episode(total: float) -> float | None:
        return float(total / episodes) if episodes else None

    record: Record = {
        "iteration": int(state.iteration),
        "steps": int(state.iteration) * per_iteration,
        "episodes": int(episodes),
        "reward/episode": per_episode(host["reward"].sum()),
        "length/episode": per_episode(host["length"].sum()),
        "time/steps_per_second": count * per_iteration / max(seconds, 1e-9),
    }
    for k, label in enumerate(labels(plan.constraints)):
        record[f"constraint/{label}/value"] = per_episode(host["value"][:, k].sum())
        record[f"constraint/{label}/limit"] = plan.constraints[k].limit
        record[f"constraint/{label}/multiplier"] = float(host["multiplier"][-1, k])
        record[f"constraint/{label}/aim"] = float(host["aim"][-1, k])
    return record | {key: float(host[key].mean()) for key in host if key.startswith(("loss/", "policy/"))}


def _look(
    plan: Plan,
    environment: Environment,
    state: TrainState,
    greedy: bool,
    config: EvaluationConfig,
    key: jax.Array,
) -> tuple[Candidate, Evaluation]:
    """The present policy on a few fresh episodes."""
    network = state.agent.network
    drawn = sample(environment, plan.constraints, single(network, greedy), config.episodes, key)
    nothing = np.zeros(len(plan.constraints))
    candidate = judge_candidate(Candidate(int(state.iteration), keep(network), greedy, 0, 0.0, nothing, nothing), drawn)
    return candidate, summarise(environment, plan.constraints, drawn, config.confidence)


def evaluation_record(seen: Evaluation, kind: str) -> Record:
    """An evaluation on fresh episodes as part of a record."""
    record: Record = {f"{kind}/reward": seen.reward.value, f"{kind}/steps": seen.steps.value}
    if seen.success is not None and seen.steps_given_success is not None:
        given = seen.steps_given_success.value
        record |= {
            f"{kind}/success": seen.success.value,
            f"{kind}/steps_given_success": None if math.isnan(given) else given,
        }
    for label, estimate in zip(labels(e.constraint for e in seen.constraints), seen.constraints, strict=True):
        for bound in ("value", "low", "high"):
            record[f"{kind}/{label}/{bound}"] = folders.finite(getattr(estimate.interval, bound))
    return record


def check_finite(progress: Progress) -> None:
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(progress.state.agent.network)):
        raise UsageError(f"training diverged before step {progress.records[-1]['steps']}: parameters are no longer "
                         "finite; lower the step sizes or the gradient's norm")  # fmt: skip
