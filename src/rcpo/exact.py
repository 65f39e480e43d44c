"""The exact truth about a finite constrained Markov decision process (CMDP): its optimum, and what a policy is worth.

Only numpy and scipy. The optimum is a linear program over occupancies (Altman, Constrained Markov Decision Processes,
1999), where the expected total of anything is linear, so that the best policy under bounds is found without learning.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Final, final

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import linprog
from scipy.sparse import csr_array, diags_array, kron

from rcpo.chains import closure, visits_with_cap, visits_without_cap
from rcpo.errors import UsageError, nearest

ROUNDING: Final = 1e-12
"""What a row of `transitions` may lack to 1 by rounding alone: a rarer ending must be a named outcome to count."""
TOLERANCE: Final = 1e-10
"""Primal and dual feasibility tolerance of the linear program; HiGHS takes no smaller one."""
SEEN: Final = 1e-9
"""Occupancies below this are the linear program's noise, and are not read into a policy."""


@final
@dataclass(frozen=True, eq=False)
class FiniteCMDP:
    """A finite CMDP with S states and A actions, as tables; rewards and columns are expectations of one step."""

    transitions: csr_array
    """[S*A, S], row s*A+a; what the row lacks to 1 is the probability that the episode ends in this step."""
    reward: Float[np.ndarray, "S A"]
    columns: dict[str, Float[np.ndarray, "S A"]]
    """What bounds are put on, by name. For P(c) of an event that ends the episode: the probability of the event."""
    initial: Float[np.ndarray, " S"]
    outcomes: dict[str, Float[np.ndarray, "S A"]] = field(default_factory=dict)
    """Probability that the step ends the episode in a named way (`goal`)."""

    def __post_init__(self) -> None:
        _check_cmdp(self)

    @property
    def ending(self) -> Float[np.ndarray, "S A"]:
        """Probability that the episode ends in this step, whatever the outcome."""
        lacking = 1.0 - self.transitions.sum(axis=1).reshape(self.reward.shape)
        return np.maximum(np.where(lacking < ROUNDING, 0.0, lacking), sum(self.outcomes.values()))


@final
@dataclass(frozen=True)
class Bound:
    """One linear constraint: sum_{s,a} x(s,a) column(s,a) <= limit, or >= limit; x is the occupancy."""

    column: str
    limit: float
    at_least: bool = False
    name: str = ""
    """The text of the constraint, for messages; the column and its limit when empty."""

    def __str__(self) -> str:
        return self.name or f"{self.column} {'>=' if self.at_least else '<='} {self.limit:g}"


@final
@dataclass(frozen=True, eq=False)
class Optimum:
    """The best policy under bounds. `feasible` is False also when no best one exists; then `message` says so."""

    feasible: bool
    reward: float
    """nan when infeasible, inf when there is no largest reward."""
    steps: float
    """Expected steps of an episode, not discounted; inf when a discounted optimum may go on for ever."""
    values: tuple[float, ...]
    multipliers: tuple[float, ...]
    """Derivative of the best reward with respect to slackening each limit (one-sided at a kink); never negative."""
    outcomes: dict[str, float]
    policy: Float[np.ndarray, "S A"]
    message: str


@final
@dataclass(frozen=True)
class ExactValue:
    """What a policy is worth. Reward and values are discounted; steps and outcomes are facts of the episode, not."""

    reward: float
    steps: float
    values: dict[str, float]
    outcomes: dict[str, float]
    truncated: float
    """Probability that the cap cuts the episode."""
    steps_given: dict[str, float]
    """Expected steps of the episodes that end with this outcome; nan when none do."""
    terminates: bool
    """False when, without a cap, the episode may go on for ever, or when that is beyond what numbers can tell."""


