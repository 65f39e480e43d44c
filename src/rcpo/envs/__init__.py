"""The environments by name. Nothing heavy is imported until one is made."""

import re
from typing import TYPE_CHECKING, Any, Final

from rcpo.envs.settings import EnvironmentSettings, GymSettings, MarsRoverSettings, RobotSettings
from rcpo.errors import UsageError

if TYPE_CHECKING:
    from rcpo.envs.base import Environment, JaxEnvironment
    from rcpo.exact import FiniteCMDP

FINITE: Final[dict[str, str]] = {
    "mars-rover": "the paper's grid world: drive past rocks to the goal (finite, exactly solvable)",
    "fork": "five states with an optimum known in closed form, for the theory (finite, exactly solvable)",
}
ROBOTS: Final[dict[str, str]] = {
    "Swimmer-v5": "three links swim forward: 2 motors",
    "Walker2d-v5": "two legs walk forward in a plane: 6 motors",
    "Hopper-v5": "one leg hops forward in a plane: 3 motors",
    "Humanoid-v5": "a humanoid walks forward: 17 motors",
    "HalfCheetah-v5": "two legs and a spine run forward in a plane: 6 motors",
    "Ant-v5": "four legs walk forward: 8 motors",
}
"""The paper's six robots, by Gymnasium's names and definitions."""
NAMES: Final[dict[str, str]] = FINITE | ROBOTS


def check_name(name: str) -> None:
    """Refuse the name of an environment that does not exist."""
    if name not in NAMES:
        from rcpo.envs import sources

        sources.check(name, NAMES)


def known(word: str) -> bool:
    """Whether a word can only be the name of an environment."""
    from rcpo.envs import sources

    return word in NAMES or sources.known(word)


def is_plain(name: str) -> bool:
    """Whether a name is one of ours or registered with Gymnasium: making it runs no code that the name says."""
    from rcpo.envs import sources

    return name in NAMES or sources.registered(name)


def label(name: str) -> str:
    """An environment's name as a part of a folder's."""
    return re.sub(r"[^\w.-]+", "-", name.rpartition("/")[2] if ".py" in name else name).strip("-")


def preset_of(name: str) -> str | None:
    """The preset of environments that are not known here by name."""
    return None if name in NAMES else "gym"


def default_settings(name: str) -> EnvironmentSettings:
    """What can be set of an environment, as it is unless set."""
    check_name(name)
    if name not in NAMES:
        return GymSettings()
    return RobotSettings() if name in ROBOTS else MarsRoverSettings()


def make(name: str, settings: EnvironmentSettings | None = None) -> "Environment":
    """Build an environment, with settings of its own kind."""
    check_name(name)
    settings = default_settings(name) if settings is None else settings
    if name not in NAMES:
        return adopt(name, settings)
    if name in ROBOTS:
        from rcpo.envs import robots
        from rcpo.envs.mujoco import MujocoEnvironment

        if not isinstance(settings, RobotSettings):
            raise UsageError(f"got {type(settings).__name__} for the robot {name!r}; give RobotSettings")
        return MujocoEnvironment(robots.ROBOTS[name](), settings)
    return make_finite(name, settings)


def adopt(origin: Any, settings: EnvironmentSettings | None = None) -> "Environment":
    """An environment of ours as it is; else whatever Gymnasium environment is meant: an id, a factory, an object."""
    from rcpo.envs.base import HostEnvironment, JaxEnvironment

    if isinstance(origin, JaxEnvironment | HostEnvironment):
        return origin
    from rcpo.envs.gym import GymEnvironment

    settings = GymSettings() if settings is None else settings
    if not isinstance(settings, GymSettings):
        raise UsageError(f"got {type(settings).__name__} for a Gymnasium environment; give GymSettings")
    return GymEnvironment(origin, settings)


def make_finite(name: str, settings: EnvironmentSettings | None = None) -> "JaxEnvironment":
    """Build a finite environment."""
    from rcpo.envs.finite import FiniteEnvironment
    from rcpo.envs.mars_rover import MarsRover

    if name == "mars-rover" and isinstance(settings, MarsRoverSettings | None):
        return MarsRover.build(settings or MarsRoverSettings())
    return FiniteEnvironment.build(tables(name, settings), name)


def tables(name: str, settings: EnvironmentSettings | None = None) -> "FiniteCMDP":
    """A finite environment as tables, without the JAX that running it needs."""
    check_name(name)
    if name not in FINITE:
        raise UsageError(f"{name!r} is not finite, so it has no exact optimum; choose one of: {', '.join(FINITE)}")
    from rcpo.envs import cmdps

    settings = settings or MarsRoverSettings()
    if name == "mars-rover" and isinstance(settings, MarsRoverSettings):
        return cmdps.mars_rover(settings)
    if settings != MarsRoverSettings():
        raise UsageError(f"the environment {name!r} has no such settings; leave --env.* out")
    return cmdps.fork()
