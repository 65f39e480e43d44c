"""What each command takes and prints."""

import dataclasses
import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, final, get_args

import tyro
from tyro.conf import Positional, UseAppendAction, arg

from rcpo import envs as environments
from rcpo import presets
from rcpo.config import Method, TrainConfig
from rcpo.constraints import parse
from rcpo.errors import UsageError
from rcpo.files import write_atomically
from rcpo.stopping import listening

if TYPE_CHECKING:
    from rcpo.evaluation import Evaluation
    from rcpo.loggers import Logger
    from rcpo.run import Run

Command = TypeVar("Command")
Constraints = Annotated[UseAppendAction[tuple[str, ...]], arg(metavar='"P(crash) <= 0.01"')]


def read(kind: type[Command], words: list[str], name: str, default: Command | None = None) -> Command:
    """The command's options from its words."""
    command: Command = tyro.cli(kind, args=words, prog=f"rcpo {name}", default=default)  # type: ignore[assignment]
    return command


@final
@dataclass(frozen=True)
class Train:
    """Train a policy that keeps a promise."""

    environment: Positional[str]
    """The environment's name (see `rcpo envs`)."""
    preset: str | None = None
    """Named settings to start from; without one, the environment's own."""
    constraint: Constraints = ()
    """What must hold; may be given several times. Without one, the preset's."""
    multiplier: float | None = None
    """Where every multiplier starts; with --method fixed, where it stays."""
    out: Path | None = None
    """The folder to write to; without one, runs/ENVIRONMENT-METHOD-seedSEED."""
    overwrite: bool = False
    """Write into a folder that already holds a run."""
    pictures: bool = True
    """Draw the learning curves, the map with the policy or the robot at work; write the report page."""
    log: Annotated[UseAppendAction[tuple[Literal["tensorboard", "wandb"], ...]], arg(metavar="tensorboard|wandb")] = ()
    """Log to TensorBoard or W&B too, into the run's folder (W&B sends nothing unless WANDB_MODE=online); may be given
    several times."""
    require_satisfied: bool = False
    """Exit with code 3 unless the policy is verified to keep every constraint."""
    json: bool = False
    """Print one JSON document on standard output; progress goes to standard error."""
    config: Annotated[TrainConfig, arg(name="")] = field(default_factory=TrainConfig)


def train(words: list[str]) -> int:
    """Train, write the run's folder, say what can be proved."""
    command = read(Train, words, "train", default=_train_defaults(words))
    config, name = command.config, command.environment
    if command.constraint:
        config = replace(config, constraints=command.constraint)
    if command.multiplier is not None:
        config = replace(config, multipliers=replace(config.multipliers, initial=command.multiplier))
    constraints = [parse(text) for text in config.constraints]

    from rcpo import folder as folders
    from rcpo.loggers import tracker
    from rcpo.run import train as run_training

    folder = command.out or folders.free_folder(f"{environments.label(name)}-{config.method}-seed{config.seed}")
    folders.claim(folder, command.overwrite)
    trackers = [tracker(kind, folder, dataclasses.asdict(config)) for kind in dict.fromkeys(command.log)]
    loggers = [_progress(constraints, config.steps, to_error=command.json), *trackers]
    with listening() as stopper:
        run = run_training(name, config=config, out=folder, loggers=loggers, stopper=stopper)
    return _conclude(run, folder, command)


def _conclude(run: "Run", folder: Path, command: "Train | Resume") -> int:
    """Draw and say what came of a run."""
    from rcpo.folder import verdict_document
    from rcpo.verdict import verdict_lines

    if command.pictures:
        _draw(run, folder)
    if command.json:
        print(json.dumps({**_head(run), **verdict_document(run), "exact": _exact(run), "folder": str(folder)}))
    else:
        print("\n".join(["", *verdict_lines(run), _table(run, run.handover.evaluation)]))
        print(f"written to {folder}; look again with: rcpo evaluate {folder}")
    return 3 if command.require_satisfied and not run.handover.verified else 0


@final
@dataclass(frozen=True)
class Resume:
    """Go on with an unfinished run from its newest checkpoint: it ends as if nothing had stopped it."""

    run: Positional[Path]
    """The run's folder."""
    pictures: bool = True
    """Draw the learning curves, the map with the policy or the robot at work; write the report page."""
    require_satisfied: bool = False
    """Exit with code 3 unless the policy is verified to keep every constraint."""
    environment: str | None = None
    """Of a run on an environment from a file or a module: that one (my_env.py:MyEnv), for its code to be run."""
    json: bool = False
    """Print one JSON document on standard output; progress goes to standard error."""


def resume(words: list[str]) -> int:
    """Go on with a run, say what can be proved."""
    command = read(Resume, words, "resume")
    from rcpo import folder as folders
    from rcpo.run import resume as go_on

    _, config = folders.read_config(command.run)
    constraints = [parse(text) for text in config.constraints]
    logger = _progress(constraints, config.steps, to_error=command.json)
    with listening() as stopper:
        run = go_on(command.run, command.environment, loggers=[logger], stopper=stopper)
    return _conclude(run, command.run, command)


