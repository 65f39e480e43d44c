"""Collecting experience from environments that run on the host."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Num, Shaped
from threadpoolctl import threadpool_limits

from rcpo.constraints import Constraint
from rcpo.costs import add_costs, all_columns
from rcpo.envs.base import Actions, Box, EnvSpec, HostCopies, HostEnvironment
from rcpo.episodes import add_up, close, open_tally, where_ended
from rcpo.threads import CREWS, side_by_side
from rcpo.types import AnyArray, Rollout, Tally, Worker

Crews = tuple[HostCopies, ...]
Act = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""What a policy does, given what the copies see and the noise that it draws its actions with."""


@final
class Record(eqx.Module):
    """What T steps of N copies brought, as it came."""

    obs: Num[AnyArray, "T N ..."]
    next_obs: Num[AnyArray, "T N ..."]
    action: Shaped[AnyArray, "T N ..."]
    reward: Float[AnyArray, "T N"]
    costs: Float[AnyArray, "T N C"]
    terminated: Bool[AnyArray, "T N"]
    truncated: Bool[AnyArray, "T N"]
    faulty: Bool[AnyArray, "T N"]


def in_range(actions: Actions, action: np.ndarray) -> np.ndarray:
    """A policy's actions as the environment takes them: their unit is half of each motor's range, around the middle."""
    if not isinstance(actions, Box):
        return action
    low, high = np.asarray(actions.low, np.float32), np.asarray(actions.high, np.float32)
    return np.minimum(np.maximum(0.5 * (high + low) + 0.5 * (high - low) * action, low), high)


def kind_of(spec: EnvSpec) -> type[np.generic]:
    """How observations are kept."""
    return np.uint8 if spec.pixels else np.float32


@contextmanager
def crews_of(environment: HostEnvironment, copies: int) -> Iterator[Crews]:
    """Live copies, in as many parts as can be stepped side by side.

    As long as they live, numpy's linear algebra keeps to the thread that calls it. Its threads wait for each other by
    spinning, on cores that the physics needs: on Humanoid they cost half of all speed. And with how many of them a
    product is summed decides its last bits.
    """
    parts = min(CREWS if environment.side_by_side else 1, copies)
    with ExitStack() as stack:
        stack.enter_context(threadpool_limits(1, user_api="blas"))
        sizes = [copies // parts + (part < copies % parts) for part in range(parts)]
        yield tuple(stack.enter_context(environment.open(size, parts)) for size in sizes)


def begin(
    crews: Crews, spec: EnvSpec, constraints: tuple[Constraint, ...], seed: int, spread: bool, *again: int
) -> Worker:
    """Every copy at the beginning of its first episode; with `spread`, that episode is cut at a random step.

    An episode that is not to run its course does not count. `again` numbers a new beginning along the way.
    """
    first = [copies.reset((seed, part, *again), spread) for part, copies in enumerate(crews)]
    obs = np.concatenate(first).astype(kind_of(spec))
    columns = len(all_columns(spec.column_names, constraints))
    return Worker(None, obs, open_tally(constraints, columns, jnp.full(len(obs), not spread)))


def collect(
    crews: Crews,
    spec: EnvSpec,
    constraints: tuple[Constraint, ...],
    act: Act,
    noise: Float[np.ndarray, "T N A"],
    worker: Worker,
) -> tuple[Worker, Rollout]:
    """A step of every copy for each row of `noise`, episodes running on from one rollout to the next.

    Each crew acts and steps in a thread of its own: while one is in Python, the other is in the physics.
    """
    ends = np.cumsum([copies.count for copies in crews])
    rows = [slice(end - copies.count, end) for copies, end in zip(crews, ends, strict=True)]
    seen = np.asarray(worker.obs)

    def work(copies: HostCopies, mine: slice) -> tuple[np.ndarray, Record]:
        return _step(copies, spec, act, noise[:, mine], seen[mine])

    done = side_by_side(*(partial(work, copies, mine) for copies, mine in zip(crews, rows, strict=True)))
    obs = np.concatenate([last for last, _ in done])
    record = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *(record for _, record in done))
    record = eqx.tree_at(lambda record: record.costs, record, worked_out(spec, constraints, record))
    tally, rollout = account(constraints, all_columns(spec.column_names, constraints), worker.tally, record)
    return Worker(None, obs, tally), rollout


def _step(
    copies: HostCopies, spec: EnvSpec, act: Act, noise: Float[np.ndarray, "T n A"], obs: Num[np.ndarray, "n ..."]
) -> tuple[np.ndarray, Record]:
    """The loop itself does nothing but act, step and keep: everything else is reckoned for all steps at once."""
    steps, batch = noise.shape[:2]
    kind = kind_of(spec)
    seen, following = (np.empty((steps, *obs.shape), kind) for _ in range(2))
    reward, costs = np.empty((steps, batch), np.float32), np.empty((steps, batch, len(spec.columns)), np.float32)
    terminated, truncated, faulty = (np.empty((steps, batch), bool) for _ in range(3))
    actions = []
    for t in range(steps):
        action = act(obs, noise[t])
        step = copies.step(in_range(spec.actions, action))
        actions.append(action)
        seen[t], following[t], reward[t], costs[t] = obs, step.next_obs, step.reward, step.costs
        terminated[t], truncated[t], faulty[t] = step.terminated, step.truncated, step.faulty
        obs = np.array(step.obs, kind)
    return obs, Record(seen, following, np.stack(actions), reward, costs, terminated, truncated, faulty)


def worked_out(spec: EnvSpec, constraints: tuple[Constraint, ...], record: Record) -> Float[np.ndarray, "T N C"]:
    """The costs with those that functions work out, all steps at once; a copy that broke down pays none of them."""
    steps, batch = record.reward.shape
    rows = {name: getattr(record, name).reshape(steps * batch, *getattr(record, name).shape[2:])
            for name in ("obs", "action", "next_obs", "costs")}  # fmt: skip
    rows["action"] = in_range(spec.actions, rows["action"])
    costs = add_costs(constraints, spec.column_names, **rows).reshape(steps, batch, -1)
    costs[..., len(spec.columns) :][record.faulty] = 0.0
    return costs


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
