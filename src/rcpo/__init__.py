"""Reinforcement learning that keeps a promise: reward constrained policy optimisation.

Nothing heavy is imported until it is used. Importing `rcpo` makes `rcpo/MarsRover-v0` known to Gymnasium.
"""

import importlib
from typing import TYPE_CHECKING, Any

import gymnasium

from rcpo.errors import UsageError

if TYPE_CHECKING:
    from rcpo.config import CheckpointConfig, EvaluationConfig, LearnerConfig, MultiplierConfig, TrainConfig
    from rcpo.constraints import Constraint, parse
    from rcpo.folder import load
    from rcpo.run import Run, resume, train
    from rcpo.schedules import Schedule
    from rcpo.truth import solve

__version__ = "0.1.0"

__all__ = [
    "CheckpointConfig",
    "Constraint",
    "EvaluationConfig",
    "LearnerConfig",
    "MultiplierConfig",
    "Run",
    "Schedule",
    "TrainConfig",
    "UsageError",
    "__version__",
    "load",
    "parse",
    "resume",
    "solve",
    "train",
]

_HOME = {
    "CheckpointConfig": "config",
    "Constraint": "constraints",
    "EvaluationConfig": "config",
    "LearnerConfig": "config",
    "MultiplierConfig": "config",
    "Run": "run",
    "Schedule": "schedules",
    "TrainConfig": "config",
    "load": "folder",
    "parse": "constraints",
    "resume": "run",
    "solve": "truth",
    "train": "run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rcpo' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rcpo.{_HOME[name]}"), name)


gymnasium.register("rcpo/MarsRover-v0", "rcpo.envs.gymnasium_rover:MarsRoverEnv", max_episode_steps=200)
