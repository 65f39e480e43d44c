"""A whole run: train, look at the policy on fresh episodes along the way, hand over the best one that is verified."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, final

import jax
import numpy as np
from jaxtyping import PyTree

from rcpo import envs, episodes, evidence, exact, host, presets
from rcpo import folder as folders
from rcpo.actor import Actor, Seed, weightiest
from rcpo.config import EvaluationConfig, TrainConfig
from rcpo.constraints import Constraint, labels, parse_all
from rcpo.envs.base import Environment, HostEnvironment, JaxEnvironment, NetworkFactory
from rcpo.envs.settings import EnvironmentSettings, GymSettings
from rcpo.errors import UsageError, nearest
from rcpo.evaluation import Evaluation, evaluate_policy, exact_constraints, exact_value, sample, summarise
from rcpo.handover import Candidate, Handover, hand_over, judge_candidate
from rcpo.health import Health, advice, examine
from rcpo.learn import Plan, begin, iterate, iterate_on_host
from rcpo.loggers import JsonLines, Logger, Record
from rcpo.looks import look_along_the_way, looks_record, verified_so_far
from rcpo.multipliers import Rules, rules
from rcpo.policy import Policy, single
from rcpo.progress import Progress
from rcpo.saving import Saver
from rcpo.stopping import Stopper
from rcpo.types import Metrics, TrainState

EVALUATION_STREAM, HANDOVER_STREAM = 1, 2
"""Evaluations draw from random streams of their own: how often one looks does not change what is learned."""


@final
@dataclass(frozen=True)
class Run:
    """A finished run."""

    environment_name: str
    environment: Environment
    config: TrainConfig
    constraints: tuple[Constraint, ...]
    handover: Handover
    records: tuple[Record, ...]
    steps: int
    seconds: float
    folder: Path | None = None

    @property
    def policy(self) -> Policy:
        """The policy that the run hands over."""
        return self.handover.policy

    @property
    def rules(self) -> Rules:
        """How each multiplier moved."""
        return rules(self.config.rule, self.constraints)

    @property
    def health(self) -> tuple[Health, ...]:
        """How the multiplier of each constraint did."""
        return examine(self.records, self.constraints, self.rules)

    @property
    def best(self) -> Policy | None:
        """The best policy that is verified to keep every limit; None where none is."""
        return self.handover.policy if self.handover.verified else None

    def act(self, obs: Any, deterministic: bool = True, seed: Seed | None = None, component: int | None = None) -> Any:
        """The action for one observation, or for a batch of them, in the environment's units.

        What the verdict is about is `actor()`: it draws actions, and one network per episode, as training did.
        """
        actor = self._actor
        chosen = self._weightiest if component is None else component
        if not 0 <= chosen < self.policy.components:
            raise UsageError(f"got the component {chosen}; this policy has {self.policy.components}, counted from 0")
        generator = actor.generator if seed is None else np.random.default_rng(seed)
        return actor.act_as(obs, chosen, deterministic, generator)

    def actor(self, seed: Seed = 0, deterministic: bool = False) -> Actor:
        """Plays the policy as it was verified: `act(obs)` at every step, `reset()` at the start of every episode."""
        return Actor(self.environment, self.policy, deterministic, seed)

    @cached_property
    def _actor(self) -> Actor:
        return self.actor()

    @cached_property
    def _weightiest(self) -> int:
        return weightiest(self.policy)

    def evaluate(self, episodes: int = 10_000, deterministic: bool = False, seed: int = 0) -> Evaluation:
        """Fresh episodes of the policy, with intervals and verdicts."""
        policy = self.policy.deterministic() if deterministic else self.policy
        confidence = self.config.evaluation.confidence
        return evaluate_policy(self.environment, self.constraints, policy, episodes, seed, confidence)

    def exact(self, deterministic: bool = False) -> exact.ExactValue | None:
        """The policy's exact values, where the environment is finite."""
        return exact_value(self.environment, self.policy.deterministic() if deterministic else self.policy)

    def exact_constraints(self, deterministic: bool = False) -> tuple[float | None, ...]:
        """The exact value of each constraint, None where there is none or it is not known."""
        policy = self.policy.deterministic() if deterministic else self.policy
        return exact_constraints(self.environment, self.constraints, policy)


