"""What can be set of each environment. Light: the command line reads these without importing JAX."""

from dataclasses import dataclass
from typing import Final, final

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


EnvironmentSettings = MarsRoverSettings | RobotSettings
