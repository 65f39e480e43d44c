"""The environments by name. Nothing heavy is imported until one is made."""

from typing import TYPE_CHECKING, Final

from rcpo.errors import UsageError, nearest

if TYPE_CHECKING:
    from rcpo.envs.base import JaxEnvironment
    from rcpo.envs.settings import MarsRoverSettings

NAMES: Final[dict[str, str]] = {
    "mars-rover": "the paper's grid world: drive past rocks to the goal (finite, exactly solvable)",
    "fork": "five states with an optimum known in closed form, for the theory (finite, exactly solvable)",
}


def check_name(name: str) -> None:
    """Refuse the name of an environment that does not exist."""
    if name not in NAMES:
        raise UsageError(f"unknown environment {name!r}{nearest(name, NAMES)}")


def make(name: str, settings: "MarsRoverSettings | None" = None) -> "JaxEnvironment":
    """Build an environment; `settings` are the Mars Rover's."""
    from rcpo.envs.settings import MarsRoverSettings

    check_name(name)
    settings = settings or MarsRoverSettings()
    if name == "fork":
        from rcpo.envs.finite import FiniteEnvironment, fork

        if settings != MarsRoverSettings():
            raise UsageError("the environment 'fork' has no settings; leave --env.* out")
        return FiniteEnvironment.build(fork(), "fork")
    from rcpo.envs.mars_rover import MarsRover

    return MarsRover.build(settings)
