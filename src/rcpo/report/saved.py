"""A run as it stands on disk, finished or on its way. Only JSON is read: no environment is made, no policy loaded."""

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

from rcpo.ascent import rules
from rcpo.checkpoint import from_json, read_json
from rcpo.config import MultiplierConfig
from rcpo.constraints import Constraint, labels, number, parse
from rcpo.errors import UsageError
from rcpo.folder import CONFIG, METRICS, VERDICT
from rcpo.health import Health, advice, examine
from rcpo.loggers import Record

QUIET: Final = 120.0
"""After so many seconds without a word a run that is not finished is said to stand still."""
WRITTEN: Final = re.compile(r"(?P<quantity>.+)(?P<sign><=|>=)\s*(?P<limit>[-+\d.eE]+)")


@final
@dataclass(frozen=True)
class WrittenConstraint:
    """A constraint as it is written: what is bounded, and where. What an episode is worth is not known here."""

    text: str
    quantity: str
    limit: float
    at_least: bool
    read: Constraint | None = None
    """The constraint, or one that sets the same of its multiplier, where that can be read."""

    def __str__(self) -> str:
        return self.text

    @property
    def bound(self) -> str:
        """What is bounded, and where, without what may follow."""
        return f"{self.quantity} {'>=' if self.at_least else '<='} {number(self.limit)}"

    def excess(self, value: Any) -> Any:
        """How far a value lies beyond the limit; negative inside it."""
        return self.limit - value if self.at_least else value - self.limit


def read_bound(text: str) -> WrittenConstraint | None:
    """What a text bounds. A function or a functional of the user's cannot be read: there the last comparison is it."""
    read = _read(text)
    if read is not None:
        return WrittenConstraint(str(read), read.quantity, read.limit, read.at_least, read)
    found = WRITTEN.match(text)
    limit = _number(found["limit"]) if found else math.nan
    if found is None or not math.isfinite(limit):
        return None
    tuned = _read(f"sum(cost) <= 0{text[found.end() :]}")
    return WrittenConstraint(text, found["quantity"].strip(), limit, found["sign"] == ">=", tuned)


def _read(text: str) -> Constraint | None:
    try:
        return parse(text)
    except UsageError:
        return None


@final
@dataclass(frozen=True)
class SavedRun:
    """What a run's folder says."""

    folder: Path
    environment: str
    command: str
    versions: Mapping[str, Any]
    config: Mapping[str, Any]
    bounds: tuple[WrittenConstraint, ...]
    records: tuple[Record, ...]
    unreadable: int
    """How many lines of the metrics could not be read."""
    verdict: Mapping[str, Any] | None
    quiet: float
    """Seconds since the last word of the run."""

    @property
    def method(self) -> str:
        return str(self.config.get("method"))

    @property
    def seed(self) -> str:
        return str(self.config.get("seed"))

    @property
    def steps(self) -> int:
        return int(self.records[-1]["steps"]) if self.records else 0

    @property
    def state(self) -> str:
        """`finished`, `running`, or `stands still`."""
        if self.verdict is not None:
            return "finished"
        return "running" if self.quiet < QUIET else "stands still"

    @property
    def rule(self) -> MultiplierConfig:
        """How the multipliers were to move; the plain defaults where this version cannot read it."""
        try:
            rule: MultiplierConfig = from_json(MultiplierConfig, self.config.get("multipliers"))
        except UsageError:
            rule = MultiplierConfig()
        return replace(rule, rule="fixed") if self.method == "fixed" else rule

    @property
    def rules(self) -> tuple[MultiplierConfig, ...]:
        """The same for each constraint, with what it says differently."""
        return tuple(self._rule_of(bound) for bound in self.bounds)

    def _rule_of(self, bound: WrittenConstraint) -> MultiplierConfig:
        try:
            return self.rule if bound.read is None else rules(self.rule, [bound.read])[0]
        except UsageError:
            return self.rule

    @property
    def health(self) -> tuple[Health, ...]:
        return examine(self.records, self.bounds, self.rules)

    @property
    def advice(self) -> list[str]:
        return advice(self.health, self.rules)


def read_run(folder: Path) -> SavedRun:
    """Read what is there, also while the run goes on."""
    if not (folder / CONFIG).is_file():
        raise UsageError(f"{str(folder)!r} is no run: it has no {CONFIG}; give the folder that `rcpo train` wrote")
    document = read_json(folder / CONFIG)
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        raise UsageError(f"the run {str(folder)!r} cannot be read: {CONFIG} has no settings; is it a run of rcpo?")
    verdict = read_json(folder / VERDICT) if (folder / VERDICT).is_file() else None
    records, unreadable, spoke = _read_records(folder / METRICS)
    texts = config.get("constraints")
    read = [read_bound(text) for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
    bounds = [bound for bound in read if bound is not None]
    # Two bounds on one quantity have a name each in the records.
    bounds = [replace(bound, quantity=label) for bound, label in zip(bounds, labels(bounds), strict=True)]
    versions = document.get("versions")
    return SavedRun(
        folder=folder,
        environment=str(document.get("environment")),
        command=str(document.get("command")),
        versions=versions if isinstance(versions, dict) else {},
        config=config,
        bounds=tuple(bounds),
        records=records,
        unreadable=unreadable,
        verdict=verdict if isinstance(verdict, dict) else None,
        quiet=time.time() - max(spoke, (folder / CONFIG).stat().st_mtime),
    )


def _read_records(path: Path) -> tuple[tuple[Record, ...], int, float]:
    """The records, how many lines are damaged, and when the last one came. Half a line at the end is still coming."""
    if not path.is_file():
        return (), 0, 0.0
    *lines, last = path.read_bytes().split(b"\n")
    records = [_read_record(line) for line in lines if line.strip()]
    coming = _read_record(last)
    kept = [record for record in (*records, coming) if record is not None]
    return tuple(kept), sum(record is None for record in records), path.stat().st_mtime


def _read_record(line: bytes) -> Record | None:
    """The numbers of a line; None where it is not a record."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    record = {key: _number(value) for key, value in document.items() if isinstance(value, int | float)}
    return record if math.isfinite(record.get("steps", math.nan)) else None


def _number(value: Any) -> float:
    """A number, or nan for what is none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def interval(document: Any, name: str = "value") -> tuple[float, float, float]:
    """Value, low and high of a document; what does not exist (null) is nan."""
    held = document if isinstance(document, Mapping) else {}
    value, low, high = (_number(held.get(key)) for key in (name, "low", "high"))
    return value, low, high


def entries(document: Mapping[str, Any] | None, key: str) -> Sequence[Mapping[str, Any]]:
    """The records in a list of a document."""
    held = document.get(key) if document is not None else None
    return [entry for entry in held if isinstance(entry, Mapping)] if isinstance(held, list) else []
