"""A robot of your own: a unicycle that is to go fast on a fifth of its motor's torque.

    python examples/own_robot.py [--steps 200000] [--seed 0] [--out runs/unicycle]

It is trained twice, with the limit and without, to show what the limit costs.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import final

import numpy as np

import rcpo
from rcpo.envs.base import Column
from rcpo.envs.mujoco import MujocoEnvironment, Outcome, Robot, Views

LIMIT = "mean(torque) <= 0.2"


@final
class Unicycle(Robot):
    """It earns its speed, and something for every step that it does not fall over."""

    name = "Unicycle"
    xml = Path(__file__).with_name("own_robot.xml")
    frame_skip = 2
    max_steps = 250
    columns = (Column("lean", "rad", "how far it leans, whichever way"),)

    def start(
        self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        qpos[2] += generator.uniform(-0.05, 0.05)
        return qpos, qvel + generator.uniform(-0.01, 0.01, size=len(qvel))

    def position(self, views: Views) -> np.ndarray:
        return views.qpos[:, :1]

    def observe(self, views: Views) -> np.ndarray:
        # Where it is and how far the wheel has turned do not matter, how fast both are does.
        return np.concatenate((views.qpos[:, 1:3], views.qvel), axis=1)

    def outcome(
        self, views: Views, action: np.ndarray, before: np.ndarray, after: np.ndarray, seconds: float
    ) -> Outcome:
        lean = np.abs(views.qpos[:, 2])
        speed = (after - before)[:, 0] / seconds
        return Outcome(reward=speed + 0.25, terminated=lean > 0.5, costs={"lean": lean})


def main(arguments: Sequence[str] | None = None) -> rcpo.Run:
    parser = argparse.ArgumentParser(description="Train a robot of your own under a torque limit, and without.")
    parser.add_argument("--steps", type=float, default=2e5, help="environment steps of each of the two runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a folder for the run with the limit")
    asked = parser.parse_args(arguments)

    environment = MujocoEnvironment(Unicycle())
    run = rcpo.train(environment, constraints=[LIMIT], steps=asked.steps, seed=asked.seed, out=asked.out)
    free = rcpo.train(environment, constraints=[], steps=asked.steps, seed=asked.seed)
    seen = run.handover.evaluation
    (torque,) = seen.constraints
    print(f"with {LIMIT}: reward {seen.reward}, mean(torque) {torque.interval}: {torque.verdict}")
    print(f"without a limit: reward {free.handover.evaluation.reward}")
    print(f"before it had learned anything: reward {run.records[0]['reward/episode']:.1f}")
    return run


if __name__ == "__main__":
    main()
