"""Run folders made up for tests of what reads them."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from rcpo.config import TrainConfig
from rcpo.histograms import histogram


def config_of(constraints: tuple[str, ...] = ("mean(torque) <= 0.25",), **changes: Any) -> dict[str, Any]:
    return dataclasses.asdict(TrainConfig(constraints=constraints, **changes))


def record(steps: int, quantities: dict[str, float | None], reward: float | None = 1.0) -> dict[str, Any]:
    made: dict[str, Any] = {"iteration": steps, "steps": steps, "episodes": 10, "reward/episode": reward}
    for quantity, value in quantities.items():
        made |= {
            f"constraint/{quantity}/value": value,
            f"constraint/{quantity}/limit": 0.25,
            f"constraint/{quantity}/multiplier": steps / 1e6,
            f"constraint/{quantity}/aim": 0.25,
        }
    return made | {"time/steps_per_second": 1e5, "time/seconds": steps / 1e5}


def wavy(points: int, steps: float, quantity: str = "mean(torque)") -> list[dict[str, Any]]:
    """A run whose value comes down from 0.6 to 0.2, with a ripple."""
    return [
        record(
            round(steps * i / points), {quantity: 0.2 + 0.4 * math.exp(-5.0 * i / points) + 0.01 * math.sin(i)}, i / 9
        )
        for i in range(1, points + 1)
    ]


def verdict_of(texts: tuple[str, ...] = ("mean(torque) <= 0.25",), word: str = "satisfied") -> dict[str, Any]:
    """What verdict.json says of 200 episodes."""
    value = {"satisfied": 0.2, "violated": 0.4, "undecided": 0.251}[word]
    episodes = np.random.default_rng(0).normal(value, 0.05, 200)
    held = [
        {"constraint": text, "value": value, "low": value - 0.01, "high": value + 0.01, "limit": 0.25, "verdict": word}
        for text in texts
    ]
    names = [text.rpartition(" ")[0].rpartition(" ")[0] for text in texts]
    return {
        "verified": word == "satisfied", "confidence": 0.95, "looks": 2, "steps": 10**6, "seconds": 9.0,
        "components": [{"iteration": 3, "weight": 1.0, "greedy": False}],
        "episodes": 200, "interval_confidence": 0.9875,
        "reward": {"mean": 3900.5, "low": 3860.0, "high": 3940.0},
        "episode_steps": {"mean": 1000.0, "low": 1000.0, "high": 1000.0},
        "success": None, "steps_given_success": None, "truncated": 1.0, "constraints": held,
        "distributions": [dataclasses.asdict(histogram(name, episodes)) for name in ("reward", "steps", *names)],
    }  # fmt: skip


def write_run(
    folder: Path,
    records: list[dict[str, Any]],
    verdict: dict[str, Any] | None = None,
    environment: str = "Walker-of-mine",
    config: dict[str, Any] | None = None,
    command: str = "rcpo train HalfCheetah-v5 --seed 0",
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    document = {"environment": environment, "config": config or config_of(), "command": command,
                "versions": {"rcpo": "0.1.0", "jax": "0.10.2"}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(document))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    if verdict is not None:
        (folder / "verdict.json").write_text(json.dumps(verdict))
    return folder