def _train_defaults(words: list[str]) -> Train | None:
    """The preset decides what every option's default is, so it is looked for before the options are read."""
    name = next((word for word in words if environments.known(word)), None)
    if name is None:
        if words and not words[0].startswith("-"):
            environments.check_name(words[0])
        return None
    chosen, method = _option(words, "--preset"), _option(words, "--method")
    known = next((known for known in get_args(Method) if known == method), None)
    environments.check_name(name)
    config = presets.preset(chosen, name, known, environments.preset_of(name))
    return Train(environment=name, preset=chosen, config=config)


def _option(words: list[str], name: str) -> str | None:
    """What stands behind an option, before the options are read."""
    for word, following in zip(words, [*words[1:], None], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _progress(constraints: list[Any], steps: float, to_error: bool) -> "Logger":
    from rcpo.loggers import Lines, Live

    if to_error:
        return Lines(constraints, steps, to_error=True)
    return Live(constraints, steps) if sys.stdout.isatty() else Lines(constraints, steps)


def _draw(run: "Run", folder: Path) -> None:
    from rcpo.envs.mars_rover import MarsRover
    from rcpo.experiments import figures
    from rcpo.report import REPORT, write_report
    from rcpo.video import film_strip

    figures.curves_picture(run.records, run.constraints, folder / "curves.png")
    if isinstance(run.environment, MarsRover):
        figures.map_picture(run.environment, run.policy, folder / "map.png", ", ".join(map(str, run.constraints)))
    elif film := film_strip(run):
        write_atomically(folder / "film.png", film)
    write_report([folder], folder / REPORT)


def _head(run: "Run") -> dict[str, Any]:
    return {"env": run.environment_name, "method": run.config.method, "seed": run.config.seed, "steps": run.steps}


def _exact(run: "Run", deterministic: bool = False) -> dict[str, Any] | None:
    from rcpo.folder import finite

    value = run.exact(deterministic)
    if value is None:
        return None
    return {
        "reward": finite(value.reward),
        "steps": finite(value.steps),
        "success": value.outcomes.get("goal"),
        "steps_given_success": finite(value.steps_given.get("goal", float("nan"))),
        "truncated": value.truncated,
        "constraints": [
            {"constraint": str(c), "value": known, "limit": c.limit}
            for c, known in zip(run.constraints, run.exact_constraints(deterministic), strict=True)
            if known is not None
        ],
    }


def _table(run: "Run", seen: "Evaluation", deterministic: bool = False) -> str:
    """Sampled and, where there is a truth, exact values side by side."""
    truth = run.exact(deterministic)
    rows: list[tuple[str, str, float | None, str]] = [
        ("reward", str(seen.reward), truth and truth.reward, ""),
        ("steps", str(seen.steps), truth and truth.steps, ""),
    ]
    for e, known in zip(seen.constraints, run.exact_constraints(deterministic), strict=True):
        sign = ">=" if e.constraint.at_least else "<="
        rows.append((e.constraint.quantity, str(e.interval), known, f"{sign} {e.constraint.limit:g}: {e.verdict}"))
    success = run.environment.spec.success
    if seen.success is not None and success is not None:
        rows.append((f"P({success})", str(seen.success), truth and truth.outcomes.get(success), ""))
    if seen.steps_given_success is not None and success is not None:
        known = truth and truth.steps_given.get(success)
        rows.append((f"steps given {success}", str(seen.steps_given_success), known, ""))
    head = ("", f"{seen.episodes} episodes, {seen.confidence:.4g} intervals", "exact" if truth else "", "")
    cells = [head, *((a, b, "" if c is None else f"{c:.4g}", d) for a, b, c, d in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(3)]
    return "\n".join(
        "  ".join([*(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)), row[3]]).rstrip()
        for row in cells
    )


@final
@dataclass(frozen=True)
class Evaluate:
    """Fresh episodes of a run's policy: the reward, every constraint with its interval, and the verdict."""

    run: Positional[Path]
    """The run's folder."""
    episodes: int = 10_000
    """How many fresh episodes."""
    deterministic: bool = False
    """Take the likeliest action instead of drawing one."""
    seed: int = 0
    """The seed of the fresh episodes."""
    environment: str | None = None
    """Of a run on an environment from a file or a module: that one (my_env.py:MyEnv), for its code to be run."""
    json: bool = False
    """Print one JSON document on standard output."""


def evaluate(words: list[str]) -> int:
    """Evaluate a run that was written to a folder."""
    command = read(Evaluate, words, "evaluate")
    if command.episodes < 1 or command.seed < 0:
        raise UsageError(f"got {command.episodes} episodes, seed {command.seed}; give at least 1 and no negative seed")
    from rcpo import folder as folders

    run = folders.load(command.run, command.environment)
    seen = run.evaluate(command.episodes, command.deterministic, command.seed)
    if command.json:
        document = {**_head(run), "deterministic": command.deterministic, **folders.evaluation_document(seen)}
        print(json.dumps({**document, "exact": _exact(run, command.deterministic)}))
    else:
        kind = "likeliest actions" if command.deterministic else "drawn actions"
        print(f"{run.environment_name}, {run.config.method}, seed {run.config.seed}, {run.steps:,} steps; {kind}")
        print(_table(run, seen, command.deterministic))
    return 0
