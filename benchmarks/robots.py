"""How good the preset `robot` is: six robots, any limit, any scale of the rewards. Goes on where it was stopped.

    python benchmarks/robots.py quality --seeds 3     # the six robots at mean(torque) <= 0.25
    python benchmarks/robots.py limits --seeds 2      # HalfCheetah from 0.05 to 0.40
    python benchmarks/robots.py scale --seeds 3       # HalfCheetah, rewards x 0.01 and x 100
    python benchmarks/robots.py all --jobs 16         # all of these, 16 runs at a time, each on its share of the cores
    python benchmarks/robots.py draw                  # tables and pictures from the raw results alone

Settings were chosen on seeds 100 and up; these are seeds 0, 1, 2, ... Every run is a line of results/robots/runs.jsonl
with its command, versions, commit and machine.
"""

import argparse
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from rcpo import presets
from rcpo.envs.settings import RobotSettings
from rcpo.experiments.studies import append_line, provenance, read_lines, read_study, settings_of
from rcpo.run import Run, train

OUT: Final = Path("results/robots")
QUANTITY: Final = "mean(torque)"
ROBOTS: Final = ("Swimmer-v5", "Walker2d-v5", "Hopper-v5", "Humanoid-v5", "HalfCheetah-v5", "Ant-v5")
SLOWEST_FIRST: Final = ("Humanoid-v5", "Ant-v5", "Walker2d-v5", "Hopper-v5", "Swimmer-v5", "HalfCheetah-v5")
PAPER: Final = {"Swimmer-v5": (72.7, 24.0), "Walker2d-v5": (591.6, 25.2), "Hopper-v5": (1138.5, 26.0),
                "Humanoid-v5": (606.1, 24.3), "HalfCheetah-v5": (1547.1, 26.7), "Ant-v5": (1031.5, 15.2)}  # fmt: skip
"""The paper's RCPO row (Table 2): reward, and torque in percent."""
LIMITS: Final = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
SCALES: Final = (0.01, 1.0, 100.0)


class Key(NamedTuple):
    """What tells the runs apart."""

    environment: str
    limit: float
    scale: float
    seed: int


def wanted(study: str, seeds: range) -> Iterator[Key]:
    for seed in seeds:
        if study in ("quality", "all"):
            yield from (Key(robot, 0.25, 1.0, seed) for robot in ROBOTS)
        if study in ("limits", "all"):
            yield from (Key("HalfCheetah-v5", limit, 1.0, seed) for limit in LIMITS)
        if study in ("scale", "all"):
            yield from (Key("HalfCheetah-v5", 0.25, scale, seed) for scale in SCALES)


def key_of(line: dict[str, Any]) -> Key:
    return Key(*(line[name] for name in Key._fields))


def line_of(run: Run) -> dict[str, Any]:
    """What is kept of a run: its curve, and what was verified of the policy that it hands over."""
    handover = run.handover
    seen = handover.evaluation
    named = {"reward": "reward/episode", "value": f"constraint/{QUANTITY}/value", "length": "length/episode",
             "multiplier": f"constraint/{QUANTITY}/multiplier", "aim": f"constraint/{QUANTITY}/aim"}  # fmt: skip
    return {
        "steps": run.steps,
        "seconds": run.seconds,
        "final": {
            "reward": seen.reward._asdict(),
            QUANTITY: seen.constraints[0].interval._asdict(),
            "verdict": seen.constraints[0].verdict,
            "verified": handover.verified,
            "episodes": seen.episodes,
            "length": seen.steps.value,
            "looks": handover.looks,
            "iteration": handover.iterations[0],
        },
        "points": [
            {"steps": record["steps"]} | {k: record[name] for k, name in named.items()} for record in run.records
        ],
        "settings": settings_of(run.config),
    }


def train_missing(out: Path, study: str, seeds: range, jobs: int) -> None:
    file = out / "runs.jsonl"
    done = {key_of(line) for line in read_lines(file)}
    # The slowest robot first: no core is left with it alone in the end.
    missing = sorted(set(wanted(study, seeds)) - done, key=lambda key: (SLOWEST_FIRST.index(key.environment), key))
    print(f"{file}: {len(missing)} runs to go", flush=True)
    for line in trained(missing, jobs):
        append_line(file, line)
        final = line["final"]
        print(f"{line['command']}: reward {final['reward']['value']:.1f}, {QUANTITY} {final[QUANTITY]['value']:.4f} "
              f"{final['verdict']}, {line['seconds']:.0f} s", flush=True)  # fmt: skip


def trained(keys: Sequence[Key], jobs: int) -> Iterator[dict[str, Any]]:
    """The lines of the runs as they end, `jobs` of them side by side."""
    if jobs == 1:
        yield from map(train_one, keys)
        return
    free = multiprocessing.get_context("spawn")
    shares = free.Queue()
    ours = sorted(os.sched_getaffinity(0))
    for job in range(jobs):
        shares.put(ours[job % len(ours) :: jobs])
    with ProcessPoolExecutor(jobs, free, initializer=take_cores, initargs=(shares,)) as pool:
        for ended in as_completed([pool.submit(train_one, key) for key in keys]):
            yield ended.result()


