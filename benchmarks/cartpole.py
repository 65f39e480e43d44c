"""Training steps per second on a Gymnasium environment: rcpo's PPO beside Stable-Baselines3's at identical settings.

    python benchmarks/cartpole.py --json benchmarks/results/gym_cartpole.jsonl

Both learn CartPole-v1 with 16 copies x 128 steps a batch, 10 epochs of 32 minibatches of 64, two tanh layers of 64
units for actor and critic each, observations and rewards as they are. The peer runs its own sync vector of copies in
one process, rcpo its own loop; the peer's torch has one thread and two. In the same turns the copies are stepped alone:
rcpo's, Gymnasium's `SyncVectorEnv` with same-step autoreset, and rcpo's in processes. The turns of all contestants
alternate, so that whatever else the machine does slows all of them alike. Needs the extra `sb3`.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from turns import Train, for_seconds, machine, options, rates, show, show_ratio, take_turns, write

COPIES, ROLLOUT_STEPS, MINIBATCHES = 16, 128, 32
PACKAGES = ("rcpo", "jax", "jaxlib", "torch", "stable-baselines3", "gymnasium", "numpy")


def peer(environment: str, threads: int) -> Train:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    batch = COPIES * ROLLOUT_STEPS
    learner = PPO(
        "MlpPolicy",
        make_vec_env(environment, COPIES),
        learning_rate=3e-4,
        n_steps=ROLLOUT_STEPS,
        batch_size=batch // MINIBATCHES,
        n_epochs=10,
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}},
        device="cpu",
        seed=0,
    )

    def once() -> None:
        torch.set_num_threads(threads)
        learner.learn(2 * batch, log_interval=1_000_000, reset_num_timesteps=False)

    return for_seconds(once, 2 * batch)


def ours(environment: str, stack: ExitStack) -> Train:
    """`iterate_on_host`, just as training calls it; what is logged and handed over between is not in it."""
    import jax

    from rcpo import host
    from rcpo.envs.gym import GymEnvironment
    from rcpo.learn import Plan, begin, iterate_on_host
    from rcpo.presets import PRESETS
    from rcpo.schedules import Schedule

    config = PRESETS["gym"].config
    ppo = replace(config.learner.ppo, clip=Schedule(0.2), clip_value=False, minibatches=MINIBATCHES,
                  normalise_observations=False, normalise_rewards=False)  # fmt: skip
    learner = replace(config.learner, environments=COPIES, rollout_steps=ROLLOUT_STEPS, entropy=Schedule(0.0),
                      actor_step_size=Schedule(3e-4), critic_step_size=Schedule(3e-4), ppo=ppo)  # fmt: skip
    plan = Plan(replace(config, learner=learner), (), 1000)
    built = GymEnvironment(environment)
    crews = stack.enter_context(host.crews_of(built, COPIES))
    state = [begin(plan, built, crews)]

    def once() -> None:
        state[0], metrics = iterate_on_host(plan, built, crews, state[0], 1)
        jax.block_until_ready(metrics)

    return for_seconds(once, COPIES * ROLLOUT_STEPS)


def stepping(environment: str, stack: ExitStack) -> dict[str, Train]:
    """The copies alone, under random actions."""
    import gymnasium

    from rcpo.envs.gym import GymEnvironment
    from rcpo.envs.settings import GymSettings

    actions = np.random.default_rng(0).integers(2, size=(ROLLOUT_STEPS, COPIES)).astype(np.int32)
    found: dict[str, Train] = {}

    def loop(step: Callable[[np.ndarray], Any]) -> Callable[[], None]:
        def once() -> None:
            for action in actions:
                step(action)

        return once

    for name, settings in (("rcpo, sync", GymSettings()), ("rcpo, async", GymSettings(vectorization="async"))):
        copies = stack.enter_context(GymEnvironment(environment, settings).open(COPIES))
        copies.reset(0)
        found[f"stepping: {name}"] = for_seconds(loop(copies.step), actions.size)
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    vector = gymnasium.make_vec(environment, COPIES, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode})
    vector.reset(seed=0)
    found["stepping: Gymnasium, sync"] = for_seconds(loop(vector.step), actions.size)
    return found


def report(seen: dict[str, list[float]]) -> None:
    show(seen)
    for name in seen:
        if name.startswith("Stable"):
            show_ratio(f"rcpo / {name}", seen["rcpo"], seen[name])


def main() -> None:
    parser = options(__doc__, seconds=4.0)
    parser.add_argument("--environment", default="CartPole-v1", help="one with two discrete actions")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        contestants = {"rcpo": ours(arguments.environment, stack)}
        contestants |= {f"Stable-Baselines3, torch threads: {n}": peer(arguments.environment, n) for n in (1, 2)}
        contestants |= stepping(arguments.environment, stack)
        for train in contestants.values():
            train(0.5)
        head = machine(PACKAGES, environment=arguments.environment)
        turns = take_turns(contestants, arguments.seconds, arguments.repeats)
    write(arguments.json, head, turns)
    report(rates(turns, "name"))


if __name__ == "__main__":
    main()
