"""Several limits at once, and the six safe velocity tasks. Goes on where it was stopped.

    python benchmarks/several.py cheetah --seeds 3            # torque, speed and changes of action, all three at once
    python benchmarks/several.py velocity --seeds 3           # the presets safe-velocity/...
    python benchmarks/several.py all --jobs 16                # both, 16 runs at a time, each on its share of the cores
    python benchmarks/several.py table                        # tables from the raw results alone

Every run is a line of results/several/runs.jsonl with its command, versions, commit and machine.
"""

import argparse
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final, NamedTuple

from rcpo.config import EvaluationConfig
from rcpo.constraints import labels, parse
from rcpo.evaluation import evaluate_policy
from rcpo.experiments.studies import append_line, provenance, read_lines, settings_of
from rcpo.run import Run, train
from rcpo.velocity import VELOCITY, constraint, preset_name

OUT: Final = Path("results/several")
ALONE: Final = {
    "torque": "mean(torque) <= 0.2",
    "speed": "sum(speed > 3.2096) <= 25",
    "action_change": "mean(action_change) <= 0.15",
}
"""The limits on HalfCheetah, each also alone: so one sees that none of them brings the others with it."""
FEW: Final = EvaluationConfig(points=2, episodes=0, shortlist_episodes=2, verdict_episodes=4, looks=1, mixture=False)
"""For trying it out."""
CHEETAH: Final = {"all": tuple(ALONE.values())} | {name: (text,) for name, text in ALONE.items()} | {"none": ()}


class Key(NamedTuple):
    """What tells the runs apart."""

    environment: str
    limits: str
    seed: int


def wanted(study: str, seeds: range) -> Iterator[Key]:
    for seed in seeds:
        if study in ("cheetah", "all"):
            yield from (Key("HalfCheetah-v5", limits, seed) for limits in CHEETAH)
        if study in ("velocity", "all"):
            yield from (Key(robot, "velocity", seed) for robot in VELOCITY)


def key_of(line: dict[str, Any]) -> Key:
    return Key(*(line[name] for name in Key._fields))


def train_one(key: Key, steps: float | None) -> dict[str, Any]:
    velocity = key.limits == "velocity"
    preset = preset_name(key.environment) if velocity else "robot"
    texts = (constraint(key.environment),) if velocity else CHEETAH[key.limits]
    settings = {} if steps is None else {"steps": steps, "evaluation": FEW}
    run = train(key.environment, texts, preset=preset, seed=key.seed, **settings)
    options = "".join(f' --constraint "{text}"' for text in texts) if not velocity else ""
    command = f"rcpo train {key.environment} --preset {preset}{options} --seed {key.seed}"
    command += "" if steps is None else f" --steps {steps:g}"
    spent = spending(run, 64 if steps is None else 2)
    return key._asdict() | line_of(run) | {"spent": spent, "preset": preset, "command": command} | provenance()


def spending(run: Run, episodes: int) -> dict[str, Any]:
    """What the policy spends of all three, whichever of them was limited."""
    if run.environment_name != "HalfCheetah-v5":
        return {}
    every = tuple(parse(text) for text in ALONE.values())
    seen = evaluate_policy(run.environment, every, run.policy, episodes, seed=1)
    return {str(one.constraint): one.interval._asdict() | {"verdict": one.verdict} for one in seen.constraints}


def line_of(run: Run) -> dict[str, Any]:
    """What is kept of a run: its curve, and what was verified of the policy that it hands over."""
    seen, handover, names = run.handover.evaluation, run.handover, labels(run.constraints)
    return {
        "steps": run.steps,
        "seconds": run.seconds,
        "final": {
            "reward": seen.reward._asdict(),
            "constraints": {
                str(one.constraint): one.interval._asdict() | {"verdict": one.verdict} for one in seen.constraints
            },
            "verified": handover.verified,
            "episodes": seen.episodes,
            "length": seen.steps.value,
            "looks": handover.looks,
            "iteration": handover.iterations[0],
        },
        "points": [
            {"steps": record["steps"], "reward": record["reward/episode"], "length": record["length/episode"]}
            | {kind: [record[f"constraint/{name}/{kind}"] for name in names] for kind in ("value", "multiplier", "aim")}
            for record in run.records
        ],
        "settings": settings_of(run.config),
    }


def train_missing(out: Path, study: str, seeds: range, jobs: int, steps: float | None) -> None:
    file = out / "runs.jsonl"
    done = {key_of(line) for line in read_lines(file)}
    missing = sorted(set(wanted(study, seeds)) - done, key=lambda key: (key.environment != "Humanoid-v5", key))
    print(f"{file}: {len(missing)} runs to go", flush=True)
    for line in trained(missing, jobs, steps):
        append_line(file, line)
        print(f"{line['command']}: {said(line)}, {line['seconds']:.0f} s", flush=True)


def trained(keys: Sequence[Key], jobs: int, steps: float | None) -> Iterator[dict[str, Any]]:
    """The lines of the runs as they end, `jobs` of them side by side."""
    if jobs == 1:
        yield from (train_one(key, steps) for key in keys)
        return
    free = multiprocessing.get_context("spawn")
    shares, ours = free.Queue(), sorted(os.sched_getaffinity(0))
    for job in range(jobs):
        shares.put(ours[job % len(ours) :: jobs])
    with ProcessPoolExecutor(jobs, free, initializer=take_cores, initargs=(shares,)) as pool:
        for ended in as_completed([pool.submit(train_one, key, steps) for key in keys]):
            yield ended.result()


def take_cores(shares: Any) -> None:
    """Keep a job to its share of the cores."""
    os.sched_setaffinity(0, shares.get())


def said(line: dict[str, Any]) -> str:
    """The reward, and of each constraint the value with its verdict."""
    final = line["final"]
    parts = [f"{text}: {seen['value']:.4g} {seen['verdict']}" for text, seen in final["constraints"].items()]
    return "; ".join([f"reward {final['reward']['value']:.0f}", *parts])


def table(lines: Sequence[dict[str, Any]]) -> str:
    """One row for each run."""
    rows = ["| robot | limits | seed | reward | kept | verified |", "|---|---|---|---|---|---|"]
    for line in sorted(lines, key=key_of):
        kept = "; ".join(f"{text}: {seen['value']:.3g} {seen['verdict']}"
                         for text, seen in (line["spent"] or line["final"]["constraints"]).items())  # fmt: skip
        cells = (*key_of(line), f"{line['final']['reward']['value']:.0f}", kept, line["final"]["verified"])
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=("cheetah", "velocity", "all", "table"))
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--steps", type=float, help="fewer steps, and few episodes at the end, to try it")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    if asked.study != "table":
        seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
        train_missing(asked.out, asked.study, seeds, asked.jobs, asked.steps)
    print(table(list(read_lines(asked.out / "runs.jsonl"))))


if __name__ == "__main__":
    main()
