"""Pictures of results. They draw what they are given; nothing is trained here.

This module imports matplotlib, so import it only where something is drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, NullLocator

from rcpo.constraints import Constraint, labels
from rcpo.envs.base import JaxEnvironment
from rcpo.envs.mars_rover import MarsRover
from rcpo.errors import UsageError
from rcpo.experiments.maps import MapPanel, draw_map, map_legend
from rcpo.experiments.routes import likely_path, occupancy
from rcpo.experiments.stats import Band, interquartile_band
from rcpo.experiments.style import CURVE_COLOURS, FAINT, INK, LAMBDA, MARKERS, MINUS, save, styled
from rcpo.loggers import Record
from rcpo.policy import Policy, action_probabilities

DASHES: Final = (0, (5.0, 3.0))
OPTIMUM_DASHES: Final = (0, (1.0, 1.5))
SMALL_FAINT: Final = 0.1
"""Probabilities are drawn on a logarithmic axis where their limit is below this."""


@final
@dataclass(frozen=True, eq=False)
class Curves:
    """Learning curves of S seeds of one method at P points."""

    label: str
    steps: Float[np.ndarray, " P"]
    reward: Float[np.ndarray, "S P"]
    value: Float[np.ndarray, "S P"]
    """What is bounded."""


@final
@dataclass(frozen=True, eq=False)
class Comparison:
    """Several methods under one limit."""

    title: str
    limit: float
    optimum: float | None
    """The best reward of any policy within the limit, where it is known."""
    curves: tuple[Curves, ...]


@final
@dataclass(frozen=True, eq=False)
class TheoryCurve:
    """One seed's multiplier and exact values at P points."""

    seed: int
    iterations: Float[np.ndarray, " P"]
    multiplier: Float[np.ndarray, " P"]
    reward: Float[np.ndarray, " P"]
    value: Float[np.ndarray, " P"]


@final
@dataclass(frozen=True)
class TheoryOptimum:
    """Where Theorem 2 says the curves go: the linear program's solution."""

    multiplier: float
    reward: float
    value: float


def map_panel(
    environment: MarsRover,
    probabilities: Float[np.ndarray, "M S A"],
    weights: Float[np.ndarray, " M"],
    title: str,
    caption: str = "",
) -> MapPanel:
    """A policy's exact visits, and the way that each of its components most likely takes."""
    cap = environment.spec.max_steps
    grid = environment.grid()
    ranked = [int(m) for m in np.argsort(-weights, kind="stable") if weights[m] > 0.0]
    paths = tuple(tuple(likely_path(grid, probabilities[m], cap)) for m in ranked)
    return MapPanel(grid, occupancy(environment.cmdp(), probabilities, weights, cap), paths, title, caption)


def map_picture(environment: JaxEnvironment, policy: Policy, path: Path, title: str) -> None:
    """One run's policy on its map."""
    if not isinstance(environment, MarsRover):
        raise UsageError(f"got {environment.spec.name}, which has no map to draw; only mars-rover has one")
    weights = np.asarray(policy.weights, dtype=np.float64)
    save(maps_figure([map_panel(environment, action_probabilities(environment, policy), weights, title)]), path)


def figure1(panels: Sequence[MapPanel]) -> Figure:
    """The paper's Figure 1: what is learned under each limit, side by side."""
    return maps_figure(panels)


@styled
def maps_figure(panels: Sequence[MapPanel]) -> Figure:
    """Policies on their maps, side by side, with one colour bar and one legend."""
    figure = Figure(figsize=(5.4 * len(panels) + 0.9, 6.4), layout="constrained")
    subplots = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, panel in zip(subplots, panels, strict=True):
        heat = draw_map(axes, panel.grid, panel.visits, panel.paths)
        axes.set_title(panel.title, fontweight="bold")
        axes.set_xlabel(panel.caption)
    bar = figure.colorbar(heat, ax=list(subplots), shrink=0.75, pad=0.02, aspect=30)
    bar.set_ticks([0.0, 0.01, 0.1, 0.25, 0.5, 1.0], labels=["0", "0.01", "0.1", "0.25", "0.5", "1+"])
    bar.set_label("expected visits per episode")
    bar.outline.set_visible(False)
    handles = map_legend(any(len(panel.paths) > 1 for panel in panels))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles) if len(panels) > 1 else 3)
    return figure


