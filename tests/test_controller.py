"""The multipliers of somebody else's learner against scalar loops, and on their way through a file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rcpo
from rcpo.controller import Multipliers

TWO = ["sum(cost) <= 2", "mean(speed) >= 0.5"]


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_any_run_is_a_scalar_loop(seed: int, batch: int) -> None:
    """PI on both constraints, with a decaying step size and a margin."""
    rng = np.random.default_rng(seed)
    multipliers = Multipliers(
        TWO,
        rule="pi",
        step_size=rcpo.Schedule(0.3, "power", exponent=0.7, offset=5.0),
        proportional=0.4,
        margin=0.1,
        initial=0.5,
        maximum=2.0,
        episodes_per_update=batch,
    )
    episodes = rng.normal(1.0, 2.0, (12 * batch, 2))
    integrals = [0.5, 0.5]
    for update in range(12):
        values = []
        for k, (aim, sign) in enumerate(((1.8, 1.0), (0.55, -1.0))):
            violation = sign * (episodes[update * batch : (update + 1) * batch, k].mean() - aim)
            integrals[k] = min(max(integrals[k] + 0.3 / (1 + update / 5) ** 0.7 * violation, 0.0), 2.0)
            values.append(min(max(integrals[k] + 0.4 * violation, 0.0), 2.0))
        for episode in episodes[update * batch : (update + 1) * batch]:
            multipliers.record(episode.tolist())
        assert list(multipliers.value.values()) == pytest.approx(values)
    assert multipliers.updates == 12


def test_a_ramp_and_a_linear_step_size_by_hand() -> None:
    """From the first value 6 down to the limit 2 by factors within two of four updates; with steps of 1, 3/4, 1/2."""
    multipliers = Multipliers(
        "sum(cost) <= 2", episodes_per_update=1, updates=4, step_size=rcpo.Schedule(1.0, "linear"), ramp=0.5
    )
    halfway = 0.75 * (6.0 - 6.0 / 3.0**0.5)
    for value, expected in ((6.0, 0.0), (6.0, halfway), (4.0, halfway + 0.5 * 2.0)):
        multipliers.record([value])
        assert multipliers.value == {"sum(cost)": pytest.approx(expected)}


def test_each_constraint_may_say_how_its_multiplier_moves() -> None:
    multipliers = Multipliers(
        ["sum(cost) <= 2 with step_size 0.5, initial 1", "sum(risk) <= 2 with maximum 0.05"],
        step_size=0.1,
        episodes_per_update=1,
    )
    multipliers.record([4.0, 4.0])
    assert multipliers.value == {"sum(cost)": pytest.approx(2.0), "sum(risk)": pytest.approx(0.05)}


def test_a_config_serves_as_well_as_words() -> None:
    config = rcpo.MultiplierConfig(step_size=rcpo.Schedule(0.5), initial=0.25)
    told, given_ = Multipliers(TWO, step_size=0.5, initial=0.25), Multipliers(TWO, config)
    for multipliers in (told, given_):
        for _ in range(10):
            multipliers.record([5.0, 0.0])
    assert told.value == given_.value == {"sum(cost)": pytest.approx(1.75), "mean(speed)": pytest.approx(0.5)}


@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_penalties_in_batches_are_those_of_single_steps(seed: int, centred: bool, divide: bool) -> None:
    rng = np.random.default_rng(seed)
    settings: dict[str, Any] = {"centred_penalty": centred, "divide_by_multiplier": divide}
    multipliers = Multipliers(["mean(a) <= 0.3", "sum(b) >= 2"], rule="fixed", initial=1.5, **settings)
    reward, penalty = rng.normal(size=7), rng.normal(size=(7, 2))
    expected = [
        (r - 1.5 * (p[0] - 0.3 * centred) - 1.5 * p[1]) / (4.0 if divide else 1.0)
        for r, p in zip(reward, penalty, strict=True)
    ]
    np.testing.assert_allclose(multipliers.penalise(reward, penalty), expected)


# Saved and restored


def test_a_restored_run_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Also in the middle of a batch, with all that the rule remembers."""
    settings: dict[str, Any] = {
        "rule": "pi",
        "proportional": 0.3,
        "step_size": rcpo.Schedule(0.3, "power"),
        "episodes_per_update": 3,
        "ramp": 0.9,
        "updates": 10,
    }
    episodes = np.random.default_rng(0).normal(2.0, 1.0, (20, 2)).tolist()
    through, first, second = (Multipliers(TWO, **settings) for _ in range(3))
    for episode in episodes:
        through.record(episode)
    for episode in episodes[:10]:
        first.record(episode)
    first.save(tmp_path / "deeper" / "lambda.json")
    assert json.loads((tmp_path / "deeper" / "lambda.json").read_text()) == first.state_dict()
    second.load(tmp_path / "deeper" / "lambda.json")
    assert second.value == first.value and second.rebate == first.rebate
    for episode in episodes[10:]:
        second.record(episode)
    assert second.state_dict() == through.state_dict() and second.weights == through.weights


