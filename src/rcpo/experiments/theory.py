"""Theorem 2 at work on the fork: do multiplier and policy go where the linear program says?"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from rcpo import envs, presets
from rcpo.config import TrainConfig
from rcpo.constraints import parse_all
from rcpo.envs.base import JaxEnvironment
from rcpo.evaluation import exact_value
from rcpo.experiments.studies import (
    append_line,
    check_settings,
    numbers,
    provenance,
    read_lines,
    read_study,
    settings_of,
)
from rcpo.learn import begin, iterate
from rcpo.policy import single
from rcpo.run import make_plan
from rcpo.truth import solve

ENVIRONMENT: Final = "fork"
QUANTITY: Final = "P(crash)"
QUICK_STEPS: Final = 20_000
CHUNKS: Final = (512, 64, 8, 1)
"""Between two points of a curve lie sums of these many iterations: each number is one more program to compile."""


def run_theory(
    out: Path,
    seeds: Sequence[int] = range(5),
    steps: float | None = None,
    quick: bool = False,
    draw_only: bool = False,
    say: Callable[[str], None] = print,
) -> Path:
    """Run the seeds that are missing, and draw them all against the linear program's solution."""
    if not draw_only:
        config = presets.preset("theory", ENVIRONMENT)
        if quick or steps is not None:
            config = replace(config, steps=float(QUICK_STEPS if steps is None else steps))
        _train_missing(out, seeds, config, say)
    draw_theory(out)
    say(f"drawn: {out / 'theory.png'}")
    return out / "theory.png"


def _train_missing(folder: Path, seeds: Sequence[int], config: TrainConfig, say: Callable[[str], None]) -> None:
    file = folder / "runs.jsonl"
    done = set()
    for line in read_lines(file):
        check_settings(file, line, settings_of(config))
        done.add(line["seed"])
    missing = [seed for seed in seeds if seed not in done]
    say(f"{file}: {len(seeds) - len(missing)} of {len(seeds)} runs are there")
    environment, origin = envs.make_finite(ENVIRONMENT), provenance()
    for seed in missing:
        started = time.monotonic()
        points = theory_points(environment, replace(config, seed=seed))
        line = {"seed": seed, "constraint": config.constraints[0], "points": points, "preset": "theory",
                "seconds": time.monotonic() - started, "settings": settings_of(config)}  # fmt: skip
        append_line(file, line | {"command": "rcpo paper theory"} | origin)
        last = points[-1]
        say(f"theory, seed {seed}: after {last['iteration']} iterations multiplier {last['multiplier']:.4g}, "
            f"exact {QUANTITY} {last[QUANTITY]:.4g}, exact reward {last['reward']:.4g}")  # fmt: skip


def theory_points(environment: JaxEnvironment, config: TrainConfig, points: int = 80) -> list[dict[str, Any]]:
    """Multiplier and exact values at iterations spread evenly over a logarithmic axis."""
    constraints = parse_all(config.constraints, environment.spec.column_names)
    plan, _ = make_plan(config, constraints, environment)
    state = begin(plan, environment)
    plan = plan.for_any_seed()
    found: list[dict[str, Any]] = []
    for target in np.unique(np.geomspace(1, plan.iterations, points).round().astype(int)):
        for chunk in CHUNKS:
            while target - int(state.iteration) >= chunk:
                state, _ = iterate(plan, environment, state, chunk)
        value = exact_value(environment, single(state.agent.network, False))
        assert value is not None  # the fork is finite
        found.append({
            "iteration": int(target),
            "steps": int(target) * plan.steps_per_iteration(environment),
            "multiplier": float(state.multipliers.value[0]),
            "reward": value.reward,
            QUANTITY: value.values["crash"],
        })  # fmt: skip
    return found


def draw_theory(folder: Path) -> None:
    """Draw the study from its file alone."""
    from rcpo.experiments import figures

    lines = sorted(read_study(folder), key=lambda line: line["seed"])
    best = solve(ENVIRONMENT, [lines[0]["constraint"]])
    columns = [numbers(lines, key) for key in ("iteration", "multiplier", "reward", QUANTITY)]
    curves = [figures.TheoryCurve(line["seed"], *rows) for line, *rows in zip(lines, *columns, strict=True)]
    figures.save(figures.theory(curves, figures.TheoryOptimum(best.multipliers[0], best.reward, best.values[0])),
                 folder / "theory.png")  # fmt: skip
