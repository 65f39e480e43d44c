"""Collecting experience from environments that run on the host."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from rcpo.constraints import Constraint
from rcpo.envs.base import Box, EnvSpec, HostCopies
from rcpo.episodes import add_up, close, open_tally, where_ended
from rcpo.types import AnyArray, Rollout, Tally, Worker

Draw = Callable[[np.ndarray, int], Shaped[Array, "N ..."]]
"""What a policy does in step t of a rollout, given what the copies see."""


@final
class Record(eqx.Module):
    """What T steps of N copies brought, as it came."""

    obs: Float[AnyArray, "T N ..."]
    next_obs: Float[AnyArray, "T N ..."]
    action: Shaped[AnyArray, "T N ..."]
    reward: Float[AnyArray, "T N"]
    costs: Float[AnyArray, "T N C"]
    terminated: Bool[AnyArray, "T N"]
    truncated: Bool[AnyArray, "T N"]
    faulty: Bool[AnyArray, "T N"]


def in_range(actions: int | Box, action: np.ndarray) -> np.ndarray:
    """A policy's action as the environment takes it: its unit is half of each motor's range, around the middle."""
    if isinstance(actions, int):
        return action
    low, high = np.asarray(actions.low, np.float32), np.asarray(actions.high, np.float32)
    return np.clip(0.5 * (high + low) + 0.5 * (high - low) * action, low, high)


def begin(
    copies: HostCopies, spec: EnvSpec, constraints: tuple[Constraint, ...], batch: int, seed: int, spread: bool
) -> Worker:
    """Every copy at the beginning of its first episode; with `spread`, that episode is cut at a random step.

    An episode that is not to run its course does not count.
    """
    obs = copies.reset(seed, spread)
    return Worker(None, obs.astype(np.float32), open_tally(constraints, len(spec.columns), jnp.full(batch, not spread)))


def collect(
    copies: HostCopies, spec: EnvSpec, constraints: tuple[Constraint, ...], draw: Draw, worker: Worker, steps: int
) -> tuple[Worker, Rollout]:
    """`steps` steps of every copy, episodes running on from one rollout to the next."""
    obs, record = _step(copies, spec, draw, np.asarray(worker.obs), steps)
    tally, rollout = account(constraints, spec.column_names, worker.tally, record)
    return Worker(None, obs, tally), rollout


def _step(copies: HostCopies, spec: EnvSpec, draw: Draw, obs: np.ndarray, steps: int) -> tuple[np.ndarray, Record]:
    """The loop itself does nothing but act, step and keep: everything else is reckoned for all steps at once."""
    batch = len(obs)
    seen, following = (np.empty((steps, *obs.shape), np.float32) for _ in range(2))
    reward, costs = np.empty((steps, batch), np.float32), np.empty((steps, batch, len(spec.columns)), np.float32)
    terminated, truncated, faulty = (np.empty((steps, batch), bool) for _ in range(3))
    actions = []
    for t in range(steps):
        action = np.asarray(draw(obs, t))
        step = copies.step(in_range(spec.actions, action))
        actions.append(action)
        seen[t], following[t], reward[t], costs[t] = obs, step.next_obs, step.reward, step.costs
        terminated[t], truncated[t], faulty[t] = step.terminated, step.truncated, step.faulty
        obs = np.asarray(step.obs, np.float32)
    return obs, Record(seen, following, np.stack(actions), reward, costs, terminated, truncated, faulty)


@partial(jax.jit, static_argnames=("constraints", "names"))
def account(
    constraints: tuple[Constraint, ...], names: Sequence[str], tally: Tally, record: Record
) -> tuple[Tally, Rollout]:
    """What the steps cost the learner, and what the episodes were worth that ended in them."""

    def step(tally: Tally, now: Record) -> tuple[Tally, tuple]:
        reward, costs, truncated = (jnp.asarray(part) for part in (now.reward, now.costs, now.truncated))
        running, penalty = add_up(constraints, names, tally, reward, costs)
        ended = truncated | now.terminated
        episodes = close(constraints, running, ended & ~now.faulty, truncated)
        fresh = open_tally(constraints, len(names), jnp.ones_like(ended))
        return where_ended(ended, fresh, running), (penalty, episodes)

    tally, (penalty, episodes) = jax.lax.scan(step, tally, record)
    return tally, Rollout(
        obs=jnp.asarray(record.obs),
        next_obs=jnp.asarray(record.next_obs),
        action=jnp.asarray(record.action),
        reward=jnp.asarray(record.reward),
        penalty=penalty,
        terminated=jnp.asarray(record.terminated),
        truncated=jnp.asarray(record.truncated),
        episode=episodes,
    )
