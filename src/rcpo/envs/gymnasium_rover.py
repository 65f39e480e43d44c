"""The paper's Mars Rover as a Gymnasium environment, for learners that are not written in JAX. Only numpy.

Importing `rcpo` registers it as `rcpo/MarsRover-v0`; Gymnasium imports `rcpo` by itself in
`gymnasium.make("rcpo:rcpo/MarsRover-v0")`.
"""

from typing import Any, final

import gymnasium
import numpy as np
from jaxtyping import Float32, UInt8

from rcpo.envs.grid import FREE, GOAL, MOVES, ROCK, START, WALL, read_map
from rcpo.envs.settings import MarsRoverSettings
from rcpo.errors import UsageError

ENV_ID = "rcpo/MarsRover-v0"
COLOURS = {
    FREE: (235, 232, 226),
    START: (246, 205, 205),
    GOAL: (255, 140, 0),
    ROCK: (250, 210, 30),
    WALL: (70, 70, 78),
}
ROVER_COLOUR = (220, 30, 30)
LINE_COLOUR = (205, 201, 194)
PICTURE_SIDE = 480
"""Pixels along the longer side of a picture, about; but a cell has at least 4 by 4."""


@final
class MarsRoverEnv(gymnasium.Env[np.ndarray, np.int64]):
    """Drive from the start to the goal and hit no rock; both end the episode.

    An action is one of `MOVES`; with probability `slip` a uniformly random one of the four replaces it, and a move into
    a wall stays in place. The observation is the whole grid in one channel, the rover drawn in. `info["crash"]` and
    `info["goal"]` are 1.0 on the step that hits a rock or reaches the goal, else 0.0.
    With `restart_probability`, an episode starts in any cell that does not end it, drawn uniformly.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - declared so by Gymnasium

    def __init__(
        self,
        map: str | None = None,
        slip: float = MarsRoverSettings.slip,
        step_reward: float = MarsRoverSettings.step_reward,
        goal_reward: float = MarsRoverSettings.goal_reward,
        restart_probability: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        if not 0.0 <= restart_probability <= 1.0:
            raise UsageError(f"got the restart probability {restart_probability:g}; it lies in [0, 1]")
        if render_mode not in (None, "rgb_array"):
            raise UsageError(f"got the render mode {render_mode!r}; choose 'rgb_array' or None")
        self.settings = MarsRoverSettings(map=map, slip=slip, step_reward=step_reward, goal_reward=goal_reward)
        self.restart_probability = restart_probability
        self.render_mode = render_mode
        self.grid = read_map(map)
        self.state = self.grid.start
        self._running = False
        self._seen = self.grid.observations()
        self._open_states = np.flatnonzero(~self.grid.terminal)
        self.action_space = gymnasium.spaces.Discrete(len(MOVES))
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, self._seen.shape[1:], np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, "1 H W"], dict[str, Any]]:
        super().reset(seed=seed)
        self.state = self.grid.start
        if self.np_random.random() < self.restart_probability:
            self.state = int(self.np_random.choice(self._open_states))
        self._running = True
        return self._observe(), {}

    def step(self, action: np.int64 | int) -> tuple[Float32[np.ndarray, "1 H W"], float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise UsageError(f"got the action {action!r}; give an integer from 0 to {len(MOVES) - 1}")
        if not self._running:
            raise UsageError("got a step outside an episode; call reset() first")
        slips = self.np_random.random() < self.settings.slip
        move = int(self.np_random.integers(len(MOVES))) if slips else int(action)
        self.state = int(self.grid.next_state[self.state, move])
        crash, goal = bool(self.grid.rock[self.state]), bool(self.grid.goal[self.state])
        self._running = not (crash or goal)
        reward = self.settings.step_reward + self.settings.goal_reward * goal
        return self._observe(), reward, crash or goal, False, {"crash": float(crash), "goal": float(goal)}

    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:
        """The map from above: the rover red, the goal orange, rocks yellow, walls dark, the start rose."""
        if self.render_mode is None:
            return None
        colours = np.array([[COLOURS[cell] for cell in row] for row in self.grid.cells], dtype=np.uint8)
        colours[tuple(self.grid.positions[self.state])] = ROVER_COLOUR
        pixels = max(4, PICTURE_SIDE // max(colours.shape[:2]))
        picture = colours.repeat(pixels, axis=0).repeat(pixels, axis=1)
        picture[::pixels] = LINE_COLOUR
        picture[:, ::pixels] = LINE_COLOUR
        return picture

    def _observe(self) -> Float32[np.ndarray, "1 H W"]:
        # A copy, for a learner may keep it or write into it.
        return self._seen[self.state].copy()
