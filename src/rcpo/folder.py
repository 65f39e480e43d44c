"""A run's folder: `config.json`, `metrics.jsonl`, `policy.safetensors`, `health.json`, `verdict.json`, and pictures."""

import dataclasses
import errno
import json
import math
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import metadata
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from rcpo import __version__, envs
from rcpo.checkpoint import from_json, load_tree, save_tree, shortly
from rcpo.config import TrainConfig
from rcpo.constraints import Constraint, labels, parse, parse_all
from rcpo.envs.base import Environment
from rcpo.errors import UsageError
from rcpo.evaluation import Estimate, Evaluation
from rcpo.files import parse_json, read_bytes, read_json, write_json
from rcpo.handover import Handover
from rcpo.health import advice
from rcpo.histograms import Histogram
from rcpo.intervals import Interval, Verdict
from rcpo.learn import new_network
from rcpo.loggers import Record
from rcpo.policy import Policy
from rcpo.snapshots import Snapshots

if TYPE_CHECKING:
    from rcpo.run import Run

CONFIG, METRICS, POLICY, VERDICT = "config.json", "metrics.jsonl", "policy.safetensors", "verdict.json"
CHECKPOINTS, HEALTH = "checkpoints", "health.json"
DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG, errno.EACCES, errno.EPERM)
LARGEST_METRICS = 2**26
"""Bytes: tens of thousands of points."""
PACKAGES = ("jax", "equinox", "optax", "numpy", "scipy", "gymnasium", "mujoco")


def versions() -> dict[str, str]:
    """What a result depends on."""
    return {"rcpo": __version__, "python": platform.python_version()} | {
        package: metadata.version(package) for package in PACKAGES
    }


def claim(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that already holds a run, or something else."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is a file; give --out a folder")
    if (folder / CONFIG).exists() and not overwrite:
        if (folder / VERDICT).exists():
            raise UsageError(f"{str(folder)!r} already holds a run; give another --out, or --overwrite")
        raise UsageError(f"{str(folder)!r} holds a run that is not finished; go on with: rcpo resume {folder}; "
                         "or give another --out, or --overwrite")  # fmt: skip
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {str(folder)!r}: {error.strerror}; give another --out") from None


def begin_anew(folder: Path) -> None:
    """Make the folder, and remove what another run in it would be taken for this one's by."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / VERDICT).unlink(missing_ok=True)
    Snapshots(folder / CHECKPOINTS).clear()


@contextmanager
def held(folder: Path | None) -> Iterator[None]:
    """No other process may write the same run meanwhile; and what the disk refuses is said in one sentence."""
    if folder is None:
        yield
        return
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _lock(folder, stack)
            yield
        except OSError as error:
            ours = error.filename is None or Path(str(error.filename)).is_relative_to(folder)
            if not ours or error.errno not in DISK_FAULTS:
                raise
            what = "nothing was begun; give another --out"
            if (folder / CONFIG).exists():
                what = f"what was saved before is whole; make room and go on with: rcpo resume {folder}"
            raise UsageError(f"cannot write to {str(folder)!r}: {error.strerror}; {what}") from None


def _lock(folder: Path, stack: ExitStack) -> None:
    """Held until the stack is closed, or the process is gone."""
    try:
        import fcntl
    except ImportError:
        return  # Windows
    descriptor = os.open(folder, os.O_RDONLY)
    stack.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"the run {str(folder)!r} is going on in another process; wait for it, or stop it") from None
    except OSError:
        return  # a file system without locks


def free_folder(name: str) -> Path:
    """`runs/NAME`, or the first `runs/NAME-2`, `-3`, ... that is not there yet."""
    folder, number = Path("runs") / name, 1
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    return folder


def write_config(folder: Path, environment: str, config: TrainConfig) -> None:
    try:
        json.dumps(dataclasses.asdict(config), allow_nan=False)
    except ValueError:
        raise UsageError("a setting is no finite number, and could not be read back; give finite numbers") from None
    document = {
        "environment": environment,
        "config": dataclasses.asdict(config),
        "command": shlex.join(["rcpo", *sys.argv[1:]]) if _from_shell(sys.argv[0]) else "rcpo.train(...)",
        "versions": versions(),
    }
    write_json(folder / CONFIG, document)


def _from_shell(program: str) -> bool:
    """Whether this is the command `rcpo`, or `python -m rcpo`."""
    return Path(program).name == "rcpo" or Path(program).parts[-2:] == ("rcpo", "__main__.py")


def write_result(run: "Run", folder: Path) -> None:
    """The policy first, then the verdict on it: a folder with a verdict is a finished run."""
    save_tree(folder / POLICY, run.policy)
    notes = advice(run.health, run.rules)
    write_json(folder / HEALTH, {"constraints": [dataclasses.asdict(one) for one in run.health], "advice": notes})
    write_json(folder / VERDICT, verdict_document(run))


def verdict_document(run: "Run") -> dict[str, Any]:
    """What a run can say about its promise."""
    handed = run.handover
    return {
        "outcome": handed.outcome,
        "verified": handed.verified,
        "evidence": handed.evidence or None,
        "confidence": handed.confidence,
        "looks": handed.looks,
        "steps": run.steps,
        "seconds": round(run.seconds, 3),
        "components": [
            {"iteration": iteration, "weight": float(weight), "greedy": bool(greedy)}
            for iteration, weight, greedy in zip(handed.iterations, run.policy.weights, run.policy.greedy, strict=True)
        ],
        **evaluation_document(handed.evaluation),
    }


def evaluation_document(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation for JSON: a number that does not exist (no success, infinite width) is null."""

    def bounds(interval: Interval | None, name: str) -> dict[str, float | None] | None:
        if interval is None:
            return None
        return {name: finite(interval.value), "low": finite(interval.low), "high": finite(interval.high)}

    return {
        "episodes": evaluation.episodes,
        "interval_confidence": evaluation.confidence,
        "reward": bounds(evaluation.reward, "mean"),
        "episode_steps": bounds(evaluation.steps, "mean"),
        "success": bounds(evaluation.success, "value"),
        "steps_given_success": bounds(evaluation.steps_given_success, "mean"),
        "truncated": evaluation.truncated,
        "constraints": [
            {"constraint": str(e.constraint)}
            | (bounds(e.interval, "value") or {})
            | {"limit": e.constraint.limit, "verdict": e.verdict}
            for e in evaluation.constraints
        ],
        "distributions": [dataclasses.asdict(histogram) for histogram in evaluation.distributions],
    }


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def read_config(folder: Path) -> tuple[str, TrainConfig]:
    """The environment's name and the settings of the run in a folder."""
    if not (folder / CONFIG).is_file():
        raise UsageError(f"{str(folder)!r} is no run: it has no {CONFIG}; give the folder that `rcpo train` wrote")
    document = read_json(folder / CONFIG)
    if not isinstance(document, dict) or not {"environment", "config"} <= document.keys():
        raise UsageError(f"{str(folder)!r} is no run: its {CONFIG} does not name an environment and its settings")
    return from_json(str, document["environment"], "environment"), from_json(TrainConfig, document["config"])


