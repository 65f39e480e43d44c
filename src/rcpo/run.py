"""A whole run: train, look at the policy on fresh episodes along the way, hand over the best one that is verified."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import jax
import numpy as np

from rcpo import envs, episodes, evidence, exact, presets
from rcpo import folder as folders
from rcpo.actor import Actor, Seed, weightiest
from rcpo.config import TrainConfig
from rcpo.constraints import Constraint, parse_all
from rcpo.envs.base import Environment, HostEnvironment, NetworkFactory
from rcpo.envs.settings import EnvironmentSettings, GymSettings
from rcpo.errors import UsageError, nearest
from rcpo.evaluation import Evaluation, evaluate_policy, exact_constraints, exact_value
from rcpo.handover import Handover, hand_over
from rcpo.health import Health, advice, examine
from rcpo.learn import Plan
from rcpo.loggers import JsonLines, Logger, Record
from rcpo.looks import verified_so_far
from rcpo.multipliers import Rules, rules
from rcpo.points import Session, check_finite, next_point, training
from rcpo.policy import Policy
from rcpo.progress import Progress
from rcpo.saving import Saver
from rcpo.stopping import Stopper

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
        check_finite(progress)
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


def _say_what_was_strange(plan: Plan, progress: Progress, say: Callable[[str], None]) -> None:
    if progress.faults:
        say(f"note: {progress.faults} episodes ended because the simulation diverged; they were left out")
    health = examine(progress.records, plan.constraints, plan.rules)
    for sentence in (*map(str, health), *(f"note: {sentence}" for sentence in advice(health, plan.rules))):
        say(sentence)


def make_plan(config: TrainConfig, constraints: tuple[Constraint, ...], environment: Environment) -> tuple[Plan, int]:
    """The plan of a run, and its iterations between two points: all chunks alike, so that one program serves all."""
    per_iteration = Plan(config, constraints, 1).steps_per_iteration(environment)
    wanted = max(1, math.ceil(config.steps / per_iteration))
    chunk = math.ceil(wanted / min(config.evaluation.points, wanted))
    return Plan(config, constraints, math.ceil(wanted / chunk) * chunk), chunk
