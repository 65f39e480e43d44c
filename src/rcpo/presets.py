"""Named settings. A preset is a `TrainConfig`; every field can be changed from the command line."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, final

from rcpo.config import EvaluationConfig, LearnerConfig, Method, MultiplierConfig, PPOConfig, TrainConfig
from rcpo.envs import ROBOTS
from rcpo.envs.settings import GymSettings, RobotSettings
from rcpo.errors import UsageError, nearest
from rcpo.schedules import Schedule
from rcpo.velocity import VELOCITY, constraint, preset_name


@final
@dataclass(frozen=True)
class Preset:
    """Settings for one environment or several, and what for."""

    environments: tuple[str, ...]
    purpose: str
    config: TrainConfig
    exceptions: Mapping[str, Callable[[LearnerConfig], LearnerConfig]] = field(default_factory=dict)
    """What an environment truly needs to be different."""

    def config_for(self, environment: str) -> TrainConfig:
        change = self.exceptions.get(environment)
        return replace(self.config, learner=change(self.config.learner)) if change else self.config


def _power(initial: float, exponent: float) -> Schedule:
    return Schedule(initial, "power", exponent=exponent, offset=1000.0)


_ROVER: Final = TrainConfig(
    steps=4e7,
    learner=LearnerConfig(
        environments=1024,
        rollout_steps=16,
        actor_step_size=Schedule(1e-3, "linear", final=1e-4),
        # Routes differ by a few hundredths in value: a critic that errs by more never tells them apart.
        critic_step_size=Schedule(4e-3, "linear", final=4e-4),
        value_coefficient=2.0,
        # Much entropy for most of the run: with little, the first safe route found is the last.
        entropy=Schedule(0.1, "linear", final=0.005, over=0.8),
        # The multiplier is worth a path of 50 steps, so the far end of it has to count.
        discount=0.998,
        gae_decay=0.95,
        normalise_advantage=True,
        # Exploring starts stay: they keep the values of places off the present route right.
        exploring=Schedule(0.8, "linear", final=0.5),
    ),
    multipliers=MultiplierConfig(
        rule="pi", initial=0.6, maximum=100.0, step_size=Schedule(0.007), proportional=0.5, relative=True
    ),
)

_BATCH: Final = 2048
_LATE_2018: Final = LearnerConfig(
    algorithm="ppo",
    environments=64,
    rollout_steps=_BATCH // 64,
    actor_step_size=Schedule(3e-4, "linear"),
    critic_step_size=Schedule(1.5e-4, "linear"),
    optimiser="adam",
    gradient_clip=0.5,
    entropy=Schedule(0.0),
    value_coefficient=0.5,
    discount=0.99,
    gae_decay=0.95,
    normalise_advantage=True,
    exploring=Schedule(0.0),
    ppo=PPOConfig(clip=Schedule(0.2, "linear"), clip_value=True),
)
"""The paper's appendix B; where it is silent, PPO as Kostrikov had it in late 2018."""

_ROBOT: Final = replace(
    _LATE_2018,
    divide_by_multiplier=True,
    critic_step_size=Schedule(3e-4, "linear"),
    ppo=PPOConfig(
        # A standard deviation of 1 spends 60 % mean torque on noise alone, this one 29 %.
        initial_std=0.37,
        penalise_normalised=True,
        centred_penalty=True,
        spread_starts=True,
    ),
)

_GYM: Final = replace(
    _ROBOT,
    environments=16,
    rollout_steps=128,
    # Small tasks are learned in some ten thousand steps: faster steps, and no more than a start with much noise.
    actor_step_size=Schedule(1e-3, "linear"),
    critic_step_size=Schedule(1e-3, "linear"),
    entropy=Schedule(0.01, "linear"),
)


