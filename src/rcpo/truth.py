"""The exact optimum of a finite environment, under constraints as the user writes them. Imports no JAX."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rcpo import envs, exact
from rcpo.constraints import Constraint, Probability, Sum, parse_all
from rcpo.envs.settings import MarsRoverSettings
from rcpo.errors import UsageError

if TYPE_CHECKING:
    from rcpo.envs.base import JaxEnvironment


def solve(
    environment: "str | JaxEnvironment",
    constraints: Sequence[str | Constraint],
    settings: MarsRoverSettings | None = None,
) -> exact.Optimum:
    """The best expected sum of rewards of any policy, randomised ones included, that keeps the constraints.

    Undiscounted and without the cap on an episode's length.
    """
    cmdp = envs.tables(environment, settings) if isinstance(environment, str) else environment.cmdp()
    if cmdp is None:
        raise UsageError("this environment does not list its states, so it has no exact optimum")
    parsed = parse_all(constraints, list(cmdp.columns))
    return exact.solve(cmdp, [bound(constraint, cmdp) for constraint in parsed])


def bound(constraint: Constraint, cmdp: exact.FiniteCMDP) -> exact.Bound:
    """The constraint as one that is linear in how often each state and action is visited."""
    ends_episode = constraint.column in cmdp.outcomes
    if not (
        isinstance(constraint.functional, Sum) or (isinstance(constraint.functional, Probability) and ends_episode)
    ):
        raise UsageError(f"cannot solve '{constraint}' exactly: it is not linear in visits; "
                         "use sum(column), or P(column) of an event that ends the episode")  # fmt: skip
    return exact.Bound(constraint.column, constraint.limit, constraint.at_least, str(constraint))
