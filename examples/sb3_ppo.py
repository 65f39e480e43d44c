"""Stable-Baselines3's PPO drives an icy road as fast as a crash in twenty journeys allows.

    pip install torch==2.13.0 && pip install 'rcpo[sb3]'
    python examples/sb3_ppo.py

Twelve cells, some of them icy; a car goes on by one, two or three at a time, and the faster it goes on ice the likelier
it skids off the road. Both what a policy is worth and the best that any policy can do are worked out exactly.
"""

import argparse
from collections.abc import Sequence
from typing import Any, final

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from rcpo.sb3 import RewardConstrainedVecEnv

ICE = np.array([0.2, 0.0, 0.5, 1.0, 0.0, 0.2, 1.0, 0.5, 0.0, 0.2, 0.5, 0.2])
CELLS, SPEEDS = len(ICE), 3
SKID = ICE[:, None] * np.array([0.0, 0.1, 0.3])
"""The probability of a crash, for each cell and speed."""
LIMIT = "P(crash) <= 0.05"


@final
class Road(gymnasium.Env):
    """It sees in which cell it is; a step takes one unit of time, and the goal ends the journey as a crash does."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (CELLS,), np.float32)
    action_space = gymnasium.spaces.Discrete(SPEEDS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.cell = 0
        return see(0), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        crash = self.np_random.random() < SKID[self.cell, action]
        self.cell += int(action) + 1
        return see(self.cell), -1.0, crash or self.cell >= CELLS, False, {"crash": crash}


def see(cell: int) -> np.ndarray:
    return np.eye(CELLS + 1, CELLS, dtype=np.float32)[min(cell, CELLS)]


def worth(policy: np.ndarray) -> tuple[float, float]:
    """Expected time and P(crash) of a policy [cell, speed], from the last cell to the first."""
    time, crash = np.zeros(CELLS + SPEEDS), np.zeros(CELLS + SPEEDS)
    for cell in reversed(range(CELLS)):
        reached, survived = cell + 1 + np.arange(SPEEDS), 1.0 - SKID[cell]
        time[cell] = policy[cell] @ (1.0 + survived * time[reached])
        crash[cell] = policy[cell] @ (SKID[cell] + survived * crash[reached])
    return float(time[0]), float(crash[0])


def best_time(limit: float) -> float:
    """The least time at P(crash) <= limit: the largest value of the Lagrangian's dual, which has no gap here."""

    def dual(multiplier: float) -> float:
        value = np.zeros(CELLS + SPEEDS)
        for cell in reversed(range(CELLS)):
            reached = cell + 1 + np.arange(SPEEDS)
            value[cell] = np.min(1.0 + multiplier * SKID[cell] + (1.0 - SKID[cell]) * value[reached])
        return float(value[0]) - multiplier * limit

    return max(map(dual, np.linspace(0.0, 200.0, 4001)))


def learn(constraints: Sequence[str], steps: int, seed: int) -> PPO:
    env = RewardConstrainedVecEnv(
        make_vec_env(Road, n_envs=16, seed=seed),
        constraints,
        rule="pi",
        step_size=2.0,
        proportional=20.0,
        margin=0.2,
        episodes_per_update=100,
        divide_by_multiplier=True,
    )
    learner = PPO(
        "MlpPolicy",
        env,
        learning_rate=lambda left: 4e-3 * left,
        n_steps=64,
        batch_size=256,
        n_epochs=5,
        gamma=1.0,
        ent_coef=0.01,
        policy_kwargs={"net_arch": [32]},
        seed=seed,
        device="cpu",
    )
    return learner.learn(steps)


def judge(learner: PPO) -> tuple[float, float]:
    """The exact time and P(crash) of what it has learned."""
    cells = torch.as_tensor(np.stack([see(cell) for cell in range(CELLS)]))
    with torch.no_grad():
        return worth(learner.policy.get_distribution(cells).distribution.probs.numpy())


def main(arguments: Sequence[str] | None = None) -> dict[str, tuple[float, float]]:
    parser = argparse.ArgumentParser(description="PPO with a limit on crashes, and without.")
    parser.add_argument("--steps", type=int, default=48_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    print(f"the best at P(crash) 0.05: time {best_time(0.05):.2f}")
    results = {}
    for title, constraints in ((f"with {LIMIT}", [LIMIT]), ("without", [])):
        results[title] = judge(learn(constraints, asked.steps, asked.seed))
        print("{}: time {:.2f}, P(crash) {:.3f}".format(title, *results[title]))
    return results


if __name__ == "__main__":
    main()
