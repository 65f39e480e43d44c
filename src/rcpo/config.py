"""Everything that can be set, and the named presets. Light: the command line reads this without importing JAX."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, final

from tyro.conf import AvoidSubcommands, Suppress

from rcpo.envs.settings import EnvironmentSettings, MarsRoverSettings
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
    measure: Literal["episodes", "steps"] = "episodes"
    """What moves the multipliers. episodes: the values of the episodes that finished; steps: for mean(column) the
    average over the rollout's steps, for sum(column) that times how long episodes were lately. This is there in every
    iteration, while episodes of 1,000 steps end long after the policy that began them (other functionals are measured
    on episodes)."""
    margin: float = 0.0
    """How far inside the limit to aim, as a share of the limit."""
    ramp: float = 0.0
    """The share of the run over which the limit moves from `ramp_start` to its place; 0: it is there from the first."""
    ramp_start: float = 1.0
    """Where a ramp starts, as a multiple of what the untrained policy spends."""
    relative: bool = False
    """Measure the violation in units of the limit and clip it to [-clip, clip]. A limit of 0.01 can be missed by 0.99
    from above but by 0.01 at most from below: unclipped, a multiplier rises a hundred times faster than it falls."""
    clip: float = 1.0
    """relative only: the largest violation that counts, in units of the limit. Where only a few episodes end in an
    iteration, what they measure is mostly chance, and a tight clip shifts its average: give a large number there."""

    def __post_init__(self) -> None:
        if self.maximum < 0.0:
            raise UsageError(f"got lambda_max {self.maximum:g}; give a number that is not negative")
        if not 0.0 <= self.initial <= self.maximum:
            raise UsageError(f"got the multiplier {self.initial:g}; it lies in [0, lambda_max = {self.maximum:g}]")
        if self.step_size.initial < 0.0:
            raise UsageError(f"got the multiplier's step size {self.step_size.initial:g}; it must not be negative")
        if not 0.0 <= self.margin < 1.0:
            raise UsageError(f"got the margin {self.margin:g}; it lies in [0, 1)")
        if not 0.0 <= self.ramp <= 1.0:
            raise UsageError(f"got a ramp over {self.ramp:g} of the run; it lies in [0, 1]")
        if self.ramp_start < 0.0:
            raise UsageError(f"got the start of the ramp {self.ramp_start:g}; give a multiple that is not negative")
        if not self.clip > 0.0:
            raise UsageError(f"got the clip {self.clip:g} of the violation; give a number above 0")
        if self.proportional < 0.0:
            raise UsageError(f"got the proportional gain {self.proportional:g}; give one that is not negative")

    @property
    def gains(self) -> tuple[Schedule, float]:
        """What `rule` leaves of the two gains."""
        integral = replace(self.step_size, initial=0.0) if self.rule == "fixed" else self.step_size
        return integral, self.proportional if self.rule == "pi" else 0.0


@final
@dataclass(frozen=True)
class PPOConfig:
    """What only proximal policy optimisation knows (Schulman et al. 2017)."""

    epochs: int = 10
    """How often each rollout is gone through."""
    minibatches: int = 32
    """Into how many parts, each a gradient step."""
    clip: Schedule = Schedule(0.2)
    """How far the ratio of new to old probabilities counts."""
    clip_value: bool = False
    """Keep the critic, too, within `clip` of what it said before the update."""
    hidden: tuple[int, ...] = (64, 64)
    """Units of the hidden layers, of the actor as of the critic."""
    initial_std: float = 1.0
    """The first standard deviation of each motor's action, in halves of its range."""
    normalise_observations: bool = True
    """Standardise what is seen by running statistics."""
    normalise_rewards: bool = True
    """Divide rewards by the running standard deviation of the discounted returns."""
    penalise_normalised: bool = False
    """Subtract the penalty after that division, not before: the multiplier then means the same whatever the scale of
    the task's rewards."""
    centred_penalty: bool = False
    """For mean(column) charge lambda (c - limit), not lambda c: the exact Lagrangian where episodes may end early.
    Without it every step alive is taxed, and a robot learns to fall."""
    spread_starts: bool = False
    """Cut the first episode of every copy at a random step, so that they do not all end in the same iteration."""

    def __post_init__(self) -> None:
        for name in ("epochs", "minibatches"):
            if getattr(self, name) < 1:
                raise UsageError(f"got {getattr(self, name)} for {name}; give at least 1")
        if not self.initial_std > 0.0:
            raise UsageError(f"got the initial standard deviation {self.initial_std:g}; give a number above 0")
        if any(units < 1 for units in self.hidden):
            raise UsageError(f"got hidden layers of {self.hidden} units; give at least 1 each")


