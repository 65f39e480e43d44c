"""Where a run's records go. Loggers receive; they compute nothing."""

import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from rcpo.constraints import Constraint, labels

Record = dict[str, Any]


class Logger(ABC):
    """Receives what a run has to say."""

    @abstractmethod
    def record(self, record: Record) -> None:
        """The numbers of one point of the run."""

    def say(self, text: str) -> None:
        """A sentence for a person; most loggers have no use for it."""
        return None

    def close(self) -> None:
        """The run is over."""
        return None


@final
class JsonLines(Logger):
    """One JSON document per record, in a file that begins with the records `already` there."""

    def __init__(self, path: Path, already: Sequence[Record] = ()):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")
        for record in already:
            self.record(record)

    def record(self, record: Record) -> None:
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


@final
class Lines(Logger):
    """Plain lines, for pipes and files; on standard error where standard output is taken by a document."""

    def __init__(self, constraints: Sequence[Constraint], steps: float, to_error: bool = False):
        self._constraints, self._steps, self._to_error = constraints, steps, to_error
        self._started = time.monotonic()

    def record(self, record: Record) -> None:
        self.say(progress_line(record, self._constraints, self._steps, self._started))

    def say(self, text: str) -> None:
        print(text, file=sys.stderr if self._to_error else sys.stdout, flush=True)


@final
class Live(Logger):
    """One line that is redrawn, for terminals."""

    def __init__(self, constraints: Sequence[Constraint], steps: float):
        from rich.console import Console
        from rich.live import Live as RichLive

        self._constraints, self._steps, self._started = constraints, steps, time.monotonic()
        self._live = RichLive(console=Console(highlight=False), refresh_per_second=8, transient=False)
        self._live.start()

    def record(self, record: Record) -> None:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        line = progress_line(record, self._constraints, self._steps, self._started)
        self._live.update(Group(ProgressBar(total=self._steps, completed=record["steps"]), Text(line)))

    def say(self, text: str) -> None:
        self._live.console.print(text, markup=False)

    def close(self) -> None:
        self._live.stop()


def progress_line(record: Record, constraints: Sequence[Constraint], steps: float, started: float) -> str:
    """What matters at one glance: how far, how good, each constraint's value / limit / multiplier, how long still."""
    done = min(record["steps"] / steps, 1.0)
    left = (time.monotonic() - started) * (1.0 - done) / max(done, 1e-9)
    parts = [f"{done:4.0%}", f"{record['steps'] / 1e6:.1f}M steps"]
    if record["reward/episode"] is not None:
        parts.append(f"reward {record['reward/episode']:.3f}")
    for constraint, label in zip(constraints, labels(constraints), strict=True):
        value = record[f"constraint/{label}/value"]
        measured = "no episode yet" if value is None else f"{value:.4f}"
        sign = ">=" if constraint.at_least else "<="
        multiplier = record[f"constraint/{label}/multiplier"]
        parts.append(f"{constraint.quantity} {measured} {sign} {constraint.limit:g} (multiplier {multiplier:.3f})")
    parts += [f"{record['time/steps_per_second']:,.0f} steps/s", f"{left:.0f} s left"]
    return "  ".join(parts)
