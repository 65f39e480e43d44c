"""Small Gymnasium environments whose episodes are written down, for the tests of wrappers."""

from collections.abc import Sequence
from typing import Any, final

import gymnasium
import numpy as np


@final
class Script(gymnasium.Env):
    """Plays the same episodes again and again; a step is (reward, info), the last of an episode ends it."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, episodes: Sequence[Sequence[tuple[float, dict[str, Any]]]], truncate: bool = False):
        self.episodes, self.truncate, self.count = episodes, truncate, -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.count, self.time = (self.count + 1) % len(self.episodes), 0
        return self._see(), {}

    def step(self, action: Any) -> Any:
        reward, info = self.episodes[self.count][self.time]
        self.time += 1
        ended = self.time == len(self.episodes[self.count])
        return self._see(), reward, ended and not self.truncate, ended and self.truncate, dict(info)

    def _see(self) -> np.ndarray:
        return np.array([self.count, self.time], np.float32)


@final
class SixValues(gymnasium.Env):
    """As Safety-Gymnasium has it: the cost is a value of its own."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.zeros(1, np.float32), 1.0, 2.5, self.time == 2, False, {"other": 7.0}


def costs(*values: float, column: str = "cost") -> list[tuple[float, dict[str, Any]]]:
    """An episode that earns 1 at every step and costs these."""
    return [(1.0, {column: value}) for value in values]


def play(env: gymnasium.Env, episodes: int) -> list[list[tuple[float, dict[str, Any]]]]:
    """The rewards and infos of so many episodes."""
    played = []
    for _ in range(episodes):
        env.reset()
        steps, ended = [], False
        while not ended:
            _, reward, terminated, truncated, info = env.step(0)
            steps.append((float(reward), info))
            ended = bool(terminated or truncated)
        played.append(steps)
    return played