def take_cores(shares: Any) -> None:
    """Keep a job to its share of the cores: the numbers are the same, and no two jobs wait for each other."""
    os.sched_setaffinity(0, shares.get())


def train_one(key: Key) -> dict[str, Any]:
    config = replace(presets.preset("robot", key.environment), env=RobotSettings(reward_scale=key.scale))
    constraint = f"{QUANTITY} <= {key.limit:g}"
    run = train(key.environment, [constraint], config=config, seed=key.seed)
    command = f'rcpo train {key.environment} --constraint "{constraint}" --seed {key.seed}'
    command += f" --env.reward-scale {key.scale:g}" if key.scale != 1.0 else ""
    return key._asdict() | line_of(run) | {"preset": "robot", "command": command} | provenance()


def table(lines: Sequence[dict[str, Any]]) -> str:
    """The six robots at 25 %, one row each, one entry per seed."""
    rows = [
        "| robot | reward, per seed | mean torque, per seed | verdicts | the paper's RCPO |",
        "|---|---|---|---|---|",
    ]
    for robot in ROBOTS:
        runs = sorted((line for line in lines if key_of(line)[:3] == (robot, 0.25, 1.0)), key=lambda line: line["seed"])
        rewards = ", ".join(f"{run['final']['reward']['value']:.0f}" for run in runs)
        torques = ", ".join(f"{100 * run['final'][QUANTITY]['value']:.1f} %" for run in runs)
        satisfied = sum(run["final"]["verdict"] == "satisfied" for run in runs)
        rows.append(f"| {robot} | {rewards} | {torques} | {satisfied} of {len(runs)} satisfied | "
                    f"{PAPER[robot][0]:.0f} at {PAPER[robot][1]:.1f} % |")  # fmt: skip
    return "\n".join(rows)


def draw(out: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Reward and torque against the limit; learning curves for each scale of the rewards."""
    from matplotlib.figure import Figure

    from rcpo.experiments.style import CURVE_COLOURS, FAINT, MARKERS, save, styled

    @styled
    def limits() -> Figure:
        figure = Figure(figsize=(10.4, 4.0), layout="constrained")
        left, right = figure.subplots(1, 2)
        runs = [line for line in lines if line["environment"] == "HalfCheetah-v5" and line["scale"] == 1.0]
        for run in runs:
            colour = CURVE_COLOURS[0] if run["final"]["verdict"] == "satisfied" else CURVE_COLOURS[1]
            filled = colour if run["final"]["verdict"] == "satisfied" else "white"
            for axes, value in ((left, run["final"]["reward"]), (right, run["final"][QUANTITY])):
                spread = [[value["value"] - value["low"]], [value["high"] - value["value"]]]
                marker = MARKERS[run["seed"] % len(MARKERS)]
                axes.errorbar(run["limit"], value["value"], spread, fmt=marker, color=colour, mfc=filled)
        ends = np.array([0.0, max(LIMITS)])
        right.plot(ends, ends, color=FAINT, linestyle="--")
        right.annotate("limit", (0.36, 0.37), color=FAINT, ha="right")
        left.set(xlabel="limit on the mean torque", ylabel="reward per episode", xlim=(0, 0.43), ylim=(0, None))
        right.set(xlabel="limit on the mean torque", ylabel="mean torque", xlim=(0, 0.43), ylim=(0, 0.43))
        figure.suptitle("HalfCheetah-v5, one preset, any limit: verified policies after 1M steps")
        return figure

    @styled
    def scales() -> Figure:
        figure = Figure(figsize=(10.4, 4.0), layout="constrained")
        left, right = figure.subplots(1, 2)
        runs = [line for line in lines if line["environment"] == "HalfCheetah-v5" and line["limit"] == 0.25]
        for run in runs:
            colour = CURVE_COLOURS[SCALES.index(run["scale"])]
            points = [point for point in run["points"] if point["reward"] is not None]
            steps = [point["steps"] / 1e6 for point in points]
            label = f"rewards x {run['scale']:g}" if run["seed"] == 0 else None
            left.plot(steps, [point["reward"] / run["scale"] for point in points], color=colour, label=label)
            right.plot(steps, [point["value"] for point in points], color=colour)
        right.axhline(0.25, color=FAINT, linestyle="--")
        left.set(xlabel="million steps", ylabel="reward per episode, scaled back")
        right.set(xlabel="million steps", ylabel="mean torque", ylim=(0.15, None))
        left.legend(loc="lower right")
        figure.suptitle("HalfCheetah-v5, limit 0.25: the scale of the rewards makes no difference")
        return figure

    save(limits(), out / "limits.png")
    save(scales(), out / "scales.png")
    print(table(lines))
    print(f"drawn: {out / 'limits.png'}, {out / 'scales.png'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=("quality", "limits", "scale", "all", "draw"))
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    if asked.study != "draw":
        seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
        train_missing(asked.out, asked.study, seeds, asked.jobs)
    draw(asked.out, read_study(asked.out))


if __name__ == "__main__":
    main()