def environment_of(folder: Path, name: str, config: TrainConfig, own: Any) -> Environment:
    """The environment that a run is on.

    One of the user's own has to be given, and so has one that is made by running the code of a file or a module: a run
    may come from anybody, and reading it runs nothing that it names.
    """
    if own is None and not envs.is_plain(name):
        how = "from Python: rcpo.load(folder, environment), or rcpo.resume(folder, environment)"
        if envs.known(name) and not name.endswith(")"):
            how = f"what a run names is not run unasked, so if you trust it: --environment {name}, or {how}"
        raise UsageError(f"the run {str(folder)!r} is on {name!r}, an environment of its user's; {how}")
    if own is None:
        return envs.make(name, config.env)
    adopted = envs.make(own, config.env) if isinstance(own, str) else envs.adopt(own, config.env)
    # A file may have been moved.
    moved = not envs.is_plain(name) and Path(adopted.spec.name).name == Path(name).name
    if adopted.spec.name != name and not moved:
        raise UsageError(f"the run {str(folder)!r} is on {name!r}; got the environment {adopted.spec.name!r}")
    return adopted


def check_records(documents: Sequence[Any], constraints: Sequence[Constraint], where: str) -> tuple[Record, ...]:
    """The records of a run: a number for every name, or nothing where nothing was measured."""
    numbers = {"iteration", "steps", "episodes", "faults", "time/seconds"}
    named = labels(constraints)
    numbers |= {f"constraint/{label}/{key}" for label in named for key in ("limit", "multiplier", "aim")}
    perhaps = {"reward/episode", *(f"constraint/{label}/value" for label in named)}
    for document in documents:
        if not isinstance(document, dict) or not numbers | perhaps <= document.keys():
            raise UsageError(f"{where} cannot be read: a record lacks what every point of a run has")
        for key, value in document.items():
            if key in numbers or not isinstance(value, str | bool | None):
                from_json(float, value, f"{where}, {shortly(key)}")
    return tuple(documents)


def read_records(path: Path, constraints: Sequence[Constraint]) -> tuple[Record, ...]:
    """What `metrics.jsonl` holds."""
    lines = read_bytes(path, LARGEST_METRICS).splitlines()
    return check_records([parse_json(line, path) for line in lines], constraints, str(path))


