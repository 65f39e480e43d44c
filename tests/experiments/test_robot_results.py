"""What is claimed of the robots, checked against the raw results that are committed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rcpo import envs, presets
from rcpo.experiments import studies

RESULTS = Path(__file__).parents[2] / "results" / "robots"
QUANTITY = "mean(torque)"
LEAST = {"HalfCheetah-v5": 3000, "Hopper-v5": 1800, "Walker2d-v5": 1500, "Ant-v5": 1200, "Swimmer-v5": 90,
         "Humanoid-v5": 600}  # fmt: skip


def lines(**wanted: Any) -> list[dict[str, Any]]:
    found = studies.read_study(RESULTS)
    return [line for line in found if all(line[name] == value for name, value in wanted.items())]


def test_every_line_is_a_run_of_the_preset() -> None:
    seen = set()
    for line in lines():
        seen.add((line["environment"], line["limit"], line["scale"], line["seed"]))
        wanted = studies.settings_of(presets.preset("robot", line["environment"]))
        wanted["env"]["reward_scale"] = line["scale"]
        assert studies.first_difference(line["settings"], wanted) is None
        final, interval = line["final"], line["final"][QUANTITY]
        assert interval["low"] <= interval["value"] <= interval["high"]
        assert (final["verdict"] == "satisfied") == (interval["high"] <= line["limit"]) == final["verified"]
        assert line["points"][-1]["steps"] == line["steps"] >= 1_000_000
        assert line["commit"] and not line["commit"].endswith("-dirty")
    assert len(seen) == len(lines())


@pytest.mark.parametrize("robot", envs.ROBOTS)
def test_the_robots_keep_the_limit_and_move(robot: str) -> None:
    runs = lines(environment=robot, limit=0.25, scale=1.0)
    assert {run["seed"] for run in runs} >= {0, 1, 2}
    assert all(run["final"]["verdict"] == "satisfied" for run in runs)
    assert np.mean([run["final"]["reward"]["value"] for run in runs]) >= LEAST[robot]


def test_any_limit() -> None:
    """Every verdict satisfied, and a wider limit is worth more, but for the noise between seeds."""
    limits = sorted({line["limit"] for line in lines(environment="HalfCheetah-v5", scale=1.0)})
    assert limits[0] == 0.05 and limits[-1] == 0.4 and len(limits) >= 6
    runs = [lines(environment="HalfCheetah-v5", scale=1.0, limit=limit) for limit in limits]
    assert all(run["final"]["verdict"] == "satisfied" for group in runs for run in group)
    rewards = [[run["final"]["reward"]["value"] for run in group] for group in runs]
    noise = np.sqrt(np.mean([np.var(group, ddof=1) for group in rewards if len(group) > 1]))
    means = np.array([np.mean(group) for group in rewards])
    assert (np.diff(means) > -2.0 * noise).all() and means[-1] > 2.0 * means[0]


def test_any_scale() -> None:
    """Rewards times 0.01 and times 100: the same verdict, and scaled back the same reward within the seeds' noise."""
    by_scale = {scale: lines(environment="HalfCheetah-v5", limit=0.25, scale=scale) for scale in (0.01, 1.0, 100.0)}
    rewards = {}
    for scale, runs in by_scale.items():
        assert {run["seed"] for run in runs} >= {0, 1, 2}
        assert all(run["final"]["verdict"] == "satisfied" for run in runs)
        rewards[scale] = np.array([run["final"]["reward"]["value"] / scale for run in runs])
    plain = rewards[1.0]
    for scale in (0.01, 100.0):
        other = rewards[scale]
        error = np.sqrt(plain.var(ddof=1) / len(plain) + other.var(ddof=1) / len(other))
        assert abs(other.mean() - plain.mean()) <= 3.0 * error + 0.05 * plain.mean()


def test_the_readme_says_what_the_results_say() -> None:
    readme = (RESULTS.parents[1] / "README.md").read_text()
    for robot in LEAST:
        runs = sorted(lines(environment=robot, limit=0.25, scale=1.0), key=lambda run: run["seed"])
        rewards = ", ".join(f"{run['final']['reward']['value']:.0f}" for run in runs)
        torques = ", ".join(f"{100 * run['final'][QUANTITY]['value']:.1f} %" for run in runs)
        satisfied = sum(run["final"]["verdict"] == "satisfied" for run in runs)
        assert f"| {robot} | {rewards} | {torques} | {satisfied} of {len(runs)} satisfied |" in readme
