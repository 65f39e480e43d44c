"""Stable-Baselines3's SAC drives a sled as far as a quarter of its motor's power allows.

    pip install torch==2.13.0 && pip install 'rcpo[sb3]'
    python examples/sb3_sac.py

The sled follows its throttle a with some delay, and the throttle takes a^2 of power. The distance is a weighted sum of
the twenty throttles, so the best distance at a mean power of 0.25 is known (Cauchy-Schwarz): 9.03. At full throttle it
is 17.67.
"""

import argparse
from collections.abc import Sequence
from typing import Any, final

import gymnasium
import numpy as np
from stable_baselines3 import SAC

import rcpo
from rcpo.sb3 import PenalisedReplayBuffer

STEPS, RESPONSE = 20, 0.3
LIMIT = "mean(power) <= 0.25"


def best_distance(power: float) -> float:
    """The largest w . a with |a|^2 / T = power, where w_t is how far a throttle at step t carries."""
    weight = 1.0 - (1.0 - RESPONSE) ** np.arange(STEPS, 0, -1)
    return float(np.linalg.norm(weight) * np.sqrt(power * STEPS))


@final
class Sled(gymnasium.Env):
    """It sees its speed and the time, and earns its speed."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.speed, self.time = 0.0, 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        throttle = float(action[0])
        self.speed += RESPONSE * (throttle - self.speed)
        self.time += 1
        return self._see(), self.speed, self.time == STEPS, False, {"power": throttle**2}

    def _see(self) -> np.ndarray:
        return np.array([self.speed, self.time / STEPS], np.float32)


def learn(constraints: Sequence[str], steps: int, seed: int) -> SAC:
    env = rcpo.RewardConstrained(Sled(), constraints, step_size=0.6, episodes_per_update=2, margin=0.08)
    learner = SAC(
        "MlpPolicy",
        env,
        learning_rate=lambda left: 4e-3 * left,
        learning_starts=200,
        batch_size=128,
        train_freq=2,
        gamma=0.95,
        ent_coef=0.002,
        policy_kwargs={"net_arch": [32, 32]},
        # Old rewards, too, are weighed as they would be today.
        replay_buffer_class=PenalisedReplayBuffer,
        replay_buffer_kwargs={"multipliers": env.multipliers},
        seed=seed,
        device="cpu",
    )
    return learner.learn(steps)


def judge(learner: SAC) -> tuple[float, float]:
    """Distance and mean power of an episode of the policy without its noise."""
    env, distance, power, ended = Sled(), 0.0, 0.0, False
    obs, _ = env.reset()
    while not ended:
        obs, reward, ended, _, info = env.step(learner.predict(obs, deterministic=True)[0])
        distance, power = distance + reward, power + info["power"] / STEPS
    return distance, power


def main(arguments: Sequence[str] | None = None) -> dict[str, tuple[float, float]]:
    parser = argparse.ArgumentParser(description="SAC on a quarter of a motor's power, and without that limit.")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    print(f"the best at a mean power of 0.25: distance {best_distance(0.25):.2f}")
    results = {}
    for title, constraints in ((f"with {LIMIT}", [LIMIT]), ("without", [])):
        results[title] = judge(learn(constraints, asked.steps, asked.seed))
        print("{}: distance {:.2f}, mean power {:.3f}".format(title, *results[title]))
    return results


if __name__ == "__main__":
    main()