def _long_horizon(learner: LearnerConfig) -> LearnerConfig:
    """The swimmer's strokes pay off only after it has glided: with a short view it never learns to swim."""
    return replace(learner, discount=0.9999, gae_decay=0.98, environments=16, rollout_steps=_BATCH // 16)


def _larger_steps(learner: LearnerConfig) -> LearnerConfig:
    """The hopper falls early for most of the run, and with it the steps that it could learn from are few."""
    step_size = Schedule(6e-4, "linear")
    return replace(learner, actor_step_size=step_size, critic_step_size=step_size)


PRESETS: Final[dict[str, Preset]] = {
    "mars-rover": Preset(
        ("mars-rover",),
        "the best settings known here: many environments, a sharp critic, a PI multiplier, everything annealed",
        _ROVER,
    ),
    "mars-rover-primal-dual": Preset(
        ("mars-rover",),
        "the same for the baseline, which plays whole episodes and so needs fewer of them at a time",
        replace(_ROVER, method="primal-dual", learner=replace(_ROVER.learner, environments=64)),
    ),
    "mars-rover-paper": Preset(
        ("mars-rover",),
        "the paper's appendix B to the letter; where it is silent, the A2C defaults of Kostrikov (2018)",
        TrainConfig(
            steps=5e6,
            learner=LearnerConfig(
                environments=16,
                rollout_steps=5,
                actor_step_size=Schedule(1e-3),
                critic_step_size=Schedule(5e-4),
                optimiser="rmsprop",
                gradient_clip=0.5,
                entropy=Schedule(0.01),
                value_coefficient=0.5,
                discount=0.99,
                gae_decay=1.0,
                exploring=Schedule(1.0, "linear", final=0.0),
            ),
            multipliers=MultiplierConfig(rule="integral", initial=0.6, step_size=Schedule(2.5e-5)),
            evaluation=EvaluationConfig(episodes=1024),
        ),
    ),
    "robot": Preset(
        tuple(ROBOTS),
        "the best settings known here, one set for all robots and limits",
        TrainConfig(
            constraints=("mean(torque) <= 0.25",),
            steps=1e6,
            learner=_ROBOT,
            multipliers=MultiplierConfig(
                rule="pi",
                measure="steps",
                relative=True,
                step_size=Schedule(0.1),
                proportional=4.0,
                maximum=100.0,
                margin=0.02,
                ramp=0.6,
            ),
            evaluation=EvaluationConfig(episodes=0, shortlist_episodes=64, verdict_episodes=128, mixture=False),
            env=RobotSettings(),
        ),
        exceptions={"Swimmer-v5": _long_horizon, "Hopper-v5": _larger_steps},
    ),
    "paper": Preset(
        tuple(ROBOTS),
        "the paper's appendix B; where it is silent, PPO as Kostrikov had it in late 2018",
        TrainConfig(
            constraints=("mean(torque) <= 0.25",),
            steps=1e6,
            learner=_LATE_2018,
            multipliers=MultiplierConfig(
                # 5e-7 and kappa = 1 - 1e-9 per environment step.
                step_size=Schedule(5e-7 * _BATCH, "geometric", factor=(1.0 - 1e-9) ** _BATCH)
            ),
            evaluation=EvaluationConfig(episodes=0, shortlist_episodes=64, verdict_episodes=128, mixture=False),
            env=RobotSettings(),
        ),
    ),
    "gym": Preset(
        (),
        "any Gymnasium environment: PPO for small tasks, with discrete or continuous actions",
        TrainConfig(
            constraints=(),
            steps=2e5,
            learner=_GYM,
            multipliers=MultiplierConfig(
                rule="pi",
                relative=True,
                # Of long episodes, a few end in an iteration: a clip at 1 would let one that misses a limit of 0.05 by
                # 0.95 weigh no more than one that keeps it by 0.05.
                clip=3.0,
                step_size=Schedule(0.3),
                proportional=1.0,
                maximum=100.0,
                margin=0.1,
                ramp=0.3,
            ),
            evaluation=EvaluationConfig(episodes=0, shortlist_episodes=200, verdict_episodes=1000, mixture=False),
            env=GymSettings(),
        ),
    ),
    "theory": Preset(
        ("fork",),
        "Theorem 2 at work: a table of parameters in a box, step sizes that keep the conditions of Assumption 3",
        TrainConfig(
            constraints=("P(crash) <= 0.05",),
            steps=64 * 8 * 20_000,
            theory=True,
            learner=LearnerConfig(
                environments=64,
                rollout_steps=8,
                actor_step_size=_power(4.0, 0.7),
                critic_step_size=_power(6.0, 0.55),
                optimiser="sgd",
                gradient_clip=0.0,
                # The optimum randomises, and there the gradient of a linear program is flat: without a little entropy
                # the policy circles around the saddle point instead of arriving. It vanishes, so the limit is the LP's.
                entropy=_power(0.1, 0.6),
                discount=1.0,
                gae_decay=1.0,
                box=4.0,
                exploring=Schedule(0.0),
            ),
            multipliers=MultiplierConfig(rule="integral", initial=0.0, maximum=10.0, step_size=_power(1.0, 1.0)),
        ),
    ),
}


def _velocity(robot: str) -> Preset:
    config = replace(PRESETS["robot"].config, constraints=(constraint(robot),))
    if robot == "Swimmer-v5":
        # It is too fast at the start of an episode alone, which few of its rollouts see: clipped at 1, what those say
        # is outvoted by all the others.
        config = replace(config, multipliers=replace(config.multipliers, clip=3.0))
    purpose = f"the robot's speed limit in Safety-Gymnasium: {constraint(robot)}"
    return Preset((robot,), purpose, config, PRESETS["robot"].exceptions)


PRESETS.update({preset_name(robot): _velocity(robot) for robot in VELOCITY})


def preset(name: str | None, environment: str, method: Method | None = None, own: str | None = None) -> TrainConfig:
    """The settings of a preset; without a name, the environment's own for the method.

    For an environment of the user's, `own` names the preset to take unless another is asked for; any may be.
    """
    if name is not None and name not in PRESETS:
        raise UsageError(f"unknown preset {name!r}{nearest(name, PRESETS)}")
    fitting = {key: entry for key, entry in PRESETS.items() if environment in entry.environments}
    if name is None and own is None:
        configs = [entry.config_for(environment) for entry in fitting.values()]
        same = [config for config in configs if config.method == (method or "rcpo")] or configs
        chosen = same[0] if same else TrainConfig(constraints=())
    elif name is not None and name not in fitting and own is None:
        others = f"; use {' or '.join(fitting)}" if fitting else ""
        meant = ", ".join(PRESETS[name].environments) or "environments of Gymnasium's"
        raise UsageError(f"the preset {name!r} is for {meant}, not for {environment}{others}")
    else:
        chosen = PRESETS[name or str(own)].config_for(environment)
    if own == "gym":
        chosen = replace(chosen, env=GymSettings())
    return replace(chosen, method=method) if method else chosen
