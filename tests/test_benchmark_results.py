"""What is claimed of speed and cost, checked against the raw measurements that are committed."""

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RAW = BENCHMARKS / "results"
README = (BENCHMARKS / "README.md").read_text()


def raw(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What was measured where, and every measurement."""
    head, *lines = [json.loads(line) for line in (RAW / f"{name}.jsonl").read_text().splitlines()]
    return head, lines


def by_contestant(lines: list[dict[str, Any]], name: str, value: str) -> dict[str, list[float]]:
    """Each contestant's measurements, in the order of the repeats."""
    found: dict[str, list[float]] = {}
    for line in lines:
        found.setdefault(line[name], []).append(line[value])
    assert len({len(values) for values in found.values()}) == 1
    return found


def times(rates: dict[str, list[float]], ours: str, theirs: str) -> float:
    """How many times as fast, in the middle one of the repeats: those of one repeat lie side by side in time."""
    return median(a / b for a, b in zip(rates[ours], rates[theirs], strict=True))


@pytest.mark.parametrize("robot", ["halfcheetah", "humanoid"])
def test_robots_train_at_the_speed_of_their_physics(robot: str) -> None:
    head, lines = raw(f"ppo_{robot}")
    rates = by_contestant(lines, "name", "steps_per_second")
    parts = (rates[f"rcpo, {part}"] for part in ("physics", "learner", "train"))
    share = median(train * (1 / physics + 1 / learner) for physics, learner, train in zip(*parts, strict=True))
    assert share >= 0.8 and head["rcpo_peak_memory_gib"] < 1.5 and head["cpus"] == 2
    for name, seen in rates.items():
        assert f"{median(seen):,.0f}" in README, name
    assert f"{share:.2f}" in README


@pytest.mark.parametrize(("peer", "least"), [("Stable-Baselines3, torch threads: 1", 9.0),
                                             ("Stable-Baselines3, torch threads: 2", 9.0), ("SBX", 5.0)])  # fmt: skip
def test_halfcheetah_beside_its_peers(peer: str, least: float) -> None:
    _, lines = raw("ppo_halfcheetah")
    ratio = times(by_contestant(lines, "name", "steps_per_second"), "rcpo, train", peer)
    assert ratio >= least and f"{ratio:.1f}" in README


@pytest.mark.parametrize("contestant", ["RewardConstrained", "RewardConstrainedVecEnv"])
def test_the_wrapper_costs_less_than_a_twentieth(contestant: str) -> None:
    _, lines = raw("wrapper")
    ratio = times(by_contestant(lines, "contestant", "steps_per_second"), contestant, "plain")
    assert ratio > 0.95 and f"{100 * (1 - ratio):.1f} %" in README


@pytest.mark.parametrize("threads", [1, 2])
def test_cartpole_beside_its_peer(threads: int) -> None:
    _, lines = raw("gym_cartpole")
    rates = by_contestant(lines, "name", "steps_per_second")
    ratio = times(rates, "rcpo", f"Stable-Baselines3, torch threads: {threads}")
    assert ratio >= 3.0 and f"{ratio:.1f}" in README


def test_memory_reaches_its_level_and_stays() -> None:
    """A candidate is kept for each point. Nothing grows with the steps, of which both runs have as many."""
    _, lines = raw("memory")
    grown = {}
    for points in (20, 100):
        held = [line["resident_mib"] for line in lines if line["points"] == points]
        assert len(held) > 0.9 * points and max(held) < 1536
        grown[points] = held[-1] - held[len(held) // 10]
    assert grown[100] < 0.2 * 100 and grown[20] < 0.2 * 20


def test_checkpoints_cost_less_than_a_fiftieth() -> None:
    _, lines = raw("checkpoint")
    assert len(lines) >= 3
    for line in lines:
        assert line["seconds_writing"] < 0.02 * line["seconds_with"]
        assert f"{100 * line['seconds_writing'] / line['seconds_with']:.2g} %" in README


def test_a_hundred_thousand_hostile_files_did_no_harm() -> None:
    found, _ = raw("fuzz_checkpoint")
    assert found["distinct inputs"] >= 100_000 and found["failures"] == 0


def test_the_mars_rover_beside_its_peer() -> None:
    _, lines = raw("sb3_a2c")
    rates: dict[tuple[str, str], list[float]] = {}
    for line in lines:
        rates.setdefault((line["learner"], line["settings"]), []).append(line["steps_per_second"])
    assert all(f"{median(seen):,.0f}" in README for seen in rates.values())
    ours = rates.pop(("rcpo", "mars-rover"))
    del rates["rcpo", "mars-rover-paper"]
    best = max(rates.values(), key=median)
    ratio = median(a / b for a, b in zip(ours, best, strict=True))
    assert ratio >= 10.0 and f"{ratio:.1f} times" in README
