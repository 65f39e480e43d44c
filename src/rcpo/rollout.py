"""Collecting experience from environments written in JAX."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from rcpo.constraints import Constraint
from rcpo.costs import add_costs, all_columns
from rcpo.envs.base import JaxEnvironment
from rcpo.episodes import add_up, close, open_tally, where_ended
from rcpo.networks import ActorCritic
from rcpo.types import EnvStep, Episodes, Rollout, Worker

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
    tally = open_tally(constraints, len(all_columns(environment.spec.column_names, constraints)), from_start)
    return Worker(state, environment.observe(state), tally)


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
    obs, next_obs, names = worker.obs, environment.observe(transition.state), environment.spec.column_names
    costs = add_costs(constraints, names, obs, action, next_obs, transition.costs)
    tally, penalty = add_up(constraints, all_columns(names, constraints), worker.tally, transition.reward, costs)
    running = Worker(transition.state, next_obs, tally)
    truncated = ~transition.terminated & (tally.length >= environment.spec.max_steps)
    ended = transition.terminated | truncated
    episodes = close(constraints, tally, ended, truncated)
    fresh = start(environment, constraints, reset_key, len(tally.length), exploring)
    worker = where_ended(ended, fresh, running)
    step = EnvStep(
        obs=worker.obs,
        next_obs=running.obs,
        reward=transition.reward,
        costs=costs,
        terminated=transition.terminated,
        truncated=truncated,
        faulty=jnp.zeros_like(truncated),
    )
    return worker, step, penalty, episodes


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
        action = act(act_key, jnp.asarray(worker.obs))
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


def measure(
    constraints: tuple[Constraint, ...], rollout: Rollout, length: Float[Array, ""] | None = None
) -> tuple[Array, Array]:
    """J_C by Monte Carlo (the paper's Eq. 8) and whether it was measured at all, both [K].

    On the episodes that finished in this rollout, zero where there were none: the caller must leave its multiplier
    alone then. With the mean `length` of an episode, from the average cost of the rollout's steps, where the functional
    can be read off these.
    """
    counted = rollout.episode.counted
    finished = counted.sum()
    value = jnp.sum(rollout.episode.value * counted[..., None], axis=(0, 1)) / jnp.maximum(finished, 1)
    measured = jnp.broadcast_to(finished > 0, value.shape)
    if length is not None:
        for k, constraint in enumerate(constraints):
            known = constraint.functional.from_steps(constraint.sign * rollout.penalty[..., k].mean(), length)
            if known is not None:
                value, measured = value.at[k].set(known), measured.at[k].set(True)
    return value, measured
