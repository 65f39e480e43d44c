"""Where the cost columns of somebody else's environment are found: in what it reports, or worked out by a function."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, final

import numpy as np

from rcpo.constraints import Constraint
from rcpo.errors import UsageError

_LISTED: Final = 20
"""So many keys are listed in a message at most."""


@final
class Columns:
    """The cost columns that the constraints name, each read from a place of its own.

    A column is a key of `info`, with dots for a key inside a key. `costs` says otherwise: a function
    cost(obs, action, next_obs, info) is the column `cost`, a mapping gives such a function or another key for each
    column. A step whose info lacks a column costs `missing`.
    """

    def __init__(self, constraints: tuple[Constraint, ...], costs: Any = None, missing: float | None = None):
        given = {"cost": costs} if callable(costs) else {} if costs is None else costs
        if not isinstance(given, Mapping) or not all(isinstance(v, str) or callable(v) for v in given.values()):
            raise UsageError(f"got {costs!r} as costs; give a function cost(obs, action, next_obs, info), or a mapping "
                             "of columns to functions and keys of info")  # fmt: skip
        functions = {constraint.column: constraint.cost for constraint in constraints}
        for constraint in constraints:
            if functions[constraint.column] != constraint.cost:
                raise UsageError(f"two cost functions are called {constraint.column}; give them different names")
        self.names = tuple(functions)
        self.place = tuple(self.names.index(constraint.column) for constraint in constraints)
        self._pairs = tuple((name, given.get(name, function or name)) for name, function in functions.items())
        self.called = any(callable(source) for _, source in self._pairs)
        for name in given:
            if name not in self.names:
                raise UsageError(f"costs has a column {name!r} that no constraint bounds; those of the constraints "
                                 f"are: {', '.join(self.names)}")  # fmt: skip
        self.missing = missing

    def read(self, obs: Any, action: Any, next_obs: Any, info: Mapping[str, Any]) -> dict[str, float]:
        """What one step of one environment cost, by column."""
        costs = {}
        for name, source in self._pairs:
            if callable(source):
                cost = source(obs, action, next_obs, info)
            elif source in info:
                cost = info[source]
            else:
                cost = self._elsewhere(info, name, source)
            if cost.__class__ is not float:
                cost = _number(name, cost)
            if not math.isfinite(cost):
                raise UsageError(f"got the cost {cost} in column {name!r}; a cost is a finite number")
            costs[name] = cost
        return costs

    def _elsewhere(self, info: Mapping[str, Any], name: str, source: str) -> Any:
        found = _find(info, source)
        if found is not None:
            return found[0]
        if self.missing is None:
            raise _unknown(name, info)
        return self.missing

    def read_batch(
        self, transition: tuple[Any, Any, Any], info: Mapping[str, Any], live: np.ndarray, ended: np.ndarray
    ) -> list[np.ndarray]:
        """What one step of N copies cost, an array [N] for each column; 0 where a copy is not `live`, but was reset.

        Copies that were reset within the step they `ended` in report what it cost in `final_info`.
        """
        final, costs = info.get("final_info"), []
        for name, source in self._pairs:
            if callable(source):
                cost = _batch(name, source(*transition, info), live)
            elif final is None:
                cost = self._of_copies(info, name, source, live)
            else:
                cost = self._of_copies(info, name, source, live & ~ended)
                cost = cost + self._of_copies(final, name, source, live & ended)
            if not np.isfinite(cost).all():
                raise UsageError(f"got the costs {cost} in column {name!r}; a cost is a finite number")
            costs.append(cost)
        return costs

    def _of_copies(self, info: Mapping[str, Any], name: str, source: str, wanted: np.ndarray) -> np.ndarray:
        """The costs [N] of the copies that are `wanted`, 0 for the others."""
        if not wanted.any():
            return np.zeros(len(wanted))
        found = _find(info, source)
        if found is None:
            cost, there = None, np.zeros_like(wanted)
        else:
            cost, mask = found
            there = wanted if mask is None else wanted & np.asarray(mask, bool)
        if self.missing is None and not (there == wanted).all():
            raise _unknown(name, info)
        known = np.zeros(len(wanted)) if cost is None else _batch(name, cost, there)
        return known if self.missing is None else np.where(wanted & ~there, self.missing, known)


def _find(info: Mapping[str, Any], path: str) -> tuple[Any, Any] | None:
    """What `info` has under a key, or under keys inside keys; and a vector's mask of who has it, if there is one."""
    if path in info:
        return info[path], info.get(f"_{path}")
    head, _, rest = path.partition(".")
    inside = info.get(head) if rest else None
    return _find(inside, rest) if isinstance(inside, Mapping) else None


def _unknown(name: str, info: Mapping[str, Any]) -> UsageError:
    keys = list(_keys(info))
    listed = ", ".join(keys[:_LISTED]) + (", ..." if len(keys) > _LISTED else "")
    return UsageError(f"a step's info has no cost column {name!r}, it has: {listed or 'nothing'}; say "
                      f"costs={{{name!r}: ...}} with another key or a function, or missing=0.0 if such a step costs "
                      "nothing")  # fmt: skip


def _keys(info: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Every key, dotted, without the masks of a vector environment."""
    for key, value in info.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{before}{key}.")
        elif not str(key).startswith("_"):
            yield f"{before}{key}"


def _number(name: str, cost: Any) -> float:
    if isinstance(cost, int | float | np.number | np.bool_):
        return float(cost)
    shape = getattr(cost, "shape", None)
    if shape == ():
        return float(cost)
    got = f"{cost!r}" if shape is None else f"an array of shape {tuple(shape)}"
    raise UsageError(f"got {got} in column {name!r}; a cost is one number a step")


def _batch(name: str, cost: Any, there: np.ndarray) -> np.ndarray:
    """The costs of the copies that are `there` [N], 0 for the others."""
    cost = np.asarray(cost)
    if cost.shape != there.shape:
        raise UsageError(f"got an array of shape {cost.shape} in column {name!r}; give one cost for each of the "
                         f"{len(there)} copies")  # fmt: skip
    if cost.dtype == object:
        return np.array([_number(name, one) if here else 0.0 for one, here in zip(cost, there, strict=True)])
    try:
        return np.where(there, cost, 0.0).astype(float)
    except (TypeError, ValueError):
        raise UsageError(f"got an array of {cost.dtype} in column {name!r}; a cost is one number a step") from None