def solve(cmdp: FiniteCMDP, bounds: Sequence[Bound], discount: float = 1.0) -> Optimum:
    """The largest expected reward of any policy, randomised ones included, that keeps every bound.

    With x(s,a) = E sum_t discount^t 1{s_t = s, a_t = a}:  max_x sum x r  subject to  sum x c_k <= limit_k,  x >= 0,
    sum_a x(s,a) - discount sum_{s',a'} x(s',a') P(s | s',a') = initial(s). At discount 1 the maximum is over the
    policies that end their episodes with probability one. The numbers are those of the returned policy, evaluated.
    """
    _check_discount(discount)
    for bound in bounds:
        _check_bound(cmdp, bound)
    allowed = _ending_actions(cmdp) if discount == 1.0 else np.ones(cmdp.reward.shape, dtype=bool)
    stuck = np.flatnonzero((cmdp.initial > 0) & ~allowed.any(axis=1))
    if stuck.size:
        message = f"no policy is sure to end an episode that starts in state {stuck[0]}, so its totals are not finite"
        return _no_optimum(cmdp, bounds, f"{message}; give a discount below 1 or let those episodes end")
    program = _program(cmdp, allowed, discount)
    sign = np.array([-1.0 if bound.at_least else 1.0 for bound in bounds])
    rows = np.array([cmdp.columns[bound.column].ravel() for bound in bounds]).reshape(len(bounds), cmdp.reward.size)
    limits = np.array([bound.limit for bound in bounds], dtype=float)
    found = _maximise(program, cmdp.reward.ravel(), sign[:, None] * rows, sign * limits)
    # Limits far below the solver's tolerance make it give up instead of saying that they are infeasible.
    if found.status == 2 or (found.status == 4 and _unreachable(program, bounds, rows)):
        return _no_optimum(cmdp, bounds, _why_infeasible(program, bounds, rows, discount))
    if found.status == 3:
        return _no_optimum(cmdp, bounds, "the reward has no upper limit: a loop pays a positive reward", np.inf)
    if found.status != 0:
        return _no_optimum(cmdp, bounds, f"the linear program could not be solved: {found.message}")
    slopes = np.maximum(0.0, -found.ineqlin.marginals) if len(bounds) else np.empty(0)
    policy = _policy(cmdp, program, found.x, cmdp.reward.ravel() - (slopes * sign) @ rows, allowed)
    value = evaluate(cmdp, policy, None, discount)
    values = tuple(value.values[bound.column] for bound in bounds)
    kept = np.all(sign * (np.array(values) - limits) <= 1e-6 * (1.0 + np.abs(limits)))
    if not (kept and abs(value.reward + found.fun) <= 1e-6 * (1.0 + abs(found.fun))):
        message = f"the best reward, {-found.fun:.6g}, was found only as a limit, by staying ever longer in a free loop"
        return _no_optimum(cmdp, bounds, f"{message}; give a discount below 1 or let every step cost a little")
    return Optimum(
        feasible=True,
        reward=value.reward,
        steps=value.steps,
        values=values,
        multipliers=tuple(slopes.tolist()),
        outcomes=value.outcomes,
        policy=policy,
        message="the policy is optimal and keeps every bound" if len(bounds) else "the policy is optimal",
    )


def evaluate(cmdp: FiniteCMDP, policy: Float[np.ndarray, "S A"], cap: int | None, discount: float = 1.0) -> ExactValue:
    """The exact value of a policy: what the mean of infinitely many sampled episodes would be.

    With a cap, of episodes cut after that many steps; one that ends in its last step is terminated, not truncated.
    Without, of whole episodes: visits x = initial (I - P)^-1, and E[T 1{outcome}] from y = x (I - P)^-1.
    If the policy may go on for ever, what grows without limit is inf (nan where it has both signs), the rest exact.
    """
    _check_discount(discount)
    policy = _checked_policy(cmdp, policy)
    moves = _moves(cmdp, policy)
    ending = (policy * cmdp.ending).sum(axis=1)
    if cap is None:
        visits = visits_without_cap(moves, ending, cmdp.initial, discount)
    elif isinstance(cap, int | np.integer) and cap >= 1:
        visits = visits_with_cap(moves, cmdp.initial, int(cap), discount)
    else:
        raise UsageError(f"the cap is {cap!r}; give a whole number of steps, at least 1, or None for no cap")

    def total(weights: Float[np.ndarray, " S"], table: Float[np.ndarray, "S A"]) -> float:
        mean = (policy * table).sum(axis=1)
        counted = mean != 0  # never infinitely many visits times nothing
        with np.errstate(invalid="ignore", over="ignore"):
            return float((weights[counted] * mean[counted]).sum())

    outcomes = {name: total(visits.plain, table) for name, table in cmdp.outcomes.items()}
    moments = {name: total(visits.moment, table) for name, table in cmdp.outcomes.items()}
    with np.errstate(over="ignore"):
        steps = float(visits.plain.sum())
    return ExactValue(
        reward=total(visits.discounted, cmdp.reward),
        steps=steps,
        values={name: total(visits.discounted, table) for name, table in cmdp.columns.items()},
        outcomes=outcomes,
        truncated=visits.truncated,
        steps_given={name: moments[name] / outcomes[name] if outcomes[name] else np.nan for name in outcomes},
        terminates=bool(np.isfinite(steps)),
    )


