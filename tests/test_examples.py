"""What the examples show runs, and does what their pages say."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rcpo.checkpoint import read_json
from rcpo.envs.mujoco import MujocoCopies, MujocoEnvironment

ROOT = Path(__file__).parents[1]


def example(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def own_robot() -> ModuleType:
    return example("own_robot")


def ride(copies: MujocoCopies, lean: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """A hand-written rider, who drives after its own fall: rewards, costs, and what was seen; whether it ever fell."""
    obs, fell, kept = copies.reset(0), False, []
    for _ in range(250):
        action = 3.5 * np.sin(lean) + 20.0 * (obs[:, 1] - lean) + 3.0 * obs[:, 4]
        step = copies.step(np.clip(action, -1.0, 1.0)[:, None])
        fell |= bool(np.asarray(step.terminated).any())
        obs = np.array(step.obs)
        kept.append((np.array(step.reward), np.array(step.costs), np.array(step.next_obs)))
    reward, costs, seen = (np.stack(part) for part in zip(*kept, strict=True))
    return reward, costs, seen, fell


def test_the_unicycle_can_be_ridden_and_speed_takes_torque(own_robot: ModuleType) -> None:
    environment = MujocoEnvironment(own_robot.Unicycle())
    assert environment.spec.column_names == ("torque", "energy", "action_change", "lean")
    copies = environment.open(4)
    speeds = []
    for lean in (0.05, 0.2):
        reward, costs, seen, fell = ride(copies, lean)
        assert not fell
        # What it earns is its speed, and a little for staying up. In the middle of an episode it rides steadily.
        speed = seen[100:200, :, 2].mean()
        assert (reward - 0.25)[100:200].mean() == pytest.approx(speed, rel=0.02)
        assert costs[100:200, :, 3].mean() == pytest.approx(lean, abs=0.03)
        # The air takes 2 N for every m/s; at the rim of a wheel of 0.1 m that is 0.2 Nm of the motor's 1 Nm.
        assert costs[100:200, :, 0].mean() > 0.2 * speed
        speeds.append(speed)
    assert speeds[1] > 2.5 * speeds[0] > 0.5
    # Left alone it falls.
    copies.reset(0)
    fallen = np.any([copies.step(np.zeros((4, 1))).terminated for _ in range(120)], axis=0)
    assert fallen.all() and copies.faults == 0


def test_the_own_robot_is_trained_as_the_page_says(
    own_robot: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], quick_compile: Any
) -> None:
    run = own_robot.main(["--steps", "6000", "--seed", "1", "--out", str(tmp_path / "run")])
    said = capsys.readouterr().out
    for words in ("with mean(torque) <= 0.2: reward", "without a limit: reward", "before it had learned anything"):
        assert words in said
    (judged,) = run.handover.evaluation.constraints
    assert f": {judged.verdict}" in said
    assert run.records[-1]["faults"] == 0
    assert 6000 <= run.steps < 6000 + 2 * 2048
    verdict = read_json(tmp_path / "run" / "verdict.json")
    assert verdict["constraints"][0]["constraint"] == "mean(torque) <= 0.2"
    assert verdict["constraints"][0]["verdict"] == judged.verdict
    again = run.evaluate(episodes=8)
    assert again.episodes == 8 and again == run.evaluate(episodes=8)


def test_a_robot_is_trained_under_a_speed_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quick_compile: Any
) -> None:
    run = example("safe_velocity").main(["--robot", "Hopper-v5", "--steps", "2000", "--out", str(tmp_path / "run")])
    said = capsys.readouterr().out
    assert "Hopper-v5, sum(speed > 0.7402) <= 25: reward" in said
    assert f"steps that were too fast: {run.handover.evaluation.constraints[0].interval}, " in said
    # An untrained hopper falls within some 20 steps: it has no time to be too fast 25 times.
    assert run.records[-1]["length/episode"] < 40
    assert 0.0 <= run.records[-1]["constraint/sum(speed > 0.7402)/value"] < 25.0


@pytest.mark.slow
def test_cartpole_stays_in_its_band_as_the_example_says(capsys: pytest.CaptureFixture[str]) -> None:
    run = example("gym_cartpole").main(["--steps", "6000", "--seed", "1"])
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("with the limit: ") and said[1].startswith("without: ")
    assert all("steps upright, P(outside) " in line for line in said)
    assert run.environment.spec.column_names[-1] == "outside" and run.steps >= 6000
