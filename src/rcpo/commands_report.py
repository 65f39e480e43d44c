"""The commands that show runs: what each takes and prints."""

from dataclasses import dataclass
from pathlib import Path
from typing import final

from tyro.conf import Positional

from rcpo.commands import read
from rcpo.errors import UsageError


@final
@dataclass(frozen=True)
class Report:
    """One HTML page about a run, or about several side by side; it opens offline."""

    runs: Positional[tuple[Path, ...]]
    """The runs' folders, finished or on their way."""
    out: Path | None = None
    """The file to write; without one, report.html, for one run in its folder."""


def report(words: list[str]) -> int:
    """Write the page, and say where."""
    command = read(Report, words, "report")
    if not command.runs:
        raise UsageError("got no run to report on; give the folders of one or more: rcpo report runs/safe")
    from rcpo.report import REPORT, write_report

    alone = command.runs[0] if len(command.runs) == 1 else Path()
    print(f"written to {write_report(command.runs, command.out or alone / REPORT)}")
    return 0


@final
@dataclass(frozen=True)
class Watch:
    """The page about a run, live: served to this machine alone, and always up to date."""

    run: Positional[Path]
    """The run's folder."""
    port: int = 0
    """The port on 127.0.0.1; 0 takes any that is free."""


def watch(words: list[str]) -> int:
    """Serve the page until Ctrl-C."""
    command = read(Watch, words, "watch")
    from rcpo.report import watch as watching

    watching.watch(command.run, command.port, say=lambda text: print(text, flush=True))
    return 0
