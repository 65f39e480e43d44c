"""An environment of your own in a file, trained from the command line.

rcpo train examples/my_env.py:Corridor --constraint "P(crash) <= 0.05" --steps 2e5
"""

from typing import Any

import gymnasium
import numpy as np


class Corridor(gymnasium.Env[np.ndarray, np.int64]):
    """Seven steps to the end; a jump is worth two of them, and every fifth one ends in a crash.

    The fewer steps the better. Whoever crashes has also arrived, in a way: the reward alone asks for jumps.
    """

    observation_space: gymnasium.Space = gymnasium.spaces.Discrete(8)
    action_space: gymnasium.Space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 0
        return self.place, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Back, ahead, or a jump."""
        jump = action == 2
        crash = bool(jump and self.np_random.random() < 0.2)
        self.place = int(np.clip(self.place + (-1, 1, 2)[action], 0, 7))
        # Every number in `info` is a cost column: P(crash), sum(jump), ... can be bounded.
        return self.place, -1.0, crash or self.place == 7, False, {"crash": crash, "jump": jump}
