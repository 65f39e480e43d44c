"""Collecting experience from environments written in JAX."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from rcpo.constraints import Constraint
from rcpo.envs.base import JaxEnvironment
from rcpo.networks import ActorCritic
from rcpo.types import EnvStep, Episodes, Rollout, Transition, Worker

Act = Callable[[PRNGKeyArray, Array], Int[Array, " N"]]
Exploring = Float[Array, ""] | float


def look(network: ActorCritic, environment: JaxEnvironment, uses: int) -> Callable[[Array], tuple[Array, Array]]:
    """Logits and values as a function of what `observe` gives, whatever its leading axes.

    Where the environment lists its states, and no fewer than these `uses` are to come, the network is evaluated once
    per state and then looked up. The numbers are the same, and so is the gradient: differentiating a look-up adds up,
    per state, what every step that saw it gives.
    """
    states, shape = environment.states(), environment.spec.observation_shape
    if states is not None and uses >= len(states):
        table = network(states)
        return lambda obs: jax.tree.map(lambda entry: entry[obs], table)

    def evaluate(obs: Array) -> tuple[Array, Array]:
        seen = obs if states is None else states[obs]
        lead = seen.shape[: seen.ndim - len(shape)]
        outputs = network(seen.reshape(-1, *shape))
        return jax.tree.map(lambda entry: entry.reshape(*lead, *entry.shape[1:]), outputs)

    return evaluate


def start(
    environment: JaxEnvironment,
    constraints: tuple[Constraint, ...],
    key: PRNGKeyArray,
    batch: int,
    exploring: Exploring,
) -> Worker:
    """N environments at the beginning of their first episodes."""
    state, from_start = environment.reset(key, batch, exploring)
    nothing = jnp.zeros(batch)
    return Worker(
        state=state,
        obs=environment.observe(state),
        from_start=from_start,
        functionals=tuple(constraint.functional.start(nothing) for constraint in constraints),
        columns=jnp.zeros((batch, len(environment.spec.columns))),
        reward=nothing,
        length=jnp.zeros(batch, jnp.int32),
    )


def advance(
    environment: JaxEnvironment,
    constraints: tuple[Constraint, ...],
    worker: Worker,
    action: Int[Array, " N"],
    key: PRNGKeyArray,
    exploring: Exploring,
) -> tuple[Worker, EnvStep, Float[Array, "N K"], Episodes]:
    """One step of every environment: what came of it, what it costs the learner, and which episodes it ended."""
    step_key, reset_key = jax.random.split(key)
    transition = environment.step(step_key, worker.state, action)
    running, penalty = _add_up(environment, constraints, worker, transition)
    truncated = ~transition.terminated & (running.length >= environment.spec.max_steps)
    ended = transition.terminated | truncated
    values = [c.functional.value(t, running.length) for c, t in zip(constraints, running.functionals, strict=True)]
    batch = len(running.length)
    episodes = Episodes(
        counted=ended & running.from_start,
        value=jnp.stack(values, axis=-1) if values else jnp.zeros((batch, 0)),
        columns=running.columns,
        reward=running.reward,
        length=running.length,
        truncated=truncated,
    )
    fresh = start(environment, constraints, reset_key, batch, exploring)
    worker = jax.tree.map(lambda new, old: jnp.where(_to_rank(ended, new), new, old), fresh, running)
    step = EnvStep(
        obs=worker.obs,
        next_obs=running.obs,
        reward=transition.reward,
        costs=transition.costs,
        terminated=transition.terminated,
        truncated=truncated,
    )
    return worker, step, penalty, episodes


def _add_up(
    environment: JaxEnvironment, constraints: tuple[Constraint, ...], worker: Worker, transition: Transition
) -> tuple[Worker, Float[Array, "N K"]]:
    """The running episodes after one more step, before any is reset; and the step's penalty under each constraint."""
    names = environment.spec.column_names
    totals, penalties = [], []
    for constraint, before in zip(constraints, worker.functionals, strict=True):
        cost = transition.costs[:, names.index(constraint.column)]
        after = constraint.functional.step(before, cost, worker.length)
        totals.append(after)
        penalties.append(constraint.sign * constraint.functional.penalty(before, after, cost))
    running = Worker(
        state=transition.state,
        obs=environment.observe(transition.state),
        from_start=worker.from_start,
        functionals=tuple(totals),
        columns=worker.columns + transition.costs,
        reward=worker.reward + transition.reward,
        length=worker.length + 1,
    )
    return running, jnp.stack(penalties, axis=-1) if penalties else jnp.zeros((len(worker.length), 0))


def _to_rank(flag: Array, like: Array) -> Array:
    return flag.reshape(flag.shape + (1,) * (like.ndim - flag.ndim))


def collect(
    environment: JaxEnvironment,
    constraints: tuple[Constraint, ...],
    act: Act,
    worker: Worker,
    key: PRNGKeyArray,
    steps: int,
    exploring: Exploring,
) -> tuple[Worker, Rollout]:
    """`steps` steps of every environment, episodes running on from one rollout to the next."""

    def step(worker: Worker, key: PRNGKeyArray) -> tuple[Worker, dict[str, PyTree]]:
        act_key, step_key = jax.random.split(key)
        action = act(act_key, worker.obs)
        following, seen, penalty, episodes = advance(environment, constraints, worker, action, step_key, exploring)
        return following, dict(
            obs=worker.obs,
            next_obs=seen.next_obs,
            action=action,
            reward=seen.reward,
            penalty=penalty,
            terminated=seen.terminated,
            truncated=seen.truncated,
            episode=episodes,
        )

    worker, recorded = jax.lax.scan(step, worker, jax.random.split(key, steps))
    return worker, Rollout(**recorded)


def first_episodes(rollout: Rollout) -> PyTree:
    """The steps [T, N] that belong to each environment's first episode in the rollout."""
    ended = (rollout.terminated | rollout.truncated).astype(jnp.int32)
    return jnp.cumsum(ended, axis=0) - ended == 0


def measure(rollout: Rollout) -> tuple[Float[Array, " K"], Int[Array, ""]]:
    """J_C by Monte Carlo on the episodes that finished in this rollout (the paper's Eq. 8), and how many there were.

    Zero where there were none: the caller must leave its multiplier alone then.
    """
    counted = rollout.episode.counted
    finished = counted.sum()
    total = jnp.sum(rollout.episode.value * counted[..., None], axis=(0, 1))
    return total / jnp.maximum(finished, 1), finished
