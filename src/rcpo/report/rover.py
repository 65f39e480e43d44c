"""A policy on its map, as SVG: where it is, what it does there, the way that it most likely takes."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from rcpo.envs.grid import MOVES, WALL
from rcpo.experiments.maps import VISITED, MapPanel

TURNS: Final[dict[tuple[int, ...], int]] = {(-1, 0): 0, (0, 1): 90, (1, 0): 180, (0, -1): 270}
"""How far an arrow that points up is turned for each move."""


def map_svg(panel: MapPanel) -> str:
    """The map. Cells have the unit 1; colours are the page's own."""
    grid, density = panel.grid, panel.visits.sum(axis=1)
    height, width = len(grid.cells), len(grid.cells[0])
    walls = "".join(
        f"M{x} {y}h1v1h-1z" for y, row in enumerate(grid.cells) for x, cell in enumerate(row) if cell == WALL
    )
    # The square root lets the rare cells show too.
    heat = "".join(
        f'<rect x="{x}" y="{y}" width="1" height="1" opacity="{min(1.0, float(density[s])) ** 0.5:.2f}"/>'
        for s, (y, x) in enumerate(grid.positions)
        if density[s] > VISITED
    )
    arrows = "".join(
        f'<use href="#arrow" transform="translate({x + 0.5} {y + 0.5}) rotate({_turn(panel, s)})"/>'
        for s, (y, x) in enumerate(grid.positions)
        if density[s] > VISITED and not grid.terminal[s]
    )
    paths = "".join(_path(panel, path, rank) for rank, path in reversed(list(enumerate(panel.paths))))
    return (
        f'<figure class="map"><svg viewBox="0 0 {width} {height}" role="img" aria-label="the policy on its map">'
        f'<defs><path id="arrow" d="M0 .32V-.3M-.18 -.08L0 -.32L.18 -.08"/></defs>'
        f'<path class="walls" d="{walls}"/><g class="heat">{heat}</g><g class="arrows">{arrows}</g>{paths}'
        f'{_landmarks(panel)}</svg><figcaption>{_legend(len(panel.paths) > 1)}</figcaption></figure>\n'
    )  # fmt: skip


def _turn(panel: MapPanel, state: int) -> int:
    return TURNS[MOVES[int(panel.visits[state].argmax())]]


def _path(panel: MapPanel, path: Sequence[int], rank: int) -> str:
    places = panel.grid.positions[list(path)] + 0.5
    points = " ".join(f"{x:g},{y:g}" for y, x in places)
    return f'<polyline class="way {"other" if rank else "first"}" points="{points}"/>'


def _landmarks(panel: MapPanel) -> str:
    grid = panel.grid
    kinds = (("rock", grid.rock, ""), ("goal", grid.goal, "G"), ("start", np.arange(len(grid.goal)) == grid.start, "S"))
    return "".join(
        f'<rect class="{kind}" x="{x + 0.05}" y="{y + 0.05}" width=".9" height=".9"/>'
        + (f'<text x="{x + 0.5}" y="{y + 0.78}">{letter}</text>' if letter else "")
        for kind, states, letter in kinds
        for y, x in grid.positions[states]
    )


def _legend(mixed: bool) -> str:
    entries = [
        ("start", "start"),
        ("goal", "goal"),
        ("rock", "rock"),
        ("heat", "often there"),
        ("first", "likeliest way"),
    ]
    entries += [("other", "likeliest way of the mixture's other network")] if mixed else []
    return "".join(f'<span class="key"><i class="{kind}"></i>{words}</span>' for kind, words in entries)
