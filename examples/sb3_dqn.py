"""Stable-Baselines3's DQN, which has no policy to differentiate, learns to keep within a budget.

    pip install torch==2.13.0 && pip install 'rcpo[sb3]'
    python examples/sb3_dqn.py

A rover passes ten sites and may drill at each. Every hole takes one unit of its battery, and the sites are worth
different amounts. With energy for five holes the best five sites are worth 4.0; all ten, 5.0.
"""

import argparse
from collections.abc import Sequence
from typing import Any, final

import gymnasium
import numpy as np
from stable_baselines3 import DQN

import rcpo
from rcpo.sb3 import PenalisedReplayBuffer

WORTH = (0.2, 0.9, 0.1, 1.0, 0.25, 0.6, 0.3, 0.8, 0.15, 0.7)
LIMIT = "sum(energy) <= 5"


@final
class Prospector(gymnasium.Env):
    """It sees which site it has come to; action 1 drills there."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (len(WORTH),), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.site = 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        drilled = int(action) == 1
        reward = WORTH[self.site] if drilled else 0.0
        self.site += 1
        return self._see(), reward, self.site == len(WORTH), False, {"energy": float(drilled)}

    def _see(self) -> np.ndarray:
        return np.eye(len(WORTH) + 1, len(WORTH), dtype=np.float32)[self.site]


def learn(constraints: Sequence[str], steps: int, seed: int) -> DQN:
    env = rcpo.RewardConstrained(Prospector(), constraints, step_size=0.02, episodes_per_update=5)
    learner = DQN(
        "MlpPolicy",
        env,
        learning_rate=2e-3,
        learning_starts=200,
        target_update_interval=200,
        exploration_fraction=0.3,
        gamma=0.9,
        policy_kwargs={"net_arch": [64]},
        # Old rewards, too, are weighed as they would be today.
        replay_buffer_class=PenalisedReplayBuffer,
        replay_buffer_kwargs={"multipliers": env.multipliers},
        seed=seed,
        device="cpu",
    )
    return learner.learn(steps)


def judge(learner: DQN) -> tuple[float, float]:
    """True reward and energy of an episode of the greedy policy."""
    env, worth, energy, ended = Prospector(), 0.0, 0.0, False
    obs, _ = env.reset()
    while not ended:
        obs, reward, ended, _, info = env.step(learner.predict(obs, deterministic=True)[0])
        worth, energy = worth + reward, energy + info["energy"]
    return worth, energy


def main(arguments: Sequence[str] | None = None) -> dict[str, tuple[float, float]]:
    parser = argparse.ArgumentParser(description="DQN on a budget, and without.")
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    results = {}
    for title, constraints in ((f"with {LIMIT}", [LIMIT]), ("without", [])):
        results[title] = judge(learn(constraints, asked.steps, asked.seed))
        print("{}: worth {:.2f}, energy {:g}".format(title, *results[title]))
    return results


if __name__ == "__main__":
    main()
