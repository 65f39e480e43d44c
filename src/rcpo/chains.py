"""How often a finite Markov chain visits each state before it ends: the arrays behind `exact.evaluate`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import csc_array, csr_array, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

SETTLED: Final = 1e-9
"""Largest error of a probability that is known to be 1 for which a sparse solution is believed."""
DENSE: Final = 2000
"""Most states for which the slower elimination without subtraction is tried; beyond it the answer is nan."""


@final
@dataclass(frozen=True, eq=False)
class Visits:
    """Expected visits of each state: discounted, plain, and weighted by the number t = 1, 2, ... of the step."""

    discounted: Float[np.ndarray, " S"]
    plain: Float[np.ndarray, " S"]
    moment: Float[np.ndarray, " S"]
    truncated: float


def visits_with_cap(moves: csr_array, initial: Float[np.ndarray, " S"], cap: int, discount: float) -> Visits:
    back = csr_array(moves.T)
    here = initial.astype(float)
    discounted, plain, moment = (np.zeros_like(here) for _ in range(3))
    for step in range(1, cap + 1):
        discounted += discount ** (step - 1) * here
        plain += here
        moment += step * here
        here = back @ here
        if not here.any():
            break
    return Visits(discounted, plain, moment, float(here.sum()))


def visits_without_cap(
    moves: csr_array, ending: Float[np.ndarray, " S"], initial: Float[np.ndarray, " S"], discount: float
) -> Visits:
    """Finite visits by linear solves over the states that the episode leaves for good; inf where it stays for ever."""
    reached = closure(csr_array(moves.T), initial > 0)
    endless = reached & _endless(moves, ending)
    passing = np.flatnonzero(reached & ~endless)
    leaving = ending + moves @ endless.astype(float)
    solve_visits = _visit_solver(moves[passing][:, passing], leaving[passing])
    plain, moment = (np.zeros(len(initial)) for _ in range(2))
    plain[endless] = np.inf
    with np.errstate(all="ignore"):  # what overflows is inf or nan, and says so
        plain[passing] = solve_visits(initial[passing])
        moment[passing] = solve_visits(plain[passing])
    if discount == 1.0:
        return Visits(plain, plain, moment, 0.0)
    inside = np.flatnonzero(reached)
    discounted = np.zeros(len(initial))
    solve_visits = _visit_solver(discount * moves[inside][:, inside], (1.0 - discount) + discount * ending[inside])
    discounted[inside] = solve_visits(initial[inside])
    return Visits(discounted, plain, moment, 0.0)


def closure(back: csr_array, seeds: Bool[np.ndarray, " S"]) -> Bool[np.ndarray, " S"]:
    """All states connected to the seeds; row s' of `back` holds the states from which one step leads to s'."""
    while True:
        grown = seeds | (back @ seeds.astype(float) > 0)
        if np.array_equal(grown, seeds):
            return grown
        seeds = grown


def _endless(moves: csr_array, ending: Float[np.ndarray, " S"]) -> Bool[np.ndarray, " S"]:
    """States that the episode never leaves for good: the classes of mutual reach with no way out and no ending."""
    _, label = connected_components(moves, directed=True, connection="strong")
    source, target = moves.nonzero()
    way_out = np.concatenate([label[source][label[source] != label[target]], label[ending > 0]])
    return ~np.isin(label, way_out)


def _visit_solver(
    moves: csr_array, leaving: Float[np.ndarray, " S"]
) -> Callable[[Float[np.ndarray, " S"]], Float[np.ndarray, " S"]]:
    """The map start -> start (I - moves)^-1, where row s of I - moves sums to leaving(s).

    Sparse LU, believed only if it finds that every state is left with probability one; else by elimination.
    """
    if not len(leaving):
        return np.copy
    others = csr_array(moves - diags_array(moves.diagonal()))
    exits = np.asarray(others.sum(axis=1)) + leaving  # is 1 - P(s|s), without the cancellation
    try:
        factors = splu(csc_array(diags_array(exits) - others))
        if np.all(np.abs(factors.solve(leaving) - 1.0) <= SETTLED):
            return lambda start: factors.solve(start, trans="T")
    except RuntimeError:  # exactly singular in double precision
        pass
    if len(leaving) > DENSE:
        return lambda start: np.full(len(start), np.nan)
    return _elimination(others.toarray(), leaving.astype(float))


def _elimination(
    moves: Float[np.ndarray, "S S"], leaving: Float[np.ndarray, " S"]
) -> Callable[[Float[np.ndarray, " S"]], Float[np.ndarray, " S"]]:
    """Visits by removing one state after another without a subtraction (Grassmann, Taksar & Heyman 1985).

    Every number keeps its relative precision, so that an episode of 1e40 expected steps is as exact as one of ten.
    Row k of `moves` becomes where the chain goes from state k when the states above k are not watched.
    """
    exits = np.empty_like(leaving)
    for k in reversed(range(len(leaving))):
        exits[k] = leaving[k] + moves[k, :k].sum()
        share = moves[:k, k] / exits[k]
        moves[:k, :k] += share[:, None] * moves[k, :k]
        leaving[:k] += share * leaving[k]

    def visits(start: Float[np.ndarray, " S"]) -> Float[np.ndarray, " S"]:
        inflow, found = start.astype(float), np.empty_like(start, dtype=float)
        for k in reversed(range(len(start))):
            inflow[:k] += inflow[k] / exits[k] * moves[k, :k]
        for k in range(len(start)):
            found[k] = (inflow[k] + found[:k] @ moves[:k, k]) / exits[k]
        return found

    return visits
