"""The health of the dual on made-up records whose answers are known."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rcpo.config import MultiplierConfig
from rcpo.constraints import parse
from rcpo.health import Health, advice, examine, swings

LIMIT = parse("P(crash) <= 0.2")
CONFIG = MultiplierConfig(maximum=10.0)


def made_up(value: list[float | None], multiplier: list[float], quantity: str = "P(crash)") -> list[dict[str, Any]]:
    """A record every 100 steps."""
    return [
        {"steps": 100 * (i + 1), f"constraint/{quantity}/value": v, f"constraint/{quantity}/multiplier": m}
        for i, (v, m) in enumerate(zip(value, multiplier, strict=True))
    ]


def only(value: list[float | None], multiplier: list[float], config: MultiplierConfig = CONFIG) -> Health:
    (health,) = examine(made_up(value, multiplier), [LIMIT], [config])
    return health


def test_overshoot_and_shares_by_hand() -> None:
    health = only([0.9, 0.5, 0.1, 0.3, 0.25, 0.2, 0.1, 0.4], [1.0] * 8)
    assert health.reached == 300
    assert health.overshoot == pytest.approx(0.2)  # 0.4, after the limit was first kept; 0.9 came before
    assert health.overshoot_relative == pytest.approx(1.0)
    assert health.beyond == pytest.approx(5 / 8)  # the limit itself is kept
    assert health.beyond_late == pytest.approx(1 / 2)  # the last two of eight
    assert health.measured == 1.0
    assert "beyond the limit in 62 % of the steps, within it from step 300 on" in str(health)


def test_shares_are_of_steps_and_not_of_records() -> None:
    records = made_up([0.9, 0.1], [0.0, 0.0])
    records[1]["steps"] = 1000
    (health,) = examine(records, [LIMIT], [CONFIG])
    assert health.beyond == pytest.approx(0.1)


def test_a_bound_from_below_counts_the_other_way() -> None:
    (health,) = examine(
        made_up([0.1, 0.9, 0.7], [0.0] * 3, "mean(speed)"), [parse("mean(speed) >= 0.8")], [MultiplierConfig()]
    )
    assert health.reached == 200
    assert health.overshoot == pytest.approx(0.1)
    assert health.beyond == pytest.approx(2 / 3)


def test_points_without_an_episode_are_left_out() -> None:
    health = only([None, 0.5, None, 0.1], [0.0, 0.0, 1.0, 1.0])
    assert health.measured == 0.5
    assert health.beyond == 0.5
    assert health.reached == 400


def test_no_episode_at_all() -> None:
    health = only([None, None], [0.0, 0.0])
    assert (health.beyond, health.reached, health.overshoot, health.moved) == (None, None, None, False)
    (sentence,) = advice([health], [CONFIG])
    assert "no episode finished in the whole run, so its multiplier never moved" in sentence
    moved = only([None, None], [0.0, 0.5])
    assert "never moved" not in advice([moved], [CONFIG])[0]


def test_no_record_at_all() -> None:
    (health,) = examine([], [LIMIT], [CONFIG])
    assert health.beyond is None and health.swings == 0 and health.pinned == 0.0


def test_a_pinned_multiplier_is_measured_and_advised_on() -> None:
    # 0.7 in single precision is a little less than 0.7.
    config = MultiplierConfig(maximum=0.7)
    health = only([0.9] * 10, [0.1, 0.4] + [float(np.float32(0.7))] * 8, config)
    assert health.pinned == pytest.approx(0.8)
    assert advice([health], [config]) == [
        "the multiplier of 'P(crash) <= 0.2' stood at its maximum 0.7 for 80 % of the run: perhaps no policy keeps "
        "this limit, or raise --multipliers.maximum"
    ]
    fixed = MultiplierConfig(rule="fixed", initial=0.7, maximum=0.7)
    health = only([0.9] * 10, [0.7] * 10, fixed)
    assert health.pinned == 0.0 and advice([health], [fixed]) == []


@pytest.mark.parametrize("periods", [2, 3, 7])
def test_a_wave_swings_from_crest_to_trough(periods: int) -> None:
    """1 + a sin has two turning points a period, 2 a apart; the way to the first one and from the last is no swing."""
    time = np.arange(400 * periods) / 400.0
    sizes = swings(1.0 + 0.6 * np.sin(2.0 * math.pi * time))
    assert len(sizes) == 2 * periods - 1
    assert sizes == pytest.approx(1.2, rel=1e-3)


def test_a_climb_and_small_noise_do_not_swing() -> None:
    generator = np.random.default_rng(0)
    climb = np.linspace(0.0, 5.0, 200)
    assert len(swings(climb)) == 0
    assert len(swings(climb + generator.uniform(-0.2, 0.2, 200))) == 0
    assert len(swings(np.zeros(5))) == 0
    assert len(swings(np.zeros(0))) == 0


@given(st.lists(st.floats(0.0, 100.0), max_size=60))
def test_swings_are_never_smaller_than_they_must_be(values: list[float]) -> None:
    series = np.array(values)
    assert (swings(series) >= 0.25 * series.mean() - 1e-9).all() if len(series) else True


def test_wide_swings_are_advised_on() -> None:
    multiplier = (1.0 + 0.8 * np.sin(np.arange(100) / 3.0)).tolist()
    health = only([0.1] * 100, multiplier)
    assert health.swings >= 8 and health.swing == pytest.approx(1.6, rel=0.1)
    (sentence,) = advice([health], [CONFIG])
    assert f"swung {health.swings} times by about 1" in sentence and "--multipliers.step-size.initial" in sentence
    # Nobody is told to use the rule that is in use.
    assert sentence.endswith("or use --multipliers.rule pi") and CONFIG.rule == "integral"
    (sentence,) = advice([health], [replace(CONFIG, rule="pi", proportional=1.0)])
    assert sentence.endswith("or --multipliers.proportional")


def test_a_limit_broken_to_the_end_and_one_broken_again() -> None:
    late = only([0.5] * 20, np.linspace(0.0, 1.0, 20).tolist())
    assert late.reached is None
    assert "in the last quarter of the run 'P(crash) <= 0.2' was still broken in 100 %" in advice([late], [CONFIG])[0]
    again = only([0.5, 0.1, 0.35, *[0.1] * 20], [1.0] * 23)
    assert "was first kept, it was broken again by up to 75 % of the limit" in advice([again], [CONFIG])[0]
    well = only([0.5, *[0.15] * 20], [1.0] * 21)
    assert advice([well], [CONFIG]) == []


def test_rare_episodes_are_advised_on_where_they_move_the_multiplier() -> None:
    health = only([None, None, None, 0.1], [0.0, 0.0, 0.0, 0.0])
    assert "in 75 % of the run no episode finished" in advice([health], [CONFIG])[0]
    assert advice([health], [MultiplierConfig(measure="steps")]) == []
