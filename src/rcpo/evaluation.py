"""Fresh episodes of a policy: what it earns, what it costs, and whether that keeps the promise."""

import math
from dataclasses import dataclass
from functools import partial
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from rcpo import exact, host, truth
from rcpo.constraints import Constraint
from rcpo.envs.base import Environment, HostEnvironment, JaxEnvironment
from rcpo.histograms import Histogram, histogram
from rcpo.intervals import Interval, Verdict, clopper_pearson, judge, student_t
from rcpo.networks import SeparateActorCritic
from rcpo.policy import Policy, acting, action_probabilities, logits_of, rollout_noise
from rcpo.rollout import advance, start
from rcpo.types import Episodes, Worker

PARALLEL = 2048
"""Episodes that run side by side: enough to fill both cores, few enough to stay in their caches."""
PARALLEL_ON_HOST, CHUNK = 64, 50
"""Copies that run side by side on the host, and after how many steps their episodes are looked at."""


@partial(jax.jit, static_argnames=("constraints", "batch"))
def play(
    environment: JaxEnvironment, constraints: tuple[Constraint, ...], policy: Policy, key: PRNGKeyArray, batch: int
) -> Episodes:
    """One whole episode in each of `batch` environments, all from the true start."""
    component_key, start_key, key = jax.random.split(key, 3)
    component = jax.random.categorical(component_key, jnp.log(policy.weights), shape=(batch,))
    views = logits_of(environment, policy)
    worker = start(environment, constraints, start_key, batch, 0.0)

    def act(key: PRNGKeyArray, obs: Array) -> Int[Array, " N"]:
        logits = views(obs, component)
        drawn = jax.random.categorical(key, logits)
        return jnp.where(policy.greedy[component], jnp.argmax(logits, axis=-1), drawn)

    def step(carry: tuple[Worker, PRNGKeyArray, Episodes, Array]) -> tuple[Worker, PRNGKeyArray, Episodes, Array]:
        worker, key, done, running = carry
        key, act_key, step_key = jax.random.split(key, 3)
        worker, _, _, ended = advance(
            environment, constraints, worker, act(act_key, jnp.asarray(worker.obs)), step_key, 0.0
        )
        now = ended.counted & running
        keep = jax.tree.map(lambda new, old: jnp.where(now.reshape(-1, *(1,) * (new.ndim - 1)), new, old), ended, done)
        return worker, key, keep, running & ~now

    nothing = jax.eval_shape(lambda w: advance(environment, constraints, w, w.tally.length, key, 0.0)[3], worker)
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), nothing)
    carry = (worker, key, blank, jnp.ones(batch, bool))
    return jax.lax.while_loop(lambda carry: carry[3].any(), step, carry)[2]


@final
@dataclass(frozen=True)
class Sample:
    """The episodes of an evaluation, one entry an episode."""

    value: Float[np.ndarray, "E K"]
    columns: Float[np.ndarray, "E C"]
    reward: Float[np.ndarray, " E"]
    length: Int[np.ndarray, " E"]
    truncated: Bool[np.ndarray, " E"]


def sample(
    environment: Environment, constraints: tuple[Constraint, ...], policy: Policy, episodes: int, key: PRNGKeyArray
) -> Sample:
    """Exactly `episodes` fresh episodes."""
    if isinstance(environment, HostEnvironment):
        return sample_on_host(environment, constraints, policy, episodes, key)
    batches = math.ceil(episodes / PARALLEL)
    batch = min(episodes, PARALLEL)
    played = [play(environment, constraints, policy, k, batch) for k in jax.random.split(key, batches)]
    fields = [
        np.concatenate([np.asarray(getattr(part, name)) for part in played])[:episodes]
        for name in ("value", "columns", "reward", "length", "truncated")
    ]
    # Sums over ten thousand episodes need more digits than one episode does.
    value, columns, reward, length, truncated = fields
    return Sample(value.astype(float), columns.astype(float), reward.astype(float), length.astype(int), truncated)


def sample_on_host(
    environment: HostEnvironment,
    constraints: tuple[Constraint, ...],
    policy: Policy,
    episodes: int,
    key: PRNGKeyArray,
) -> Sample:
    """Exactly `episodes` fresh episodes; how many of them each component plays is drawn first."""
    seed, *keys = jax.random.split(key, policy.components + 1)
    stream = np.random.default_rng(np.asarray(jax.random.key_data(seed)))
    weights = np.asarray(policy.weights, dtype=np.float64)
    shares = stream.multinomial(episodes, weights / weights.sum())
    played = []
    for m, share in enumerate(shares):
        if share:
            network = jax.tree.map(lambda leaf, m=m: leaf[m], policy.networks)
            played += play_on_host(environment, constraints, network, bool(policy.greedy[m]), int(share), keys[m])
    fields = (np.stack([getattr(one, name) for one in played]) for name in Sample.__dataclass_fields__)
    value, columns, reward, length, truncated = fields
    return Sample(value.astype(float), columns.astype(float), reward.astype(float), length.astype(int), truncated)


