"""What is claimed of several limits at once and of the speed limits, checked against the raw results."""

from pathlib import Path
from typing import Any

import pytest

from rcpo import presets, velocity
from rcpo.constraints import parse
from rcpo.experiments import studies

RESULTS = Path(__file__).parents[2] / "results" / "several"
ROOT = RESULTS.parents[1]
ALL = ("mean(torque) <= 0.2", "sum(speed > 3.2096) <= 25", "mean(action_change) <= 0.15")
ALONE = {"torque": ALL[0], "speed": ALL[1], "action_change": ALL[2]}


def lines(**wanted: Any) -> list[dict[str, Any]]:
    found = studies.read_study(RESULTS)
    chosen = [line for line in found if all(line[name] == value for name, value in wanted.items())]
    return sorted(chosen, key=lambda line: line["seed"])


def test_every_line_is_a_run_of_its_preset() -> None:
    for line in lines():
        wanted = studies.settings_of(presets.preset(line["preset"], line["environment"]))
        assert studies.first_difference(line["settings"], wanted) is None
        assert line["points"][-1]["steps"] == line["steps"] >= 1_000_000
        assert line["commit"] and not line["commit"].endswith("-dirty")
        for text, seen in line["final"]["constraints"].items():
            assert seen["low"] <= seen["value"] <= seen["high"]
            assert (seen["verdict"] == "satisfied") == (seen["high"] <= parse(text).limit)
    keys = [(line["environment"], line["limits"], line["seed"]) for line in lines()]
    assert len(set(keys)) == len(keys)


UNDECIDED = {("Swimmer-v5", 1)}
"""What the README owns up to."""


@pytest.mark.parametrize("robot", velocity.VELOCITY)
def test_every_robot_keeps_its_speed_limit(robot: str) -> None:
    runs = lines(environment=robot, limits="velocity")
    assert [run["seed"] for run in runs] == [0, 1, 2]
    for run in runs:
        assert list(run["final"]["constraints"]) == [velocity.constraint(robot)]
        verdict = run["final"]["constraints"][velocity.constraint(robot)]["verdict"]
        kept = (robot, run["seed"]) not in UNDECIDED
        assert verdict == ("satisfied" if kept else "undecided") and run["final"]["verified"] == kept


def test_three_limits_at_once_are_all_kept() -> None:
    runs = lines(environment="HalfCheetah-v5", limits="all")
    assert [run["seed"] for run in runs] == [0, 1, 2]
    for run in runs:
        assert list(run["final"]["constraints"]) == list(ALL) and run["final"]["verified"]
        assert all(seen["verdict"] == "satisfied" for seen in run["final"]["constraints"].values())


@pytest.mark.parametrize("limits", ["none", *ALONE])
def test_no_limit_brings_the_others_with_it(limits: str) -> None:
    """Whoever is held to one of them alone, or to none, breaks the others."""
    runs = lines(environment="HalfCheetah-v5", limits=limits)
    assert [run["seed"] for run in runs] == [0, 1, 2]
    for run in runs:
        assert run["final"]["verified"]
        for text in ALL:
            # Of its own limit the verdict is in `final`, on twice as many episodes as these.
            broken = run["spent"][text]["verdict"] == "violated"
            assert broken == (ALONE.get(limits) != text), (run["seed"], text)


def test_the_readme_says_what_the_results_say() -> None:
    readme = (ROOT / "README.md").read_text()
    for robot, limit in velocity.VELOCITY.items():
        runs = lines(environment=robot, limits="velocity")
        rewards = ", ".join(f"{run['final']['reward']['value']:.0f}" for run in runs)
        fast = ", ".join(f"{next(iter(run['final']['constraints'].values()))['value']:.1f}" for run in runs)
        assert f"| {robot} | {limit} | {rewards} | {fast} |" in readme
    for limits, name in (("none", "none"), *((key, f"`{text}`") for key, text in ALONE.items()), ("all", "all three")):
        runs = lines(environment="HalfCheetah-v5", limits=limits)
        rewards = ", ".join(f"{run['final']['reward']['value']:.0f}" for run in runs)
        spent = (", ".join(f"{run['spent'][text]['value']:.3g}" for run in runs) for text in ALL)
        assert f"| {name} | {rewards} | {' | '.join(spent)} |" in readme
