"""Whole runs: the same seed gives the same bits, a folder reads back, what cannot be kept is said."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from learners import QUICK
from probes import Effort, Noise

import rcpo
from rcpo import presets
from rcpo.config import EvaluationConfig, LearnerConfig, MultiplierConfig, PPOConfig, TrainConfig
from rcpo.envs.cmdps import fork
from rcpo.envs.finite import FiniteEnvironment
from rcpo.envs.settings import MarsRoverSettings, RobotSettings
from rcpo.errors import UsageError
from rcpo.files import read_json
from rcpo.folder import evaluation_document, load
from rcpo.loggers import Logger, Record
from rcpo.run import Run, make_plan, train
from rcpo.schedules import Schedule

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
        (lambda folder: (folder / "metrics.jsonl").write_text("{"), "cannot read"),
        (lambda folder: (folder / "metrics.jsonl").write_text("{}\n"), "a record lacks"),
    ],
)
def test_a_damaged_folder_is_one_sentence(finished: Run, tmp_path: Path, damage: Any, said: str) -> None:
    assert finished.folder is not None
    copy = shutil.copytree(finished.folder, tmp_path / "copy")
    damage(copy)
    with pytest.raises(UsageError, match=said):
        load(copy)


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


# Environments on the host


HOST = TrainConfig(
    constraints=("mean(push) <= -2", "P(touch) <= 1", "sum(push) <= 100", "discounted(push, 0.9) >= -100"),
    steps=64 * 4 * 12,
    learner=QUICK,
    multipliers=MultiplierConfig(rule="pi", step_size=Schedule(0.5), proportional=0.5, maximum=2.0),
    evaluation=EvaluationConfig(points=3, episodes=0, shortlist_episodes=64, verdict_episodes=128, looks=1),
)


class Listener(Logger):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def record(self, record: Record) -> None:
        return None

    def say(self, text: str) -> None:
        self.said.append(text)


def bits(run: Run) -> tuple[list[bytes], list[Record]]:
    """All that a run gives but its times."""
    numbers = (
        run.policy,
        run.handover.evaluation.reward,
        [one.interval for one in run.handover.evaluation.constraints],
    )
    records = [{key: value for key, value in record.items() if not key.startswith("time/")} for record in run.records]
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(numbers)], records


@pytest.fixture(scope="module")
def noisy() -> tuple[Run, list[str]]:
    """A run under four kinds of constraints, of which no policy can keep the first; and what was said."""
    listener, before = Listener(), jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    run = train(Noise(side_by_side=True), config=HOST, loggers=[listener])
    jax.config.update("jax_disable_most_optimizations", before)
    return run, listener.said


@pytest.mark.usefixtures("quick_compile")
def test_the_same_seed_gives_the_same_bits_on_the_host(noisy: tuple[Run, list[str]]) -> None:
    first = bits(noisy[0])
    again, other = (bits(train(Noise(side_by_side=True), config=HOST, seed=seed)) for seed in (0, 1))
    assert first == again
    assert first[0] != other[0] and first[1] != other[1]


@pytest.mark.usefixtures("quick_compile")
def test_the_same_seed_gives_the_same_bits_whatever_the_threads() -> None:
    """Three iterations of the robots' own preset, made small; episodes of 40 steps, so that some end in time."""
    own = presets.preset("robot", "Hopper-v5")
    few = replace(own.learner.ppo, minibatches=4, epochs=2, hidden=(8,))
    learner = replace(own.learner, environments=5, rollout_steps=32, ppo=few)
    evaluation = replace(own.evaluation, points=3, shortlist_episodes=4, verdict_episodes=4, looks=1)
    config = replace(own, steps=3 * 5 * 32, learner=learner, evaluation=evaluation)
    one, three = (
        train("Hopper-v5", config=replace(config, env=RobotSettings(max_steps=40, threads=threads)))
        for threads in (1, 3)
    )
    assert bits(one) == bits(three)
    assert one.records[-1]["iteration"] == 3 and one.records[-1]["faults"] == 0
    assert sum(record["episodes"] for record in one.records) > 0


