"""Memory over a long run: it must reach its level early and stay there.

    python benchmarks/memory.py --json benchmarks/results/memory.jsonl

Trains a robot and writes down, at every point of the run, how much memory the process holds. Says by how much the
last tenth of the run holds more than the second one (the first one still compiles).
"""

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any, final

from rcpo.config import EvaluationConfig
from rcpo.loggers import Logger
from rcpo.presets import preset
from rcpo.run import train

POINTS = 100


def resident_mib() -> float:
    """What the process holds now (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


@final
class Memory(Logger):
    """Keeps the memory held at every point."""

    def __init__(self) -> None:
        self.points: list[dict[str, float]] = []

    def record(self, record: dict[str, Any]) -> None:
        self.points.append({"steps": record["steps"], "resident_mib": round(resident_mib(), 1)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", default="HalfCheetah-v5")
    parser.add_argument("--steps", type=float, default=4e6)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    memory = Memory()
    looks = EvaluationConfig(
        points=POINTS, episodes=0, shortlist_episodes=2, verdict_episodes=2, looks=1, mixture=False
    )
    train(asked.environment, config=preset("robot", asked.environment), steps=asked.steps, evaluation=looks,
          loggers=[memory])  # fmt: skip
    held = [point["resident_mib"] for point in memory.points]
    tenth = len(held) // 10
    early, late = mean(held[tenth : 2 * tenth]), mean(held[-tenth:])
    if asked.json:
        asked.json.write_text("".join(json.dumps(point) + "\n" for point in memory.points))
    print(f"{asked.environment}, {memory.points[-1]['steps']:,} steps: {early:.0f} MiB in the second tenth, "
          f"{late:.0f} MiB in the last, {max(held):.0f} MiB at most")  # fmt: skip


if __name__ == "__main__":
    main()
