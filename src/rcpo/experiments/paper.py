"""The paper's experiments on finite environments: train, keep the raw results, and have the figures drawn from them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Float
from safetensors.numpy import load_file, save

from rcpo import envs, exact, presets
from rcpo.checkpoint import write_atomically, write_json
from rcpo.config import EvaluationConfig, Method, TrainConfig
from rcpo.envs.base import JaxEnvironment
from rcpo.envs.mars_rover import MarsRover
from rcpo.envs.settings import MarsRoverSettings
from rcpo.errors import UsageError
from rcpo.experiments.stats import interquartile_band
from rcpo.experiments.studies import (
    append_line,
    check_settings,
    numbers,
    provenance,
    read_lines,
    read_study,
    rounded,
    settings_of,
)
from rcpo.experiments.theory import run_theory
from rcpo.policy import action_probabilities
from rcpo.run import Run, train
from rcpo.truth import solve

__all__ = ["run_figure1", "run_figure2", "run_theory"]

Say = Callable[[str], None]
Line = dict[str, Any]
Groups = dict[float, dict[str, list[Line]]]
"""The lines of each limit and method."""

ROVER: Final = "mars-rover"
ALPHAS: Final = (0.01, 0.5)
QUANTITY: Final = "P(crash)"
LABELS: Final = {"rcpo": "RCPO", "primal-dual": "primal-dual", "fixed": "fixed multiplier"}
POINT_KEYS: Final = (f"{QUANTITY}/value", "steps", "success", "steps_given_success")
"""What a study keeps of each evaluation along the way."""
QUICK_STEPS: Final = 20_000


def run_figure2(
    out: Path,
    seeds: Sequence[int] = range(10),
    alphas: Sequence[float] = ALPHAS,
    methods: Sequence[Method] = ("rcpo", "primal-dual"),
    preset: str | None = None,
    steps: float | None = None,
    quick: bool = False,
    draw_only: bool = False,
    say: Say = print,
) -> list[Line]:
    """Train what is missing of RCPO against the primal-dual baseline (the paper's Figure 2), draw it, sum it up.

    Without a preset each method has its own.
    """
    if not draw_only:
        wanted = [(alpha, method, seed) for seed in seeds for alpha in alphas for method in methods]
        _train_missing(out, wanted, preset, {method: _config(preset, method, steps, quick) for method in methods}, say)
    rows = draw_figure2(out)
    say(summary_text(rows))
    say(f"drawn: {out / 'figure2.png'}")
    return rows


def run_figure1(
    out: Path,
    seeds: Sequence[int] = (0,),
    alphas: Sequence[float] = ALPHAS,
    preset: str | None = None,
    steps: float | None = None,
    quick: bool = False,
    draw_only: bool = False,
    say: Say = print,
) -> Path:
    """Draw what RCPO learned under each limit with the first seed (the paper's Figure 1).

    Its runs are Figure 2's, in the folder `figure2` beside `out`, and trained there if they are missing.
    """
    study, picture, seed = out.with_name("figure2"), out / "figure1.png", seeds[0]
    if not draw_only:
        wanted: list[tuple[float, Method, int]] = [(alpha, "rcpo", seed) for alpha in alphas]
        _train_missing(study, wanted, preset, {"rcpo": _config(preset, "rcpo", steps, quick)}, say)
    draw_figure1(study, picture, alphas, seed)
    say(f"drawn: {picture}")
    return picture


def _config(preset: str | None, method: Method, steps: float | None, quick: bool) -> TrainConfig:
    config = presets.preset(preset, ROVER, method)
    if quick:
        looks = EvaluationConfig(points=5, episodes=256, shortlist_episodes=256, verdict_episodes=256, looks=1)
        learner = replace(config.learner, environments=16, rollout_steps=8)
        config = replace(config, steps=QUICK_STEPS, learner=learner, evaluation=looks)
    return config if steps is None else replace(config, steps=float(steps))


def _train_missing(
    folder: Path,
    wanted: Sequence[tuple[float, Method, int]],
    preset: str | None,
    configs: dict[Method, TrainConfig],
    say: Say,
) -> None:
    """Train the runs that the study's file does not hold yet; each is kept as soon as it is done."""
    file = folder / "runs.jsonl"
    done = set()
    for line in read_lines(file):
        if line["method"] in configs:
            check_settings(file, line, settings_of(configs[line["method"]]))
        done.add((f"{line['alpha']:g}", line["method"], line["seed"]))
    missing = [(f"{alpha:g}", method, seed) for alpha, method, seed in wanted]
    missing = [key for key in missing if key not in done]
    say(f"{file}: {len(wanted) - len(missing)} of {len(wanted)} runs are there")
    origin = provenance()
    for number, (alpha, method, seed) in enumerate(missing, 1):
        config, constraint = configs[method], f"{QUANTITY} <= {alpha}"
        run = train(ROVER, [constraint], config=config, method=method, seed=seed)
        write_atomically(policy_file(folder, float(alpha), method, seed), save(policy_table(run)))
        command = f'rcpo train {ROVER} --constraint "{constraint}" --method {method} --steps {config.steps:g} ' \
                  f"--seed {seed}{f' --preset {preset}' if preset else ''}"  # fmt: skip
        line = {"alpha": float(alpha), "method": method, "seed": seed, **run_line(run)}
        append_line(file, line | {"preset": preset, "command": command} | origin)
        final = line["final"]
        say(f"{number} of {len(missing)}: {method}, {constraint}, seed {seed}: exact {QUANTITY} "
            f"{final[QUANTITY]:.4g}, {final['steps']:.4g} steps, "
            f"{'verified' if final['verified'] else 'not verified'}, {run.seconds:.0f} s")  # fmt: skip


def run_line(run: Run) -> Line:
    """What a study keeps of a run: its curve, and the truth about the policy that it hands over."""
    truth, handover = run.exact(), run.handover
    assert truth is not None  # the Mars Rover is finite
    estimate = handover.evaluation.constraints[0].interval
    points = []
    for record in run.records:
        point = {"steps": record["steps"], "multiplier": record[f"constraint/{QUANTITY}/multiplier"]}
        for kind in ("sampled", "greedy"):
            point |= {f"{kind}/{key}": record[f"{kind}/{key}"] for key in POINT_KEYS}
        points.append(point)
    weights, greedy = np.asarray(run.policy.weights).tolist(), np.asarray(run.policy.greedy).tolist()
    return {
        "steps": run.steps,
        "seconds": run.seconds,
        "final": {
            QUANTITY: truth.values["crash"],
            "steps": truth.steps,
            "success": truth.outcomes["goal"],
            "steps_given_goal": truth.steps_given["goal"],
            "truncated": truth.truncated,
            "verified": handover.verified,
            "confidence": handover.confidence,
            "looks": handover.looks,
            "interval": {"value": estimate.value, "low": estimate.low, "high": estimate.high},
            "components": [
                {"iteration": iteration, "weight": weight, "greedy": likeliest}
                for iteration, weight, likeliest in zip(handover.iterations, weights, greedy, strict=True)
            ],
        },
        "points": points,
        "settings": settings_of(run.config),
    }


def policy_file(folder: Path, alpha: float, method: str, seed: int) -> Path:
    return folder / "policies" / f"alpha-{alpha:g}-{method}-seed-{seed}.safetensors"


def policy_table(run: Run) -> dict[str, np.ndarray]:
    """What the policy handed over does in each state, which is all that its exact value depends on."""
    assert isinstance(run.environment, JaxEnvironment)
    probabilities = action_probabilities(run.environment, run.policy).astype(np.float32)
    return {"probabilities": probabilities, "weights": np.asarray(run.policy.weights, dtype=np.float32)}


def read_policy(path: Path) -> tuple[Float[np.ndarray, "M S A"], Float[np.ndarray, " M"]]:
    """The probabilities of each component, and how often each is drawn."""
    if not path.exists():
        raise UsageError(f"there is no policy {str(path)!r}; remove its line from the study's runs.jsonl and run again")
    table = load_file(path)
    return table["probabilities"].astype(np.float64), table["weights"].astype(np.float64)


def _rover(line: Line) -> MarsRover:
    environment = envs.make_finite(ROVER, MarsRoverSettings(**line["settings"]["env"]))
    assert isinstance(environment, MarsRover)
    return environment


def groups_of(lines: Sequence[Line]) -> Groups:
    """The lines of each limit and method, seeds in order."""
    groups: Groups = {}
    known = list(LABELS)
    for line in sorted(lines, key=lambda line: (line["alpha"], known.index(line["method"]), line["seed"])):
        groups.setdefault(line["alpha"], {}).setdefault(line["method"], []).append(line)
    return groups


def optima_of(groups: Groups) -> dict[float, exact.Optimum]:
    """The best that any policy can do under each limit."""
    optima = {}
    for alpha, methods in groups.items():
        settings = next(iter(methods.values()))[0]["settings"]["env"]
        optima[alpha] = solve(ROVER, [f"{QUANTITY} <= {alpha:g}"], MarsRoverSettings(**settings))
    return optima


def draw_figure2(folder: Path) -> list[Line]:
    """Draw the study and sum it up, from its file alone."""
    from rcpo.experiments import figures
    from rcpo.experiments.style import ALPHA

    lines = read_study(folder)
    groups = groups_of(lines)
    optima = optima_of(groups)
    comparisons = []
    for alpha, methods in groups.items():
        curves = []
        for method, runs in methods.items():
            steps = numbers(runs, "steps")[0]
            taken, value = numbers(runs, "sampled/steps"), numbers(runs, f"sampled/{QUANTITY}/value")
            curves.append(figures.Curves(LABELS[method], steps, -taken, value))
        optimum = -optima[alpha].steps if optima[alpha].feasible else None
        comparisons.append(figures.Comparison(f"{ALPHA} = {alpha:g}", alpha, optimum, tuple(curves)))
    cap = lines[0]["settings"]["env"]["max_steps"]
    figures.save(figures.figure2(comparisons, QUANTITY, cap), folder / "figure2.png")
    rows = summary(groups, optima)
    write_json(folder / "summary.json", rows)
    return rows


def draw_figure1(study: Path, picture: Path, alphas: Sequence[float], seed: int) -> None:
    """Draw what RCPO learned under each limit, from the study's files alone."""
    from rcpo.experiments import figures
    from rcpo.experiments.style import ALPHA

    panels = []
    for alpha in alphas:
        found = [
            line for line in read_study(study) if (line["alpha"], line["method"], line["seed"]) == (alpha, "rcpo", seed)
        ]
        if not found:
            raise UsageError(f"{str(study)!r} holds no run of rcpo with alpha {alpha:g} and seed {seed}; run it first")
        final = found[0]["final"]
        probabilities, weights = read_policy(policy_file(study, alpha, "rcpo", seed))
        caption = f"exact: {QUANTITY} = {final[QUANTITY]:.3g},  {final['steps']:.1f} steps per episode"
        if final["steps_given_goal"] is not None:
            caption += f",\n{final['steps_given_goal']:.1f} steps when it reaches the goal ({final['success']:.1%})"
        panels.append(figures.map_panel(_rover(found[0]), probabilities, weights, f"{ALPHA} = {alpha:g}", caption))
    figures.save(figures.figure1(panels), picture)


def summary(groups: Groups, optima: dict[float, exact.Optimum]) -> list[Line]:
    """For each limit and method, what the seeds' handed-over policies are worth exactly."""
    rows = []
    for alpha, methods in groups.items():
        for method, runs in methods.items():
            final = [run["final"] for run in runs]
            row: Line = {"alpha": alpha, "method": method, "seeds": [run["seed"] for run in runs]}
            for key in ("steps", QUANTITY):
                band = interquartile_band(np.array([[entry[key]] for entry in final], dtype=np.float64))
                row[key] = {name: float(getattr(band, name)[0]) for name in ("value", "low", "high")}
            row["share_within_limit"] = float(np.mean([entry[QUANTITY] <= alpha for entry in final]))
            row["share_verified"] = float(np.mean([entry["verified"] for entry in final]))
            rows.append(row | {"optimum_steps": optima[alpha].steps})
    return rounded(rows)


def summary_text(rows: Sequence[Line]) -> str:
    """The summary as a table."""
    head = ("alpha", "method", "seeds", f"exact {QUANTITY}", "exact steps", "best steps", "within limit", "verified")
    table = [head]
    for row in rows:
        spans = [
            f"{row[key]['value']:.4g} [{row[key]['low']:.4g}, {row[key]['high']:.4g}]" for key in (QUANTITY, "steps")
        ]
        best = "infeasible" if row["optimum_steps"] is None else f"{row['optimum_steps']:.4g}"
        table.append((f"{row['alpha']:g}", row["method"], str(len(row["seeds"])), *spans, best,
                      f"{row['share_within_limit']:.0%}", f"{row['share_verified']:.0%}"))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    note = "interquartile means over seeds of the policies handed over, with 95 % bootstrap bands"
    return "\n".join([lines[0], "-" * sum(widths, 2 * len(widths) - 2), *lines[1:], note])
