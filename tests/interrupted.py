"""Small runs in processes of their own, which can be killed at any moment, and what such a run leaves behind."""

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import jax
import numpy as np
from learners import QUICK
from probes import Noise
from safetensors.numpy import load_file

from rcpo import presets, run
from rcpo.config import CheckpointConfig, EvaluationConfig, MultiplierConfig, TrainConfig
from rcpo.envs.base import Environment
from rcpo.envs.settings import MarsRoverSettings, RobotSettings
from rcpo.schedules import Schedule

POINTS = 24
PATIENCE = 900.0
"""Seconds: on a busy machine a run of seconds takes minutes."""
MAP = "S.....\n.####.\n.####.\n.....G\n"
ALWAYS = CheckpointConfig(share=1.0, episodes=1)
LITTLE = EvaluationConfig(points=POINTS, episodes=0, shortlist_episodes=8, verdict_episodes=16, looks=1)


def rover(folder: Path) -> tuple[str, TrainConfig]:
    (folder.parent / "map.txt").write_text(MAP)
    own = presets.preset(None, "mars-rover")
    learner = replace(own.learner, environments=8, rollout_steps=4)
    settings = MarsRoverSettings(map=str(folder.parent / "map.txt"), max_steps=20)
    seen = replace(LITTLE, episodes=16, mixture=True)
    return "mars-rover", replace(
        own, steps=8 * 4 * 2 * POINTS, learner=learner, evaluation=seen, checkpoint=ALWAYS, env=settings, seed=3
    )


def robot(folder: Path) -> tuple[str, TrainConfig]:
    """Two crews, each with a thread; episodes of 25 steps, which run on across all checkpoints."""
    own = presets.preset(None, "HalfCheetah-v5")
    few = replace(own.learner.ppo, minibatches=4, epochs=2, hidden=(8,))
    learner = replace(own.learner, environments=5, rollout_steps=8, ppo=few)
    settings = RobotSettings(max_steps=25, threads=2)
    return "HalfCheetah-v5", replace(
        own, steps=5 * 8 * 2 * POINTS, learner=learner, evaluation=LITTLE, checkpoint=ALWAYS, env=settings, seed=4
    )


def foreign(folder: Path) -> tuple[Environment, TrainConfig]:
    """An environment whose copies cannot be saved: they are reset at every third point."""
    ppo = replace(QUICK.ppo, spread_starts=True)
    learner = replace(QUICK, environments=8, rollout_steps=2, ppo=ppo)
    return Noise(side_by_side=True, max_steps=9), TrainConfig(
        constraints=("mean(push) <= 0.5", "P(touch) <= 0.3"),
        steps=8 * 2 * 2 * POINTS,
        learner=learner,
        multipliers=MultiplierConfig(rule="pi", step_size=Schedule(0.5), proportional=0.5),
        evaluation=LITTLE,
        checkpoint=ALWAYS,
        seed=5,
    )


KINDS: dict[str, Callable[[Path], tuple[str | Environment, TrainConfig]]] = {
    "rover": rover,
    "robot": robot,
    "foreign": foreign,
}


def go(kind: str, folder: Path, cache: Path, deadly: str = "", times: int = 0) -> None:
    """Begin a run or go on with it; with `deadly`, die at the so manieth call of that function of `os`."""
    folder.parent.mkdir(exist_ok=True)
    sys.stdout = sys.stderr = (folder.parent / f"{folder.name}.log").open("a", buffering=1)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if deadly:
        _make_deadly(deadly, times)
    environment, config = KINDS[kind](folder)
    if (folder / "config.json").is_file():
        run.resume(folder, None if isinstance(environment, str) else environment)
    else:
        run.train(environment, config=config, out=folder)


def _make_deadly(name: str, times: int) -> None:
    """Kill this process in the middle of writing: before the `times`-th call of `os.fsync`, or of `os.replace`."""
    proper, calls = getattr(os, name), [0]

    def die_in_time(*arguments: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == times:
            os.kill(os.getpid(), signal.SIGKILL)
        return proper(*arguments, **more)

    setattr(os, name, die_in_time)


_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["interrupted"])


def start(*arguments: Any) -> BaseProcess:
    process = _CONTEXT.Process(target=go, args=arguments, daemon=True)
    process.start()
    return process


def to_the_end(*arguments: Any) -> None:
    process = start(*arguments)
    process.join(PATIENCE)
    assert process.exitcode == 0, arguments[1].with_suffix(".log").read_text()


def lines(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def kill_at(process: BaseProcess, folder: Path, points: int, seconds: float) -> bool:
    """Kill a run so many seconds after it has come to so many points; whether it was still there to be killed."""
    deadline = time.monotonic() + PATIENCE
    while process.is_alive() and lines(folder) < points:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(seconds)
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


def left_behind(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """All that a run leaves on disk but its times: documents, and arrays."""
    verdict = json.loads((folder / "verdict.json").read_text())
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last = max((folder / "checkpoints").glob("*.safetensors"))
    arrays = load_file(last) | {
        f"policy{name}": array for name, array in load_file(folder / "policy.safetensors").items()
    }
    del arrays["document"], verdict["seconds"]
    timeless = [{key: value for key, value in record.items() if not key.startswith("time/")} for record in records]
    return {"verdict": verdict, "records": timeless, "last": last.name}, arrays


def assert_alike(one: Path, two: Path) -> None:
    """Bit for bit, as NaN would be alike too."""
    (documents, arrays), (documents_too, arrays_too) = left_behind(one), left_behind(two)
    assert documents == documents_too
    assert arrays.keys() == arrays_too.keys()
    for name, array in arrays.items():
        assert array.tobytes() == arrays_too[name].tobytes(), name
