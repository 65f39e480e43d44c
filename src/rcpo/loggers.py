"""Where a run's records go. Loggers receive; they compute nothing."""

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

from rcpo.constraints import Constraint, labels
from rcpo.errors import UsageError

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
    """A view that is redrawn in place, for terminals (see `live.py`)."""

    def __init__(self, constraints: Sequence[Constraint], steps: float):
        from rich.console import Console
        from rich.live import Live as RichLive

        from rcpo.live import View

        self._view = View(tuple(constraints), steps)
        self._live = RichLive(self._view, console=Console(highlight=False), refresh_per_second=4, transient=False)
        self._live.start()

    def record(self, record: Record) -> None:
        self._view.add(record)

    def say(self, text: str) -> None:
        self._live.console.print(text, markup=False)

    def close(self) -> None:
        self._live.stop()


@final
class TensorBoard(Logger):
    """Scalars for TensorBoard, under the names that `metrics.jsonl` has for them."""

    def __init__(self, folder: Path):
        try:
            from tensorboardX import SummaryWriter
        except ModuleNotFoundError:
            raise _missing("tensorboard", "tensorboardX") from None
        self._writer = SummaryWriter(str(folder))

    def record(self, record: Record) -> None:
        for name, number in numbers(record).items():
            self._writer.add_scalar(name, number, global_step=record["steps"])
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


@final
class WeightsAndBiases(Logger):
    """The same numbers for W&B. Written to the run's folder, and sent only where WANDB_MODE=online asks for that."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]):
        try:
            import wandb
        except ModuleNotFoundError:
            raise _missing("wandb", "wandb") from None
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(project="rcpo", name=folder.name, dir=str(folder), config=dict(settings), mode=mode)

    def record(self, record: Record) -> None:
        self._run.log(numbers(record), step=record["steps"])

    def close(self) -> None:
        self._run.finish()


TRACKERS: Final = ("tensorboard", "wandb")
"""What a run can be logged to beside its own files."""


def tracker(name: str, folder: Path, settings: Mapping[str, Any]) -> Logger:
    """A logger by its name; its files lie in the run's folder."""
    return TensorBoard(folder / "tensorboard") if name == "tensorboard" else WeightsAndBiases(folder, settings)


def _missing(extra: str, package: str) -> UsageError:
    return UsageError(f"logging to {extra} needs {package}, which is not installed: pip install 'rcpo[{extra}]'")


def numbers(record: Record) -> dict[str, float]:
    """What of a record is a number."""
    return {name: value for name, value in record.items() if isinstance(value, int | float)}


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
