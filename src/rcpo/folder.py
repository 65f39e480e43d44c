"""A run's folder: `config.json`, `metrics.jsonl`, `policy.safetensors`, `verdict.json`, and pictures."""

import dataclasses
import json
import math
import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from rcpo import __version__, envs
from rcpo.checkpoint import from_json, load_tree, read_json, save_tree, write_json
from rcpo.config import TrainConfig
from rcpo.constraints import parse_all
from rcpo.envs.base import Environment
from rcpo.errors import UsageError
from rcpo.evaluation import Estimate, Evaluation
from rcpo.handover import Handover
from rcpo.intervals import Interval
from rcpo.learn import new_network
from rcpo.policy import Policy

if TYPE_CHECKING:
    from rcpo.run import Run

CONFIG, METRICS, POLICY, VERDICT = "config.json", "metrics.jsonl", "policy.safetensors", "verdict.json"
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
        raise UsageError(f"{str(folder)!r} already holds a run; give another --out, or --overwrite")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {str(folder)!r}: {error.strerror}; give another --out") from None


def free_folder(name: str) -> Path:
    """`runs/NAME`, or the first `runs/NAME-2`, `-3`, ... that is not there yet."""
    folder, number = Path("runs") / name, 1
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    return folder


def write_config(folder: Path, environment: str, config: TrainConfig) -> None:
    document = {
        "environment": environment,
        "config": dataclasses.asdict(config),
        "command": " ".join(["rcpo", *sys.argv[1:]]) if Path(sys.argv[0]).name == "rcpo" else "rcpo.train(...)",
        "versions": versions(),
    }
    write_json(folder / CONFIG, document)


def write_result(run: "Run", folder: Path) -> None:
    """The policy first, then the verdict on it: a folder with a verdict is a finished run."""
    save_tree(folder / POLICY, run.policy)
    write_json(folder / VERDICT, verdict_document(run))


def verdict_document(run: "Run") -> dict[str, Any]:
    """What a run can say about its promise."""
    handed = run.handover
    return {
        "verified": handed.verified,
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
    }


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def load(folder: str | Path, environment: Environment | None = None) -> "Run":
    """Read a finished run back; one on an environment of your own needs that environment."""
    from rcpo.run import Run

    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise UsageError(f"{str(folder)!r} is no run: it has no {CONFIG}; give the folder that `rcpo train` wrote")
    if not (folder / VERDICT).is_file():
        raise UsageError(f"the run {str(folder)!r} is not finished: it has no {VERDICT}; train it to its end")
    document, verdict = read_json(folder / CONFIG), read_json(folder / VERDICT)
    try:
        name, config = document["environment"], from_json(TrainConfig, document["config"])
        if environment is None and name not in envs.NAMES:
            raise UsageError(f"the run {str(folder)!r} is on {name}, an environment of its user's; "
                             "load it from Python: rcpo.load(folder, environment)")  # fmt: skip
        environment = environment or envs.make(name, config.env)
        constraints = parse_all(config.constraints, environment.spec.column_names)
        components = verdict["components"]
        policy = load_tree(folder / POLICY, _blank_policy(environment, config, len(components)))
        estimates = tuple(
            Estimate(constraint, _interval(entry), entry["verdict"])
            for constraint, entry in zip(constraints, verdict["constraints"], strict=True)
        )
        evaluation = Evaluation(
            episodes=verdict["episodes"],
            confidence=verdict["interval_confidence"],
            reward=_interval(verdict["reward"]),
            steps=_interval(verdict["episode_steps"]),
            constraints=estimates,
            truncated=verdict["truncated"],
            success=_interval(verdict["success"]) if verdict["success"] else None,
            steps_given_success=_interval(verdict["steps_given_success"]) if verdict["steps_given_success"] else None,
        )
        iterations = tuple(component["iteration"] for component in components)
        handed = Handover(policy, evaluation, verdict["verified"], verdict["confidence"], verdict["looks"], iterations)
        records = tuple(json.loads(line) for line in (folder / METRICS).read_text().splitlines())
    except (KeyError, TypeError, OSError, json.JSONDecodeError) as error:
        raise UsageError(f"the run {str(folder)!r} cannot be read: {type(error).__name__} {error}; "
                         "was it written by another version?") from None  # fmt: skip
    return Run(name, environment, config, constraints, handed, records, verdict["steps"], verdict["seconds"], folder)


def _interval(document: Mapping[str, Any]) -> Interval:
    value, low, high = (document[key] for key in ("mean" if "mean" in document else "value", "low", "high"))
    return Interval(
        math.nan if value is None else value, -math.inf if low is None else low, math.inf if high is None else high
    )


def _blank_policy(environment: Environment, config: TrainConfig, components: int) -> Policy:
    """A policy of the right shape, to be filled from a file."""
    network = jax.eval_shape(lambda key: new_network(environment, config.learner, key), jax.random.key(0))
    networks = jax.tree.map(lambda leaf: jnp.zeros((components, *leaf.shape), leaf.dtype), network)
    return Policy(networks, jnp.zeros(components), jnp.zeros(components, bool))
