"""The environments by name. Nothing heavy is imported until one is made."""

from typing import TYPE_CHECKING, Final

from rcpo.envs.settings import MarsRoverSettings
from rcpo.errors import UsageError, nearest

if TYPE_CHECKING:
    from rcpo.envs.base import JaxEnvironment
    from rcpo.exact import FiniteCMDP

NAMES: Final[dict[str, str]] = {
    "mars-rover": "the paper's grid world: drive past rocks to the goal (finite, exactly solvable)",
    "fork": "five states with an optimum known in closed form, for the theory (finite, exactly solvable)",
}


def check_name(name: str) -> None:
    """Refuse the name of an environment that does not exist."""
    if name not in NAMES:
        raise UsageError(f"unknown environment {name!r}{nearest(name, NAMES)}")


def make(name: str, settings: MarsRoverSettings | None = None) -> "JaxEnvironment":
    """Build an environment; `settings` are the Mars Rover's."""
    from rcpo.envs.finite import FiniteEnvironment
    from rcpo.envs.mars_rover import MarsRover

    if name == "mars-rover":
        return MarsRover.build(settings or MarsRoverSettings())
    return FiniteEnvironment.build(tables(name, settings), name)


def tables(name: str, settings: MarsRoverSettings | None = None) -> "FiniteCMDP":
    """A finite environment as tables, without the JAX that running it needs."""
    check_name(name)
    settings = settings or MarsRoverSettings()
    from rcpo.envs import cmdps

    if name == "mars-rover":
        return cmdps.mars_rover(settings)
    if settings != MarsRoverSettings():
        raise UsageError(f"the environment {name!r} has no settings; leave --env.* out")
    return cmdps.fork()