@final
@dataclass(frozen=True)
class LearnerConfig:
    """Actor and critic."""

    algorithm: Literal["a2c", "ppo"] = "a2c"
    """a2c: for environments written in JAX; ppo: for environments on the host."""
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
    """a2c only: the probability that a training episode starts in a random state (the paper's random restarts)."""
    ppo: PPOConfig = PPOConfig()

    def __post_init__(self) -> None:
        for name, step_size in (("actor", self.actor_step_size), ("critic", self.critic_step_size)):
            if step_size.initial < 0.0 or step_size.final < 0.0:
                raise UsageError(f"got the {name}'s step size {min(step_size.initial, step_size.final):g}; "
                                 "give one that is not negative")  # fmt: skip
        for name in ("environments", "rollout_steps"):
            if getattr(self, name) < 1:
                raise UsageError(f"got {getattr(self, name)} for {name}; give at least 1")
        batch = self.environments * self.rollout_steps
        if self.algorithm == "ppo" and batch % self.ppo.minibatches:
            raise UsageError(f"got {self.environments} environments x {self.rollout_steps} steps, which cannot be "
                             f"divided into {self.ppo.minibatches} minibatches; give numbers that divide")  # fmt: skip
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
    """Episodes of each such evaluation; 0: none, what training saw of its own episodes speaks for the policy."""
    shortlist_episodes: int = 40_000
    """Fresh episodes for each policy that looks good enough to be handed over."""
    verdict_episodes: int = 100_000
    """Fresh episodes on which the policy to hand over is verified."""
    looks: int = 4
    """How many policies may be put to that test; the 5 % of error are shared among them."""
    training_looks: int = 0
    """How many candidates may be put to such a test along the way, on the shortlist's number of episodes; they share
    the 5 % of error with the looks at the end. 0: all is verified at the end, which needs the fewest episodes."""
    confidence: float = 0.95
    """The confidence of every interval and verdict."""
    mixture: bool = True
    """Allow the policy handed over to be a mixture, which picks one of a few networks at the start of each episode."""

    def __post_init__(self) -> None:
        for name in ("episodes", "training_looks"):
            if getattr(self, name) < 0:
                raise UsageError(f"got {getattr(self, name)} for {name}; give a number that is not negative")
        for name in ("points", "shortlist_episodes", "verdict_episodes", "looks"):
            if getattr(self, name) < 1:
                raise UsageError(f"got {getattr(self, name)} for {name}; give at least 1")
        if not 0.5 <= self.confidence < 1.0:
            raise UsageError(f"got the confidence {self.confidence:g}; it lies in [0.5, 1)")


@final
@dataclass(frozen=True)
class CheckpointConfig:
    """When a run writes down what it goes on from."""

    every: int = 1
    """At least so many points of the run lie between two checkpoints."""
    share: float = 0.01
    """The largest share of the time that may go into writing them: where they are dear they are rare."""
    episodes: int = 10
    """Copies of an environment that cannot be saved are reset at every checkpoint, so that a run goes the same way
    whether it was interrupted or not. Between two checkpoints each of them then takes the steps of at least so many of
    the longest episodes; `share` is not looked at, since the clock must not decide."""

    def __post_init__(self) -> None:
        for name in ("every", "episodes"):
            if getattr(self, name) < 1:
                raise UsageError(f"got {getattr(self, name)} for {name} of the checkpoints; give at least 1")
        if not 0.0 < self.share <= 1.0:
            raise UsageError(f"got the share {self.share:g} of the time for checkpoints; it lies in (0, 1]")


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
    checkpoint: CheckpointConfig = CheckpointConfig()
    env: Annotated[EnvironmentSettings, AvoidSubcommands] = field(default_factory=MarsRoverSettings)

    def __post_init__(self) -> None:
        if not 1.0 <= self.steps < float("inf"):
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