def train(
    environment: Any,
    constraints: Sequence[str | Constraint] | None = None,
    *,
    preset: str | None = None,
    config: TrainConfig | None = None,
    out: str | Path | None = None,
    loggers: Sequence[Logger] = (),
    stopper: Stopper | None = None,
    network: NetworkFactory | None = None,
    **settings: Any,
) -> Run:
    """Train on an environment, given by name or as an object, until `steps`, and hand over a verified policy.

    What is no environment of ours is taken for Gymnasium's: an environment, or a function that makes one.
    `network(key, spec)` makes the actor's and the critic's networks, where they are to be others than the preset's.
    `settings` are fields of `TrainConfig`: `steps=1e6, seed=0, method="fixed"`; `config` replaces the preset. A run
    with a folder `out` can be gone on with by `resume`, whatever stopped it.
    """
    if isinstance(environment, str):
        envs.check_name(environment)
    if strange := settings.keys() - TrainConfig.__dataclass_fields__.keys():
        word = min(strange)
        raise UsageError(f"unknown setting {word!r}{nearest(word, TrainConfig.__dataclass_fields__)}")
    if not isinstance(environment, str):
        given = settings.get("env", config.env if config and isinstance(config.env, GymSettings) else None)
        environment = envs.adopt(environment, given)
    name = environment if isinstance(environment, str) else environment.spec.name
    own = environment.preset if isinstance(environment, HostEnvironment) else None
    own = envs.preset_of(name) if isinstance(environment, str) else own
    config = replace(config or presets.preset(preset, name, settings.get("method"), own), **settings)
    if not isinstance(environment, str) and isinstance(
        has := getattr(environment, "settings", None), EnvironmentSettings
    ):
        config = replace(config, env=has)  # the run's record says what the environment is, not what a preset would make
    built = envs.make(name, config.env) if isinstance(environment, str) else environment
    if network is not None:
        built = with_network(built, network)
    parsed = parse_all(constraints if constraints is not None else config.constraints, built.spec.column_names)
    if constraints is not None:
        config = replace(config, constraints=tuple(str(constraint) for constraint in constraints))
    check_fit(config, built)
    episodes.check(parsed)
    _ = Plan(config, parsed, 1).broken_conditions  # a rule that cannot be is refused before a folder is made
    folder = None if out is None else Path(out)
    with folders.held(folder):
        if folder is not None:
            folders.begin_anew(folder)
            folders.write_config(folder, name, config)
        return _train(name, built, config, parsed, folder, loggers, stopper or Stopper())


def resume(
    folder: str | Path,
    environment: Any = None,
    constraints: Sequence[str | Constraint] | None = None,
    *,
    loggers: Sequence[Logger] = (),
    stopper: Stopper | None = None,
) -> Run:
    """Go on with an unfinished run from its newest checkpoint, to the same end as if nothing had stopped it.

    An environment of your own, or a constraint on a function, has to be given again.
    """
    folder = Path(folder)
    name, config = folders.read_config(folder)
    if (folder / folders.VERDICT).is_file():
        raise UsageError(f"the run {str(folder)!r} is finished; look at it with: rcpo evaluate {folder}")
    environment = folders.environment_of(folder, name, config, environment)
    parsed = parse_all(folders.same_constraints(config.constraints, constraints), environment.spec.column_names)
    check_fit(config, environment)
    with folders.held(folder):
        return _train(name, environment, config, parsed, folder, loggers, stopper or Stopper())


def with_network(environment: Environment, network: NetworkFactory) -> Environment:
    """The same environment, learned in with other networks."""
    if "network" not in getattr(environment, "__dataclass_fields__", {}):
        raise UsageError(f"{environment.spec.name} takes no network of one's own; robots and Gymnasium's do")
    return replace(environment, network=network)  # type: ignore[type-var]


def check_fit(config: TrainConfig, environment: Environment) -> None:
    """Refuse a method or an algorithm that this kind of environment does not serve."""
    on_host = isinstance(environment, HostEnvironment)
    name, algorithm = environment.spec.name, config.learner.algorithm
    if on_host and config.method == "primal-dual":
        raise UsageError(f"the method primal-dual plays environments written in JAX, and {name} runs on the host; "
                         "use --method rcpo or fixed")  # fmt: skip
    if (algorithm == "ppo") != on_host:
        place, right = ("runs on the host", "ppo") if on_host else ("is written in JAX", "a2c")
        raise UsageError(f"got the algorithm {algorithm} for {name}, which {place}; use --learner.algorithm {right}")


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


