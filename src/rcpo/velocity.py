"""The safe velocity tasks of Safety-Gymnasium: run, but be faster than a limit in at most 25 steps of an episode.

The limits are those of its tasks Safety...Velocity-v1 (Ji et al. 2023), here on Gymnasium's v5 robots. As there,
`speed` is in the plane for Ant and Humanoid, and along x for the others.
"""

from typing import Final

VELOCITY: Final[dict[str, float]] = {
    "Ant-v5": 2.6222,
    "HalfCheetah-v5": 3.2096,
    "Hopper-v5": 0.7402,
    "Walker2d-v5": 2.3415,
    "Swimmer-v5": 0.2282,
    "Humanoid-v5": 1.4149,
}
"""In m/s."""
STEPS: Final = 25
"""How many steps of an episode may be faster."""


def constraint(robot: str) -> str:
    """The limit of one robot, as a constraint is written."""
    return f"sum(speed > {VELOCITY[robot]}) <= {STEPS}"


def preset_name(robot: str) -> str:
    return f"safe-velocity/{robot.removesuffix('-v5')}"