def draw_curve(
    axes: Axes,
    steps: Float[np.ndarray, " P"],
    band: Band,
    invalid: Bool[np.ndarray, " P"],
    look: int,
    label: str,
) -> None:
    """A curve with its band; bold where it is valid, faint with hollow markers where it is beyond a limit.

    `look` numbers the colour and marker. The artists' gids are `label`, `label/valid` and `label/invalid`.
    """
    colour, marker = CURVE_COLOURS[look % len(CURVE_COLOURS)], MARKERS[look % len(MARKERS)]
    size = 5.0 if len(steps) <= 60 else 3.5
    axes.fill_between(steps, band.low, band.high, color=colour, alpha=0.14, linewidth=0.0)
    axes.plot(steps, band.value, color=colour, linewidth=1.0, alpha=0.4, gid=label)
    valid_only = np.where(invalid, np.nan, band.value)
    axes.plot(steps, valid_only, color=colour, linewidth=2.2, marker=marker, markersize=size,
              markeredgewidth=0.0, gid=f"{label}/valid", label=label)  # fmt: skip
    axes.plot(steps[invalid], band.value[invalid], linestyle="none", marker=marker, markersize=size - 1.0,
              markerfacecolor="white", markeredgecolor=colour, markeredgewidth=0.8, alpha=0.6,
              gid=f"{label}/invalid")  # fmt: skip


def draw_limit(axes: Axes, limit: float, text: str) -> None:
    axes.axhline(limit, color=INK, linestyle=DASHES, linewidth=1.5, zorder=3, gid="limit", label=text)


def _invalid_handle(text: str) -> Line2D:
    return Line2D([], [], linestyle="none", marker="o", markerfacecolor="white", markeredgecolor=FAINT, label=text)


