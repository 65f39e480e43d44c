"""Small Gymnasium environments for the tests: each is good, or bad in one known way."""

import os
import time
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium import spaces

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class Walk(gymnasium.Env[np.ndarray, np.int64]):
    """A random walk that ends at 3 in either direction; `info` says what it paid, some of it nested, some rarely."""

    observation_space: gymnasium.Space = spaces.Box(-5.0, 5.0, (2,), np.float64)
    action_space: gymnasium.Space = spaces.Discrete(3, start=-1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.steps = 0.0, 0
        return self.look(), {"start": "here"}

    def look(self) -> Any:
        return np.array([self.place, self.steps / 10])

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.place += float(np.sum(action)) * 0.5 + self.np_random.normal()
        info: dict[str, Any] = {"cost": abs(self.place), "inner": {"speed": np.float32(self.steps)}, "text": "no"}
        if abs(self.place) > 2.0:
            info["rare"] = True
        return self.look(), -abs(self.place), abs(self.place) > 3.0, False, info


@final
class Six(Walk):
    """As Safety-Gymnasium has it: the cost stands on its own."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, info.pop("cost"), terminated, truncated, {"text": "no"}


@final
class SelfResetting(Walk):
    """One that begins anew by itself, and puts what was final aside."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        if terminated:
            first, _ = self.reset()
            return first, reward, True, truncated, {"cost": -1.0, "final_obs": obs, "final_info": info}
        return obs, reward, terminated, truncated, info


@final
class Several(Walk):
    """Several choices, and what is seen in parts."""

    action_space = spaces.MultiDiscrete([3, 2], start=[1, 0])
    observation_space = spaces.Dict(
        {
            "b": spaces.Box(-9.0, 9.0, (2, 2), np.float32),
            "a": spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2))),
        }
    )

    def look(self) -> Any:
        return {
            "b": np.full((2, 2), self.place, np.float32),
            "a": (np.int64(self.steps % 3), np.array([1, 0], np.int8)),
        }


@final
class Picture(Walk):
    """It sees a bright bar on the side to go to, and earns 1 for going there. One step an episode."""

    observation_space = spaces.Box(0, 255, (3, 8, 9), np.uint8)
    action_space = spaces.Discrete(2)

    def look(self) -> Any:
        self.side = int(self.np_random.integers(2))
        picture = self.np_random.integers(0, 60, (3, 8, 9), dtype=np.uint8)
        picture[:, :, -2 if self.side else 1] = 255
        return picture

    def step(self, action: Any) -> Any:
        right = float(action == self.side)
        return self.look(), right, True, False, {"wrong": 1.0 - right}


class Troubled(Walk):
    """It breaks after some steps, in the way that it is told to."""

    def __init__(self, trouble: str = "raise", after: int = 5):
        self.trouble, self.after, self.total = trouble, after, 0

    def step(self, action: Any) -> Any:
        obs, reward, _, truncated, info = super().step(action)
        self.total += 1
        # Behind the random steps of the first look.
        if self.total > self.after:
            if self.trouble == "raise":
                raise ValueError("the arm is\n broken")
            if self.trouble == "hang":
                time.sleep(60.0)
            if self.trouble == "die":
                os._exit(7)
            if self.trouble == "nan":
                obs = np.full(2, np.nan)
            if self.trouble == "once" and self.total == self.after + 1:
                reward = np.inf
        return obs, reward, False, truncated, info
