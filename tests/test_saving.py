"""Interrupted in this very process: what is saved when, what is said, and what is refused."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Noise
from safetensors.numpy import load_file, save

import rcpo
from rcpo import presets, saving
from rcpo.config import CheckpointConfig, EvaluationConfig, TrainConfig
from rcpo.constraints import parse_all
from rcpo.envs.cmdps import fork
from rcpo.envs.finite import FiniteEnvironment
from rcpo.errors import Stopped, UsageError
from rcpo.files import read_json
from rcpo.folder import held, load
from rcpo.learn import Plan, begin
from rcpo.loggers import Logger, Record
from rcpo.progress import Progress
from rcpo.run import Run, resume, train
from rcpo.snapshots import manifest
from rcpo.stopping import Stopper

pytestmark = pytest.mark.usefixtures("quick_compile")

POINTS = 8
EVALUATION = EvaluationConfig(points=POINTS, episodes=32, shortlist_episodes=64, verdict_episodes=128, looks=1)


def small(**changes: Any) -> TrainConfig:
    own = presets.preset("theory", "fork")
    return replace(
        own, steps=64 * 8 * 3 * POINTS, evaluation=EVALUATION, checkpoint=CheckpointConfig(share=1.0), **changes
    )


class Impatient(Logger):
    """Wishes that the run stops, once it has come so far; keeps what was said."""

    def __init__(self, points: int = 10**9):
        self.left, self.stopper, self.said = points, Stopper(), []  # type: ignore[var-annotated]

    def record(self, record: Record) -> None:
        self.left -= 1
        if self.left == 0:
            self.stopper.heard(15)

    def say(self, text: str) -> None:
        self.said.append(text)


def stopped(folder: Path, points: int, config: TrainConfig | None = None) -> Stopped:
    """A run that was asked to stop after so many points."""
    listener = Impatient(points)
    with pytest.raises(Stopped) as error:
        train("fork", config=config or small(), out=folder, loggers=[listener], stopper=listener.stopper)
    return error.value


def bits(run: Run) -> tuple[list[bytes], list[Record], Any]:
    timeless = [{key: value for key, value in record.items() if not key.startswith("time/")} for record in run.records]
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(run.policy)], timeless, run.handover.evaluation


@pytest.fixture(scope="module")
def never() -> Run:
    """The run that nothing interrupts."""
    jax.config.update("jax_disable_most_optimizations", True)
    run = train("fork", config=small())
    jax.config.update("jax_disable_most_optimizations", False)
    return run


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """A run that was stopped after five points; three more lie before it."""
    stopped(tmp_path / "run", 5)
    return tmp_path / "run"


def test_who_asks_a_run_to_stop_finds_it_saved(never: Run, tmp_path: Path) -> None:
    error = stopped(tmp_path / "run", 5)
    at = 5 * 64 * 8 * 3
    assert error.code == 128 + 15
    assert str(error) == f"stopped at step {at:,}, saved at step {at:,}; go on with: rcpo resume {tmp_path / 'run'}"
    assert not (tmp_path / "run" / "verdict.json").exists()
    run = resume(tmp_path / "run")
    assert bits(run) == bits(never)
    assert bits(load(tmp_path / "run"))[:2] == bits(never)[:2]
    assert [record["time/seconds"] for record in run.records] == sorted(r["time/seconds"] for r in run.records)


def test_a_run_without_a_folder_stops_and_says_that_nothing_is_kept() -> None:
    listener = Impatient(2)
    with pytest.raises(Stopped, match="nothing is kept of a run without a folder"):
        train("fork", config=small(), loggers=[listener], stopper=listener.stopper)


def test_stopping_again_and_again_changes_nothing(never: Run, tmp_path: Path) -> None:
    stopped(tmp_path / "run", 1)
    for _ in range(POINTS - 2):
        listener = Impatient(1)
        with pytest.raises(Stopped):
            resume(tmp_path / "run", loggers=[listener], stopper=listener.stopper)
    assert bits(resume(tmp_path / "run")) == bits(never)


def test_looks_along_the_way_are_not_taken_again(tmp_path: Path) -> None:
    """Stopped after a point at which one had been taken, and gone on with: the same looks, and the same verdict."""
    looking = replace(EVALUATION, training_looks=3, confidence=0.6)
    config, listener = replace(small(), evaluation=looking), Impatient()
    whole = train("fork", config=config, out=tmp_path / "never", loggers=[listener])
    taken = [record.get("looks", 0) for record in whole.records]
    first = next(point for point, count in enumerate(taken, 1) if count)
    assert 0 < taken[-1] <= 3 and first < POINTS
    assert sum("along the way" in text for text in listener.said) == taken[-1]
    stopped(tmp_path / "run", first, config)
    listener = Impatient()
    run = resume(tmp_path / "run", loggers=[listener])
    assert bits(run) == bits(whole) and run.handover.looks == whole.handover.looks > taken[-1]
    assert sum("along the way" in text for text in listener.said) == taken[-1] - taken[first - 1]
    one, two = (read_json(tmp_path / name / "verdict.json") for name in ("never", "run"))
    assert one | {"seconds": 0} == two | {"seconds": 0}


def test_looks_that_are_none_stop_nobody(never: Run, half: Path) -> None:
    """Who wrote them has damaged a checkpoint: it is named, and the one before is gone on from."""
    newest = max((half / "checkpoints").glob("*.safetensors"))
    arrays = load_file(newest)
    document = json.loads(arrays["document"].tobytes()) | {"looks": [{"candidate": 10**9, "reward": "much"}]}
    arrays["document"] = np.frombuffer(json.dumps(document).encode(), np.uint8)
    data = save(arrays)
    newest.write_bytes(data)
    newest.with_suffix(".json").write_text(json.dumps(manifest(data)))
    listener = Impatient()
    assert bits(resume(half, loggers=[listener])) == bits(never)
    assert any("what was verified on the way cannot be read" in text for text in listener.said)


def test_lines_written_after_the_checkpoint_are_written_once(never: Run, half: Path) -> None:
    with (half / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 18, "torn')
    run = resume(half)
    lines = (half / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == list(run.records)
    assert bits(run) == bits(never)


def test_a_damaged_checkpoint_is_named_and_the_one_before_gone_on_from(never: Run, half: Path) -> None:
    newest = max((half / "checkpoints").glob("*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 4
    newest.write_bytes(content)
    listener = Impatient()
    run = resume(half, loggers=[listener])
    (note,) = [text for text in listener.said if text.startswith("note: a checkpoint")]
    assert str(newest) in note and "is damaged" in note
    assert bits(run) == bits(never)


def test_without_a_checkpoint_a_run_begins_at_its_beginning(never: Run, half: Path) -> None:
    shutil.rmtree(half / "checkpoints")
    assert bits(resume(half)) == bits(never)


def edit(path: Path, change: Any) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_other_settings_are_refused(half: Path) -> None:
    edit(half / "config.json", lambda document: document["config"].update(seed=9))
    with pytest.raises(UsageError, match=r"under other settings than config\.json has now; put them back"):
        resume(half)


def test_another_environment_is_refused(tmp_path: Path) -> None:
    folder, listener = tmp_path / "run", Impatient(2)
    mine = FiniteEnvironment.build(fork(), "mine", max_steps=20)
    with pytest.raises(Stopped):
        train(mine, config=small(), out=folder, loggers=[listener], stopper=listener.stopper)
    with pytest.raises(UsageError, match=r"is on 'mine', an environment of its user's; from Python: .*rcpo\.resume"):
        resume(folder)
    tables = replace(fork(), reward=2.0 * fork().reward)
    for other, said in (
        (FiniteEnvironment.build(fork(), "yours", max_steps=20), r"is on 'mine'; got the environment 'yours'"),
        (FiniteEnvironment.build(fork(), "mine", max_steps=21), "was written in another environment"),
        (FiniteEnvironment.build(tables, "mine", max_steps=20), "was written in another environment"),
    ):
        with pytest.raises(UsageError, match=said):
            resume(folder, other)
    assert resume(folder, mine).environment_name == "mine"


def test_other_versions_are_said(never: Run, half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = saving.versions()
    monkeypatch.setattr(saving, "versions", lambda: {**now, "jax": "99.0"})
    listener = Impatient()
    resume(half, loggers=[listener])
    (note,) = [text for text in listener.said if "perhaps not bit for bit" in text]
    assert f"jax {now['jax']}, here 99.0" in note


def test_what_cannot_be_gone_on_with(never: Run, half: Path, tmp_path: Path) -> None:
    with held(half), pytest.raises(UsageError, match="is going on in another process"):
        resume(half)
    resume(half)
    with pytest.raises(UsageError, match="is finished; look at it with: rcpo evaluate"):
        resume(half)
    with pytest.raises(UsageError, match=r"is no run: it has no config\.json"):
        resume(tmp_path / "nothing")


def test_a_run_in_the_folder_of_another_begins_anew(never: Run, half: Path) -> None:
    """Else it would go on from the other's checkpoints, or be taken for finished because of its verdict."""
    listener = Impatient(1)
    resume(half)
    with pytest.raises(Stopped):
        train("fork", config=small(seed=8), out=half, loggers=[listener], stopper=listener.stopper)
    assert not (half / "verdict.json").exists()
    assert bits(resume(half)) == bits(train("fork", config=small(seed=8)))