def broken(**changes: Any) -> dict[str, Any]:
    return Multipliers(TWO).state_dict() | changes


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (broken(constraints=["P(crash) <= 0.1"]), r"belong to the constraints \['P\(crash\) <= 0.1'\], these are"),
        ("lambda", "belong to the constraints None"),
        (broken(multiplier=[1.0]), r"the saved multipliers \[1.0\] are not 2 numbers in \[0, lambda_max"),
        (broken(multiplier=[1.0, -1.0]), r"the saved multipliers \[1.0, -1.0\] are not 2 numbers"),
        (broken(integral=[1.0, 5000.0]), "are not 2 numbers"),
        (broken(first=[float("nan"), 0.0]), "are not 2 numbers"),
        (broken(updates=-1), "are not 2 numbers"),
        (broken(updates="often"), "are damaged"),
        ({k: v for k, v in broken().items() if k != "sums"}, r"are damaged \(KeyError\('sums'\)\)"),
    ],
)
def test_states_that_do_not_fit(state: Any, said: str) -> None:
    multipliers = Multipliers(TWO, initial=0.5)
    with pytest.raises(rcpo.UsageError, match=said):
        multipliers.load_state_dict(state)
    assert multipliers.value == {"sum(cost)": 0.5, "mean(speed)": 0.5}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "torn.json").write_text("{")
    for name in ("torn.json", "none.json"):
        with pytest.raises(rcpo.UsageError, match=rf"cannot read the multipliers in .*{name}"):
            Multipliers(TWO).load(tmp_path / name)


# Mistakes


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"stepsize": 0.1}, "unknown setting 'stepsize' of the multipliers; did you mean 'step_size'?"),
        ({"rule": "pid"}, "unknown rule 'pid' of the multipliers; did you mean 'pi'?"),
        ({"initial": -1.0}, "got the multiplier -1; it lies in"),
        ({"maximum": -1.0}, "got lambda_max -1"),
        ({"step_size": -0.1}, "got the multiplier's step size -0.1"),
        ({"margin": 1.5}, "got the margin 1.5"),
        ({"episodes_per_update": 0}, "got 0 for episodes_per_update; give at least 1"),
        ({"updates": 0}, "got 0 updates; give at least 1"),
        ({"ramp": 0.5}, "a ramp and a linear step size end with the run; say with updates="),
        ({"step_size": rcpo.Schedule(1.0, "linear")}, "a ramp and a linear step size end with the run"),
        ({"measure": "steps"}, "got measure='steps'; .* are measured on episodes"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(rcpo.UsageError, match=said):
        Multipliers(TWO, **settings)


def test_a_clipped_violation_needs_enough_episodes() -> None:
    """Of 10 episodes none or 10 % crash: clipped to -1 or 1, a limit of 1 % would become one of 7 %."""
    with pytest.raises(rcpo.UsageError, match=r"biases 'P\(crash\) <= 0.01'; give episodes_per_update=100 or more"):
        Multipliers("P(crash) <= 0.01", relative=True)
    Multipliers("P(crash) <= 0.01", relative=True, episodes_per_update=100)
    with pytest.raises(rcpo.UsageError, match="give episodes_per_update=50 or more"):
        Multipliers("P(crash) <= 0.01", relative=True, clip=3.0, episodes_per_update=49)
    Multipliers("P(crash) <= 0.01", relative=True, clip=3.0, episodes_per_update=50)
    Multipliers(["P(crash) <= 0.5", "sum(cost) <= 3"], relative=True)


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        (3, "got 3 as constraints; give a list"),
        ([3], "got 3 as a constraint; give a text"),
        (["sum(cost) <= 1", "sum(cost) <= 1"], "the same constraint was given twice"),
        ("P(crash) <= 2", "a probability lies in"),
        ("sum(cost) <=", "the limit, a number"),
    ],
)
def test_constraints_that_are_none(given_: Any, said: str) -> None:
    with pytest.raises(rcpo.UsageError, match=said):
        Multipliers(given_)


def test_settings_beside_multipliers_and_a_rule_that_is_none() -> None:
    from worlds import Script, costs

    with pytest.raises(rcpo.UsageError, match="got 'step_size' beside Multipliers; say it where"):
        rcpo.RewardConstrained(Script([costs(1.0)]), Multipliers(TWO), step_size=0.1)
    config: Any = "pi"
    with pytest.raises(rcpo.UsageError, match="got 'pi' as the multipliers' rule; give a MultiplierConfig"):
        Multipliers(TWO, config)


def test_an_episodes_value_that_is_no_number() -> None:
    with pytest.raises(rcpo.UsageError, match=r"an episode's values are \{'sum\(cost\)': inf, .*must be a finite"):
        Multipliers(TWO).record([float("inf"), 0.0])
