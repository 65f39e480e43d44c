"""The live view: what it says, and that it fits into narrow terminals."""

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from rcpo.constraints import parse
from rcpo.live import BLOCKS, View, draw, duration, short, sparkline

LIMITS = (parse("P(crash) <= 0.01"), parse("discounted(speed, 0.99) >= 12.5"))


def record(steps: int, reward: float | None, crash: float | None, multiplier: float) -> dict[str, Any]:
    made: dict[str, Any] = {"steps": steps, "reward/episode": reward, "time/steps_per_second": 1_234_567.0}
    for limit, value in zip(LIMITS, (crash, 20.0), strict=True):
        made |= {f"constraint/{limit.quantity}/value": value, f"constraint/{limit.quantity}/multiplier": multiplier}
    return made


def seen(width: int, records: list[dict[str, Any]], elapsed: float = 50.0, since: float = 0.0) -> list[str]:
    """The lines of the view on a terminal of this width."""
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system="standard", highlight=False)
    with console.capture() as capture:
        console.print(draw(records, LIMITS, 4e6, elapsed, since, width))
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in capture.get().splitlines()]


def test_a_wide_terminal_shows_all_in_a_line_each() -> None:
    bar, pace, reward, crash, speed = seen(80, [record(10**6, -3.25, 0.5, 1.0), record(2 * 10**6, -2.0, 0.02, 2.5)])
    assert cell_len(bar) == 80
    assert "50%  2M of 4M steps  1.23M/s  50 s left" in pace  # half of the way took 50 s
    assert reward.startswith("reward -2  ") and reward.rstrip().endswith(BLOCKS[0] + BLOCKS[-1])
    assert "P(crash) 0.02 <= 0.01 broken" in crash and "multiplier 2.5" in crash
    assert "discounted(speed, 0.99) 20 >= 12.5 kept" in speed


@pytest.mark.parametrize("width", [20, 40, 59, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = seen(width, [record(1000 * i, -i / 7, i / 100, i / 3) for i in range(1, 100)])
    assert max(map(cell_len, lines)) <= width
    assert len(lines) == 3 + len(LIMITS) * (2 if width < 60 else 1)  # nothing is wrapped
    text = "\n".join(lines)
    if width >= 40:
        assert "multiplier 33" in text and "P(crash) 0.99" in text and "99k of 4M" in text


def test_before_the_first_episode_and_before_the_first_record() -> None:
    text = "\n".join(seen(80, [record(10, None, None, 0.0)]))
    assert "reward no episode yet" in text and "P(crash) <= 0.01 no episode yet" in text
    assert seen(80, [], elapsed=75.0) == ["compiling and taking the first steps, 1:15"]


def test_the_time_left_goes_on_between_two_records() -> None:
    assert "30 s left" in seen(80, [record(2 * 10**6, 0.0, 0.0, 0.0)], elapsed=70.0, since=20.0)[1]
    assert " 0 s left" in seen(80, [record(2 * 10**6, 0.0, 0.0, 0.0)], elapsed=150.0, since=100.0)[1]


def test_a_sparkline_by_hand() -> None:
    assert sparkline([0.0, 7.0, None, 3.5], 10) == BLOCKS[0] + BLOCKS[7] + " " + BLOCKS[4]
    assert sparkline([5.0, 5.0], 10) == BLOCKS[0] * 2
    assert sparkline([1.0, 2.0, 3.0], 2) == BLOCKS[0] + BLOCKS[7]
    assert sparkline([None], 10) == "" and sparkline([1.0], 0) == "" and sparkline([1.0], -3) == ""


@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), max_size=40), st.integers(-5, 60))
def test_a_sparkline_keeps_to_its_room(values: list[float | None], room: int) -> None:
    assert len(sparkline(values, room)) <= max(room, 0)


def test_numbers_for_people() -> None:
    assert [short(value) for value in (0, 999, 1500, 12_345_678, 2e9)] == ["0", "999", "1.5k", "12.3M", "2G"]
    assert [duration(s) for s in (0.2, 59.4, 60, 3599, 3723)] == ["0 s", "59 s", "1:00", "59:59", "1:02:03"]


def test_the_view_collects_what_it_is_given() -> None:
    view = View(LIMITS, 4e6)
    console = Console(width=60, file=io.StringIO())
    with console.capture() as capture:
        console.print(view)
        view.add(record(10**6, 1.0, 0.0, 0.0))
        console.print(view)
    assert "compiling" in capture.get() and "25%" in capture.get()
