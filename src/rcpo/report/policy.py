"""What only the policy itself can show: its map and its exact values. The one place here that loads a policy."""

import math
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rcpo import envs
from rcpo.errors import UsageError
from rcpo.report.saved import SavedRun

if TYPE_CHECKING:
    from rcpo.run import Run


class Seen(NamedTuple):
    """What was found out about a policy, or why nothing was."""

    truth: dict[str, float]
    picture: str
    complaint: str


def policy_section(run: SavedRun) -> str:
    """The map with the policy, where there is one."""
    seen = _seen(run)
    if seen.complaint:
        return f'<p class="note">The policy could not be read: {escape(seen.complaint)}.</p>\n'
    return f"<section><h2>The policy on its map</h2>{seen.picture}</section>\n" if seen.picture else ""


def truth_of(run: SavedRun) -> dict[str, float]:
    """The policy's exact values by the words that the verdict card uses for them; empty where nobody knows them."""
    return _seen(run).truth


def _seen(run: SavedRun) -> Seen:
    if run.verdict is None or run.environment not in envs.FINITE:
        return Seen({}, "", "")
    from rcpo.folder import POLICY, VERDICT

    stamps = tuple((run.folder / name).stat().st_mtime_ns for name in (POLICY, VERDICT) if (run.folder / name).exists())
    return _look(run.folder, stamps)


@lru_cache(maxsize=64)
def _look(folder: Path, stamps: tuple[int, ...]) -> Seen:
    """Loading a policy takes seconds, so each is looked at once; `stamps` tell whether it is still the same one."""
    from rcpo.folder import load

    try:
        run = load(folder)
        return Seen(_truth(run), _picture(run), "")
    except UsageError as error:
        return Seen({}, "", str(error))


def _truth(run: "Run") -> dict[str, float]:
    value = run.exact()
    if value is None:
        return {}
    success = run.environment.spec.success or ""
    named = {
        "reward": value.reward,
        "steps": value.steps,
        "P(success)": value.outcomes.get(success, math.nan),
        "steps given success": value.steps_given.get(success, math.nan),
    }
    exact = zip(run.constraints, run.exact_constraints(), strict=True)
    return named | {str(constraint): known for constraint, known in exact if known is not None}


def _picture(run: "Run") -> str:
    from rcpo.envs.mars_rover import MarsRover

    if not isinstance(run.environment, MarsRover):
        return ""
    import numpy as np

    from rcpo.experiments.figures import map_panel
    from rcpo.policy import action_probabilities
    from rcpo.report.rover import map_svg

    weights = np.asarray(run.policy.weights, dtype=np.float64)
    return map_svg(map_panel(run.environment, action_probabilities(run.environment, run.policy), weights, ""))
