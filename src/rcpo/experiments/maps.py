"""A policy on its map."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from rcpo.envs.grid import MOVES, WALL, GridMap
from rcpo.experiments.style import GOAL, HEAT, INK, OTHER, ROCK, START, WALLS

FIRST_LINE: Final[dict[str, Any]] = {"color": INK, "linewidth": 2.6}
OTHER_LINE: Final[dict[str, Any]] = {"color": OTHER, "linewidth": 2.4, "linestyle": (0, (2.0, 1.0))}
VISITED: Final = 1e-3
"""Cells with fewer expected visits per episode get no arrow."""


@final
@dataclass(frozen=True, eq=False)
class MapPanel:
    """What a policy does on its map."""

    grid: GridMap
    visits: Float[np.ndarray, "S A"]
    """Expected visits of each state and action in an episode."""
    paths: tuple[tuple[int, ...], ...]
    """The way that each component most likely takes, the weightiest component's first."""
    title: str
    caption: str = ""


def draw_map(axes: Axes, grid: GridMap, visits: Float[np.ndarray, "S A"], paths: Sequence[Sequence[int]]) -> AxesImage:
    """The map; where the policy is (heat), what it does there (arrows), and the way it most likely takes (line).

    Returns the heat layer, for a colour bar.
    """
    height, width = len(grid.cells), len(grid.cells[0])
    layer = np.zeros((height, width))
    layer[grid.positions[:, 0], grid.positions[:, 1]] = visits.sum(axis=1)
    # The square root lets the rare cells show too.
    heat = axes.imshow(layer, cmap=HEAT, norm=PowerNorm(0.5, vmin=0.0, vmax=1.0), interpolation="nearest")
    walls = [(y, x) for y, row in enumerate(grid.cells) for x, cell in enumerate(row) if cell == WALL]
    for y, x in walls:
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=WALLS, edgecolor=WALLS, linewidth=0.4))
    _draw_arrows(axes, grid, visits)
    for rank, path in enumerate(paths):
        _draw_path(axes, grid, path, rank)
    _draw_landmarks(axes, grid)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), xticks=[], yticks=[], aspect="equal")
    axes.grid(False)
    axes.spines[:].set_visible(False)
    return heat


def _draw_arrows(axes: Axes, grid: GridMap, visits: Float[np.ndarray, "S A"]) -> None:
    """The likeliest action of each visited state, the fainter the rarer the visits."""
    density = visits.sum(axis=1)
    shown = np.flatnonzero(density > VISITED)
    moves = np.array(MOVES)[visits[shown].argmax(axis=1)]
    strength = 1.0 - np.log10(np.minimum(density[shown], 1.0)) / np.log10(VISITED)
    colours = np.full((len(shown), 4), (0.13, 0.15, 0.18, 1.0))
    colours[:, 3] = 0.3 + 0.7 * strength
    centre = grid.positions[shown]
    axes.quiver(centre[:, 1], centre[:, 0], moves[:, 1], moves[:, 0], color=colours, angles="xy", scale_units="xy",
                scale=1.0 / 0.7, pivot="mid", units="xy", width=0.1, headwidth=4.0, headlength=3.6,
                headaxislength=3.2, zorder=2, gid="arrows")  # fmt: skip


def _draw_path(axes: Axes, grid: GridMap, path: Sequence[int], rank: int) -> None:
    y, x = grid.positions[list(path)].T
    if rank == 0:
        axes.plot(x, y, color="white", linewidth=4.6, zorder=3)
    axes.plot(x, y, zorder=3.1 + 0.1 * rank, gid=f"path/{rank}", **(OTHER_LINE if rank else FIRST_LINE))


def _draw_landmarks(axes: Axes, grid: GridMap) -> None:
    kinds = ((grid.rock, ROCK, ""), (grid.goal, GOAL, "G"), (np.arange(len(grid.goal)) == grid.start, START, "S"))
    for states, colour, letter in kinds:
        for y, x in grid.positions[states]:
            box = Rectangle((x - 0.45, y - 0.45), 0.9, 0.9, facecolor=colour, edgecolor=INK, linewidth=0.7, zorder=4)
            axes.add_patch(box)
            axes.text(x, y, letter, color="white", fontweight="bold", fontsize=8, ha="center", va="center_baseline",
                      zorder=5)  # fmt: skip


def map_legend(mixed: bool) -> list[Any]:
    """What the colours and lines of a map mean."""
    squares = [("start", START), ("goal", GOAL), ("rock", ROCK)]
    handles: list[Any] = [Patch(facecolor=colour, edgecolor=INK, linewidth=0.7, label=name) for name, colour in squares]
    handles.append(Line2D([], [], label="likeliest path", **FIRST_LINE))
    if mixed:
        handles.append(Line2D([], [], label="likeliest path of the mixture's other network", **OTHER_LINE))
    return handles
