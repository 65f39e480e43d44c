"""Memory over a long run: it must reach its level early and stay there.

    python benchmarks/memory.py --json benchmarks/results/memory.jsonl

Trains a robot and writes down, at every point of the run, how much memory the process holds. Says by how much the
last tenth of the run holds more than the second one (the first one still compiles). A run keeps one candidate policy
for each of its points, of which there are 50 unless one asks for more: so it is run twice, with few points and with
many. What grows with the points alone does not grow with the steps.
"""

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any, final

from rcpo.config import EvaluationConfig
from rcpo.folder import versions
from rcpo.loggers import Logger
from rcpo.presets import preset
from rcpo.run import train


def resident_mib() -> float:
    """What the process holds now (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


@final
class Memory(Logger):
    """Keeps the memory held at every point."""

    def __init__(self, points: int) -> None:
        self.points, self.held = points, list[dict[str, float]]()

    def record(self, record: dict[str, Any]) -> None:
        self.held.append({"points": self.points, "steps": record["steps"], "resident_mib": round(resident_mib(), 1)})


def run_with(points: int, environment: str, steps: float) -> list[dict[str, float]]:
    memory = Memory(points)
    looks = EvaluationConfig(
        points=points, episodes=0, shortlist_episodes=2, verdict_episodes=2, looks=1, mixture=False
    )
    train(environment, config=preset("robot", environment), steps=steps, evaluation=looks, loggers=[memory])
    held = [point["resident_mib"] for point in memory.held]
    tenth = len(held) // 10
    early, late = mean(held[tenth : 2 * tenth]), mean(held[-tenth:])
    run = f"{environment}, {memory.held[-1]['steps']:,} steps, {len(held)} points"
    print(f"{run}: {early:.0f} MiB in the second tenth, {late:.0f} in the last, {max(held):.0f} at most", flush=True)
    return memory.held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", default="HalfCheetah-v5")
    parser.add_argument("--steps", type=float, default=4e6)
    parser.add_argument("--points", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    lines = [line for points in asked.points for line in run_with(points, asked.environment, asked.steps)]
    if asked.json:
        head = {"environment": asked.environment, "versions": versions()}
        asked.json.write_text("".join(json.dumps(line) + "\n" for line in [head, *lines]))


if __name__ == "__main__":
    main()