def mixture(values: Sequence[ExactValue], weights: Sequence[float] | Float[np.ndarray, " N"]) -> ExactValue:
    """The value of drawing one of N policies, with these probabilities, at the start of each episode.

    Everything is linear in the weights, but E[steps | outcome], which weighs each policy by its share of the outcome.
    """
    share = np.asarray(weights, dtype=float)
    if share.shape != (len(values),) or not (np.all(share >= 0) and abs(share.sum() - 1.0) <= 1e-6):
        raise UsageError(f"the mixture's weights are {weights}; give {len(values)} probabilities that sum to 1")
    if len({(frozenset(value.values), frozenset(value.outcomes)) for value in values}) != 1:
        raise UsageError("the mixture's values name different columns or outcomes; evaluate them in one CMDP")
    used = [value for value, weight in zip(values, share, strict=True) if weight > 0]  # 0 * inf is nan
    share = share[share > 0] / share.sum()

    def linear(numbers: Sequence[float]) -> float:
        return float(share @ np.asarray(numbers))

    steps_given = {}
    for name in values[0].outcomes:
        ended = share * np.array([value.outcomes[name] for value in used])
        given = np.array([value.steps_given[name] for value in used])
        steps_given[name] = float(ended[ended > 0] @ given[ended > 0] / ended.sum()) if ended.any() else np.nan
    return ExactValue(
        reward=linear([value.reward for value in used]),
        steps=linear([value.steps for value in used]),
        values={name: linear([value.values[name] for value in used]) for name in values[0].values},
        outcomes={name: linear([value.outcomes[name] for value in used]) for name in values[0].outcomes},
        truncated=linear([value.truncated for value in used]),
        steps_given=steps_given,
        terminates=all(value.terminates for value in used),
    )


def _moves(cmdp: FiniteCMDP, policy: Float[np.ndarray, "S A"]) -> csr_array:
    """[S, S]: P(s' | s) = sum_a policy(s,a) P(s' | s,a)."""
    n_states, n_actions = policy.shape
    starts = np.arange(n_states + 1) * n_actions
    choice = csr_array((policy.ravel(), np.arange(policy.size), starts), shape=(n_states, policy.size))
    moves = csr_array(choice @ cmdp.transitions)
    moves.eliminate_zeros()
    return moves


@final
@dataclass(frozen=True, eq=False)
class _Program:
    """The occupancies that some policy has: flow @ x = start, x >= 0, over the state-action pairs worth a variable."""

    pairs: Int[np.ndarray, " V"]
    flow: csr_array
    start: Float[np.ndarray, " R"]


def _ending_actions(cmdp: FiniteCMDP) -> Bool[np.ndarray, "S A"]:
    """Actions after which the episode can still be made to end with probability one: a greatest fixed point."""
    allowed = np.ones(cmdp.reward.shape, dtype=bool)
    while True:
        able = closure(_moves(cmdp, allowed.astype(float)), np.any(allowed & (cmdp.ending > 0), axis=1))
        risks = (cmdp.transitions @ (~able).astype(float) > 0).reshape(allowed.shape)
        kept = allowed & ~risks & able[:, None]
        if np.array_equal(kept, allowed):
            return kept
        allowed = kept


def _program(cmdp: FiniteCMDP, allowed: Bool[np.ndarray, "S A"], discount: float) -> _Program:
    """Only reached states count: a loop apart from them could otherwise hold any occupancy at no cost."""
    n_states, n_actions = allowed.shape
    reached = closure(csr_array(_moves(cmdp, allowed.astype(float)).T), cmdp.initial > 0)
    pairs = np.flatnonzero(allowed & reached[:, None])
    leave = csr_array(kron(diags_array(np.ones(n_states)), np.ones((n_actions, 1))))
    flow = (leave - discount * cmdp.transitions)[pairs][:, np.flatnonzero(reached)]
    return _Program(pairs, csr_array(flow.T), cmdp.initial[reached])


