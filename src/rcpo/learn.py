"""The paper's Algorithm 1: collect, learn, again. One compiled program for environments written in JAX, else a loop."""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from rcpo import bodies, host, multipliers
from rcpo.algorithms import a2c, ppo, primal_dual
from rcpo.config import LearnerConfig, TrainConfig
from rcpo.constraints import Constraint
from rcpo.envs.base import Environment, EnvSpec, HostEnvironment, JaxEnvironment
from rcpo.networks import ConvolutionalActorCritic, TabularActorCritic, perceptrons, with_bodies
from rcpo.normalise import ReturnStatistics, no_statistics
from rcpo.policy import acting, rollout_noise
from rcpo.rollout import collect, first_episodes, look, measure, start
from rcpo.types import Agent, Metrics, MultiplierState, Rollout, TrainState

SHUFFLE_STREAM: Final = 1
"""The order of minibatches is drawn from a random stream of its own."""


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
    def limit(self) -> Float[Array, " K"]:
        return jnp.array([constraint.limit for constraint in self.constraints])

    @property
    def sign(self) -> Float[Array, " K"]:
        return jnp.array([constraint.sign for constraint in self.constraints])

    @property
    def rules(self) -> multipliers.Rules:
        """How each multiplier moves."""
        return multipliers.rules(self.config.rule, self.constraints)

    @property
    def broken_conditions(self) -> list[str]:
        """Which of the paper's step-size conditions do not hold for some multiplier."""
        configs = [replace(self.config, multipliers=rule) for rule in self.rules] or [self.config]
        return list(dict.fromkeys(sentence for config in configs for sentence in config.broken_conditions))

    @property
    def whole_episodes(self) -> bool:
        return self.config.method == "primal-dual"

    def steps_per_iteration(self, environment: Environment) -> int:
        learner = self.config.learner
        return learner.environments * (environment.spec.max_steps if self.whole_episodes else learner.rollout_steps)


def learn(plan: Plan, environment: Environment, state: TrainState, rollout: Rollout) -> tuple[TrainState, Metrics]:
    """One iteration of reward constrained policy optimisation (the paper's Algorithm 1)."""
    # Fast: critic and actor, on r - lambda . c (Eq. 10 and 11), or on R - lambda . C itself (Eq. 7).
    agent, metrics = improve(plan, environment, state, rollout)
    # Slow: the multiplier, on J_C - alpha (Eq. 5 and 8).
    moved, measured = ascend(plan, state.multipliers, state.iteration, rollout)
    return TrainState(agent, moved, state.worker, state.key, state.iteration + 1), metrics | measured


def improve(plan: Plan, environment: Environment, state: TrainState, rollout: Rollout) -> tuple[Agent, Metrics]:
    """The agent after one update of the plan's method."""
    learner, multiplier, now = plan.config.learner, state.multipliers.value, (state.iteration, plan.iterations)
    if learner.algorithm == "ppo":
        aimed = aim(plan, state.multipliers, state.iteration)
        key = jax.random.fold_in(state.key, SHUFFLE_STREAM)
        return ppo.update(learner, plan.constraints, state.agent, rollout, multiplier, aimed, key, *now)
    assert isinstance(environment, JaxEnvironment)
    if plan.whole_episodes:
        return primal_dual.update(learner, environment, state.agent, rollout, multiplier, plan.sign, *now)
    return a2c.update(learner, environment, state.agent, rollout, multiplier, *now)


@partial(jax.jit, static_argnames="plan")
def aim(plan: Plan, state: MultiplierState, iteration: Int[Array, ""]) -> Float[Array, " K"]:
    """What each multiplier steers towards now."""
    return multipliers.aim(plan.rules, state, plan.limit, plan.sign, iteration, plan.iterations)


@partial(jax.jit, static_argnames="plan")
def ascend(
    plan: Plan, state: MultiplierState, iteration: Int[Array, ""], rollout: Rollout
) -> tuple[MultiplierState, Metrics]:
    """The multipliers after one rollout, and what its episodes were worth."""
    rules, episode = plan.rules, rollout.episode
    lately = multipliers.remember_lengths(state, episode)
    length = lately[1] / lately[0] if plan.config.rule.measure == "steps" else None
    value, measured = measure(plan.constraints, rollout, length)
    first = multipliers.remember_first(state, value, measured)
    state = eqx.tree_at(lambda state: (state.first, state.lately), state, (first, lately))
    aimed = multipliers.aim(rules, state, plan.limit, plan.sign, iteration, plan.iterations, measured)
    moved = multipliers.ascend(rules, state, plan.sign * (value - aimed), plan.limit, measured, plan.iterations)
    counted = episode.counted
    return moved, {
        "episodes": counted.sum(),
        "reward": jnp.sum(episode.reward * counted),
        "length": jnp.sum(episode.length * counted),
        "value": jnp.sum(episode.value * counted[..., None], axis=(0, 1)),
        "value_squared": jnp.sum(episode.value**2 * counted[..., None], axis=(0, 1)),
        "multiplier": moved.value,
        "aim": aimed,
    }


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


