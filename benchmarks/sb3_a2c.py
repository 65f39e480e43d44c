"""Steps per second on the Mars Rover: rcpo's training beside Stable-Baselines3's A2C with the very same network.

    python benchmarks/sb3_a2c.py --json benchmarks/results/sb3_a2c.jsonl

Both learn from the same pictures with the paper's CNN (appendix B) and RMSprop. Stable-Baselines3 runs rollouts of
5 steps in 16, 64 and 256 copies of `rcpo/MarsRover-v0`, with torch on 1 and on 2 threads. rcpo runs the preset
`mars-rover` (which the ratio is about) and, for comparison, `mars-rover-paper`, whose 16 environments x 5 steps are
what Stable-Baselines3 does. Everything is measured in turns, so that whatever else the machine does slows all alike.
Needs the extra `sb3`. benchmarks/README.md says how to read the result.
"""

import time
from dataclasses import dataclass
from statistics import median

import gymnasium
import jax
import torch
from stable_baselines3 import A2C
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv
from turns import Train, Turn, for_seconds, machine, options, rates, show, show_ratio, turn, write

from rcpo import envs, presets
from rcpo.bench import compiled_programs
from rcpo.config import LearnerConfig
from rcpo.constraints import parse_all
from rcpo.envs.gymnasium_rover import ENV_ID
from rcpo.learn import new_network
from rcpo.networks import CONVOLUTIONS, HIDDEN
from rcpo.run import make_plan

ROLLOUT_STEPS = 5
PRESETS = ("mars-rover", "mars-rover-paper")
PACKAGES = ("rcpo", "jax", "jaxlib", "torch", "stable-baselines3", "gymnasium", "numpy")


@dataclass(frozen=True)
class Contestant:
    """Somebody who trains for at least so many seconds and says how many environment steps that were."""

    name: str
    settings: str
    train: Train


class Trunk(BaseFeaturesExtractor):
    """The paper's three convolutions, as `rcpo.networks` has them."""

    def __init__(self, observation_space: gymnasium.spaces.Box):
        channels, *sides = observation_space.shape
        layers: list[torch.nn.Module] = []
        for outputs, kernel, stride in CONVOLUTIONS:
            layers += [torch.nn.Conv2d(channels, outputs, kernel, stride), torch.nn.ReLU()]
            channels, sides = outputs, [(side - kernel) // stride + 1 for side in sides]
        super().__init__(observation_space, channels * sides[0] * sides[1])
        self.layers = torch.nn.Sequential(*layers, torch.nn.Flatten())

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.layers(observations)


def make_rover() -> gymnasium.Env:
    # Without the checks that Gymnasium makes of every step by default: Stable-Baselines3 at its fastest.
    return gymnasium.make(f"rcpo:{ENV_ID}", disable_env_checker=True, restart_probability=1.0)


def make_learner(actors: int) -> A2C:
    """A2C with the hyper-parameters of Kostrikov (2018): one trunk, heads of 64 units for actor and critic."""
    return A2C(
        "CnnPolicy",
        DummyVecEnv([make_rover] * actors),
        learning_rate=7e-4,
        n_steps=ROLLOUT_STEPS,
        gamma=0.99,
        gae_lambda=1.0,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=0.5,
        rms_prop_eps=1e-5,
        policy_kwargs={
            "features_extractor_class": Trunk,
            "net_arch": {"pi": [HIDDEN], "vf": [HIDDEN]},
            "activation_fn": torch.nn.ReLU,
            "normalize_images": False,
        },
        device="cpu",
        seed=0,
    )


def sb3(actors: int, threads: int) -> Contestant:
    learner = make_learner(actors)
    per_update = actors * ROLLOUT_STEPS

    def train(seconds: float) -> int:
        torch.set_num_threads(threads)
        started = time.perf_counter()
        learner.learn(4 * per_update, log_interval=1_000_000)
        updates = max(1, round(4 * seconds / (time.perf_counter() - started)))
        learner.learn(updates * per_update, log_interval=1_000_000)
        return (4 + updates) * per_update

    return Contestant("Stable-Baselines3", f"{actors} actors, torch threads: {threads}", train)


def ours(preset: str) -> Contestant:
    environment = envs.make_finite("mars-rover")
    config = presets.preset(preset, "mars-rover")
    plan, _ = make_plan(config, parse_all(config.constraints, environment.spec.column_names), environment)
    program = compiled_programs(plan, environment)["train"]

    return Contestant("rcpo", preset, for_seconds(lambda: jax.block_until_ready(program.call()), program.steps))


def check_same_network() -> None:
    """Compare the number of parameters: the comparison is about learners, not about networks."""
    network = new_network(envs.make_finite("mars-rover"), LearnerConfig(), jax.random.key(0))
    here = sum(leaf.size for leaf in jax.tree.leaves(network))
    there = sum(parameter.numel() for parameter in make_learner(1).policy.parameters())
    if here != there:
        raise SystemExit(f"the networks differ: {here} parameters in rcpo, {there} in Stable-Baselines3")


def report(turns: list[Turn]) -> None:
    """The table, and the ratio of the first preset to Stable-Baselines3 at its best."""
    seen = rates(turns, "learner", "settings")
    show(seen)
    best = max((key for key in seen if key[0] != "rcpo"), key=lambda key: median(seen[key]))
    show_ratio(f"\nrcpo {PRESETS[0]} / Stable-Baselines3 at its best ({best[1]})", seen["rcpo", PRESETS[0]], seen[best])


def main() -> None:
    parser = options(__doc__, seconds=3.0)
    parser.add_argument("--actors", type=int, nargs="+", default=[16, 64, 256], help="of Stable-Baselines3")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of torch")
    arguments = parser.parse_args()
    check_same_network()
    contestants = [ours(preset) for preset in PRESETS]
    contestants += [sb3(actors, threads) for actors in arguments.actors for threads in arguments.threads]
    for contestant in contestants:
        contestant.train(0.1)
    head = machine(PACKAGES, seconds=arguments.seconds)
    turns = [turn(one.train, arguments.seconds, learner=one.name, settings=one.settings, repeat=repeat)
             for repeat in range(arguments.repeats) for one in contestants]  # fmt: skip
    write(arguments.json, head, turns)
    report(turns)


if __name__ == "__main__":
    main()