def _maximise(
    program: _Program,
    objective: Float[np.ndarray, " SA"],
    rows: Float[np.ndarray, "K SA"],
    limits: Float[np.ndarray, " K"],
) -> Any:
    """scipy's result of: maximise objective . x subject to rows @ x <= limits over the program's occupancies."""
    return linprog(
        -objective[program.pairs],
        A_ub=csr_array(rows[:, program.pairs]) if len(limits) else None,
        b_ub=limits if len(limits) else None,
        A_eq=program.flow,
        b_eq=program.start,
        method="highs",
        options={"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE},
    )


def _policy(
    cmdp: FiniteCMDP,
    program: _Program,
    occupancy: Float[np.ndarray, " V"],
    penalised: Float[np.ndarray, " SA"],
    allowed: Bool[np.ndarray, "S A"],
) -> Float[np.ndarray, "S A"]:
    """policy(a | s) = x(s,a) / x(s), uniform where the policy never comes.

    The linear program drops states that are visited more rarely than its tolerance, which would be seen in the bounds:
    there the policy is the best one for the penalised reward r - lambda . c, found from a start in every state.
    """
    everywhere = replace(program, start=np.full(len(program.start), 1.0 / len(program.start)))
    found = _maximise(everywhere, penalised, np.empty((0, penalised.size)), np.empty(0))
    weights = np.where(allowed.any(axis=1, keepdims=True), allowed, True).astype(float)
    for visits in (found.x if found.status == 0 else np.zeros_like(occupancy), occupancy):
        table = np.zeros(cmdp.reward.shape)
        table.flat[program.pairs] = visits
        table[table < SEEN] = 0.0  # the negative ones too
        weights = np.where(table.sum(axis=1, keepdims=True) > 0, table, weights)
    policy = weights / weights.sum(axis=1, keepdims=True)
    visited = closure(csr_array(_moves(cmdp, policy).T), cmdp.initial > 0)
    return np.where(visited[:, None], policy, 1.0 / policy.shape[1])


def _reach(program: _Program, bound: Bound, row: Float[np.ndarray, " SA"]) -> float:
    """The value nearest to the bound's safe side that any policy reaches."""
    sign = -1.0 if bound.at_least else 1.0
    found = _maximise(program, -sign * row, np.empty((0, row.size)), np.empty(0))
    return float(sign * found.fun if found.status == 0 else -sign * np.inf)


def _unreachable(program: _Program, bounds: Sequence[Bound], rows: Float[np.ndarray, "K SA"]) -> bool:
    """Whether some bound cannot be met even alone."""
    best = [_reach(program, bound, row) for bound, row in zip(bounds, rows, strict=True)]
    return any(b < bound.limit if bound.at_least else b > bound.limit for b, bound in zip(best, bounds, strict=True))


def _why_infeasible(
    program: _Program, bounds: Sequence[Bound], rows: Float[np.ndarray, "K SA"], discount: float
) -> str:
    """Which bounds no policy keeps, or that they conflict, with the best value of each bound taken alone."""
    whom = "any policy that ends its episodes" if discount == 1.0 else "any policy"
    unmet, met = [], []
    for bound, row in zip(bounds, rows, strict=True):
        sign = -1.0 if bound.at_least else 1.0
        best = _reach(program, bound, row)
        # Rounded to the side that can be reached, so that the number works as a limit; but not away from 0.25 + 1e-16.
        context = Context(5, ROUND_FLOOR if bound.at_least else ROUND_CEILING)
        rounded = float(context.create_decimal(Decimal(max(0.0, best * (1.0 - sign * ROUNDING)))))
        reach = f"the {'most' if bound.at_least else 'least'} that {whom} reaches is {rounded:g}"
        if len(bounds) == 1 or sign * (best - bound.limit) > TOLERANCE * (1.0 + abs(bound.limit)):
            unmet.append(f"{bound} cannot be met: {reach}")
        else:
            met.append(f"{bound} alone can be met: {reach}")
    if unmet:
        return "; ".join(unmet + met)
    return f"the bounds conflict, no policy keeps all of them at once; {'; '.join(met)}"


def _no_optimum(cmdp: FiniteCMDP, bounds: Sequence[Bound], message: str, reward: float = np.nan) -> Optimum:
    return Optimum(
        feasible=False,
        reward=reward,
        steps=np.nan,
        values=(np.nan,) * len(bounds),
        multipliers=(np.nan,) * len(bounds),
        outcomes=dict.fromkeys(cmdp.outcomes, np.nan),
        policy=np.full(cmdp.reward.shape, 1.0 / cmdp.reward.shape[1]),
        message=message,
    )


def _check_cmdp(cmdp: FiniteCMDP) -> None:
    if cmdp.reward.ndim != 2 or not cmdp.reward.size:
        raise UsageError(f"the reward has shape {cmdp.reward.shape}; give [states, actions], at least one of each")
    shape = n_states, n_actions = cmdp.reward.shape
    if not isinstance(cmdp.transitions, csr_array) or cmdp.transitions.dtype != np.float64:
        kind = f"{type(cmdp.transitions).__name__} of {getattr(cmdp.transitions, 'dtype', 'objects')}"
        raise UsageError(f"the transitions are a {kind}; give a scipy.sparse.csr_array of float64")
    tables = {f"column {name!r}": table for name, table in cmdp.columns.items()}
    tables |= {f"outcome {name!r}": table for name, table in cmdp.outcomes.items()}
    wanted: dict[str, tuple[Any, tuple[int, ...]]] = {
        "transitions": (cmdp.transitions, (n_states * n_actions, n_states)),
        "initial": (cmdp.initial, (n_states,)),
        "reward": (cmdp.reward, shape),
        **{name: (table, shape) for name, table in tables.items()},
    }
    for name, (table, size) in wanted.items():
        if table.shape != size:
            raise UsageError(f"the {name} has shape {table.shape}; the reward's {shape} asks for {size}")
        entries = table.data if name == "transitions" else table
        wrong = entries[~np.isfinite(entries) | ((entries < 0) & (name != "reward"))]
        if wrong.size:
            kind = "finite numbers" if name == "reward" else "finite numbers that are not negative"
            raise UsageError(f"the {name} holds {wrong[0]}; give {kind}")
    if abs(cmdp.initial.sum() - 1.0) > 1e-9:
        raise UsageError(f"the initial probabilities sum to {cmdp.initial.sum():.12g}; make them sum to 1")
    spent = cmdp.transitions.sum(axis=1).reshape(shape) + sum(cmdp.outcomes.values())
    if spent.max() > 1.0 + ROUNDING:
        state, action = np.unravel_index(spent.argmax(), shape)
        raise UsageError(
            f"the transitions and outcomes of state {state}, action {action} sum to {spent.max():.12g}; "
            "give at most 1 (an outcome is part of what the row of transitions lacks)"
        )


def _check_bound(cmdp: FiniteCMDP, bound: Bound) -> None:
    if bound.column not in cmdp.columns:
        hint = nearest(bound.column, cmdp.columns) if cmdp.columns else "; this environment has no columns"
        raise UsageError(f"the bound {str(bound)!r} is on {bound.column!r}, which is not a column{hint}")
    if not np.isfinite(bound.limit):
        raise UsageError(f"the limit of {str(bound)!r} is {bound.limit}; give a finite number")


def _check_discount(discount: float) -> None:
    if not 0.0 < discount <= 1.0:
        raise UsageError(f"the discount is {discount}; give a number above 0 and at most 1")


def _checked_policy(cmdp: FiniteCMDP, policy: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
    """The policy in double precision, its rows made to sum to 1: a network's are off by what would end episodes."""
    if policy.shape != cmdp.reward.shape:
        raise UsageError(f"the policy has shape {policy.shape}; give {cmdp.reward.shape}, one row for each state")
    sums = policy.sum(axis=1, keepdims=True, dtype=float)
    wrong = np.flatnonzero(~(np.all(policy >= 0, axis=1) & (np.abs(sums[:, 0] - 1.0) <= 1e-4)))
    if wrong.size:
        got = policy[wrong[0]].tolist()
        raise UsageError(f"the policy in state {wrong[0]} is {got}; give probabilities that sum to 1")
    return policy / sums