def load(
    folder: str | Path,
    environment: Any = None,
    constraints: Sequence[str | Constraint] | None = None,
) -> "Run":
    """Read a finished run back; an environment of your own, or a constraint on a function, has to be given again."""
    from rcpo.run import Run, check_fit

    folder = Path(folder)
    name, config = read_config(folder)
    if not (folder / VERDICT).is_file():
        raise UsageError(
            f"the run {str(folder)!r} is not finished: it has no {VERDICT}; go on with: rcpo resume {folder}"
        )
    verdict = read_json(folder / VERDICT)
    try:
        environment = environment_of(folder, name, config, environment)
        check_fit(config, environment)
        bounds = parse_all(same_constraints(config.constraints, constraints), environment.spec.column_names)
        handed = _handover(folder, verdict, environment, config, bounds)
        steps, seconds = _entry(verdict, "steps", int), _entry(verdict, "seconds", float)
        records = read_records(folder / METRICS, bounds)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"the run {str(folder)!r} cannot be read: {type(error).__name__} {shortly(str(error))}; "
                         "was it written by another version?") from None  # fmt: skip
    return Run(name, environment, config, bounds, handed, records, steps, seconds, folder)


def same_constraints(written: Sequence[str], given: Sequence[str | Constraint] | None) -> Sequence[str | Constraint]:
    """The constraints that are given again for a run, once they are seen to be those that were written."""
    if given is None:
        return written
    for had, got in zip_longest(map(_as_written, written), map(_as_written, given), fillvalue="no constraint"):
        if had != got:
            raise UsageError(f"the run was trained with {had!r}, and got {got!r}; give the same constraints in order")
    return given


def _as_written(constraint: str | Constraint) -> str:
    try:
        return str(constraint if isinstance(constraint, Constraint) else parse(constraint))
    except UsageError:
        return str(constraint)  # a function stands in it, which only the object holds


def _handover(
    folder: Path,
    verdict: dict[str, Any],
    environment: Environment,
    config: TrainConfig,
    constraints: tuple[Constraint, ...],
) -> Handover:
    components = _entry(verdict, "components", list)
    policy = load_tree(folder / POLICY, _shape_of_policy(environment, config, len(components)))
    weights = np.asarray(policy.weights)
    if not ((weights >= 0.0).all() and abs(weights.sum() - 1.0) < 1e-3):
        raise UsageError(f"{str(folder / POLICY)!r} is not usable: its weights are no probabilities")
    evaluation = read_evaluation(verdict, constraints)
    iterations = tuple(_entry(component, "iteration", int) for component in components)
    confidence, looks = _entry(verdict, "confidence", float), _entry(verdict, "looks", int)
    evidence = _entry(verdict, "evidence", str | None) or ""
    return Handover(policy, evaluation, _entry(verdict, "verified", bool), confidence, looks, iterations, evidence)


def read_evaluation(document: Any, constraints: tuple[Constraint, ...]) -> Evaluation:
    """The evaluation that `evaluation_document` wrote."""
    success, given = (_entry(document, name, dict | None) for name in ("success", "steps_given_success"))
    return Evaluation(
        episodes=_entry(document, "episodes", int),
        confidence=_entry(document, "interval_confidence", float),
        reward=_interval(document["reward"]),
        steps=_interval(document["episode_steps"]),
        constraints=tuple(
            Estimate(constraint, _interval(entry), _entry(entry, "verdict", Verdict))
            for constraint, entry in zip(constraints, _entry(document, "constraints", list), strict=True)
        ),
        truncated=_entry(document, "truncated", float),
        success=None if success is None else _interval(success),
        steps_given_success=None if given is None else _interval(given),
        distributions=tuple(from_json(Histogram, entry, "verdict") for entry in document.get("distributions", [])),
    )


def _entry(document: Any, name: str, kind: Any) -> Any:
    if not isinstance(document, dict):
        raise TypeError(f"got {shortly(document)} where {name!r} was expected")
    return from_json(kind, document[name], f"verdict.{name}")


def _interval(document: Any) -> Interval:
    middle = "mean" if isinstance(document, dict) and "mean" in document else "value"
    value, low, high = (_entry(document, key, float | None) for key in (middle, "low", "high"))
    return Interval(
        math.nan if value is None else value, -math.inf if low is None else low, math.inf if high is None else high
    )


def _shape_of_policy(environment: Environment, config: TrainConfig, components: int) -> Policy:
    """A policy of the right shape, which takes no memory, to be filled from a file."""

    def blank(key: jax.Array) -> Policy:
        network = new_network(environment, config.learner, key)
        networks = jax.tree.map(lambda leaf: jnp.zeros((components, *leaf.shape), leaf.dtype), network)
        return Policy(networks, jnp.zeros(components), jnp.zeros(components, bool))

    return jax.eval_shape(blank, jax.random.key(0))
