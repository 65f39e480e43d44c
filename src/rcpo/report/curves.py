"""The curves of one run: reward, what each constraint bounds with its limit, the multipliers."""

from typing import Final

import numpy as np
from jaxtyping import Float

from rcpo.health import column
from rcpo.report.saved import SavedRun, WrittenConstraint
from rcpo.report.svg import Chart, Curve, draw, stretches

FRESH: Final = "sampled"
"""What a record calls the evaluation of the present policy on fresh episodes."""


def run_charts(run: SavedRun) -> str:
    """All charts of a run, as HTML."""
    if not run.records:
        return '<p class="note">Nothing was recorded yet: the first point of the curves comes after some steps.</p>'
    charts = [reward_chart(run), *(value_chart(run, bound, look) for look, bound in enumerate(run.bounds))]
    if run.bounds:
        charts.append(multiplier_chart(run))
    return "".join(map(draw, charts))


def steps_of(run: SavedRun) -> Float[np.ndarray, " P"]:
    return column(run.records, "steps")


def reward_of(run: SavedRun) -> Float[np.ndarray, " P"]:
    """The reward of fresh episodes where the run looked at some, else that of training."""
    fresh = column(run.records, f"{FRESH}/reward")
    return fresh if np.isfinite(fresh).any() else column(run.records, "reward/episode")


def value_of(run: SavedRun, quantity: str) -> Float[np.ndarray, " P"]:
    """What is bounded, of fresh episodes where the run looked at some, else of training."""
    fresh = column(run.records, f"{FRESH}/{quantity}/value")
    return fresh if np.isfinite(fresh).any() else column(run.records, f"constraint/{quantity}/value")


def broken(run: SavedRun, bound: WrittenConstraint) -> tuple[tuple[float, float], ...]:
    """The stretches of steps in which a limit was broken."""
    steps = steps_of(run)
    beyond = np.asarray(bound.excess(value_of(run, bound.quantity))) > 0.0
    return stretches(steps, beyond, float(steps[-1]))


def reward_chart(run: SavedRun) -> Chart:
    steps, training = steps_of(run), column(run.records, "reward/episode")
    fresh = column(run.records, f"{FRESH}/reward")
    beyond = [np.asarray(bound.excess(value_of(run, bound.quantity))) > 0.0 for bound in run.bounds]
    any_broken = np.any(beyond, axis=0) if beyond else np.zeros(len(steps), dtype=bool)
    return Chart(
        "reward per episode", _fresh_and_training(steps, fresh, training, 0),
        shaded=stretches(steps, any_broken, float(steps[-1])),
    )  # fmt: skip


def value_chart(run: SavedRun, bound: WrittenConstraint, look: int) -> Chart:
    steps, quantity = steps_of(run), bound.quantity
    low, high = (column(run.records, f"{FRESH}/{quantity}/{end}") for end in ("low", "high"))
    fresh, training = (column(run.records, f"{kind}/{quantity}/value") for kind in (FRESH, "constraint"))
    curves = _fresh_and_training(steps, fresh, training, look + 1, (low, high))
    aim = column(run.records, f"constraint/{quantity}/aim")
    # In single precision the aim differs from the limit even where it is the limit.
    if (np.abs(aim - bound.limit) > 1e-6 * (1.0 + abs(bound.limit))).any():
        curves = (*curves, Curve("aimed at", steps, aim, look + 1, "dotted"))
    return Chart(quantity, curves, bound.limit, bound.at_least, broken(run, bound))


def multiplier_chart(run: SavedRun) -> Chart:
    steps = steps_of(run)
    named = len(run.bounds) > 1
    curves = tuple(
        Curve(bound.quantity if named else "multiplier", steps,
              column(run.records, f"constraint/{bound.quantity}/multiplier"), look + 1)
        for look, bound in enumerate(run.bounds)
    )  # fmt: skip
    return Chart("multipliers" if named else "multiplier", curves, from_zero=True)


def _fresh_and_training(
    steps: Float[np.ndarray, " P"],
    fresh: Float[np.ndarray, " P"],
    training: Float[np.ndarray, " P"],
    look: int,
    band: tuple[Float[np.ndarray, " P"], Float[np.ndarray, " P"]] | None = None,
) -> tuple[Curve, ...]:
    """Fresh episodes speak for the policy; where there are none, training's own do."""
    if not np.isfinite(fresh).any():
        return (Curve("episodes of training", steps, training, look),)
    return (
        Curve("episodes of training", steps, training, look, "faint"),
        Curve("fresh episodes", steps, fresh, look, band=band),
    )
