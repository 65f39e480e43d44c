"""What checkpoints cost: two runs in turns, point by point, one that writes them and one that does not.

    python benchmarks/checkpoint.py --json benchmarks/results/checkpoint.jsonl

Both run the preset as it is (50 points; --points ends them earlier) with the default settings of checkpoints, but for
the evaluations along the way, which would only make checkpoints look cheaper. After the first point, which compiles,
each point of the one is followed by a point of the other, so that whatever else the machine does slows both alike.
Besides the two times it is reported how long the writing itself took, which varies less, and how many bytes it wrote.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from rcpo import envs, presets
from rcpo.constraints import parse_all
from rcpo.folder import versions
from rcpo.points import next_point, training
from rcpo.progress import Progress
from rcpo.run import make_plan
from rcpo.saving import Saver


class Run:
    """A run that goes on by a point at a time, and knows what its checkpoints took."""

    def __init__(self, name: str, folder: Path | None, stack: ExitStack):
        config = presets.preset(None, name, own=envs.preset_of(name))
        config = replace(config, evaluation=replace(config.evaluation, episodes=0))
        self.environment = envs.make(name, config.env)
        constraints = parse_all(config.constraints, self.environment.spec.column_names)
        self.plan, self.chunk = make_plan(config, constraints, self.environment)
        self.session = stack.enter_context(training(self.plan, self.environment))
        self.progress = Progress(self.session.first, jax.random.key(0))
        # Its clock stands still while it is the other run's turn.
        self.waited, self.ended = 0.0, time.monotonic()
        self.saver = Saver(self.plan, self.chunk, self.environment, self.session.crews, self.progress, folder,
                           lambda: time.monotonic() - self.waited)  # fmt: skip
        self.folder, self.writing, self.written = folder, 0.0, 0

    def point(self) -> float:
        """A point of the run; its seconds, the checkpoint included."""
        self.waited += time.monotonic() - self.ended
        begun, saved = time.perf_counter(), self.saver.saved
        self.progress = next_point(self.plan, self.environment, self.session, self.progress, self.chunk, 0.0)
        trained = time.perf_counter()
        self.progress = self.saver.after(self.progress, stopping=False)
        ended = time.perf_counter()
        if self.folder is not None and self.saver.saved != saved:
            self.writing += ended - trained
            self.written += max(self.folder.glob("*.safetensors")).stat().st_size
        self.ended = time.monotonic()
        return ended - begun


def measure(name: str, points: int, folder: Path) -> dict[str, Any]:
    with ExitStack() as stack:
        saving, plain = Run(name, folder, stack), Run(name, None, stack)
        points = min(points, saving.plan.iterations // saving.chunk)
        for run in (saving, plain):
            run.point()
        first, saving.writing, saving.written = saving.writing, 0.0, 0
        times = [(saving.point(), plain.point()) for _ in range(points - 1)]
    seconds, without = map(sum, zip(*times, strict=True))
    return {
        "environment": name,
        "points": points - 1,
        "seconds_with": round(seconds, 3),
        "seconds_without": round(without, 3),
        "seconds_writing": round(saving.writing, 4),
        "first_checkpoint_seconds": round(first, 4),
        "bytes_written": saving.written,
        "share_of_time": round(saving.writing / seconds, 5),
        "slower_by": round(seconds / without - 1.0, 5),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what checkpoints cost.")
    parser.add_argument("--environments", nargs="+", default=["mars-rover", "HalfCheetah-v5", "Humanoid-v5"])
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    machine = {"versions": versions(), "machine": platform.machine(), "cores": os.cpu_count(),
               "load": os.getloadavg()[0]}  # fmt: skip
    lines = [machine]
    for name in chosen.environments:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            lines.append(measure(name, chosen.points, Path(folder) / "checkpoints"))
        print(json.dumps(lines[-1]), flush=True)
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
