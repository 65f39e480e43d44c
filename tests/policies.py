"""Policies that were never trained, and runs that hand them over: for tests of what is done with a finished run."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rcpo import envs, presets
from rcpo.config import TrainConfig
from rcpo.constraints import parse
from rcpo.envs.base import Environment
from rcpo.evaluation import Sample, summarise
from rcpo.handover import Handover
from rcpo.learn import new_network
from rcpo.networks import SeparateActorCritic
from rcpo.normalise import RunningStatistics
from rcpo.policy import Policy
from rcpo.run import Run


def networks(name: Any, count: int) -> tuple[Environment, list[Any]]:
    """An environment and new networks for it, no two alike, whose actions depend on what they see."""
    environment = envs.make(name) if isinstance(name, str) else envs.adopt(name)
    config = settings_for(name)
    made = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        new = new_network(environment, config.learner, jax.random.key(seed))
        made.append(jax.tree.map(lambda leaf, rng=rng: leaf + 0.1 * rng.normal(size=leaf.shape).astype("f"), new))
    return environment, [with_sight(network, seed) for seed, network in enumerate(made)]


def settings_for(name: Any) -> TrainConfig:
    """The settings that an environment is trained with, which is ours by name or Gymnasium's."""
    ours = isinstance(name, str) and name in envs.NAMES
    return presets.preset(None, name) if ours else presets.preset("gym", "an environment", own="gym")


def with_sight(network: Any, seed: int) -> Any:
    """Statistics as after a training, where the network has any."""
    if not isinstance(network, SeparateActorCritic) or network.sight is None:
        return network
    rng, size = np.random.default_rng(seed), network.sight.mean.shape[0]
    sight = RunningStatistics(jnp.asarray(rng.normal(size=size), jnp.float32),
                              jnp.asarray(rng.uniform(0.1, 4.0, size), jnp.float32), jnp.float32(1e4))  # fmt: skip
    return SeparateActorCritic(sight, network.actor, network.critic)


def finished(environment: Environment, policy: Policy, name: str, constraint: str = "P(crash) <= 0.1") -> Run:
    """A run that hands over this policy."""
    constraints = (parse(constraint),)
    config = replace(settings_for(name), constraints=(constraint,))
    count = policy.components
    columns = np.zeros((4, len(environment.spec.columns)))
    drawn = Sample(np.zeros((4, 1)), columns, np.arange(4.0), np.ones(4, int), np.zeros(4, bool))
    handed = Handover(policy, summarise(environment, constraints, drawn, 0.95), True, 0.95, 1, tuple(range(count)))
    return Run(name, environment, config, constraints, handed, (), 1000, 1.0)