# When


def test_copies_that_cannot_be_saved_are_reset_after_whole_episodes() -> None:
    """Each copy takes 2 steps an iteration, 3 iterations a point; ten episodes of 9 steps are 90 of them."""
    environment = Noise(max_steps=9)
    learner = rcpo.LearnerConfig(algorithm="ppo", environments=32, rollout_steps=2)
    plan = Plan(TrainConfig(constraints=(), learner=learner), (), 300)
    for config, points in (
        (CheckpointConfig(), 15),
        (CheckpointConfig(episodes=1), 2),
        (CheckpointConfig(every=4, episodes=1), 4),
    ):
        assert saving.spacing(config, plan, 3, environment) == points


class Clock:
    """Time that passes as it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_checkpoints_take_no_larger_share_of_the_time_than_they_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A point takes 1 second and a checkpoint 0.1: at 1 % the first is paid for after 10 seconds, the next after 20."""
    clock, written = Clock(), []
    environment = FiniteEnvironment.build(fork())
    config = replace(small(), checkpoint=CheckpointConfig(share=0.01))
    constraints = parse_all(config.constraints, environment.spec.column_names)
    plan = Plan(config, constraints, 100)
    first = Progress(begin(plan, environment), jax.random.key(0))
    saver = saving.Saver(plan, 1, environment, (), first, tmp_path / "checkpoints", clock.monotonic)

    class Shelf:
        def write(self, number: int, arrays: Any) -> None:
            written.append(number)
            clock.now += 0.1

    saver._snapshots = Shelf()  # type: ignore[assignment]
    monkeypatch.setattr(saving.progress, "save", lambda *words: {})
    for iteration in range(1, 101):
        clock.now += 1.0
        state = eqx.tree_at(lambda state: state.iteration, first.state, jnp.int32(iteration))
        saver.after(replace(first, state=state), stopping=iteration == 55)
    assert written == [1, 20, 30, 40, 50, 55, 70, 80, 90, 100]


