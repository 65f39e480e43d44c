"""Whole runs: the same seed gives the same bits, a folder reads back, what cannot be kept is said."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import rcpo
from rcpo import presets
from rcpo.checkpoint import read_json
from rcpo.config import EvaluationConfig, LearnerConfig, TrainConfig
from rcpo.envs.cmdps import fork
from rcpo.envs.finite import FiniteEnvironment
from rcpo.errors import UsageError
from rcpo.folder import evaluation_document, load
from rcpo.loggers import Logger, Record
from rcpo.run import Run, make_plan, train

SMALL = EvaluationConfig(points=3, episodes=256, shortlist_episodes=512, verdict_episodes=1024, looks=2)


def small(steps: float = 64 * 8 * 30, **changes: Any) -> TrainConfig:
    return replace(presets.preset("theory", "fork"), steps=steps, evaluation=SMALL, **changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train("fork", config=small(seed=3), out=tmp_path_factory.mktemp("run") / "a")


def test_the_same_seed_gives_the_same_bits(finished: Run, tmp_path: Path) -> None:
    again = train("fork", config=small(seed=3))
    other = train("fork", config=small(seed=4))

    def timeless(run: Run) -> list[Record]:
        return [{key: value for key, value in record.items() if not key.startswith("time/")} for record in run.records]

    assert timeless(finished) == timeless(again)
    assert timeless(finished) != timeless(other)
    for one, two in zip(jax.tree.leaves(finished.policy), jax.tree.leaves(again.policy), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(two).tobytes()


def test_how_often_one_looks_does_not_change_what_is_learned(finished: Run) -> None:
    more = train("fork", config=replace(small(seed=3), evaluation=replace(SMALL, episodes=64)))
    for one, two in zip(finished.records, more.records, strict=True):
        for key in ("loss/policy", "constraint/P(crash)/multiplier", "reward/episode"):
            assert one[key] == two[key]


def test_a_folder_reads_back_as_the_run_that_wrote_it(finished: Run) -> None:
    assert finished.folder is not None
    read = load(finished.folder)
    assert read.config == finished.config
    assert read.constraints == finished.constraints
    assert read.records == finished.records
    assert read.handover.verified == finished.handover.verified
    assert read.handover.iterations == finished.handover.iterations
    assert read.handover.evaluation == finished.handover.evaluation
    for one, two in zip(jax.tree.leaves(finished.policy), jax.tree.leaves(read.policy), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(two).tobytes()
    assert read.evaluate(200) == finished.evaluate(200)
    lines = (finished.folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["steps"] for line in lines] == [5120, 10240, 15360]


def test_the_verdict_file_says_what_was_proved(finished: Run) -> None:
    assert finished.folder is not None
    verdict = read_json(finished.folder / "verdict.json")
    assert verdict["constraints"] == evaluation_document(finished.handover.evaluation)["constraints"]
    assert verdict["interval_confidence"] == pytest.approx(1 - 0.05 / 2)  # two looks share the 5 % of error
    assert verdict["confidence"] == 0.95
    assert sum(component["weight"] for component in verdict["components"]) == pytest.approx(1.0)
    judged = {entry["verdict"] for entry in verdict["constraints"]}
    assert verdict["verified"] == (judged == {"satisfied"})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "config.json").unlink(), "is no run"),
        (lambda folder: (folder / "verdict.json").unlink(), "is not finished"),
        (lambda folder: (folder / "policy.safetensors").write_bytes(b"\x00" * 100), "cannot read"),
        (lambda folder: (folder / "verdict.json").write_text("{}"), "cannot be read: KeyError"),
        (lambda folder: (folder / "config.json").write_text("not json"), "cannot read"),
        (lambda folder: (folder / "metrics.jsonl").write_text("{"), "cannot be read"),
    ],
)
def test_a_damaged_folder_is_one_sentence(finished: Run, tmp_path: Path, damage: Any, said: str) -> None:
    assert finished.folder is not None
    for file in finished.folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    damage(tmp_path)
    with pytest.raises(UsageError, match=said):
        load(tmp_path)


def test_an_environment_of_ones_own_and_no_constraint() -> None:
    environment = FiniteEnvironment.build(fork(), "my fork", max_steps=20)
    run = train(environment, constraints=[], config=small())
    assert run.constraints == ()
    assert run.handover.verified  # no promise, none broken
    assert run.environment_name == "my fork"


def test_a_limit_that_cannot_be_met_is_said() -> None:
    # The boldest policy there is crashes in three episodes of ten.
    run = train(
        "fork", constraints=["P(crash) >= 0.9"], config=small(multipliers=presets.preset(None, "fork").multipliers)
    )
    assert not run.handover.verified
    assert run.handover.looks == SMALL.looks
    assert run.handover.evaluation.constraints[0].verdict == "violated"
    # The closest policy crashes as often as the fork allows: 0.3.
    assert run.exact() is not None and run.exact().values["crash"] > 0.15  # type: ignore[union-attr]


def test_wrong_words_in_python() -> None:
    with pytest.raises(UsageError, match="unknown environment 'forc'; did you mean 'fork'"):
        train("forc")
    with pytest.raises(UsageError, match="unknown setting 'step'; did you mean 'steps'"):
        train("fork", step=3)
    with pytest.raises(UsageError, match="unknown preset 'teory'; did you mean 'theory'"):
        train("fork", preset="teory")
    with pytest.raises(UsageError, match=r"is for fork, not for mars-rover; use mars-rover or"):
        train("mars-rover", preset="theory")
    with pytest.raises(UsageError, match=r"unknown cost column 'crush'.*did you mean 'crash'"):
        train("fork", ["P(crush) <= 0.1"])


def test_a_run_that_diverges_is_said() -> None:
    learner = replace(presets.preset("theory", "fork").learner, critic_step_size=rcpo.Schedule(1e30), box=None)
    with pytest.raises(UsageError, match="training diverged"):
        train("fork", config=small(learner=learner, theory=False))


def test_a_plan_has_equal_chunks_that_cover_the_steps() -> None:
    environment = FiniteEnvironment.build(fork())
    for steps in (1, 511, 512, 513, 10_000, 123_456):
        config = TrainConfig(
            steps=steps, evaluation=EvaluationConfig(points=7), learner=LearnerConfig(environments=64, rollout_steps=8)
        )
        plan, chunk = make_plan(config, (), environment)
        assert plan.iterations % chunk == 0
        assert plan.iterations // chunk <= 7
        assert 512 * plan.iterations >= steps
        assert 512 * (plan.iterations - chunk) < steps


def test_loggers_receive_every_record_and_are_closed() -> None:
    class Listener(Logger):
        def __init__(self) -> None:
            self.records: list[Record] = []
            self.said: list[str] = []
            self.closed = 0

        def record(self, record: Record) -> None:
            self.records.append(record)

        def say(self, text: str) -> None:
            self.said.append(text)

        def close(self) -> None:
            self.closed += 1

    listener = Listener()
    run = train("fork", config=small(), loggers=[listener])
    assert tuple(listener.records) == run.records
    assert listener.closed == 1
    assert any("look 1 of 2" in text for text in listener.said)


@pytest.mark.parametrize("method", ["primal-dual", "fixed"])
def test_the_other_methods_run(method: str) -> None:
    run = train("fork", config=small(method=method, theory=False, multipliers=rcpo.MultiplierConfig(initial=0.7)))
    multipliers = {record["constraint/P(crash)/multiplier"] for record in run.records}
    assert (multipliers == {float(np.float32(0.7))}) == (method == "fixed")
    assert run.steps >= 64 * 8 * 30
