"""CartPole that is to stay in the middle: a Gymnasium environment by its id, and a cost that `info` does not have.

    python examples/gym_cartpole.py [--steps 100000] [--seed 0] [--out runs/cartpole]

It is trained twice, with the limit and without.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rcpo
from rcpo.envs.gym import GymEnvironment

LIMIT = "P(outside) <= 0.05"
BAND = 0.25
"""How far from the middle the cart may go; the track ends at 2.4."""


def outside(obs: np.ndarray, action: np.ndarray, next_obs: np.ndarray, info: Any) -> np.ndarray:
    """Of all copies at once: one row each."""
    return np.abs(next_obs[:, 0]) > BAND


def main(arguments: Sequence[str] | None = None) -> rcpo.Run:
    parser = argparse.ArgumentParser(description="Train CartPole within a band, and without.")
    parser.add_argument("--steps", type=float, default=1e5, help="environment steps of each of the two runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a folder for the run with the limit")
    asked = parser.parse_args(arguments)

    environment = GymEnvironment("CartPole-v1", costs={"outside": outside})
    run = rcpo.train(environment, [LIMIT], steps=asked.steps, seed=asked.seed, out=asked.out)
    free = rcpo.train(environment, ["P(outside) <= 1"], method="fixed", steps=asked.steps, seed=asked.seed)
    for name, one in (("with the limit", run), ("without", free)):
        (band,) = one.handover.evaluation.constraints
        print(f"{name}: {one.handover.evaluation.reward} steps upright, P(outside) {band.interval}")
    return run


if __name__ == "__main__":
    main()
