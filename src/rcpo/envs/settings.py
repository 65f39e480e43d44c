"""What can be set of each environment. Light: the command line reads these without importing JAX."""

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, final

from rcpo.errors import UsageError

MOST_THREADS: Final = 1024


@final
@dataclass(frozen=True)
class MarsRoverSettings:
    """The Mars Rover's own settings; the defaults are the paper's appendix B."""

    map: str | None = None
    """An ASCII map (S start, G goal, # rock, W wall, . free); without one, the paper's."""
    slip: float = 0.05
    """The paper's delta: the probability that a random move replaces the chosen one."""
    step_reward: float = -0.01
    """The paper's r_step, paid at every step."""
    goal_reward: float = 0.0
    """The paper's r_goal, paid on the step that reaches the goal."""
    max_steps: int = 200
    """Episodes are cut after so many steps."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.slip <= 1.0:
            raise UsageError(f"got the slip probability {self.slip:g}; it lies in [0, 1]")
        if self.max_steps < 1:
            raise UsageError(f"got an episode cap of {self.max_steps} steps; give at least 1")


@final
@dataclass(frozen=True)
class RobotSettings:
    """The settings that all robots share."""

    max_steps: int = 0
    """Episodes are cut after so many steps; 0: after as many as the robot's own definition says (1000)."""
    reward_scale: float = 1.0
    """Every reward is multiplied by this number."""
    threads: int = 0
    """Threads for the physics; 0: one per core. The numbers are the same however many."""

    def __post_init__(self) -> None:
        if self.max_steps < 0:
            raise UsageError(f"got an episode cap of {self.max_steps} steps; give at least 1, or 0 for the robot's own")
        if not 0.0 < self.reward_scale < float("inf"):
            raise UsageError(f"got the reward scale {self.reward_scale:g}; give a finite number above 0")
        if not 0 <= self.threads <= MOST_THREADS:
            raise UsageError(f"got {self.threads} threads; it lies in [0, {MOST_THREADS}] (0: one per core)")


@final
@dataclass(frozen=True)
class GymSettings:
    """What can be set of any Gymnasium environment."""

    max_steps: int = 0
    """Episodes are cut after so many steps; 0: after as many as the environment says, or 1,000 if it does not say."""
    reward_scale: float = 1.0
    """Every reward is multiplied by this number."""
    vectorization: Literal["sync", "async"] = "sync"
    """sync: all copies in this process, one after the other; async: in processes of their own, side by side. The
    numbers are the same."""
    workers: int = 0
    """async only: how many processes; 0: one per core."""
    timeout: float = 60.0
    """async only: after how many seconds without an answer a copy is taken to hang."""
    arguments: str = ""
    """Keyword arguments for the environment, as JSON: '{"g": 9.81}'."""
    columns: tuple[str, ...] = ()
    """Cost columns that `info` has so rarely that a few random steps do not show them; 0 where they are missing."""
    images: bool = True
    """Pictures (uint8, three axes, at least 5 x 5) are seen by a convolutional network; without, they are flattened."""

    def __post_init__(self) -> None:
        if self.max_steps < 0:
            raise UsageError(f"got an episode cap of {self.max_steps} steps; give at least 1, or 0 for its own")
        if not 0.0 < self.reward_scale < float("inf"):
            raise UsageError(f"got the reward scale {self.reward_scale:g}; give a finite number above 0")
        if self.workers < 0:
            raise UsageError(f"got {self.workers} workers; give a number that is not negative (0: one per core)")
        if not self.timeout > 0.0:
            raise UsageError(f"got a timeout of {self.timeout:g} seconds; give a number above 0")
        _ = self.keyword_arguments

    @property
    def keyword_arguments(self) -> dict[str, Any]:
        """`arguments`, read."""
        try:
            read = json.loads(self.arguments or "{}")
        except ValueError as error:
            raise UsageError(f"cannot read the environment's arguments {self.arguments!r}: {error}; "
                             """write them as JSON: '{"g": 9.81}'""") from None  # fmt: skip
        if not isinstance(read, dict):
            raise UsageError(f"got {self.arguments!r} for the environment's arguments; give a JSON object: "
                             """'{"g": 9.81}'""")  # fmt: skip
        return read


EnvironmentSettings = MarsRoverSettings | RobotSettings | GymSettings
