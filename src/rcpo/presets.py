"""Named settings. A preset is a `TrainConfig`; every field can be changed from the command line."""

from dataclasses import dataclass, replace
from typing import Final, final

from rcpo.config import EvaluationConfig, LearnerConfig, Method, MultiplierConfig, TrainConfig
from rcpo.errors import UsageError, nearest
from rcpo.schedules import Schedule


@final
@dataclass(frozen=True)
class Preset:
    """Settings for one environment, and why they are as they are."""

    environment: str
    purpose: str
    config: TrainConfig


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

PRESETS: Final[dict[str, Preset]] = {
    "mars-rover": Preset(
        "mars-rover",
        "the best settings known here: many environments, a sharp critic, a PI multiplier, everything annealed",
        _ROVER,
    ),
    "mars-rover-primal-dual": Preset(
        "mars-rover",
        "the same for the baseline, which plays whole episodes and so needs fewer of them at a time",
        replace(_ROVER, method="primal-dual", learner=replace(_ROVER.learner, environments=64)),
    ),
    "mars-rover-paper": Preset(
        "mars-rover",
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
    "theory": Preset(
        "fork",
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


def preset(name: str | None, environment: str, method: Method | None = None) -> TrainConfig:
    """The settings of a preset; without a name, the environment's own for the method."""
    fitting = {key: entry.config for key, entry in PRESETS.items() if entry.environment == environment}
    if name is None:
        own = [config for config in fitting.values() if config.method == (method or "rcpo")] or list(fitting.values())
        chosen = own[0] if own else TrainConfig(constraints=())
    elif name not in PRESETS:
        raise UsageError(f"unknown preset {name!r}{nearest(name, PRESETS)}")
    elif name not in fitting:
        others = f"; use {' or '.join(fitting)}" if fitting else ""
        raise UsageError(f"the preset {name!r} is for {PRESETS[name].environment}, not for {environment}{others}")
    else:
        chosen = fitting[name]
    return replace(chosen, method=method) if method else chosen
