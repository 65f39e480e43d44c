"""Reinforcement learning that keeps a promise: reward constrained policy optimisation.

Nothing heavy is imported until it is used. Importing `rcpo` makes `rcpo/MarsRover-v0` known to Gymnasium.
"""

import importlib
from typing import TYPE_CHECKING, Any

import gymnasium

from rcpo.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from rcpo.config import CheckpointConfig, EvaluationConfig, LearnerConfig, MultiplierConfig, TrainConfig
    from rcpo.constraints import Constraint, Event, parse
    from rcpo.controller import Multipliers
    from rcpo.folder import load
    from rcpo.functionals import (
        Discounted,
        Functional,
        Maximum,
        Mean,
        Probability,
        Sum,
        register_functional,
        where,
    )
    from rcpo.run import Run, resume, train
    from rcpo.schedules import Schedule
    from rcpo.truth import solve
    from rcpo.wrappers import RewardConstrained, RewardConstrainedVector

__version__ = "0.1.0"

__all__ = [
    "CheckpointConfig",
    "Constraint",
    "Discounted",
    "EnvironmentFault",
    "EvaluationConfig",
    "Event",
    "Functional",
    "LearnerConfig",
    "Maximum",
    "Mean",
    "MultiplierConfig",
    "Multipliers",
    "Probability",
    "RewardConstrained",
    "RewardConstrainedVector",
    "Run",
    "Schedule",
    "Sum",
    "TrainConfig",
    "UsageError",
    "__version__",
    "load",
    "parse",
    "register_functional",
    "resume",
    "solve",
    "train",
    "where",
]

_HOME = {
    "CheckpointConfig": "config",
    "Constraint": "constraints",
    "Discounted": "functionals",
    "EvaluationConfig": "config",
    "Event": "constraints",
    "Functional": "functionals",
    "LearnerConfig": "config",
    "Maximum": "functionals",
    "Mean": "functionals",
    "MultiplierConfig": "config",
    "Multipliers": "controller",
    "Probability": "functionals",
    "RewardConstrained": "wrappers",
    "RewardConstrainedVector": "wrappers",
    "Run": "run",
    "Schedule": "schedules",
    "Sum": "functionals",
    "TrainConfig": "config",
    "load": "folder",
    "parse": "constraints",
    "register_functional": "functionals",
    "resume": "run",
    "solve": "truth",
    "train": "run",
    "where": "functionals",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rcpo' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rcpo.{_HOME[name]}"), name)


gymnasium.register("rcpo/MarsRover-v0", "rcpo.envs.gymnasium_rover:MarsRoverEnv", max_episode_steps=200)
