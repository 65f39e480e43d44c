"""What a terminal shows of a run on its way; it fits into 40 columns as into 200."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

from rcpo.constraints import Constraint, labels

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderResult
    from rich.text import Text

Record = dict[str, Any]
BLOCKS: Final = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
NARROW: Final = 60
"""Below so many columns a constraint takes two lines."""


@final
class View:
    """The records so far, and how they look. The terminal draws it several times a second."""

    def __init__(self, constraints: tuple[Constraint, ...], steps: float):
        self._constraints, self._steps = constraints, steps
        self._records: tuple[Record, ...] = ()
        self._started = self._heard = time.monotonic()

    def add(self, record: Record) -> None:
        # One assignment: another thread may be drawing.
        self._records, self._heard = (*self._records, record), time.monotonic()

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        now = time.monotonic()
        yield draw(self._records, self._constraints, self._steps, now - self._started, now - self._heard,
                   options.max_width)  # fmt: skip


def draw(
    records: Sequence[Record],
    constraints: Sequence[Constraint],
    steps: float,
    elapsed: float,
    since_last: float,
    width: int,
) -> "Group":
    """The bar with speed and time left; the reward; each constraint with its value, limit and multiplier."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    if not records:
        return Group(Text(f"compiling and taking the first steps, {duration(elapsed)}", style="dim"))
    last = records[-1]
    done = min(last["steps"] / steps, 1.0)
    left = max((elapsed - since_last) * (1.0 - done) / max(done, 1e-9) - since_last, 0.0)
    pace = f"{done:.0%}  {short(last['steps'])} of {short(steps)} steps  {short(last['time/steps_per_second'])}/s"
    # A bar does not end its line by itself; a table's row does.
    bar = Table.grid(expand=True)
    bar.add_row(ProgressBar(total=1.0, completed=done, width=width))
    lines: list[Text | Table] = [
        bar,
        Text(f"{pace}  {duration(left)} left", style="dim", overflow="ellipsis", no_wrap=True),
        _reward_line(records, width),
    ]
    for constraint, label in zip(constraints, labels(constraints), strict=True):
        lines += _constraint_lines(records, constraint, label, width)
    return Group(*lines)


def _reward_line(records: Sequence[Record], width: int) -> "Text":
    from rich.text import Text

    values = [record["reward/episode"] for record in records]
    line = Text("reward ", overflow="ellipsis", no_wrap=True)
    line.append("no episode yet" if values[-1] is None else f"{values[-1]:.4g}", style="bold")
    return line.append("  ").append(sparkline(values, width - line.cell_len), style="blue")


def _constraint_lines(records: Sequence[Record], constraint: Constraint, label: str, width: int) -> list["Text"]:
    """Green within the limit, red beyond it; said in words too, for colours do not reach everybody."""
    from rich.text import Text

    values = [record[f"constraint/{label}/value"] for record in records]
    multipliers = [record[f"constraint/{label}/multiplier"] for record in records]
    kept = None if values[-1] is None else bool(constraint.excess(values[-1]) <= 0.0)
    colour, sign = {None: "yellow", True: "green", False: "red"}[kept], ">=" if constraint.at_least else "<="
    word = {None: "no episode yet", True: "kept", False: "broken"}[kept]
    measured = "" if values[-1] is None else f"{values[-1]:.4g} "
    first = Text(f"{constraint.quantity} ", overflow="ellipsis", no_wrap=True)
    first.append(measured, style=f"bold {colour}").append(f"{sign} {constraint.limit:g} ").append(word, style=colour)
    second = Text("multiplier ", overflow="ellipsis", no_wrap=True).append(f"{multipliers[-1]:.4g}", style="bold")
    if width < NARROW:
        first.append("  ").append(sparkline(values, width - first.cell_len), style=colour)
        second.append("  ").append(sparkline(multipliers, width - second.cell_len - 2), style="magenta")
        return [first, Text("  ", no_wrap=True, overflow="ellipsis").append_text(second)]
    room = max(0, width - first.cell_len - second.cell_len - 6) // 2
    first.append("  ").append(sparkline(values, room), style=colour)
    return [first.append("  ").append_text(second).append("  ").append(sparkline(multipliers, room), style="magenta")]


def sparkline(values: Sequence[float | None], room: int) -> str:
    """The last values as blocks between their lowest and their highest; a space where there is none."""
    shown = list(values[-min(room, 24) :]) if room > 0 else []
    known = [value for value in shown if value is not None]
    if not known:
        return ""
    low, reach = min(known), max(known) - min(known)
    top = len(BLOCKS) - 1
    return "".join(
        " " if value is None else BLOCKS[round(top * (value - low) / reach) if reach > 0.0 else 0] for value in shown
    )


def short(value: float) -> str:
    """12.3M, 4.5k."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """1:02:03, 4:05, 42 s."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
