"""The grid world of the paper's first domain as plain tables: the map, where each move leads, what is seen.

Only numpy: the JAX environment, the Gymnasium environment and the exact solver all read the same tables.
"""

from collections import deque
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from rcpo.errors import UsageError
from rcpo.files import plain_bytes

FREE, START, GOAL, ROCK, WALL = ".", "S", "G", "#", "W"
MOVES: Final = ((-1, 0), (0, 1), (1, 0), (0, -1))
MOVE_NAMES: Final = ("up", "right", "down", "left")
SMALLEST_SIDE: Final = 17
"""The paper's three convolutions need 17 cells a side; what is seen of a smaller map is framed by more wall."""
MOST_CELLS: Final = 10_000
"""What is seen of all states together grows with the square of the number of cells: 400 MB at this size."""
LARGEST_MAP: Final = 2**20
"""Bytes, comments included."""
SEEN: Final = {FREE: 0.0, START: 0.0, GOAL: 0.05, ROCK: -0.05, WALL: -0.1}
ROVER_SEEN: Final = 1.0
"""The rover stands out: it alone changes from state to state, and a network must tell its cells apart. With rocks and
walls as bright as the rover, the critic's error is twice as large and shorter routes stay undiscovered."""


@dataclass(frozen=True)
class GridMap:
    """A parsed map. States are the cells that are not wall, numbered row by row."""

    cells: tuple[str, ...]
    positions: Int[np.ndarray, "S 2"]
    start: int
    goal: Bool[np.ndarray, " S"]
    rock: Bool[np.ndarray, " S"]
    next_state: Int[np.ndarray, "S 4"]
    """Where each move leads when the rover does not slip; a move into a wall stays in place."""

    @property
    def terminal(self) -> Bool[np.ndarray, " S"]:
        return self.goal | self.rock

    def observations(self) -> Float[np.ndarray, "S 1 H W"]:
        """What the agent sees in each state: the whole grid in one channel, the rover drawn in."""
        background = np.array([[SEEN[cell] for cell in row] for row in self.cells], dtype=np.float32)
        lacking = [max(0, SMALLEST_SIDE - side) for side in background.shape]
        background = np.pad(background, [(0, extra) for extra in lacking], constant_values=SEEN[WALL])
        seen = np.repeat(background[None, None], len(self.positions), axis=0)
        seen[np.arange(len(seen)), 0, self.positions[:, 0], self.positions[:, 1]] = ROVER_SEEN
        return seen


def read_map(path: str | None) -> GridMap:
    """Read a map from a file, or the paper's map when `path` is None."""
    if path is None:
        return parse_map(
            resources.files("rcpo.data").joinpath("mars_rover.txt").read_text(encoding="utf-8"), "mars_rover.txt"
        )
    try:
        return parse_map(plain_bytes(Path(path), LARGEST_MAP).decode("utf-8-sig"), path)
    except UsageError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise UsageError(f"cannot read the map {path!r}: {reason}; give an ASCII map file") from None


def parse_map(text: str, name: str) -> GridMap:
    """Parse an ASCII map: `S` start, `G` goal, `#` rock, `W` wall, `.` free; `# ` begins a comment."""
    rows = _rows(text, name)
    flat = "".join(rows)
    if flat.count(START) != 1:
        raise UsageError(f"the map {name!r} has {flat.count(START)} starts; mark exactly one cell with 'S'")
    if GOAL not in flat:
        raise UsageError(f"the map {name!r} has no goal; mark at least one cell with 'G'")
    positions = [(y, x) for y, row in enumerate(rows) for x, cell in enumerate(row) if cell != WALL]
    index = {position: state for state, position in enumerate(positions)}
    next_state = [[index.get((y + dy, x + dx), index[y, x]) for dy, dx in MOVES] for y, x in positions]
    kinds = np.array([rows[y][x] for y, x in positions])
    grid = GridMap(
        cells=rows,
        positions=np.array(positions, dtype=np.int32),
        start=int(np.flatnonzero(kinds == START)[0]),
        goal=kinds == GOAL,
        rock=kinds == ROCK,
        next_state=np.array(next_state, dtype=np.int32),
    )
    if not _goal_reachable(grid):
        raise UsageError(f"the map {name!r} has no way from 'S' to 'G' around its rocks and walls; open one")
    return grid


def _rows(text: str, name: str) -> tuple[str, ...]:
    allowed = {FREE, START, GOAL, ROCK, WALL}
    rows: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        row = line.strip()
        # A comment starts with '# ': a rock at the left edge is followed by another cell, never by a space.
        if row in ("", ROCK) or row.startswith("# "):
            continue
        if wrong := set(row) - allowed:
            got = ", ".join(repr(symbol) for symbol in sorted(wrong)[:3])
            raise UsageError(f"the map {name!r} has {got} in line {number}; a cell is one of S G # W .")
        if rows and len(row) != len(rows[0]):
            raise UsageError(f"the map {name!r} has {len(row)} cells in line {number} but {len(rows[0])} in its "
                             "first row; make all rows equally long")  # fmt: skip
        rows.append(row)
    if not rows:
        raise UsageError(f"the map {name!r} is empty; draw it with S (start), G (goal), # (rock), W (wall) and .")
    if len(rows) * len(rows[0]) > MOST_CELLS:
        raise UsageError(
            f"the map {name!r} has {len(rows)} x {len(rows[0])} cells; at most {MOST_CELLS} can be handled"
        )
    return tuple(rows)


def _goal_reachable(grid: GridMap) -> bool:
    queue, seen = deque([grid.start]), {grid.start}
    while queue:
        state = queue.popleft()
        if grid.goal[state]:
            return True
        for following in grid.next_state[state]:
            if int(following) not in seen and not grid.rock[following]:
                seen.add(int(following))
                queue.append(int(following))
    return False