def test_a_limit_that_no_policy_can_meet(noisy: tuple[Run, list[str]]) -> None:
    """No push is below -1: the multiplier of `<= -2` goes to its maximum, and the run says so in one sentence."""
    run, said = noisy
    notes = [text for text in said if text.startswith("note: the multiplier")]
    assert len(notes) == 1
    assert {record["constraint/mean(push)/multiplier"] for record in run.records} == {2.0}
    assert "'mean(push) <= -2' stood at its maximum 2 for 100 % of the run: perhaps no policy keeps" in notes[0]
    assert run.health[0].pinned == 1.0 and [one.pinned for one in run.health[1:]] == [0.0] * 3
    assert "raise --multipliers.maximum" in notes[0]
    assert run.records[-1]["constraint/mean(push)/multiplier"] == 2.0
    assert run.records[-1]["constraint/P(touch)/multiplier"] == 0.0
    assert not run.handover.verified
    assert [one.verdict for one in run.handover.evaluation.constraints] == ["violated", *["satisfied"] * 3]


@pytest.mark.usefixtures("quick_compile")
def test_a_multiplier_that_was_to_stay_is_not_remarked_on(noisy: tuple[Run, list[str]]) -> None:
    listener = Listener()
    fixed = replace(HOST, method="fixed", multipliers=MultiplierConfig(initial=2.0, maximum=2.0))
    train(Noise(side_by_side=True), config=fixed, loggers=[listener])
    assert not [text for text in listener.said if text.startswith("note: the multiplier")]


def test_episodes_that_broke_down_are_said_and_left_out(noisy: tuple[Run, list[str]]) -> None:
    """Six steps in a hundred break down."""
    run, said = noisy
    faults = run.records[-1]["faults"]
    assert 0.04 * run.steps < faults < 0.08 * run.steps
    assert f"note: {faults} episodes ended because the simulation diverged; they were left out" in said


@pytest.mark.slow
def test_a_host_run_without_constraints_keeps_every_promise() -> None:
    """Whatever a preset does to penalties, there are none."""
    own = replace(HOST.learner.ppo, penalise_normalised=True, centred_penalty=True, spread_starts=True)
    learner = replace(HOST.learner, divide_by_multiplier=True, ppo=own)
    run = train(Noise(), [], config=replace(HOST, learner=learner))
    assert run.constraints == () and run.handover.verified


def changed(**changes: Any) -> TrainConfig:
    return replace(HOST, **changes)


@pytest.mark.parametrize(
    ("impossible", "said"),
    [
        (lambda: replace(HOST.learner, environments=0), r"^got 0 for environments; give at least 1$"),
        (lambda: replace(HOST.learner, rollout_steps=0), r"^got 0 for rollout_steps; give at least 1$"),
        (
            lambda: replace(HOST.learner, ppo=PPOConfig(minibatches=3)),
            r"^got 64 environments x 4 steps, which cannot be divided into 3 minibatches; give numbers that divide$",
        ),
        (lambda: PPOConfig(epochs=0), r"^got 0 for epochs; give at least 1$"),
        (lambda: PPOConfig(minibatches=0), r"^got 0 for minibatches; give at least 1$"),
        (lambda: PPOConfig(initial_std=0.0), r"^got the initial standard deviation 0; give a number above 0$"),
        (lambda: PPOConfig(hidden=(64, 0)), r"^got hidden layers of \(64, 0\) units; give at least 1 each$"),
        (lambda: MultiplierConfig(margin=1.0), r"^got the margin 1; it lies in \[0, 1\)$"),
        (lambda: MultiplierConfig(ramp=1.5), r"^got a ramp over 1.5 of the run; it lies in \[0, 1\]$"),
        (lambda: EvaluationConfig(episodes=-1), r"^got -1 for episodes; give a number that is not negative$"),
        (
            lambda: train(Noise(), config=changed(learner=LearnerConfig())),
            r"^got the algorithm a2c for Noise, which runs on the host; use --learner.algorithm ppo$",
        ),
        (
            lambda: train(
                "mars-rover", config=replace(HOST, constraints=("P(crash) <= 0.1",), env=MarsRoverSettings())
            ),
            r"^got the algorithm ppo for mars-rover, which is written in JAX; use --learner.algorithm a2c$",
        ),
        (
            lambda: train(Noise(), config=changed(method="primal-dual")),
            r"^the method primal-dual plays environments written in JAX, and Noise runs on the host; "
            r"use --method rcpo or fixed$",
        ),
        (lambda: train(Effort(), ["mean(costs) <= 1"], config=HOST), r"^unknown cost column 'costs'.*mean 'cost'\?$"),
        (lambda: train("Hopper-v6", config=HOST), r"^unknown environment 'Hopper-v6'; did you mean 'Hopper-v5'\?$"),
        (lambda: train(Effort(), preset="robots"), r"^unknown preset 'robots'; did you mean 'robot'\?$"),
    ],
)
def test_what_cannot_be_is_one_sentence(impossible: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        impossible()
