"""Every record that crosses a file. T steps, N environments, K constraints, C cost columns."""

from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray, PyTree, Shaped

from rcpo.normalise import ReturnStatistics

AnyArray = Array | np.ndarray
"""JAX's arrays where the environment is written in JAX, numpy's where it runs on the host."""
Metrics = dict[str, Num[AnyArray, "..."]]


@final
class Transition(eqx.Module):
    """What N environments did in one step, before anything is reset."""

    state: PyTree
    reward: Float[Array, " N"]
    costs: Float[Array, "N C"]
    terminated: Bool[Array, " N"]


class EnvStep(NamedTuple):
    """One step of N environments, already reset where an episode ended."""

    obs: Shaped[AnyArray, "N ..."]
    """What to act on next."""
    next_obs: Shaped[AnyArray, "N ..."]
    """What the step really produced, also where the episode ended."""
    reward: Float[AnyArray, " N"]
    costs: Float[AnyArray, "N C"]
    terminated: Bool[AnyArray, " N"]
    truncated: Bool[AnyArray, " N"]
    faulty: Bool[AnyArray, " N"]
    """The copy broke down: the episode ends here and says nothing about the policy."""


@final
class Episodes(eqx.Module):
    """What episodes were worth; read an entry only where `counted`."""

    counted: Bool[Array, "*shape"]
    """An episode ended here, and it speaks for the task's own start (not for an exploring start)."""
    value: Float[Array, "*shape K"]
    """What is bounded: one number per constraint (`J_C` is its expectation)."""
    columns: Float[Array, "*shape C"]
    """Each cost column's sum over the episode."""
    reward: Float[Array, "*shape"]
    length: Int[Array, "*shape"]
    truncated: Bool[Array, "*shape"]


@final
class Rollout(eqx.Module):
    """T steps of N environments, and what the episodes that ended in them were worth."""

    obs: Shaped[Array, "T N ..."]
    next_obs: Shaped[Array, "T N ..."]
    action: Shaped[Array, "T N ..."]
    reward: Float[Array, "T N"]
    penalty: Float[Array, "T N K"]
    """What actor and critic feel of each constraint at each step, counted so that less is better."""
    terminated: Bool[Array, "T N"]
    truncated: Bool[Array, "T N"]
    episode: Episodes


@final
class Tally(eqx.Module):
    """What the running episodes of N environments add up to so far."""

    from_start: Bool[Array, " N"]
    """Whether the episode began where the task begins, and is to run its course."""
    functionals: tuple[Any, ...]
    """What each constraint's functional has accumulated."""
    columns: Float[Array, "N C"]
    reward: Float[Array, " N"]
    length: Int[Array, " N"]


@final
class Worker(eqx.Module):
    """The environments between two rollouts: where they stand, and what their running episodes add up to."""

    state: PyTree
    """None where the environments run on the host and keep it themselves."""
    obs: Shaped[AnyArray, "N ..."]
    tally: Tally


@final
class MultiplierState(eqx.Module):
    """The multipliers and what their controller remembers."""

    value: Float[Array, " K"]
    integral: Float[Array, " K"]
    updates: Int[Array, " K"]
    """How many iterations moved each multiplier: the k of its step size."""
    first: Float[Array, " K"]
    """The first value measured, 0 before that: what the untrained policy spends."""
    lately: Float[Array, " 2"]
    """How many episodes ended and their steps in all, those of long ago hardly counted."""


@final
class Agent(eqx.Module):
    network: PyTree
    optimiser: PyTree
    returns: ReturnStatistics | None = None
    """How large returns are, where rewards are normalised."""


@final
class TrainState(eqx.Module):
    """All that training goes on from."""

    agent: Agent
    multipliers: MultiplierState
    worker: Worker
    key: PRNGKeyArray
    iteration: Int[Array, ""]


def first_axis(tree: PyTree) -> int:
    """The length of the first axis that all leaves share."""
    return int(jax.tree.leaves(tree)[0].shape[0])
