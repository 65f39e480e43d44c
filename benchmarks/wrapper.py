"""What the wrapper costs: Stable-Baselines3's PPO on CartPole-v1 with it and without, in turns, in one invocation.

    python benchmarks/wrapper.py --json benchmarks/results/wrapper.jsonl

Eight copies in a DummyVecEnv, torch on one thread. All three contestants step the same environment, which reports how
far the pole leans: plain, with `RewardConstrained` around each copy, and with `RewardConstrainedVecEnv` around all.
The learning rate is 0, so that all act alike and their episodes are equally long; everything is computed all the same.
The ratio of each repeat is that of neighbours in time. Needs the extra `sb3`; benchmarks/README.md says how to read it.
"""

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv
from turns import machine, write

import rcpo
from rcpo.sb3 import RewardConstrainedVecEnv

COPIES, ROLLOUT = 8, 256
LIMIT = "mean(lean) <= 0.02"
PACKAGES = ("torch", "stable-baselines3", "gymnasium", "numpy")
CONTESTANTS = ("plain", "RewardConstrained", "RewardConstrainedVecEnv")


class Leaning(CartPoleEnv):
    """CartPole that also says how far its pole leans."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(int(action))
        return obs, reward, terminated, truncated, {"lean": abs(float(obs[2]))}


def make_env() -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(Leaning(), 500)


def make_learner(contestant: str) -> PPO:
    settings: dict[str, Any] = {"step_size": 0.1}
    if contestant == "RewardConstrained":
        shared = rcpo.Multipliers(LIMIT, **settings)
        env: Any = DummyVecEnv([lambda: rcpo.RewardConstrained(make_env(), shared)] * COPIES)
    else:
        env = DummyVecEnv([make_env] * COPIES)
    if contestant == "RewardConstrainedVecEnv":
        env = RewardConstrainedVecEnv(env, LIMIT, **settings)
    return PPO("MlpPolicy", env, n_steps=ROLLOUT, batch_size=256, learning_rate=0.0, seed=0, device="cpu")


def turn(contestant: str, learner: PPO, updates: int, repeat: int) -> dict[str, str | float]:
    """One measurement."""
    steps = updates * COPIES * ROLLOUT
    started, cpu = time.perf_counter(), time.process_time()
    learner.learn(steps, log_interval=1_000_000)
    elapsed, cpu = time.perf_counter() - started, time.process_time() - cpu
    return {
        "contestant": contestant,
        "repeat": repeat,
        "steps": steps,
        "seconds": round(elapsed, 4),
        "cpu_seconds": round(cpu, 4),
        "steps_per_second": round(steps / elapsed, 1),
    }


def report(turns: list[dict[str, Any]]) -> None:
    """Each contestant's rate, and what it loses against the plain one: on the clock and in the processor's time."""
    repeats = sorted({entry["repeat"] for entry in turns})
    by = {(entry["contestant"], entry["repeat"]): entry for entry in turns}
    print(f"{'contestant':<28}{'steps/s':>10}{'of plain':>10}{'by CPU time':>13}")
    for contestant in CONTESTANTS:
        rate = median(by[contestant, r]["steps_per_second"] for r in repeats)
        ratios = [
            median(by["plain", r][clock] / by[contestant, r][clock] for r in repeats)
            for clock in ("seconds", "cpu_seconds")
        ]
        print(f"{contestant:<28}{rate:>10,.0f}{ratios[0]:>10.3f}{ratios[1]:>13.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=8, help="of PPO, in each measurement")
    parser.add_argument("--repeats", type=int, default=9, help="of all measurements, in turns")
    parser.add_argument("--json", type=Path, help="write every measurement to this file, one JSON object a line")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    learners = {contestant: make_learner(contestant) for contestant in CONTESTANTS}
    for contestant, learner in learners.items():
        turn(contestant, learner, 1, 0)
    head = machine(PACKAGES, limit=LIMIT)
    turns = [
        turn(contestant, learner, arguments.updates, repeat)
        for repeat in range(arguments.repeats)
        for contestant, learner in learners.items()
    ]
    write(arguments.json, head, turns)
    report(turns)


if __name__ == "__main__":
    main()