def _probability_scale(axes: Axes, limit: float) -> None:
    """Probabilities from 0 to 1: logarithmic from a tenth of the limit on where that limit is small."""
    if limit <= 0.0 or limit >= SMALL_FAINT:
        axes.set_ylim(-0.02, 1.02)
        return
    axes.set_yscale("symlog", linthresh=limit / 10.0, linscale=0.4)
    decades = [10.0**power for power in range(int(np.floor(np.log10(limit))) - 1, 1)]
    axes.yaxis.set_major_locator(FixedLocator([0.0, *decades]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(-limit / 50.0, 1.15)


def _steps_axis(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlim(left=0.0)


@styled
def figure2(comparisons: Sequence[Comparison], quantity: str = "P(crash)", cap: int = 200) -> Figure:
    """The paper's Figure 2: a column for each limit, the reward above, what is bounded below."""
    figure = Figure(figsize=(5.2 * len(comparisons), 7.4), layout="constrained")
    subplots = figure.subplots(2, len(comparisons), squeeze=False, sharex="col")
    for (top, bottom), comparison in zip(subplots.T, comparisons, strict=True):
        _draw_comparison(top, bottom, comparison)
        top.set_title(comparison.title, fontweight="bold")
        bottom.set_xlabel("environment steps")
    subplots[0, 0].set_ylabel(f"reward: {MINUS} average steps per episode")
    subplots[1, 0].set_ylabel(f"{quantity}: share of episodes that crash")
    seeds = {len(curves.reward) for comparison in comparisons for curves in comparison.curves}
    handles, labels = subplots[0, 0].get_legend_handles_labels()
    handles += [subplots[1, 0].get_legend_handles_labels()[0][-1], _invalid_handle("")]
    labels += ["limit", "hollow: above the limit, not valid"]
    figure.legend(handles, labels, loc="outside upper center", ncols=len(handles))
    many = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    figure.supxlabel(
        f"Interquartile mean of {many} seeds with its 95 % bootstrap band, from fresh episodes of the trained policy.\n"
        f"Reward: every episode counts, one that crashes with its steps up to there, one that does not end with {cap}.",
        fontsize=9,
        color="#4b5563",
    )
    return figure


def _draw_comparison(top: Axes, bottom: Axes, comparison: Comparison) -> None:
    for look, curves in enumerate(comparison.curves):
        value = interquartile_band(curves.value)
        invalid = value.value > comparison.limit
        draw_curve(top, curves.steps, interquartile_band(curves.reward), invalid, look, curves.label)
        draw_curve(bottom, curves.steps, value, invalid, look, curves.label)
    if comparison.optimum is not None:
        top.axhline(comparison.optimum, color=INK, linestyle=OPTIMUM_DASHES, linewidth=1.8, zorder=3, gid="optimum",
                    label="best possible (exact)")  # fmt: skip
    draw_limit(bottom, comparison.limit, "limit")
    _probability_scale(bottom, comparison.limit)
    for axes in (top, bottom):
        _steps_axis(axes)


@styled
def curves_picture(records: Sequence[Record], constraints: Sequence[Constraint], path: Path) -> None:
    """One run's learning curves: the reward, what each constraint bounds, and the multipliers."""
    save(curves_figure(records, constraints), path)


@styled
def curves_figure(records: Sequence[Record], constraints: Sequence[Constraint]) -> Figure:
    """One panel for the reward, one for each constraint, one for the multipliers."""
    steps = _column(records, "steps")
    names = labels(constraints)
    values = [_estimated(records, f"sampled/{name}") for name in names]
    broken = [
        np.asarray(constraint.excess(band.value) > 0.0) for constraint, band in zip(constraints, values, strict=True)
    ]
    any_broken = np.any(broken, axis=0) if broken else np.zeros(len(steps), dtype=bool)
    panels = 1 + len(constraints) + bool(constraints)
    figure = Figure(figsize=(8.4, 2.5 * panels + 0.6), layout="constrained")
    subplots = figure.subplots(panels, 1, squeeze=False, sharex=True)[:, 0]
    reward = -_column(records, "sampled/steps")
    draw_curve(subplots[0], steps, Band(reward, reward, reward), any_broken, 0, "reward")
    subplots[0].set_ylabel(f"reward:\n{MINUS} steps per episode")
    for look, (axes, constraint, band, invalid) in enumerate(
        zip(subplots[1:], constraints, values, broken, strict=False)
    ):
        draw_curve(axes, steps, band, invalid, look, constraint.quantity)
        draw_limit(axes, constraint.limit, f"limit {constraint.limit:g}")
        axes.set_ylabel(constraint.quantity)
        axes.legend(handles=[axes.get_legend_handles_labels()[0][-1], _invalid_handle("limit broken")], loc="best")
        if constraint.is_probability:
            _probability_scale(axes, constraint.limit)
    for look in range(len(constraints)):
        multiplier = _column(records, f"constraint/{names[look]}/multiplier")
        colour = CURVE_COLOURS[look % len(CURVE_COLOURS)]
        subplots[-1].plot(steps, multiplier, color=colour, linewidth=2.2, label=names[look], gid="multiplier")
        subplots[-1].set_ylabel(f"multiplier {LAMBDA}")
    if constraints:
        subplots[-1].set_ylim(0.0, max(1.08 * subplots[-1].dataLim.y1, 1e-6))
    if len(constraints) > 1:
        subplots[-1].legend()
    subplots[-1].set_xlabel("environment steps")
    _steps_axis(subplots[-1])
    return figure


def _column(records: Sequence[Record], key: str) -> Float[np.ndarray, " P"]:
    """A number of each record; nan where there is none, which leaves a gap."""
    numbers = [record.get(key) for record in records]
    return np.array([np.nan if number is None else number for number in numbers], dtype=np.float64)


def _estimated(records: Sequence[Record], key: str) -> Band:
    return Band(*(_column(records, f"{key}/{bound}") for bound in ("value", "low", "high")))


@styled
def theory(curves: Sequence[TheoryCurve], optimum: TheoryOptimum) -> Figure:
    """The multiplier and the policy's exact values on their way to the linear program's solution, one line a seed."""
    figure = Figure(figsize=(10.4, 3.9), layout="constrained")
    many = f"RCPO, {len(curves)} seeds, a line each" if len(curves) > 1 else f"RCPO, seed {curves[0].seed}"
    panels = (
        ("multiplier", f"multiplier {LAMBDA}", optimum.multiplier),
        ("value", "exact P(crash)", optimum.value),
        ("reward", "exact reward per episode", optimum.reward),
    )
    for axes, (name, text, target) in zip(figure.subplots(1, 3), panels, strict=True):
        for curve in curves:
            axes.plot(curve.iterations, getattr(curve, name), color=CURVE_COLOURS[0], linewidth=1.3, alpha=0.55,
                      gid=f"seed {curve.seed}", label="_" if curve is not curves[0] else many)  # fmt: skip
        axes.axhline(
            target,
            color=INK,
            linestyle=DASHES,
            linewidth=1.5,
            gid="optimum",
            label="exact solution (linear program)",
            zorder=3,
        )
        axes.set(xscale="log", xlabel="iteration", title=text)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles))
    return figure
