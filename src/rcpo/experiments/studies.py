"""Raw results: a file of JSON lines that only grows, so that a study goes on where it was stopped."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
from jaxtyping import Float

from rcpo.config import TrainConfig
from rcpo.errors import UsageError

PACKAGES: Final = ("rcpo", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy")
DIGITS: Final = 7


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a file, none if there is no file. A last line that was cut off is left out."""
    if not path.exists():
        return []
    lines = []
    for number, line in enumerate(path.read_text().split("\n")[:-1], 1):
        try:
            lines.append(json.loads(line))
        except ValueError as error:
            raise UsageError(f"cannot read line {number} of {str(path)!r}: {error}; remove that line") from None
    return lines


def read_study(folder: Path) -> list[dict[str, Any]]:
    """The lines of a study that holds some."""
    lines = read_lines(folder / "runs.jsonl")
    if not lines:
        raise UsageError(f"{str(folder / 'runs.jsonl')!r} holds no runs; run the study first")
    return lines


def numbers(lines: Sequence[Mapping[str, Any]], key: str) -> Float[np.ndarray, "S P"]:
    """One number of each point of each line's curve."""
    return np.array([[point[key] for point in line["points"]] for line in lines], dtype=np.float64)


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """One more line, on the disk when this returns. What was cut off before it is dropped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        file.seek(0)
        written = file.read()
        complete = written.rfind(b"\n") + 1
        if complete < len(written):
            file.truncate(complete)
        file.write((json.dumps(rounded(record)) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


def rounded(value: Any) -> Any:
    """The value as JSON has it, its numbers with as many digits as are worth keeping; None for what is not a number."""
    if isinstance(value, Mapping):
        return {str(key): rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if abs(value) < float("inf") else None
    return value


def settings_of(config: TrainConfig) -> dict[str, Any]:
    """All settings of a run but those that tell the runs of a study apart."""
    document = rounded(asdict(config))
    return {key: value for key, value in document.items() if key not in ("seed", "method", "constraints")}


def first_difference(recorded: Any, present: Any, where: str = "") -> str | None:
    """The first setting that both name with different values; a setting that only one has makes no difference."""
    if not isinstance(recorded, dict) or not isinstance(present, dict):
        return None if recorded == present else f"{where} was {recorded}, is {present}"
    for key in recorded.keys() & present.keys():
        found = first_difference(recorded[key], present[key], f"{where}.{key}" if where else key)
        if found:
            return found
    return None


def check_settings(path: Path, record: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Refuse to mix runs with different settings in one study."""
    found = first_difference(record["settings"], settings)
    if found:
        raise UsageError(f"{str(path)!r} holds runs with other settings ({found}); move it away or give another folder")


def provenance() -> dict[str, Any]:
    """What a number depends on beside its settings: versions, commit, machine."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    machine = {
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "device": jax.devices()[0].device_kind,
    }
    return {"versions": versions, "commit": _commit(), "machine": machine}


def _commit() -> str | None:
    """The commit of the source tree that this file belongs to, with a mark where files differ from it."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", Path(__file__).name], capture_output=True, check=True)
        described = [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run(described, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
