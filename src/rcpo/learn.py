"""The paper's Algorithm 1 as one compiled program: collect, learn, again."""

from dataclasses import dataclass, replace
from functools import partial
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from rcpo import multipliers
from rcpo.algorithms import a2c, primal_dual
from rcpo.config import TrainConfig
from rcpo.constraints import Constraint
from rcpo.envs.base import JaxEnvironment
from rcpo.networks import ActorCritic, ConvolutionalActorCritic, TabularActorCritic
from rcpo.rollout import collect, first_episodes, look, measure, start
from rcpo.types import Agent, Metrics, Rollout, TrainState


@final
@dataclass(frozen=True)
class Plan:
    """What a run does, fixed before it starts; the compiled program is one per plan."""

    config: TrainConfig
    constraints: tuple[Constraint, ...]
    iterations: int

    def for_any_seed(self) -> "Plan":
        """The same plan without its seed, which only the beginning needs: one compiled program serves all seeds."""
        return replace(self, config=replace(self.config, seed=0))

    @property
    def whole_episodes(self) -> bool:
        return self.config.method == "primal-dual"

    def steps_per_iteration(self, environment: JaxEnvironment) -> int:
        learner = self.config.learner
        return learner.environments * (environment.spec.max_steps if self.whole_episodes else learner.rollout_steps)


def learn(plan: Plan, environment: JaxEnvironment, state: TrainState, rollout: Rollout) -> tuple[TrainState, Metrics]:
    """One iteration of reward constrained policy optimisation (the paper's Algorithm 1)."""
    config, iterations = plan.config, plan.iterations
    multiplier = state.multipliers.value
    limit = jnp.array([constraint.limit for constraint in plan.constraints])
    sign = jnp.array([constraint.sign for constraint in plan.constraints])

    # Fast: critic and actor, on r - lambda . c (Eq. 10 and 11), or on R - lambda . C itself (Eq. 7).
    if plan.whole_episodes:
        agent, metrics = primal_dual.update(
            config.learner, environment, state.agent, rollout, multiplier, sign, state.iteration, iterations
        )
    else:
        agent, metrics = a2c.update(
            config.learner, environment, state.agent, rollout, multiplier, state.iteration, iterations
        )

    # Slow: the multiplier, on J_C - alpha of the episodes that finished (Eq. 5 and 8).
    value, finished = measure(rollout)
    violation = sign * (value - limit)
    measured = jnp.broadcast_to(finished > 0, violation.shape)
    moved = multipliers.ascend(config.rule, state.multipliers, violation, limit, measured, iterations)

    counted = rollout.episode.counted
    metrics |= {
        "episodes": finished,
        "reward": jnp.sum(rollout.episode.reward * counted),
        "length": jnp.sum(rollout.episode.length * counted),
        "value": value * finished,
        "multiplier": moved.value,
    }
    return TrainState(agent, moved, state.worker, state.key, state.iteration + 1), metrics


def experience(plan: Plan, environment: JaxEnvironment, state: TrainState) -> tuple[TrainState, Rollout]:
    """The next rollout of the present policy."""
    learner = plan.config.learner
    key, start_key, rollout_key = jax.random.split(state.key, 3)
    exploring = learner.exploring.at(state.iteration, plan.iterations)
    at = look(state.agent.network, environment, plan.steps_per_iteration(environment))
    worker, steps = state.worker, learner.rollout_steps
    if plan.whole_episodes:
        worker = start(environment, plan.constraints, start_key, learner.environments, exploring)
        steps = environment.spec.max_steps

    def act(key: Array, obs: Array) -> Int[Array, " N"]:
        return jax.random.categorical(key, at(obs)[0])

    worker, rollout = collect(environment, plan.constraints, act, worker, rollout_key, steps, exploring)
    if plan.whole_episodes:
        # Of the episodes that follow the first only the short ones end in time: they would bias what is measured.
        counted = rollout.episode.counted & first_episodes(rollout)
        rollout = eqx.tree_at(lambda rollout: rollout.episode.counted, rollout, counted)
    return TrainState(state.agent, state.multipliers, worker, key, state.iteration), rollout


@partial(jax.jit, static_argnames=("plan", "count"))
def iterate(plan: Plan, environment: JaxEnvironment, state: TrainState, count: int) -> tuple[TrainState, Metrics]:
    """`count` iterations as one compiled program; the metrics of each, stacked."""

    def once(state: TrainState, _: None) -> tuple[TrainState, Metrics]:
        state, rollout = experience(plan, environment, state)
        return learn(plan, environment, state, rollout)

    return jax.lax.scan(once, state, None, length=count)


def new_network(environment: JaxEnvironment, key: PRNGKeyArray) -> ActorCritic:
    """A table where what is seen is a state's number, the paper's CNN where it is a picture."""
    spec, states = environment.spec, environment.states()
    if states is not None and spec.observation_shape == ():
        return TabularActorCritic(jnp.zeros((len(states), spec.choices)), jnp.zeros(len(states)))
    return ConvolutionalActorCritic(key, spec.observation_shape, spec.choices)


def begin(plan: Plan, environment: JaxEnvironment) -> TrainState:
    """The state before the first iteration."""
    key = jax.random.key(plan.config.seed)
    network_key, worker_key, key = jax.random.split(key, 3)
    learner = plan.config.learner
    network = new_network(environment, network_key)
    worker = start(environment, plan.constraints, worker_key, learner.environments, learner.exploring.initial)
    return TrainState(
        agent=Agent(network, a2c.optimiser(learner).init(network)),
        multipliers=multipliers.start(plan.config.rule, len(plan.constraints)),
        worker=worker,
        key=key,
        iteration=jnp.zeros((), jnp.int32),
    )