def experience_on_host(plan: Plan, crews: host.Crews, spec: EnvSpec, state: TrainState) -> tuple[TrainState, Rollout]:
    """The same from live copies."""
    learner = plan.config.learner
    key, noise_key = jax.random.split(state.key)
    network = state.agent.network
    # Drawn at once and read on the host: an index into one of JAX's arrays costs as much as acting does.
    noise = np.asarray(rollout_noise(network, noise_key, (learner.rollout_steps, learner.environments, spec.outputs)))
    worker, rollout = host.collect(crews, spec, plan.constraints, acting(network), noise, state.worker)
    return TrainState(state.agent, state.multipliers, worker, key, state.iteration), rollout


def iterate_on_host(
    plan: Plan, environment: HostEnvironment, crews: host.Crews, state: TrainState, count: int
) -> tuple[TrainState, Metrics]:
    """`count` iterations; the metrics of each, stacked."""
    seen = []
    for _ in range(count):
        state, rollout = experience_on_host(plan, crews, environment.spec, state)
        state, metrics = learn(plan, environment, state, rollout)
        seen.append(metrics)
    return state, jax.tree.map(lambda *leaves: np.stack(leaves), *seen)


def default_bodies(hidden: tuple[int, ...], key: PRNGKeyArray, spec: EnvSpec) -> tuple[PyTree, PyTree]:
    """Convolutions where a picture is seen, else perceptrons."""
    if spec.pixels:
        return bodies.convolutional(key, spec)
    return perceptrons(key, math.prod(spec.observation_shape), spec.outputs, hidden)


def new_network(environment: Environment, learner: LearnerConfig, key: PRNGKeyArray) -> PyTree:
    """Separate networks for PPO; else a table where what is seen is a state's number, or the paper's CNN."""
    spec = environment.spec
    if learner.algorithm == "ppo":
        assert isinstance(environment, HostEnvironment)
        actor, critic = (environment.network or partial(default_bodies, learner.ppo.hidden))(key, spec)
        if environment.network is not None:
            actor, critic = bodies.custom(actor, spec, spec.outputs), bodies.custom(critic, spec, 1)
        see = learner.ppo.normalise_observations and not spec.pixels
        return with_bodies(
            actor, critic, spec.actions, learner.ppo.initial_std, spec.observation_shape if see else None
        )
    assert isinstance(environment, JaxEnvironment)
    states = environment.states()
    if states is not None and spec.observation_shape == ():
        return TabularActorCritic(jnp.zeros((len(states), spec.choices)), jnp.zeros(len(states)))
    return ConvolutionalActorCritic(key, spec.observation_shape, spec.choices)


def begin(plan: Plan, environment: Environment, crews: host.Crews | None = None) -> TrainState:
    """The state before the first iteration; `crews` are the live copies of an environment on the host."""
    key = jax.random.key(plan.config.seed)
    network_key, worker_key, key = jax.random.split(key, 3)
    learner, count = plan.config.learner, plan.config.learner.environments
    network = new_network(environment, learner, network_key)
    if crews is None:
        assert isinstance(environment, JaxEnvironment)
        agent = Agent(network, a2c.optimiser(learner).init(network))
        worker = start(environment, plan.constraints, worker_key, count, learner.exploring.initial)
    else:
        returns = ReturnStatistics(no_statistics(()), jnp.zeros(count)) if learner.ppo.normalise_rewards else None
        agent = Agent(network, ppo.start(learner, network), returns)
        worker = host.begin(crews, environment.spec, plan.constraints, plan.config.seed, learner.ppo.spread_starts)
    return TrainState(
        agent=agent,
        multipliers=multipliers.start(plan.rules, environment.spec.max_steps),
        worker=worker,
        key=key,
        iteration=jnp.zeros((), jnp.int32),
    )


def begin_again(plan: Plan, environment: HostEnvironment, crews: host.Crews, state: TrainState) -> TrainState:
    """The state with every copy at the beginning of a new episode, the same whoever comes to this iteration."""
    spread, iteration = plan.config.learner.ppo.spread_starts, int(state.iteration)
    worker = host.begin(crews, environment.spec, plan.constraints, plan.config.seed, spread, iteration)
    returns = state.agent.returns
    if returns is not None:
        returns = ReturnStatistics(returns.seen, jnp.zeros_like(returns.running))
    agent = Agent(state.agent.network, state.agent.optimiser, returns)
    return TrainState(agent, state.multipliers, worker, state.key, state.iteration)
