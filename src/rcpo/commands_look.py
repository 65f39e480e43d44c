"""The commands that train nothing of the user's: what is there, what is best, how fast it is, what the paper says."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, final

from tyro.conf import Positional

from rcpo import envs as environments
from rcpo import presets
from rcpo.commands import Constraints, read
from rcpo.config import Method
from rcpo.constraints import parse
from rcpo.envs.settings import MarsRoverSettings
from rcpo.errors import UsageError


@final
@dataclass(frozen=True)
class Solve:
    """The exact optimum of a finite environment under constraints: undiscounted, without a cap on the episode."""

    environment: Positional[str]
    """The environment's name (see `rcpo envs`)."""
    constraint: Constraints = ()
    """What must hold; may be given several times."""
    json: bool = False
    """Print one JSON document on standard output."""
    env: MarsRoverSettings = field(default_factory=MarsRoverSettings)


def solve(words: list[str]) -> int:
    """Print the optimum, its values and multipliers."""
    command = read(Solve, words, "solve")
    constraints = [parse(text) for text in command.constraint]
    from rcpo.folder import finite
    from rcpo.truth import solve as find

    found = find(command.environment, constraints, command.env)
    if command.json:
        pairs = zip(constraints, found.values or [float("nan")] * len(constraints), strict=True)
        multipliers = found.multipliers or [float("nan")] * len(constraints)
        document = {
            "env": command.environment,
            "feasible": found.feasible,
            "steps": finite(found.steps),
            "reward": finite(found.reward),
            "constraints": [
                {"constraint": str(c), "value": finite(v), "limit": c.limit, "multiplier": finite(m)}
                for (c, v), m in zip(pairs, multipliers, strict=True)
            ],
            "outcomes": {name: finite(chance) for name, chance in found.outcomes.items()},
            "message": found.message,
        }
        print(json.dumps(document))
        return 0
    if not found.feasible:
        print(f"infeasible: {found.message}")
        return 0
    print(f"{command.environment}: reward {found.reward:.6g}, {found.steps:.6g} steps on average")
    for c, value, multiplier in zip(constraints, found.values, found.multipliers, strict=True):
        print(f"  {c.quantity} = {value:.6g} {'>=' if c.at_least else '<='} {c.limit:g}, multiplier {multiplier:.6g}")
    for outcome, chance in found.outcomes.items():
        print(f"  an episode ends in {outcome} with probability {chance:.6g}")
    return 0


@final
@dataclass(frozen=True)
class Envs:
    """The environments; with a name, its cost columns and spaces."""

    name: Positional[str | None] = None
    """The environment's name."""
    json: bool = False
    """Print one JSON document on standard output."""


def envs(words: list[str]) -> int:
    """List the environments, or say what one of them offers."""
    command = read(Envs, words, "envs")
    if command.name is None:
        if command.json:
            print(json.dumps([{"env": name, "about": about} for name, about in environments.NAMES.items()]))
        else:
            for name, about in environments.NAMES.items():
                print(f"{name:14} {about}")
            print("and any of Gymnasium's by its id, or a class of yours: my_env.py:MyEnv")
        return 0
    spec = environments.make(command.name).spec
    own = environments.preset_of(command.name)
    fitting = [n for n, entry in presets.PRESETS.items() if command.name in entry.environments or n == own]
    if command.json:
        columns = [{"name": c.name, "unit": c.unit, "meaning": c.meaning} for c in spec.columns]
        actions = spec.actions if isinstance(spec.actions, int) else dataclasses.asdict(spec.actions)
        document = {"env": spec.name, "columns": columns, "actions": actions, "max_steps": spec.max_steps,
                    "observation_shape": spec.observation_shape, "presets": fitting}  # fmt: skip
        print(json.dumps(document))
        return 0
    print(f"{spec.name}: {environments.NAMES.get(command.name, 'a Gymnasium environment')}")
    shape = " x ".join(map(str, spec.observation_shape))
    seen = f"sees {shape}" + (" numbers" if len(spec.observation_shape) == 1 else "") if shape else "sees its number"
    options = getattr(spec.actions, "options", None)
    acts = f"{spec.actions} actions" if isinstance(spec.actions, int) else f"{spec.outputs} motors"
    acts = acts if options is None else f"{len(options)} choices of {', '.join(map(str, options))} options"
    print(f"  {seen}; {acts}; at most {spec.max_steps} steps an episode")
    width = max((len(column.name) for column in spec.columns), default=0)
    for column in spec.columns:
        print(f"  {column.name:{width}} [{column.unit}] {column.meaning}")
    for name in fitting:
        print(f"  preset {name}: {presets.PRESETS[name].purpose}")
    return 0


@final
@dataclass(frozen=True)
class Bench:
    """Speed on this machine: the environment alone, the learner alone, and both as they train."""

    environment: Positional[str] = "mars-rover"
    """The environment's name."""
    preset: str | None = None
    """The settings to measure; without one, the environment's own."""
    seconds: float = 3.0
    """How long each part is measured, per repeat."""
    repeats: int = 3
    """How often; the medians are reported."""
    json: bool = False
    """Print one JSON document on standard output."""


def bench(words: list[str]) -> int:
    """Measure and print rates in environment steps a second."""
    command = read(Bench, words, "bench")
    if command.seconds <= 0.0 or command.repeats < 1:
        raise UsageError("give --seconds above 0 and at least 1 of --repeats")
    from rcpo.bench import bench as measure

    result = measure(command.environment, command.preset, command.seconds, command.repeats)
    print(json.dumps(result.document()) if command.json else str(result))
    return 0


@final
@dataclass(frozen=True)
class Paper:
    """The paper's experiments: each trains what is missing, keeps raw results per seed, and draws from those alone."""

    experiment: Positional[Literal["figure1", "figure2", "theory"]]
    """figure1: the map with the learned policies; figure2: RCPO against the primal-dual baseline; theory: Theorem 2."""
    out: Path | None = None
    """The folder of the raw results and the figure; without one, results/EXPERIMENT."""
    seeds: int = 10
    """How many seeds, counted from 0."""
    alphas: tuple[float, ...] = (0.01, 0.5)
    """figure1 and figure2: the limits on P(crash)."""
    methods: tuple[Method, ...] = ("rcpo", "primal-dual")
    """figure2: what is compared."""
    draw_only: bool = False
    """Draw from the raw results that are there, without training."""


def paper(words: list[str]) -> int:
    """Run or redraw an experiment of the paper."""
    command = read(Paper, words, "paper")
    if command.seeds < 1:
        raise UsageError(f"got {command.seeds} seeds; give at least 1")
    from rcpo.experiments import paper as experiments

    out = command.out or Path("results") / command.experiment
    seeds, alphas, draw_only = range(command.seeds), command.alphas, command.draw_only
    if command.experiment == "figure1":
        experiments.run_figure1(out, seeds=seeds, alphas=alphas, draw_only=draw_only)
    elif command.experiment == "figure2":
        experiments.run_figure2(out, seeds=seeds, alphas=alphas, methods=command.methods, draw_only=draw_only)
    else:
        experiments.run_theory(out, seeds=seeds, draw_only=draw_only)
    return 0
