"""When a run says that no policy seems to keep its limits, and when it must not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from learners import QUICK
from probes import Effort

from rcpo import envs, evidence
from rcpo.config import EvaluationConfig, MultiplierConfig, TrainConfig
from rcpo.constraints import parse
from rcpo.evaluation import Sample, summarise
from rcpo.handover import Candidate, Handover
from rcpo.loggers import Record
from rcpo.policy import single
from rcpo.run import Run, train
from rcpo.schedules import Schedule
from rcpo.verdict import verdict_lines

ENVIRONMENT = envs.make_finite("fork")
LIMITED = (parse("sum(crash) <= 1"),)
RULE = MultiplierConfig(rule="integral", maximum=10.0)


def candidate(value: float, episodes: int = 100) -> Candidate:
    return Candidate(0, None, False, episodes, 0.0, np.array([value]), np.array([0.1]))


def handed(value: float) -> Handover:
    """The closest policy, measured at this value within 0.02."""
    values = value + 0.1 * np.sin(np.arange(100.0))
    nothing = np.zeros(100)
    drawn = Sample(values[:, None], np.zeros((100, 2)), nothing, nothing.astype(int) + 1, nothing > 0)
    seen = summarise(ENVIRONMENT, LIMITED, drawn, 0.95)
    return Handover(single({"a": np.zeros(1, "f")}, False), seen, seen.satisfied, 0.95, 1, (0,))


def records(*multipliers: float) -> list[Record]:
    return [{"constraint/sum(crash)/multiplier": value} for value in multipliers]


def said(values: Any, final: float, *multipliers: float, rule: MultiplierConfig = RULE) -> str:
    pool = [candidate(value) for value in values]
    return evidence.against(LIMITED, pool, handed(final), records(*multipliers), [rule])


def test_a_multiplier_that_can_rise_no_further() -> None:
    assert "'sum(crash) <= 1' stands at its maximum 10, and the closest policy" in said([0.5, 3.0], 2.0, 1.0, 10.0)
    assert said([0.5, 3.0], 2.0, 1.0, 9.0) == ""  # one candidate kept the limit
    assert said([0.5, 3.0], 1.0, 1.0, 10.0) == ""  # the closest is undecided


def test_pressure_that_brings_nobody_closer() -> None:
    found = said([3.0, 2.0, 2.0, 1.99], 2.0, 1.0, 2.0, 4.0, 6.0)
    assert found == (
        "all 4 candidates break a limit, and the second half of them came hardly closer while the multiplier of "
        "'sum(crash) <= 1' rose from 4 to 6"
    )
    assert said([3.0, 2.0, 1.6, 1.5], 2.0, 1.0, 2.0, 4.0, 6.0) == ""  # they come closer: train longer
    assert said([3.0, 2.0, 2.0, 2.0], 2.0, 1.0, 4.0, 4.0, 4.0) == ""  # there was no more pressure
    assert said([3.0, 2.0, 2.0, 1.01], 2.0, 1.0, 2.0, 4.0, 6.0) == ""  # one may keep the limit
    assert said([2.0], 2.0, 1.0) == ""  # too few to tell


def test_candidates_without_episodes_tell_nothing() -> None:
    pool = [candidate(2.0), candidate(0.0, episodes=0), candidate(2.0)]
    assert "all 2 candidates" in evidence.against(LIMITED, pool, handed(2.0), records(1.0, 2.0, 3.0), [RULE])


def test_no_pressure_no_evidence() -> None:
    """A fixed multiplier never tried; and what is verified needs no excuse."""
    fixed = MultiplierConfig(rule="fixed", maximum=10.0, initial=10.0)
    assert said([2.0, 2.0], 2.0, 10.0, 10.0, rule=fixed) == ""
    assert said([2.0, 2.0], 0.5, 1.0, 10.0) == ""


# Whole runs


SETTINGS = TrainConfig(
    steps=64 * 4 * 60,
    learner=QUICK,
    multipliers=MultiplierConfig(step_size=Schedule(0.5)),
    evaluation=EvaluationConfig(points=10, episodes=0, shortlist_episodes=64, verdict_episodes=256, looks=2),
)


def effort(limit: str, **changes: Any) -> Run:
    return train(Effort(), [limit], config=replace(SETTINGS, **changes))


@pytest.mark.usefixtures("quick_compile")
def test_an_impossible_limit_and_a_possible_one() -> None:
    """The cost is a square: it can be at most 0.3, but never -1."""
    impossible = effort("mean(cost) <= -1")
    assert impossible.handover.outcome == "infeasible as far as we can tell" and impossible.best is None
    lines = verdict_lines(impossible)
    assert lines[0].startswith("INFEASIBLE AS FAR AS WE CAN TELL: all 10 candidates break a limit")
    assert "beyond the limit -1: violated" in lines[1] and "evidence, no proof" in lines[2]

    possible = effort("mean(cost) <= 0.5")
    assert possible.handover.outcome == "verified" and possible.best is not None
    assert verdict_lines(possible)[0].startswith("VERIFIED at 95% confidence, all looks counted")

    short = effort("mean(cost) <= 0.005", steps=64 * 4 * 20)
    assert short.handover.outcome == "unverified" and short.best is None
    lines = verdict_lines(short)
    assert lines[0].startswith("NOT VERIFIED") and "train longer" in lines[-1]
