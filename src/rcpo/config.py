"""Everything that can be set, and the named presets. Light: the command line reads this without importing JAX."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, final

from tyro.conf import Suppress

from rcpo.envs.settings import MarsRoverSettings
from rcpo.errors import UsageError
from rcpo.schedules import Schedule, broken_conditions


@final
@dataclass(frozen=True)
class MultiplierConfig:
    """How the multipliers move. The paper's rule is `integral`."""

    rule: Literal["fixed", "integral", "pi"] = "integral"
    """fixed: stay at `initial`; integral: the paper's projected ascent; pi: a proportional term beside it."""
    initial: float = 0.0
    """Where every multiplier starts."""
    maximum: float = 1000.0
    """lambda_max: multipliers are projected onto [0, lambda_max]."""
    step_size: Schedule = Schedule(0.01)
    """eta_1: how far one unit of violation moves the multiplier, per iteration in which an episode finished."""
    proportional: float = 0.0
    """pi only: how much of the present violation is added to the multiplier."""
    relative: bool = False
    """Measure the violation in units of the limit and clip it to [-1, 1]. A limit of 0.01 can be missed by 0.99 from
    above but by 0.01 at most from below: unclipped, a multiplier rises a hundred times faster than it falls."""

    def __post_init__(self) -> None:
        if self.maximum < 0.0:
            raise UsageError(f"got lambda_max {self.maximum:g}; give a number that is not negative")
        if not 0.0 <= self.initial <= self.maximum:
            raise UsageError(f"got the multiplier {self.initial:g}; it lies in [0, lambda_max = {self.maximum:g}]")
        if self.step_size.initial < 0.0:
            raise UsageError(f"got the multiplier's step size {self.step_size.initial:g}; it must not be negative")
        if self.proportional < 0.0:
            raise UsageError(f"got the proportional gain {self.proportional:g}; give one that is not negative")

    @property
    def gains(self) -> tuple[Schedule, float]:
        """What `rule` leaves of the two gains."""
        integral = replace(self.step_size, initial=0.0) if self.rule == "fixed" else self.step_size
        return integral, self.proportional if self.rule == "pi" else 0.0


@final
@dataclass(frozen=True)
class LearnerConfig:
    """Actor and critic."""

    environments: int = 16
    """How many environments run side by side."""
    rollout_steps: int = 5
    """Steps of each environment between two updates; primal-dual always runs whole episodes instead."""
    actor_step_size: Schedule = Schedule(1e-3)
    """eta_2: the step size of the policy and of what it shares with the critic."""
    critic_step_size: Schedule = Schedule(5e-4)
    """eta_3: the step size of the critic's own layers."""
    optimiser: Literal["rmsprop", "adam", "sgd"] = "rmsprop"
    """What preconditions the gradient."""
    gradient_clip: float = 0.5
    """The largest norm of a gradient; 0 for none."""
    entropy: Schedule = Schedule(0.01)
    """The weight of the policy's entropy in the loss."""
    value_coefficient: float = 0.5
    """The weight of the critic's squared error in the loss."""
    discount: float = 0.99
    """gamma."""
    gae_decay: float = 1.0
    """tau of generalised advantage estimation; 1 is the n-step return of the paper's Algorithm 2."""
    normalise_advantage: bool = False
    """Give the advantages of each rollout mean 0 and standard deviation 1."""
    divide_by_multiplier: bool = False
    """Divide the penalised reward by 1 + lambda, so that it keeps its size as lambda grows."""
    box: float | None = None
    """Gamma_theta: project every parameter of the policy onto [-box, box]."""
    exploring: Schedule = Schedule(1.0, "linear")
    """The probability that a training episode starts in a random state (the paper's random restarts)."""

    def __post_init__(self) -> None:
        for name, step_size in (("actor", self.actor_step_size), ("critic", self.critic_step_size)):
            if step_size.initial < 0.0 or step_size.final < 0.0:
                raise UsageError(f"got the {name}'s step size {min(step_size.initial, step_size.final):g}; "
                                 "give one that is not negative")  # fmt: skip
        for name in ("environments", "rollout_steps"):
            if getattr(self, name) < 1:
                raise UsageError(f"got {getattr(self, name)} for {name}; give at least 1")
        for name in ("discount", "gae_decay"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UsageError(f"got {name} {getattr(self, name):g}; it lies in [0, 1]")
        if not (0.0 <= self.exploring.initial <= 1.0 and 0.0 <= self.exploring.final <= 1.0):
            raise UsageError("got a probability of exploring starts outside [0, 1]")


@final
@dataclass(frozen=True)
class EvaluationConfig:
    """Fresh episodes: along the way for the learning curve, at the end for the verdict."""

    points: int = 50
    """How often, spread evenly over the run, the policy is evaluated on fresh episodes."""
    episodes: int = 2048
    """Episodes of each such evaluation."""
    shortlist_episodes: int = 40_000
    """Fresh episodes for each policy that looks good enough to be handed over."""
    verdict_episodes: int = 100_000
    """Fresh episodes on which the policy to hand over is verified."""
    looks: int = 4
    """How many policies may be put to that test; the 5 % of error are shared among them."""
    confidence: float = 0.95
    """The confidence of every interval and verdict."""
    mixture: bool = True
    """Allow the policy handed over to be a mixture, which picks one of a few networks at the start of each episode."""

    def __post_init__(self) -> None:
        for name in ("points", "episodes", "shortlist_episodes", "verdict_episodes", "looks"):
            if getattr(self, name) < 1:
                raise UsageError(f"got {getattr(self, name)} for {name}; give at least 1")
        if not 0.5 <= self.confidence < 1.0:
            raise UsageError(f"got the confidence {self.confidence:g}; it lies in [0.5, 1)")


Method = Literal["rcpo", "primal-dual", "fixed"]


@final
@dataclass(frozen=True)
class TrainConfig:
    """One run."""

    constraints: Annotated[tuple[str, ...], Suppress] = ("P(crash) <= 0.01",)
    """What must hold (the command line says --constraint)."""
    method: Method = "rcpo"
    """rcpo: the paper's algorithm; primal-dual: its baseline, the Lagrangian by Monte Carlo without a critic;
    fixed: a fixed multiplier (with 0, plain A2C)."""
    steps: float = 1e6
    """Environment steps to train for."""
    seed: int = 0
    """The seed of everything random."""
    theory: bool = False
    """Refuse step sizes that break the paper's conditions (otherwise they are only warned of)."""
    learner: LearnerConfig = LearnerConfig()
    multipliers: MultiplierConfig = MultiplierConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    env: MarsRoverSettings = field(default_factory=MarsRoverSettings)

    def __post_init__(self) -> None:
        if not self.steps >= 1.0:
            raise UsageError(f"got {self.steps:g} steps; give at least 1")
        if self.seed < 0:
            raise UsageError(f"got the seed {self.seed}; give one that is not negative")
        broken = self.broken_conditions
        if self.theory and broken:
            raise UsageError(f"the step sizes break the conditions of Theorem 2: {'; '.join(broken)}")

    @property
    def broken_conditions(self) -> list[str]:
        """Which of the paper's step-size conditions do not hold."""
        multiplier = None if self.rule.rule == "fixed" or not self.constraints else self.multipliers.step_size
        critic = None if self.method == "primal-dual" else self.learner.critic_step_size
        return broken_conditions(multiplier, self.learner.actor_step_size, critic)

    @property
    def rule(self) -> MultiplierConfig:
        """The multiplier's rule: method `fixed` overrules it."""
        return replace(self.multipliers, rule="fixed") if self.method == "fixed" else self.multipliers