# A disk that is full


class Greedy(Logger):
    """Takes all the room there is on a disk, once a run has come so far."""

    def __init__(self, path: Path, points: int):
        self.path, self.left = path, points

    def record(self, record: Record) -> None:
        self.left -= 1
        if self.left == 0:
            with contextlib.suppress(OSError), self.path.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_stops_the_run_and_takes_nothing_that_was_there(never: Run, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        greedy, words = Greedy(disk / "greedy", 4), "No space left on device; what was saved before is whole; make room"
        with pytest.raises(UsageError, match=f"{words} and go on with: rcpo resume {disk / 'run'}"):
            train("fork", config=small(), out=disk / "run", loggers=[greedy])
        before = {path: path.read_bytes() for path in (disk / "run" / "checkpoints").iterdir()}
        assert sorted(path.name for path in before if path.suffix == ".json") == ["0000000006.json", "0000000009.json"]
        with pytest.raises(UsageError, match=words):
            resume(disk / "run")
        assert before == {path: path.read_bytes() for path in (disk / "run" / "checkpoints").iterdir()}
        (disk / "greedy").unlink()
        listener = Impatient()
        assert bits(resume(disk / "run", loggers=[listener])) == bits(never)
        assert not [text for text in listener.said if "cannot be used" in text]
    finally:
        subprocess.run(["umount", disk], check=True)