def _train(
    name: str,
    environment: Environment,
    config: TrainConfig,
    constraints: tuple[Constraint, ...],
    folder: Path | None,
    loggers: Sequence[Logger],
    stopper: Stopper,
) -> Run:
    """The run, from its newest checkpoint on if it has one."""
    with ExitStack() as stack:
        listeners = [*loggers]
        stack.callback(_close, listeners)

        def say(text: str) -> None:
            for logger in listeners:
                logger.say(text)

        plan, chunk = make_plan(config, constraints, environment)
        if plan.broken_conditions:
            say("\n  ".join(["note: not all of the paper's step-size conditions hold:", *plan.broken_conditions]))
        with training(plan, environment) as session:
            progress, started = _train_to_the_end(plan, chunk, environment, session, folder, listeners, say, stopper)
        _say_what_was_strange(plan, progress, say)
        say(f"training done in {time.monotonic() - started:.1f} s; choosing and verifying the policy to hand over")
        stopper.at_once(_farewell(plan, environment, progress.iteration, progress.iteration, folder))
        key = jax.random.fold_in(jax.random.key(config.seed), HANDOVER_STREAM)
        candidates, looks = progress.candidates, progress.looks
        known = verified_so_far(candidates, looks, config.evaluation)
        handed = hand_over(environment, constraints, candidates, config.evaluation, key, say, len(looks), known)
        doubts = evidence.against(constraints, candidates, handed, progress.records, plan.rules)
        handed = replace(handed, evidence=doubts)
        steps = plan.iterations * plan.steps_per_iteration(environment)
        seconds = time.monotonic() - started
        run = Run(name, environment, config, constraints, handed, progress.records, steps, seconds, folder)
        if folder is not None:
            folders.write_result(run, folder)
        return run


def _close(loggers: Sequence[Logger]) -> None:
    for logger in loggers:
        logger.close()


def _train_to_the_end(
    plan: Plan,
    chunk: int,
    environment: Environment,
    session: Session,
    folder: Path | None,
    listeners: list[Logger],
    say: Callable[[str], None],
    stopper: Stopper,
) -> tuple[Progress, float]:
    """All points of the run, and when it would have begun had it not been interrupted."""
    first = Progress(session.first, jax.random.fold_in(jax.random.key(plan.config.seed), EVALUATION_STREAM))
    place = None if folder is None else folder / folders.CHECKPOINTS
    saver = Saver(plan, chunk, environment, session.crews, first, place)
    progress = saver.restored(say)
    if progress.records:
        say(f"going on from step {progress.records[-1]['steps']:,}")
    if folder is not None:
        listeners.append(JsonLines(folder / folders.METRICS, progress.records))
    started = time.monotonic() - progress.seconds
    while progress.iteration < plan.iterations:
        progress = next_point(plan, environment, session, progress, chunk, started, say)
        for logger in listeners:
            logger.record(progress.records[-1])
        _check_finite(progress)
        progress = saver.after(progress, stopper.asked)
        if stopper.asked:
            stopper.leave(_farewell(plan, environment, progress.iteration, saver.saved, folder))
    return progress, started


def _farewell(plan: Plan, environment: Environment, iteration: int, saved: int, folder: Path | None) -> str:
    """Where a run stops that was asked to, and how it is gone on with."""
    at, kept = (number * plan.steps_per_iteration(environment) for number in (iteration, saved))
    if folder is None:
        return f"stopped at step {at:,}; nothing is kept of a run without a folder"
    return f"stopped at step {at:,}, saved at step {kept:,}; go on with: rcpo resume {folder}"


def next_point(
    plan: Plan,
    environment: Environment,
    session: Session,
    progress: Progress,
    chunk: int,
    started: float,
    say: Callable[[str], None],
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


def _say_what_was_strange(plan: Plan, progress: Progress, say: Callable[[str], None]) -> None:
    if progress.faults:
        say(f"note: {progress.faults} episodes ended because the simulation diverged; they were left out")
    health = examine(progress.records, plan.constraints, plan.rules)
    for sentence in (*map(str, health), *(f"note: {sentence}" for sentence in advice(health, plan.rules))):
        say(sentence)


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


def make_plan(config: TrainConfig, constraints: tuple[Constraint, ...], environment: Environment) -> tuple[Plan, int]:
    """The plan of a run, and its iterations between two points: all chunks alike, so that one program serves all."""
    per_iteration = Plan(config, constraints, 1).steps_per_iteration(environment)
    wanted = max(1, math.ceil(config.steps / per_iteration))
    chunk = math.ceil(wanted / min(config.evaluation.points, wanted))
    return Plan(config, constraints, math.ceil(wanted / chunk) * chunk), chunk


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


def _check_finite(progress: Progress) -> None:
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(progress.state.agent.network)):
        raise UsageError(f"training diverged before step {progress.records[-1]['steps']}: parameters are no longer "
                         "finite; lower the step sizes or the gradient's norm")  # fmt: skip
