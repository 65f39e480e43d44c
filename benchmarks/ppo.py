"""Training steps per second on a robot: rcpo's PPO beside Stable-Baselines3's and SBX's with the same hyper-parameters.

    python benchmarks/ppo.py --json benchmarks/results/ppo_halfcheetah.jsonl
    python benchmarks/ppo.py --environment Humanoid-v5 --json benchmarks/results/ppo_humanoid.jsonl

All learn HalfCheetah-v5 with the paper's settings: 2,048 steps a batch, 10 epochs of 32 minibatches of 64, two tanh
layers of 64 units for actor and critic each, observations and returns normalised. The peers run 16 environments x 128
steps in one process (their fastest here), rcpo its preset `paper` (64 x 32). In the same turns the bound is measured,
1 / (1 / physics + 1 / learner), with physics the raw `Batch.step` alone and learner rcpo's update alone; and so is peak
memory. Each turn lasts some seconds and the turns of all contestants alternate, so that whatever else the machine does
slows all of them alike. Needs the extra `sb3`, and `sbx-rl` for the second peer.
"""

import resource
import time
from contextlib import ExitStack
from typing import Any

import jax
from turns import Train, for_seconds, machine, options, rates, show, show_ratio, take_turns, write

from rcpo.bench import Program, prepared

ACTORS, ROLLOUT_STEPS, MINIBATCH = 16, 128, 64
PACKAGES = ("rcpo", "jax", "jaxlib", "torch", "stable-baselines3", "sbx-rl", "gymnasium", "mujoco", "numpy")


def peer(kind: Any, environment: str, threads: int, **network: Any) -> Train:
    """PPO of Stable-Baselines3 or of SBX, which share their interface."""
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    copies = VecNormalize(make_vec_env(environment, ACTORS), gamma=0.99)
    learner = kind(
        "MlpPolicy",
        copies,
        learning_rate=3e-4,
        n_steps=ROLLOUT_STEPS,
        batch_size=MINIBATCH,
        n_epochs=10,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        ent_coef=0.0,
        vf_coef=0.5,
        max_grad_norm=0.5,
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}, **network},
        device="cpu",
        seed=0,
    )
    batch = ACTORS * ROLLOUT_STEPS

    def train(seconds: float) -> int:
        torch.set_num_threads(threads)
        batches, started = 0, time.perf_counter()
        while batches == 0 or time.perf_counter() - started < seconds:
            learner.learn(4 * batch, log_interval=1_000_000, reset_num_timesteps=False)
            batches += 4
        return batches * batch

    return train


def peers(environment: str) -> dict[str, Train]:
    """Whoever is installed."""
    found: dict[str, Train] = {}
    try:
        from stable_baselines3 import PPO
    except ImportError:
        print("Stable-Baselines3 is not installed: left out")
        return found
    found |= {f"Stable-Baselines3, torch threads: {n}": peer(PPO, environment, n) for n in (1, 2)}
    try:
        import flax.linen
        from sbx import PPO as JaxPPO
    except ImportError:
        print("SBX is not installed: left out")
        return found
    return found | {"SBX": peer(JaxPPO, environment, 1, activation_fn=flax.linen.tanh)}


def ours(program: Program) -> Train:
    return for_seconds(lambda: jax.block_until_ready(program.call()), program.steps)


def report(seen: dict[str, list[float]]) -> None:
    show(seen)
    physics, learner, train = (seen[f"rcpo, {part}"] for part in ("physics", "learner", "train"))
    show_ratio("\nrcpo / its bound", train, [1 / (1 / p + 1 / u) for p, u in zip(physics, learner, strict=True)], 2)
    for name in seen:
        if not name.startswith("rcpo"):
            show_ratio(f"rcpo / {name}", train, seen[name])


def main() -> None:
    parser = options(__doc__, seconds=4.0)
    parser.add_argument("--environment", default="HalfCheetah-v5", help="one of the robots")
    parser.add_argument("--alone", action="store_true", help="leave the peers out")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        programs = stack.enter_context(prepared(arguments.environment, "paper"))
        contestants = {f"rcpo, {name}": ours(program) for name, program in programs.items()}
        for train in contestants.values():
            train(1.0)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        if not arguments.alone:
            contestants |= peers(arguments.environment)
        for train in contestants.values():
            train(0.1)
        head = machine(PACKAGES, environment=arguments.environment, rcpo_peak_memory_gib=round(memory, 3))
        turns = take_turns(contestants, arguments.seconds, arguments.repeats)
    write(arguments.json, head, turns)
    print(f"{arguments.environment}, training steps a second; rcpo's peak memory {memory:.2f} GiB")
    report(rates(turns, "name"))


if __name__ == "__main__":
    main()
