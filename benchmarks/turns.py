"""What the benchmarks share: contestants that take turns, so that what else the machine does slows all alike."""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

Train = Callable[[float], int]
"""Works for at least so many seconds, and says how many environment steps that were."""
Turn = dict[str, Any]
"""One measurement."""


def options(text: str | None, seconds: float) -> argparse.ArgumentParser:
    """What every benchmark takes."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=seconds, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=5, help="of all measurements, in turns")
    parser.add_argument("--json", type=Path, help="write every measurement to this file, one JSON object a line")
    return parser


def for_seconds(once: Callable[[], Any], steps: int) -> Train:
    """Calls of so many steps each, over and over."""

    def train(seconds: float) -> int:
        calls, started = 0, time.perf_counter()
        while calls == 0 or time.perf_counter() - started < seconds:
            once()
            calls += 1
        return calls * steps

    return train


def machine(packages: Sequence[str], **more: Any) -> dict[str, Any]:
    """Where it is measured, and with which versions."""
    return {
        **more,
        "versions": {"python": platform.python_version()} | {name: installed(name) for name in packages},
        "cpus": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def take_turns(contestants: Mapping[str, Train], seconds: float, repeats: int) -> list[Turn]:
    """Every contestant once, then every one again."""
    return [turn(train, seconds, name=name, repeat=repeat)
            for repeat in range(repeats) for name, train in contestants.items()]  # fmt: skip


def turn(train: Train, seconds: float, **about: Any) -> Turn:
    started = time.perf_counter()
    steps = train(seconds)
    elapsed = time.perf_counter() - started
    return {**about, "steps": steps, "seconds": round(elapsed, 4), "steps_per_second": round(steps / elapsed, 1)}


def write(path: Path | None, head: Mapping[str, Any], turns: Sequence[Turn]) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in [head, *turns]))


def rates(turns: Sequence[Turn], *name: str) -> dict[Any, list[float]]:
    """Steps a second of each contestant, in the order of the repeats."""
    found: dict[Any, list[float]] = {}
    for entry in turns:
        key = tuple(entry[word] for word in name)
        found.setdefault(key if len(name) > 1 else key[0], []).append(entry["steps_per_second"])
    return found


def show(seen: Mapping[Any, Sequence[float]]) -> None:
    """The median of each, and the slowest and the fastest."""
    for name, each in seen.items():
        label = name if isinstance(name, str) else ", ".join(name)
        print(f"{label:<58}{median(each):>12,.0f}   {min(each):>12,.0f} to {max(each):>12,.0f}")


def show_ratio(text: str, ours: Sequence[float], theirs: Sequence[float], digits: int = 1) -> None:
    """How many times as fast: the middle one of the repeats, for those of one repeat lie side by side in time."""
    each = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    low, middle, high = (f"{ratio:.{digits}f}" for ratio in (min(each), median(each), max(each)))
    print(f"{text}: {middle} ({low} to {high} in single repeats)")