def play_on_host(
    environment: HostEnvironment,
    constraints: tuple[Constraint, ...],
    network: SeparateActorCritic,
    greedy: bool,
    episodes: int,
    key: PRNGKeyArray,
) -> list[Episodes]:
    """`episodes` episodes of one network: of each copy the first ones, for those that end first are the short ones.

    An episode in which a copy broke down does not count; the copy plays another one.
    """
    spec, batch = environment.spec, min(episodes, PARALLEL_ON_HOST)
    seed_key, key = jax.random.split(key)
    seed = int(jax.random.randint(seed_key, (), 0, np.iinfo(np.int32).max))
    wanted = episodes // batch + (np.arange(batch) < episodes % batch)
    kept: list[list[Episodes]] = [[] for _ in range(batch)]
    with host.crews_of(environment, batch) as crews:
        worker = host.begin(crews, spec, constraints, seed, spread=False)
        while any(len(mine) < number for mine, number in zip(kept, wanted, strict=True)):
            key, noise_key = jax.random.split(key)
            noise = np.asarray(rollout_noise(network, noise_key, (CHUNK, batch, spec.outputs)))
            worker, rollout = host.collect(crews, spec, constraints, acting(network, greedy), noise, worker)
            ended: Episodes = jax.tree.map(np.asarray, rollout.episode)
            for t, n in zip(*np.nonzero(ended.counted), strict=True):
                kept[n].append(jax.tree.map(lambda leaf, t=t, n=n: leaf[t, n], ended))
    return [one for mine, number in zip(kept, wanted, strict=True) for one in mine[:number]]


@final
@dataclass(frozen=True)
class Estimate:
    """One constraint's value with its interval, and what that says."""

    constraint: Constraint
    interval: Interval
    verdict: Verdict


@final
@dataclass(frozen=True)
class Evaluation:
    """What fresh episodes show of a policy. Probabilities have Clopper-Pearson intervals, means Student's t."""

    episodes: int
    confidence: float
    reward: Interval
    steps: Interval
    constraints: tuple[Estimate, ...]
    truncated: float
    """The share of episodes that were cut by the cap."""
    success: Interval | None
    """The probability to reach the goal, where there is one."""
    steps_given_success: Interval | None
    distributions: tuple[Histogram, ...] = ()
    """How the episodes are spread: their reward, their steps, and what each constraint bounds."""

    @property
    def satisfied(self) -> bool:
        """Whether every constraint is satisfied (a run without constraints keeps every promise it made)."""
        return all(estimate.verdict == "satisfied" for estimate in self.constraints)


def mean_interval(values: Float[np.ndarray, " E"], confidence: float) -> Interval:
    """Student's t interval of a sample's mean."""
    if len(values) == 0:
        return student_t(math.nan, math.nan, 0, confidence)
    deviation = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return student_t(float(values.mean()), deviation, len(values), confidence)


def constraint_interval(constraint: Constraint, values: Float[np.ndarray, " E"], confidence: float) -> Interval:
    if constraint.is_probability:
        return clopper_pearson(int(values.sum()), len(values), confidence)
    return mean_interval(values, confidence)


def summarise(
    environment: Environment, constraints: tuple[Constraint, ...], drawn: Sample, confidence: float
) -> Evaluation:
    """The intervals and verdicts of a sample."""
    estimates = []
    for k, constraint in enumerate(constraints):
        interval = constraint_interval(constraint, drawn.value[:, k], confidence)
        estimates.append(Estimate(constraint, interval, judge(interval, constraint.limit, constraint.at_least)))
    success = steps_given_success = None
    if environment.spec.success is not None:
        reached = drawn.columns[:, environment.spec.column_names.index(environment.spec.success)] > 0
        success = clopper_pearson(int(reached.sum()), len(reached), confidence)
        steps_given_success = mean_interval(drawn.length[reached].astype(float), confidence)
    return Evaluation(
        episodes=len(drawn.reward),
        confidence=confidence,
        reward=mean_interval(drawn.reward, confidence),
        steps=mean_interval(drawn.length.astype(float), confidence),
        constraints=tuple(estimates),
        truncated=float(drawn.truncated.mean()),
        success=success,
        steps_given_success=steps_given_success,
        distributions=(
            histogram("reward", drawn.reward),
            histogram("steps", drawn.length),
            *(histogram(c.quantity, drawn.value[:, k]) for k, c in enumerate(constraints)),
        ),
    )


def evaluate_policy(
    environment: Environment,
    constraints: tuple[Constraint, ...],
    policy: Policy,
    episodes: int,
    seed: int,
    confidence: float = 0.95,
) -> Evaluation:
    """Fresh episodes, intervals and verdicts."""
    drawn = sample(environment, constraints, policy, episodes, jax.random.key(seed))
    return summarise(environment, constraints, drawn, confidence)


def exact_value(environment: Environment, policy: Policy) -> exact.ExactValue | None:
    """The truth about a policy, as episodes cut at the cap see it; None where the environment is not finite."""
    cmdp = environment.cmdp() if isinstance(environment, JaxEnvironment) else None
    if not isinstance(environment, JaxEnvironment) or cmdp is None:
        return None
    parts = [
        exact.evaluate(cmdp, probabilities, cap=environment.spec.max_steps)
        for probabilities in action_probabilities(environment, policy)
    ]
    return exact.mixture(parts, [float(weight) for weight in np.asarray(policy.weights, dtype=np.float64)])


def exact_constraints(
    environment: Environment, constraints: tuple[Constraint, ...], policy: Policy
) -> tuple[float | None, ...]:
    """The truth about each constraint, as episodes cut at the cap see it; None where it is not known exactly."""
    cmdp = environment.cmdp() if isinstance(environment, JaxEnvironment) else None
    if not isinstance(environment, JaxEnvironment) or cmdp is None:
        return (None,) * len(constraints)
    tables, cap = action_probabilities(environment, policy), environment.spec.max_steps
    weights = np.asarray(policy.weights, dtype=np.float64)
    parts = [truth.values(cmdp, table, constraints, cap) for table in tables]
    return tuple(
        None if known[0] is None else float(weights @ np.array(known, dtype=float))
        for known in zip(*parts, strict=True)
    )
