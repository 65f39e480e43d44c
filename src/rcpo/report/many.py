"""Several runs on one page: what each of them promises, and their curves as interquartile means with bands.

Runs are compared where they are on the same environment under the same constraints; the runs of one method that differ
in their seed alone make one line.
"""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Final

import numpy as np
from jaxtyping import Float

from rcpo.experiments.stats import interquartile_band
from rcpo.health import column
from rcpo.report.card import SIGNS, table, verdict_word
from rcpo.report.curves import reward_of, steps_of, value_of
from rcpo.report.saved import SavedRun, WrittenConstraint, entries, interval
from rcpo.report.svg import Chart, Curve, draw, number, short

POINTS: Final = 120
"""How many points a compared curve has, all seeds at the same steps."""
RESAMPLES: Final = 400


def comparison(runs: Sequence[SavedRun]) -> str:
    """The table of all runs, and for each environment and set of constraints the methods side by side."""
    groups: dict[tuple[str, ...], list[SavedRun]] = {}
    for run in runs:
        groups.setdefault((run.environment, *(one.text for one in run.bounds)), []).append(run)
    return "".join(_group(environment, texts, members) for (environment, *texts), members in groups.items())


def _group(environment: str, texts: Sequence[str], runs: Sequence[SavedRun]) -> str:
    methods = by_method(runs)
    constraints = ", ".join(texts) or "no constraint"
    bounds = runs[0].bounds
    charts = [Chart("reward per episode", _lines(methods, reward_of, bounds))]
    for bound in bounds:
        curves = _lines(methods, lambda run, q=bound.quantity: value_of(run, q), (bound,))  # type: ignore[misc]
        charts.append(Chart(bound.quantity, curves, bound.limit, bound.at_least))
    for bound in bounds:
        key = f"constraint/{bound.quantity}/multiplier"
        curves = _lines(methods, lambda run, k=key: column(run.records, k), ())  # type: ignore[misc]
        charts.append(Chart(f"multiplier of {bound.quantity}", curves, from_zero=True))
    return (
        f"<section><h2>{escape(environment)}: {escape(constraints)}</h2>{_counts(methods)}{_table(runs)}"
        f'<p class="faint">Interquartile means over the seeds with 95 % bootstrap bands; thin and dashed where a limit '
        f"is broken.</p>{''.join(map(draw, charts))}</section>\n"
    )


def by_method(runs: Sequence[SavedRun]) -> dict[str, list[SavedRun]]:
    """The runs of each method; of each kind of settings, where one method was run with several."""
    kinds: dict[str, dict[str, list[SavedRun]]] = {}
    for run in runs:
        kinds.setdefault(run.method, {}).setdefault(_settings(run.config), []).append(run)
    return {
        method if len(variants) == 1 else f"{method}, settings {letter}": members
        for method, variants in kinds.items()
        for letter, members in zip(_letters(), variants.values(), strict=False)
    }


def _settings(config: Mapping[str, Any]) -> str:
    return repr(sorted((key, repr(value)) for key, value in config.items() if key != "seed"))


def _letters() -> list[str]:
    return [
        f"{first}{second}" for first in ("", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ") for second in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    ]


def _lines(
    methods: Mapping[str, Sequence[SavedRun]],
    curve_of: Callable[[SavedRun], Float[np.ndarray, " P"]],
    bounds: Sequence[WrittenConstraint],
) -> tuple[Curve, ...]:
    """A line and its band for each method; broken where the interquartile mean of a bounded value is beyond a limit."""
    curves = []
    for look, (method, runs) in enumerate(methods.items()):
        drawn = together(runs, curve_of)
        if drawn is None:
            continue
        steps, scores = drawn
        seen = interquartile_band(scores, resamples=RESAMPLES)
        invalid = np.zeros(len(steps), dtype=bool)
        for bound in bounds:
            values = together(runs, lambda run, q=bound.quantity: value_of(run, q), steps)  # type: ignore[misc]
            if values is not None:
                invalid |= np.asarray(bound.excess(interquartile_band(values[1], resamples=1).value)) > 0.0
        count = f"{method}, {len(scores)} seeds" if len(scores) > 1 else method
        band = (seen.low, seen.high) if len(scores) > 1 else None
        curves.append(Curve(count, steps, seen.value, look, band=band, invalid=invalid))
    return tuple(curves)


def together(
    runs: Sequence[SavedRun],
    curve_of: Callable[[SavedRun], Float[np.ndarray, " P"]],
    at: Float[np.ndarray, " P"] | None = None,
) -> tuple[Float[np.ndarray, " P"], Float[np.ndarray, "S P"]] | None:
    """The curves of several runs at the same steps: where all of them have something to say, straight in between."""
    found = []
    for run in runs:
        steps, values = steps_of(run), curve_of(run)
        there = np.isfinite(values)
        if there.any():
            found.append((steps[there], values[there]))
    if not found:
        return None
    first, last = max(float(steps[0]) for steps, _ in found), min(float(steps[-1]) for steps, _ in found)
    points = min(POINTS, max(len(steps) for steps, _ in found))
    grid = np.linspace(min(first, last), last, points) if at is None else at
    return grid, np.stack([np.interp(grid, steps, values) for steps, values in found])


def _counts(methods: Mapping[str, Sequence[SavedRun]]) -> str:
    """In how many runs each method keeps its promise."""
    parts = []
    for method, runs in methods.items():
        words = [verdict_word(run.verdict) for run in runs if run.verdict is not None]
        kept = words.count("satisfied")
        word = "undecided" if 0 < kept < len(words) or not words else "satisfied" if kept else "violated"
        parts.append(f'<div class="row {word}"><b>{escape(method)}</b><span class="word">satisfied in {kept} of '
                     f"{len(words)} finished run{'' if len(words) == 1 else 's'}</span></div>")  # fmt: skip
    return f'<div class="card">{"".join(parts)}</div>'


def _table(runs: Sequence[SavedRun]) -> str:
    quantities = [one.quantity for one in runs[0].bounds]
    rows = [_row(run, len(quantities)) for run in runs]
    return table(("run", "method", "seed", "steps", "verdict", *quantities, "reward"), rows, plain=False)


def _row(run: SavedRun, bounds: int) -> list[str]:
    word = verdict_word(run.verdict)
    values = [_interval(entry, "value") for entry in entries(run.verdict, "constraints")][:bounds]
    values += ["\N{EN DASH}"] * (bounds - len(values))
    reward = _interval(run.verdict["reward"], "mean") if run.verdict and "reward" in run.verdict else "\N{EN DASH}"
    said = f'<span class="{word}">{SIGNS[word]} {word}</span>' if word else escape(run.state)
    return [escape(run.folder.name), escape(run.method), escape(run.seed), short(run.steps), said, *values, reward]


def _interval(document: Any, name: str) -> str:
    value, low, high = interval(document, name)
    return f"{number(value)} <small>[{number(low)}, {number(high)}]</small>"
