"""A robot under a speed limit: the safe velocity tasks, which count the steps that are too fast.

    python examples/safe_velocity.py [--robot Hopper-v5] [--steps 1e6] [--seed 0] [--out runs/hopper]

The same as `rcpo train Hopper-v5 --preset safe-velocity/Hopper`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import rcpo
from rcpo.velocity import VELOCITY, constraint, preset_name


def main(arguments: Sequence[str] | None = None) -> rcpo.Run:
    parser = argparse.ArgumentParser(description="Train a robot under Safety-Gymnasium's speed limit.")
    parser.add_argument("--robot", choices=list(VELOCITY), default="Hopper-v5")
    parser.add_argument("--steps", type=float, default=1e6, help="environment steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a folder for the run")
    asked = parser.parse_args(arguments)

    preset = preset_name(asked.robot)
    run = rcpo.train(asked.robot, preset=preset, steps=asked.steps, seed=asked.seed, out=asked.out)
    seen = run.handover.evaluation
    (fast,) = seen.constraints
    print(f"{asked.robot}, {constraint(asked.robot)}: reward {seen.reward} in {seen.steps} steps")
    print(f"steps that were too fast: {fast.interval}, {fast.verdict}")
    return run


if __name__ == "__main__":
    main()
