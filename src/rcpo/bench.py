"""How fast training is on this machine, beside what its two halves reach alone."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from rcpo import envs, host, presets
from rcpo.constraints import parse_all
from rcpo.envs.base import HostCopies, HostEnvironment, JaxEnvironment
from rcpo.errors import UsageError
from rcpo.learn import Plan, begin, experience, experience_on_host, iterate, iterate_on_host, learn
from rcpo.rollout import collect, look, start
from rcpo.run import make_plan
from rcpo.types import Metrics, Rollout, TrainState, Worker

HEAD_START: Final = 8
ITERATIONS: Final = 32
"""Iterations in one call of a compiled program: enough that the call itself costs next to nothing."""


@final
@dataclass(frozen=True)
class BenchResult:
    """Environment steps per second: physics alone, learner alone, and both as training does them."""

    env: str
    physics_steps_per_second: float
    learner_steps_per_second: float
    train_steps_per_second: float
    compile_seconds: float
    """What compiling the three programs took; no rate includes it."""

    @property
    def bound(self) -> float:
        """1 / (1 / physics + 1 / learner): what training would reach if it spent its time on nothing else."""
        return 1.0 / (1.0 / self.physics_steps_per_second + 1.0 / self.learner_steps_per_second)

    @property
    def ratio_to_bound(self) -> float:
        return self.train_steps_per_second / self.bound

    def __str__(self) -> str:
        rows = [
            ("physics", self.physics_steps_per_second, "the environment alone"),
            ("learner", self.learner_steps_per_second, "the network, acting and learning alone"),
            ("bound", self.bound, "1 / (1 / physics + 1 / learner)"),
            ("train", self.train_steps_per_second, f"end to end: {self.ratio_to_bound:.2f} of the bound"),
        ]
        lines = [f"{name:<8}{speed:>14,.0f}  {meaning}" for name, speed, meaning in rows]
        return "\n".join(
            [f"{self.env}, environment steps per second (compiled in {self.compile_seconds:.1f} s)", *lines]
        )

    def document(self) -> dict[str, str | float]:
        """What `rcpo bench --json` prints."""
        names = ("env", "physics_steps_per_second", "learner_steps_per_second", "train_steps_per_second",
                 "bound", "ratio_to_bound")  # fmt: skip
        return {name: getattr(self, name) for name in names}


@final
@dataclass(frozen=True)
class Program:
    """A compiled program: each call does the same work, on the same inputs."""

    call: Callable[[], Any]
    steps: int
    """Environment steps of one call."""
    compile_seconds: float


@partial(jax.jit, static_argnames=("plan", "count"))
def physics(
    plan: Plan, environment: JaxEnvironment, worker: Worker, rollout: Rollout, key: PRNGKeyArray, count: int
) -> tuple[Worker, Rollout]:
    """`count` rollouts of uniformly random actions.

    `rollout`, of the shape that a rollout has, is written over: carried on, each one is really stored as in training.
    """
    learner, spec = plan.config.learner, environment.spec
    exploring = learner.exploring.at(0, plan.iterations)

    def act(key: PRNGKeyArray, obs: Array) -> Int[Array, " N"]:
        return (jax.random.bits(key, obs.shape[:1]) % spec.choices).astype(jnp.int32)

    def once(carry: tuple[Worker, Rollout], key: PRNGKeyArray) -> tuple[tuple[Worker, Rollout], None]:
        worker, _ = carry
        steps, start_key = len(rollout.action), jax.random.fold_in(key, 0)
        if plan.whole_episodes:
            worker = start(environment, plan.constraints, start_key, learner.environments, exploring)
        return collect(environment, plan.constraints, act, worker, key, steps, exploring), None

    return jax.lax.scan(once, (worker, rollout), jax.random.split(key, count))[0]


@partial(jax.jit, static_argnames=("plan", "count"))
def learner(
    plan: Plan, environment: JaxEnvironment, state: TrainState, rollout: Rollout, count: int
) -> tuple[TrainState, Metrics]:
    """`count` iterations on what was seen in `rollout`: the network, actions drawn from it as acting does, `learn`."""

    def once(state: TrainState, _: None) -> tuple[TrainState, Metrics]:
        key, act_key = jax.random.split(state.key)
        at = look(state.agent.network, environment, plan.steps_per_iteration(environment))
        keys = jax.random.split(act_key, len(rollout.action))
        _, action = jax.lax.scan(lambda _, now: (None, draw(at, *now)), None, (keys, rollout.obs))
        acted = eqx.tree_at(lambda rollout: rollout.action, rollout, action)
        return learn(plan, environment, eqx.tree_at(lambda state: state.key, state, key), acted)

    return jax.lax.scan(once, state, None, length=count)


def draw(at: Callable[[Array], tuple[Array, Array]], key: PRNGKeyArray, obs: Array) -> Int[Array, " N"]:
    return jax.random.categorical(key, at(obs)[0])


@contextmanager
def prepared(environment: str, preset: str | None = None) -> Iterator[dict[str, Program]]:
    """The programs `physics`, `learner` and `train` of a preset (without a name, the environment's own), compiled."""
    envs.check_name(environment)
    config = presets.preset(preset, environment, own=envs.preset_of(environment))
    built = envs.make(environment, config.env)
    plan, _ = make_plan(config, parse_all(config.constraints, built.spec.column_names), built)
    if isinstance(built, JaxEnvironment):
        yield compiled_programs(plan, built)
        return
    copies = plan.config.learner.environments
    with host.crews_of(built, copies) as crews, built.open(copies) as alone:
        yield host_programs(plan, built, crews, alone)


def compiled_programs(plan: Plan, environment: JaxEnvironment) -> dict[str, Program]:
    """Of an environment written in JAX."""
    state = begin(plan, environment)
    _, rollout = jax.jit(experience, static_argnums=0)(plan, environment, state)
    steps = ITERATIONS * plan.steps_per_iteration(environment)

    def compiled(function: Any, *inputs: Any) -> Program:
        started = time.perf_counter()
        program = function.lower(plan, environment, *inputs, count=ITERATIONS).compile()
        return Program(lambda: program(environment, *inputs), steps, time.perf_counter() - started)

    return {
        "physics": compiled(physics, state.worker, rollout, state.key),
        "learner": compiled(learner, state, rollout),
        "train": compiled(iterate, state),
    }


def host_programs(plan: Plan, environment: HostEnvironment, crews: host.Crews, alone: HostCopies) -> dict[str, Program]:
    """Of an environment on the host; training goes on from call to call.

    * physics: the simulations alone, all copies as one set on all cores, taking over and over the actions of a rollout
      from where that rollout began.
    * learner: `learn` alone, on such a rollout.
    * train: `iterate_on_host`, just as training calls it.
    """
    started = time.perf_counter()
    spec = environment.spec
    # Some way into training, where episodes are at all stages: physics takes longer for a robot that lies on the floor.
    state, _ = iterate_on_host(plan, environment, crews, begin(plan, environment, crews), HEAD_START)
    beginning = joined([copies.save() for copies in crews]) if alone.resumable else None
    state, rollout = experience_on_host(plan, crews, spec, state)
    actions = [host.in_range(spec.actions, action) for action in np.asarray(rollout.action)]
    latest = [state]

    def simulate() -> None:
        if beginning is None:
            alone.reset(0)
        else:
            alone.restore(beginning)
        for action in actions:
            alone.simulate(action)

    def train() -> TrainState:
        latest[0], _ = iterate_on_host(plan, environment, crews, latest[0], 1)
        return latest[0]

    simulate()
    steps, seconds = plan.steps_per_iteration(environment), time.perf_counter() - started
    return {
        "physics": Program(simulate, steps, seconds),
        "learner": Program(lambda: learn(plan, environment, state, rollout), steps, 0.0),
        "train": Program(train, steps, 0.0),
    }


def joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """What several sets of copies saved, as if one set had."""
    return {key: np.concatenate([part[key] for part in parts]) if first.ndim else first
            for key, first in parts[0].items()}  # fmt: skip


def rate(program: Program, seconds: float) -> float:
    """Steps per second over at least `seconds`, in whole calls."""
    calls, elapsed, started = 0, 0.0, time.perf_counter()
    while calls == 0 or elapsed < seconds:
        jax.block_until_ready(program.call())
        calls, elapsed = calls + 1, time.perf_counter() - started
    return calls * program.steps / elapsed


def bench(environment: str, preset: str | None = None, seconds: float = 3.0, repeats: int = 3) -> BenchResult:
    """How many environment steps per second a preset makes on this machine.

    What counts where, for an iteration of N environments x T steps; everything that `train` does is in one of the two:

    * physics: `collect` alone. Steps, resets, the episodes' sums, storing the rollout; the actions are random numbers.
    * learner: on a rollout that stays as it is, the network's evaluation and the drawing of T x N actions from it as in
      acting, then `learn`: advantages, loss, gradient, optimiser, multipliers, metrics.
    * train: `learn.iterate`, just as training calls it.

    The three take turns of `seconds` each, `repeats` times, so that whatever else the machine does slows all of them
    alike; the rates are the medians of the turns.
    """
    if seconds < 0.0:
        raise UsageError(f"got {seconds:g} seconds; give a number that is not negative")
    if repeats < 1:
        raise UsageError(f"got {repeats} repeats; give at least 1")
    with prepared(environment, preset) as programs:
        for program in programs.values():
            rate(program, 0.0)
        turns = [{name: rate(program, seconds) for name, program in programs.items()} for _ in range(repeats)]
        compile_seconds = sum(program.compile_seconds for program in programs.values())
    return BenchResult(
        env=environment,
        physics_steps_per_second=median(turn["physics"] for turn in turns),
        learner_steps_per_second=median(turn["learner"] for turn in turns),
        train_steps_per_second=median(turn["train"] for turn in turns),
        compile_seconds=compile_seconds,
    )
