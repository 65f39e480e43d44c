"""Settings that cannot be meant are refused where they are made, in one sentence."""

import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from rcpo.config import EvaluationConfig, LearnerConfig, MultiplierConfig, TrainConfig
from rcpo.errors import UsageError
from rcpo.schedules import Schedule


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        (MultiplierConfig, {"maximum": -1.0}, ["lambda_max -1", "not negative"]),
        (MultiplierConfig, {"maximum": math.nan}, ["lambda_max"]),
        (MultiplierConfig, {"initial": -0.1}, ["multiplier -0.1", "[0, lambda_max = 1000]"]),
        (MultiplierConfig, {"initial": 3.0, "maximum": 2.0}, ["multiplier 3", "[0, lambda_max = 2]"]),
        (MultiplierConfig, {"initial": math.nan}, ["multiplier nan"]),
        (MultiplierConfig, {"step_size": Schedule(-1.0)}, ["step size -1", "negative"]),
        (MultiplierConfig, {"proportional": -1.0}, ["proportional gain -1", "not negative"]),
        (LearnerConfig, {"environments": 0}, ["got 0 for environments", "at least 1"]),
        (LearnerConfig, {"rollout_steps": -2}, ["got -2 for rollout_steps", "at least 1"]),
        (LearnerConfig, {"actor_step_size": Schedule(-1.0)}, ["actor's step size -1", "not negative"]),
        (LearnerConfig, {"critic_step_size": Schedule(1.0, "linear", final=-2.0)}, ["critic's step size -2"]),
        (LearnerConfig, {"discount": 1.1}, ["discount 1.1", "[0, 1]"]),
        (LearnerConfig, {"discount": -0.1}, ["discount -0.1", "[0, 1]"]),
        (LearnerConfig, {"discount": math.nan}, ["discount nan", "[0, 1]"]),
        (LearnerConfig, {"gae_decay": 2.0}, ["gae_decay 2", "[0, 1]"]),
        (LearnerConfig, {"exploring": Schedule(1.5)}, ["exploring", "[0, 1]"]),
        (LearnerConfig, {"exploring": Schedule(1.0, "linear", final=-1.0)}, ["exploring", "[0, 1]"]),
        (EvaluationConfig, {"points": 0}, ["got 0 for points", "at least 1"]),
        (EvaluationConfig, {"episodes": -1}, ["got -1 for episodes", "not negative"]),
        (EvaluationConfig, {"shortlist_episodes": -1}, ["got -1 for shortlist_episodes"]),
        (EvaluationConfig, {"verdict_episodes": 0}, ["got 0 for verdict_episodes"]),
        (EvaluationConfig, {"looks": 0}, ["got 0 for looks"]),
        (EvaluationConfig, {"confidence": 1.0}, ["confidence 1", "[0.5, 1)"]),
        (EvaluationConfig, {"confidence": 0.4}, ["confidence 0.4", "[0.5, 1)"]),
        (EvaluationConfig, {"confidence": math.nan}, ["confidence nan"]),
        (TrainConfig, {"steps": 0.0}, ["0 steps", "at least 1"]),
        (TrainConfig, {"steps": -5.0}, ["-5 steps", "at least 1"]),
        (TrainConfig, {"steps": math.nan}, ["nan steps"]),
        (TrainConfig, {"seed": -1}, ["seed -1", "not negative"]),
        (TrainConfig, {"theory": True}, ["conditions of Theorem 2"]),
    ],
)
def test_bad_values(kind: type, settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        kind(**settings)
    assert "\n" not in str(refused.value)
    for word in words:
        assert word in str(refused.value)
    kind(**({} if kind is not MultiplierConfig else {"initial": 0.0}))  # the defaults are fine


def test_theory_names_every_condition_that_is_broken() -> None:
    config = TrainConfig()
    with pytest.raises(UsageError) as refused:
        replace(config, theory=True)
    for condition in config.broken_conditions:
        assert condition in str(refused.value)


def test_what_sets_no_condition() -> None:
    """A fixed multiplier has no step size, and primal-dual no critic."""
    full = TrainConfig()
    assert any("multiplier" in sentence for sentence in full.broken_conditions)
    for unmoved in (
        replace(full, method="fixed"),
        replace(full, constraints=()),
        replace(full, multipliers=MultiplierConfig(rule="fixed")),
    ):
        assert not any("multiplier" in sentence for sentence in unmoved.broken_conditions)
        assert any("critic" in sentence for sentence in unmoved.broken_conditions)
    assert not any("critic" in sentence for sentence in replace(full, method="primal-dual").broken_conditions)


def test_the_method_fixed_overrules_the_rule() -> None:
    config = TrainConfig(multipliers=MultiplierConfig(rule="pi", initial=0.3, proportional=2.0))
    assert config.rule == config.multipliers
    fixed = replace(config, method="fixed").rule
    assert (fixed.rule, fixed.initial) == ("fixed", 0.3)
    assert fixed.gains[0].at(5, 10) == 0.0 and fixed.gains[1] == 0.0


def test_gains_of_each_rule() -> None:
    step_size = Schedule(0.1, "power")
    assert MultiplierConfig("integral", step_size=step_size, proportional=2.0).gains == (step_size, 0.0)
    assert MultiplierConfig("pi", step_size=step_size, proportional=2.0).gains == (step_size, 2.0)


def test_it_is_read_without_jax() -> None:
    code = "import sys, rcpo.presets; print([m for m in ('jax', 'scipy', 'matplotlib', 'equinox') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
