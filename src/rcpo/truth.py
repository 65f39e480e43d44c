"""The exact optimum of a finite environment, under constraints as the user writes them. Imports no JAX."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import block_array, csr_array, diags_array

from rcpo import envs, exact
from rcpo.constraints import Constraint, Discounted, Probability, Sum, parse_all
from rcpo.envs.settings import MarsRoverSettings
from rcpo.errors import UsageError
from rcpo.exact import FiniteCMDP

if TYPE_CHECKING:
    from rcpo.envs.base import JaxEnvironment

Table = Float[np.ndarray, "S A"]


def solve(
    environment: "str | JaxEnvironment",
    constraints: Sequence[str | Constraint],
    settings: MarsRoverSettings | None = None,
) -> exact.Optimum:
    """The best expected sum of rewards of any policy, randomised ones included, that keeps the constraints.

    Undiscounted and without the cap on an episode's length; every step costs what the tables say. The best policy may
    depend on whether an event of P(...) has happened already: for each that does not end the episode, the policy's
    states come twice, before the event and after it.
    """
    cmdp = envs.tables(environment, settings) if isinstance(environment, str) else environment.cmdp()
    if cmdp is None:
        raise UsageError("this environment does not list its states, so it has no exact optimum")
    parsed = parse_all(constraints, list(cmdp.columns))
    tables, bounds = as_bounds(cmdp, parsed)
    return exact.solve(tables, bounds)


def as_bounds(cmdp: FiniteCMDP, constraints: Sequence[Constraint]) -> tuple[FiniteCMDP, list[exact.Bound]]:
    """The constraints as bounds that are linear in visits of states and actions, and tables that have their columns."""
    linear = {c.quantity: linear_column(cmdp, c) for c in constraints}
    tables = with_columns(cmdp, linear)
    for constraint in {c.quantity: c for c in constraints}.values():
        if needs_memory(cmdp, constraint):
            tables = remember(tables, constraint.quantity, happens(cmdp, constraint, ending=False) > 0.0)
    return tables, [exact.Bound(c.quantity, c.limit, c.at_least, c.bound) for c in constraints]


def linear_column(cmdp: FiniteCMDP, constraint: Constraint) -> Table:
    """What a visit adds to the constraint's value, on average."""
    functional = constraint.functional
    if constraint.cost is not None:
        raise UsageError(
            f"cannot solve '{constraint}' exactly: {constraint.column} is a function, and not in the tables"
        )
    if isinstance(functional, Probability):
        return happens(cmdp, constraint, ending=True)
    if isinstance(functional, Sum) or (isinstance(functional, Discounted) and functional.discount == 1.0):
        return paid(cmdp, constraint)
    if isinstance(functional, Discounted):
        time = times(cmdp)
        if time is None:
            raise UsageError(f"cannot solve '{constraint}' exactly: some state is reached after different numbers of "
                             "steps, so its cost is not always discounted alike; use sum(column)")  # fmt: skip
        return functional.discount ** time[:, None] * paid(cmdp, constraint)
    raise UsageError(f"cannot solve '{constraint}' exactly: {constraint.functional_name} is not linear in how often "
                     "states are visited; use sum(column) or P(column)")  # fmt: skip


def paid(cmdp: FiniteCMDP, constraint: Constraint) -> Table:
    """The expected cost of a step, or where there is an event the probability of that."""
    table = cmdp.columns[constraint.column]
    if constraint.column in cmdp.outcomes:  # 1 with this probability, else 0
        return table * float(constraint.paid(1.0)) + (1.0 - table) * float(constraint.paid(0.0))
    return np.asarray(constraint.paid(table), dtype=float)


def happens(cmdp: FiniteCMDP, constraint: Constraint, ending: bool) -> Table:
    """The probability that a step counts for P(...); or given that it does not end the episode in an outcome."""
    table = cmdp.columns[constraint.column]
    if constraint.column not in cmdp.outcomes:
        return 1.0 * (np.asarray(constraint.paid(table)) > 0.0)
    one, nothing = (1.0 * (constraint.paid(cost) > 0.0) for cost in (1.0, 0.0))
    return table * one + (1.0 - table) * nothing if ending else np.full(table.shape, nothing)


def needs_memory(cmdp: FiniteCMDP, constraint: Constraint) -> bool:
    """Whether an event could be counted twice."""
    return isinstance(constraint.functional, Probability) and bool(happens(cmdp, constraint, ending=False).any())


def with_columns(cmdp: FiniteCMDP, columns: dict[str, Table]) -> FiniteCMDP:
    return replace(cmdp, columns=cmdp.columns | columns)


def remember(cmdp: FiniteCMDP, column: str, happened: Bool[np.ndarray, "S A"]) -> FiniteCMDP:
    """The same CMDP with every state twice, before the event and after it; the column pays before it only."""
    states = len(cmdp.initial)
    happened = np.tile(happened, (states // len(happened), 1)).ravel()
    stay, leave = (csr_array(diags_array(1.0 * part) @ cmdp.transitions) for part in (~happened, happened))
    twice = {name: np.tile(table, (2, 1)) for name, table in cmdp.columns.items()}
    twice[column] = np.concatenate([cmdp.columns[column], np.zeros_like(cmdp.reward)])
    return FiniteCMDP(
        transitions=csr_array(block_array([[stay, leave], [None, cmdp.transitions]])),
        reward=np.tile(cmdp.reward, (2, 1)),
        columns=twice,
        initial=np.concatenate([cmdp.initial, np.zeros(states)]),
        outcomes={name: np.tile(table, (2, 1)) for name, table in cmdp.outcomes.items()},
    )


def times(cmdp: FiniteCMDP) -> Int[np.ndarray, " S"] | None:
    """After how many steps each state is reached, whatever is done; None where that is not one number."""
    states, actions = cmdp.reward.shape
    time = np.where(cmdp.initial > 0, 0, -1)
    newest = time == 0
    for step in range(1, states + 1):
        rows = cmdp.transitions[np.flatnonzero(np.repeat(newest, actions))]
        newest = np.asarray(rows.sum(axis=0)).ravel() > 0
        if not newest.any():
            return np.maximum(time, 0)
        if (time[newest] >= 0).any():
            return None
        time[newest] = step
    return None


def values(
    cmdp: FiniteCMDP, policy: Table, constraints: Sequence[Constraint], cap: int | None
) -> tuple[float | None, ...]:
    """The exact value of each constraint under a policy; None where it is not known exactly."""
    return tuple(_value(cmdp, policy, constraint, cap) for constraint in constraints)


def _value(cmdp: FiniteCMDP, policy: Table, constraint: Constraint, cap: int | None) -> float | None:
    functional = constraint.functional
    if constraint.cost is not None or not isinstance(functional, Sum | Probability | Discounted):
        return None
    if isinstance(functional, Discounted):
        tables = with_columns(cmdp, {constraint.quantity: paid(cmdp, constraint)})
        return exact.evaluate(tables, policy, cap, functional.discount).values[constraint.quantity]
    tables, _ = as_bounds(cmdp, [constraint])
    twice = np.tile(policy, (len(tables.initial) // len(policy), 1))
    return exact.evaluate(tables, twice, cap).values[constraint.quantity]
