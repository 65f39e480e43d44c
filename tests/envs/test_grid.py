import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from rcpo.envs.grid import MOVE_NAMES, ROVER_SEEN, SEEN, SMALLEST_SIDE, GridMap, parse_map, read_map
from rcpo.errors import UsageError

SMALL = """
# A comment, and a rock at the left edge of the next line.
#.G
.W.
S..
"""
MOVED_BY = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}


def where(grid: GridMap, state: int) -> tuple[int, int]:
    y, x = grid.positions[state]
    return int(y), int(x)


def steps_to_goal(grid: GridMap) -> float:
    """The length of the shortest way around the rocks, by relaxing every edge until nothing changes."""
    distance = np.where(grid.goal, 0.0, np.inf)
    for _ in range(len(distance)):
        distance = np.where(grid.terminal, distance, 1.0 + distance[grid.next_state].min(axis=1))
    return float(distance[grid.start])


def check_moves(grid: GridMap) -> None:
    """Every move against the drawing itself, cell by cell."""
    seen = 0
    for y, x in itertools.product(range(len(grid.cells)), range(len(grid.cells[0]))):
        if grid.cells[y][x] == "W":
            continue
        state = seen
        seen += 1
        assert where(grid, state) == (y, x)
        assert (grid.goal[state], grid.rock[state]) == (grid.cells[y][x] == "G", grid.cells[y][x] == "#")
        for move, name in enumerate(MOVE_NAMES):
            to_y, to_x = y + MOVED_BY[name][0], x + MOVED_BY[name][1]
            inside = 0 <= to_y < len(grid.cells) and 0 <= to_x < len(grid.cells[0])
            blocked = not inside or grid.cells[to_y][to_x] == "W"
            assert where(grid, int(grid.next_state[state, move])) == ((y, x) if blocked else (to_y, to_x))
    assert seen == len(grid.positions)


def test_the_papers_map() -> None:
    grid = read_map(None)
    assert (len(grid.cells), len(grid.cells[0])) == (30, 30)
    assert len(grid.positions) == 28 * 28
    assert (grid.rock.sum(), grid.goal.sum(), grid.terminal.sum()) == (29, 1, 30)
    assert where(grid, grid.start) == (1, 1)
    assert where(grid, int(np.flatnonzero(grid.goal)[0])) == (4, 28)
    # 27 to the right and 3 down: the rocks do not force a detour, they only make the straight way risky.
    assert steps_to_goal(grid) == 30
    check_moves(grid)


def test_a_small_map_is_numbered_row_by_row_and_walls_and_edges_stop_the_rover() -> None:
    grid = parse_map(SMALL, "small")
    assert grid.cells == ("#.G", ".W.", "S..")
    assert [where(grid, state) for state in range(8)] == [
        *((0, 0), (0, 1), (0, 2)),
        *((1, 0), (1, 2)),
        *((2, 0), (2, 1), (2, 2)),
    ]
    assert grid.start == 5
    assert grid.next_state[5].tolist() == [3, 6, 5, 5]  # up, right; below and to the left the map ends
    assert grid.next_state[6].tolist() == [6, 7, 6, 5]  # above is wall
    check_moves(grid)


@given(st.lists(st.text(alphabet="..W#", min_size=4, max_size=4), min_size=2, max_size=5))
def test_the_moves_of_any_map(rows: list[str]) -> None:
    # A first column without obstacles joins the start to the goal.
    column = ["S", *"." * (len(rows) - 2), "G"]
    check_moves(parse_map("\n".join(first + row for first, row in zip(column, rows, strict=True)), "any"))


def test_what_is_seen() -> None:
    grid = read_map(None)
    seen = grid.observations()
    assert (seen.shape, seen.dtype) == ((784, 1, 30, 30), np.float32)
    for state in (0, grid.start, 400, 783):
        expected = np.array([[SEEN[cell] for cell in row] for row in grid.cells], dtype=np.float32)
        expected[where(grid, state)] = ROVER_SEEN
        np.testing.assert_array_equal(seen[state, 0], expected)
    assert len({SEEN[cell] for cell in "G#W."}) == 4  # what differs in kind looks different
    assert min(abs(ROVER_SEEN - shown) for shown in SEEN.values()) > max(abs(shown) for shown in SEEN.values())


def test_a_small_map_is_framed_by_wall() -> None:
    seen = parse_map(SMALL, "small").observations()
    assert seen.shape == (8, 1, SMALLEST_SIDE, SMALLEST_SIDE)
    rock, goal, wall = SEEN["#"], SEEN["G"], SEEN["W"]
    drawn = [[rock, 0.0, goal], [0.0, wall, ROVER_SEEN], [0.0, 0.0, 0.0]]
    np.testing.assert_array_equal(seen[4, 0, :3, :3], np.array(drawn, dtype=np.float32))
    assert np.all(seen[:, :, 3:, :] == np.float32(wall))
    assert np.all(seen[:, :, :, 3:] == np.float32(wall))


BAD_MAPS = {
    "no start": ("..G\n...", ["0 starts", "exactly one", "'S'"]),
    "two starts": ("S.G\nS..", ["2 starts", "exactly one", "'S'"]),
    "no goal": ("S..\n...", ["no goal", "'G'"]),
    "goal behind walls": ("SW.\n.WG", ["no way", "'S'", "'G'"]),
    "goal behind rocks": ("S#.\n.#G", ["no way", "'S'", "'G'"]),
    "ragged rows": ("S.G\n..", ["2 cells in line 2", "3 in its first row", "equally long"]),
    "unknown symbol": ("S.G\n.x.", ["'x'", "line 2", "S G # W ."]),
    "empty": ("", ["empty"]),
    "only comments": ("# nothing here\n\n  \n", ["empty"]),
}


@pytest.mark.parametrize("kind", BAD_MAPS)
def test_a_bad_map_is_refused_in_one_sentence(kind: str, tmp_path: Path) -> None:
    text, words = BAD_MAPS[kind]
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_map(str(path))
    sentence = str(refused.value)
    assert "bad.txt" in sentence
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


def test_a_file_that_is_no_map_is_refused_in_one_sentence(tmp_path: Path) -> None:
    binary = tmp_path / "binary.png"
    binary.write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe\x00")
    for path, reason in (
        (tmp_path / "missing.txt", "No such file"),
        (binary, "not a text file"),
        (tmp_path, "directory"),
    ):
        with pytest.raises(UsageError, match=reason) as refused:
            read_map(str(path))
        assert str(path) in str(refused.value)
        assert "\n" not in str(refused.value)
        # The user gets a sentence, not the chain of causes.
        assert refused.value.__suppress_context__


def test_the_tests_check_shapes() -> None:
    """Every other test relies on it: see conftest.py."""
    grid = parse_map(SMALL, "small")
    with pytest.raises(TypeCheckError):
        replace(grid, rock=grid.rock[:-1])
