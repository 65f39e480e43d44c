"""Constraints: how they are written, as a text and as an object."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rcpo import constraints
from rcpo.constraints import Constraint, Event, labels, parse, parse_all
from rcpo.errors import UsageError
from rcpo.functionals import Discounted, Functional, Maximum, Mean, Probability, Sum


def test_what_lies_beyond_a_limit() -> None:
    upper, lower = parse("sum(speed) <= 3"), parse("sum(speed) >= 3")
    assert (upper.excess(5.0), upper.excess(1.0), upper.sign) == (2.0, -2.0, 1.0)
    assert (lower.excess(5.0), lower.excess(1.0), lower.sign) == (-2.0, 2.0, -1.0)


@pytest.mark.parametrize(
    ("text", "constraint"),
    [
        ("P(crash) <= 0.01", Constraint(Probability(), "crash", 0.01)),
        ("P(goal)>=.9", Constraint(Probability(), "goal", 0.9, at_least=True)),
        ("  mean ( torque )  <=  25e-2 ", Constraint(Mean(), "torque", 0.25)),
        ("sum(over_2) <= -3", Constraint(Sum(), "over_2", -3.0)),
        ("discounted(c) <= 5.", Constraint(Discounted(0.99), "c", 5.0)),
        ("discounted(c, 0.9) >= +5E1", Constraint(Discounted(0.9), "c", 50.0, at_least=True)),
        ("discounted(c,1) <= 0", Constraint(Discounted(1.0), "c", 0.0)),
        ("P(c) <= 0", Constraint(Probability(), "c", 0.0)),
        ("P(c) <= 1", Constraint(Probability(), "c", 1.0)),
        ("max(force) <= 300", Constraint(Maximum(), "force", 300.0)),
        ("mean(cost.hazards) <= 1", Constraint(Mean(), "cost.hazards", 1.0)),
        ("sum(speed > 2.5) <= 25", Constraint(Sum(), "speed", 25.0, event=Event(">", 2.5))),
        ("P(height<0.8)<=0.05", Constraint(Probability(), "height", 0.05, event=Event("<", 0.8))),
        ("mean(speed >= 1) >= .5", Constraint(Mean(), "speed", 0.5, at_least=True, event=Event(">=", 1.0))),
        ("discounted(x <= -1, 0.9) <= 1", Constraint(Discounted(0.9), "x", 1.0, event=Event("<=", -1.0))),
        ("P(c) <= 0.1 with initial 0.6", Constraint(Probability(), "c", 0.1, initial=0.6)),
        (
            "sum(c) >= 1 with step_size 1e-3,maximum 100 , proportional 0.5, margin 0, ramp .5",
            Constraint(Sum(), "c", 1.0, True, maximum=100.0, step_size=0.001, proportional=0.5, margin=0.0, ramp=0.5),
        ),
    ],
)
def test_reading(text: str, constraint: Constraint) -> None:
    assert parse(text) == constraint


def test_writing() -> None:
    assert str(parse("P( crash )<=1e-2")) == "P(crash) <= 0.01"
    assert str(parse("discounted(c) >= 3")) == "discounted(c, 0.99) >= 3"
    assert parse("mean(torque) <= 1").quantity == "mean(torque)"
    assert parse("sum(speed>2.50) <= 25").quantity == "sum(speed > 2.5)"
    assert str(parse("discounted(speed>2.50,.9) <= 25")) == "discounted(speed > 2.5, 0.9) <= 25"
    with_settings = parse("P(crash)<=1e-2 with ramp 0, initial 6e-1")
    assert str(with_settings) == "P(crash) <= 0.01 with initial 0.6, ramp 0"
    assert with_settings.bound == "P(crash) <= 0.01"


def test_an_object_reads_its_column_like_a_text() -> None:
    assert Constraint(Sum(), "speed > 2.5", 25) == parse("sum(speed > 2.5) <= 25")
    again = replace(parse("sum(speed > 2.5) <= 25 with initial 1"), limit=3.0)
    assert str(again) == "sum(speed > 2.5) <= 3 with initial 1"


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(0.0, allow_nan=False, allow_infinity=False)
SHARES = st.floats(0.0, 1.0)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*", fullmatch=True)
DISCOUNTS = st.floats(0.0, 1.0, exclude_min=True).map(Discounted)
EVENTS = st.none() | st.builds(Event, st.sampled_from([">", ">=", "<", "<="]), NUMBERS)
SETTINGS = st.dictionaries(st.sampled_from(constraints.SETTINGS), POSITIVE)


KINDS = st.sampled_from([Probability(), Sum(), Mean(), Maximum()]) | DISCOUNTS


@given(KINDS, NAMES, NUMBERS, SHARES, st.booleans(), EVENTS, SETTINGS)
def test_what_is_written_is_read_back(
    kind: Functional, name: str, number: float, share: float, at_least: bool, event: Event | None, settings: Any
) -> None:
    limit = share if isinstance(kind, Probability) else number
    constraint = Constraint(kind, name, limit, at_least, event, **settings)
    assert parse(str(constraint)) == constraint
    assert str(parse(str(constraint))) == str(constraint)


@given(st.text("Pmeansumx(),.<>= 01-+e_with initial", max_size=40))
def test_any_text_is_read_or_refused_in_a_sentence(text: str) -> None:
    try:
        assert parse(str(parse(text))) == parse(text)
    except UsageError as error:
        assert "\n" not in str(error) and f"{text!r} at character " in str(error)


def sentence_of(text: str) -> str:
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert "\n" not in str(refused.value)
    return str(refused.value)


WORDS = "one of mean, sum, discounted, P, max"
SETTING = "one of initial, maximum, step_size, proportional, margin, ramp"


@pytest.mark.parametrize(
    ("text", "character", "got", "expected"),
    [
        ("", 1, "the end", WORDS),
        ("   ", 4, "the end", WORDS),
        ("0.01 >= P(crash)", 1, "'0.01 >= P(cr'", WORDS),
        ("P crash <= 1", 3, "'crash <= 1'", "'('"),
        ("P[crash] <= 1", 2, "'[crash] <= 1'", "'('"),
        ("P() <= 1", 3, "') <= 1'", "the name of a cost column"),
        ("P(1) <= 1", 3, "'1) <= 1'", "the name of a cost column"),
        ("P(2 < speed) <= 1", 3, "'2 < speed) <'", "the name of a cost column"),
        ("P(crash <= 1", 13, "the end", "')'"),
        ("P(crash <= 1 <= 1", 14, "'<= 1'", "')'"),
        ("P(crash, <= 1", 10, "'<= 1'", "a number"),
        ("P(crash,) <= 1", 9, "') <= 1'", "a number"),
        ("sum(speed > ) <= 1", 13, "') <= 1'", "the threshold, a number"),
        ("sum(speed > fast) <= 1", 13, "'fast) <= 1'", "the threshold, a number"),
        ("sum(speed == 2) <= 1", 11, "'== 2) <= 1'", "')', or a comparison such as > 2.5"),
        ("sum(speed >> 2) <= 1", 12, "'> 2) <= 1'", "the threshold, a number"),
        ("sum(speed > 2 m) <= 1", 15, "'m) <= 1'", "')'"),
        ("sum(a + b) <= 1", 7, "'+ b) <= 1'", "')', or a comparison such as > 2.5"),
        ("sum(a-b) <= 1", 6, "'-b) <= 1'", "')', or a comparison such as > 2.5"),
        ("sum(a..b) <= 1", 6, "'..b) <= 1'", "')', or a comparison such as > 2.5"),
        ("discounted(c, x) <= 1", 15, "'x) <= 1'", "a number"),
        ("P(crash)", 9, "the end", "'<=' or '>='"),
        ("P(crash) < 0.1", 10, "'< 0.1'", "'<=' or '>='"),
        ("P(crash) = 0.1", 10, "'= 0.1'", "'<=' or '>='"),
        ("P(crash) <=", 12, "the end", "the limit, a number"),
        ("P(crash) <= a", 13, "'a'", "the limit, a number"),
        ("P(crash) <= nan", 13, "'nan'", "the limit, a number"),
        ("P(crash) <= inf", 13, "'inf'", "the limit, a number"),
        ("P(crash) <= 0.01%", 17, "'%'", "'with' or the end"),
        ("P(crash) <= 0.01 0.02", 18, "'0.02'", "'with' or the end"),
        ("P(crash) <= 0.01, P(a) <= 1", 17, "', P(a) <= 1'", "'with' or the end"),
        ("P(crash) <= 0.01 and P(a) <= 1", 18, "'and P(a) <= '", "'with' or the end"),
        ("P(crash) <= 1_0", 14, "'_0'", "'with' or the end"),
        ("P(crash) <= 0,01", 14, "',01'", "'with' or the end"),
        ("P(crash) <= 0.1 with", 21, "the end", SETTING),
        ("P(crash) <= 0.1 with 3", 22, "'3'", SETTING),
        ("P(crash) <= 0.1 with initial", 29, "the end", "a number for initial"),
        ("P(crash) <= 0.1 with initial=3", 29, "'=3'", "a number for initial"),
        ("P(crash) <= 0.1 with initial 3,", 32, "the end", SETTING),
        ("P(crash) <= 0.1 with initial 3 ramp 0", 32, "'ramp 0'", "the end"),
    ],
)
def test_a_mistake_is_shown_where_it_is(text: str, character: int, got: str, expected: str) -> None:
    sentence = sentence_of(text)
    assert f"{text!r} at character {character}: got {got}, expected {expected}; write it like" in sentence


@pytest.mark.parametrize(
    ("text", "character", "words"),
    [
        ("maen(torque) <= 1", 1, ["'maen'", "did you mean 'mean'?"]),
        (" discount(c) <= 1", 2, ["'discount'", "did you mean 'discounted'?"]),
        ("median(c) <= 1", 1, ["'median'", "did you mean 'mean'?"]),
        ("maximum(c) <= 1", 1, ["'maximum'", "did you mean 'max'?"]),
        ("probability(c) <= 1", 1, ["'probability'", "choose one of: P, discounted, max, mean, sum"]),
        ("P(crash) <= 1.01", 13, ["1.01", "P(crash)", "[0, 1]"]),
        ("P(crash) >= -0.01", 13, ["-0.01", "P(crash)", "[0, 1]"]),
        ("P(speed > 2) <= 5", 17, ["5", "P(speed > 2)", "[0, 1]"]),
        ("sum(c) <= 1e999", 11, ["1e999", "finite"]),
        ("sum(c > -1e999) <= 1", 9, ["-1e999", "finite"]),
        ("mean(c, 0.9) <= 1", 9, ["mean takes no number behind the column"]),
        ("P(c, 0.9) <= 1", 6, ["P takes no number behind the column"]),
        ("max(c, 7) <= 1", 8, ["max takes no number behind the column"]),
        ("discounted(c, 0.9, 3) <= 1", 20, ["discounted takes no number but discount behind the column"]),
        ("discounted(c, 0) <= 1", 15, ["discount 0;", "(0, 1]"]),
        ("discounted(c, 1.5) <= 1", 15, ["discount 1.5", "(0, 1]"]),
        ("discounted(c, -0.5) <= 1", 15, ["discount -0.5", "(0, 1]"]),
        ("sum(c) <= 1 with lambda 3", 18, ["'lambda'", "choose one of: initial"]),
        ("sum(c) <= 1 with stepsize 3", 18, ["'stepsize'", "did you mean 'step_size'?"]),
        ("sum(c) <= 1 with initial 3, initial 4", 29, ["initial was given twice"]),
        ("sum(c) <= 1 with maximum -3", 26, ["maximum -3", "not negative"]),
        ("mean(effort()) <= 1", 6, ["effort() is a function in Python", "constraints=[...]"]),
    ],
)
def test_what_cannot_be_meant(text: str, character: int, words: list[str]) -> None:
    sentence = sentence_of(text)
    assert f"{text!r} at character {character}: " in sentence
    for word in words:
        assert word in sentence


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Constraint(Sum(), "walking speed", 1.0), ["cannot read the cost 'walking speed'", "character 9"]),
        (lambda: Constraint(Sum(), "", 1.0), ["cannot read the cost ''", "the name of a cost column"]),
        (lambda: Constraint(Sum(), "speed = 3", 1.0), ["'speed = 3' at character 7"]),
        (lambda: Constraint(Sum(), "speed()", 1.0), ["speed() is a function"]),
        (lambda: Constraint(Sum(), 3, 1.0), ["got 3 as a column", "cost(obs, action, next_obs, info)"]),
        (lambda: Constraint(Sum(), None, 1.0), ["got None as a column"]),
        (lambda: Constraint(Sum(), "a > 1", 1.0, event=Event("<", 3.0)), ["> 1", "< 3", "give one"]),
        (lambda: Constraint(Sum(), "a", 1.0, initial=-1.0), ["initial -1", "sum(a)", "not negative"]),
        (lambda: Constraint(Sum(), "a", 1.0, ramp=math.nan), ["ramp for sum(a), nan", "finite"]),
        (lambda: Event(">", math.inf), ["the threshold inf", "finite"]),
    ],
)
def test_what_an_object_cannot_be(make: Callable[[], Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        make()
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize("functional", [Mean, "mean", None])
def test_a_functional_is_an_object(functional: Any) -> None:
    blank = object.__new__(Constraint)  # past the checks of types, which only the tests have
    object.__setattr__(blank, "functional", functional)
    with pytest.raises(UsageError, match=r"as a functional; give one such as rcpo.Mean\(\)"):
        blank.__post_init__()


def test_a_comparison_is_one_of_four() -> None:
    blank = object.__new__(Event)
    object.__setattr__(blank, "comparison", "==")
    with pytest.raises(UsageError, match="got the comparison '=='; give one of >, >=, <, <="):
        blank.__post_init__()


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Event(">", 2.5), [0, 0, 1]),
        (Event(">=", 2.5), [0, 1, 1]),
        (Event("<", 2.5), [1, 0, 0]),
        (Event("<=", 2.5), [1, 1, 0]),
    ],
)
def test_an_event_is_one_where_it_happens(event: Event, expected: list[float]) -> None:
    for costs in (np.array([1.0, 2.5, 3.0]), jnp.array([1.0, 2.5, 3.0])):
        np.testing.assert_array_equal(event(costs), expected)
        paid = Constraint(Sum(), "c", 1.0, event=event).paid(costs)
        np.testing.assert_array_equal(paid, expected)
        np.testing.assert_array_equal(Constraint(Sum(), "c", 1.0).paid(costs), costs)


@pytest.mark.parametrize("limit", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("functional", [Sum(), Probability()])
def test_a_limit_is_a_finite_number(functional: Functional, limit: float) -> None:
    with pytest.raises(UsageError, match="finite"):
        Constraint(functional, "c", limit)


def test_reading_those_of_a_run() -> None:
    own = Constraint(Sum(), "goal", 0.5, at_least=True)
    assert parse_all(["P(crash) <= 0.1", own], ["crash", "goal"]) == (parse("P(crash) <= 0.1"), own)
    assert parse_all([], ["crash"]) == ()


def test_a_range_is_two_constraints_on_one_quantity() -> None:
    assert len(parse_all(["sum(crash) <= 3", "sum(crash) >= 1"], ["crash"])) == 2


def test_what_constraints_are_called_in_records() -> None:
    """By what they bound, or by the whole bound where two are on the same."""
    texts = ["sum(a) <= 3", "sum(a) >= 1", "sum(a > 1) >= 1", "mean(a) <= 2 with initial 1"]
    assert labels(map(parse, texts)) == ["sum(a) <= 3", "sum(a) >= 1", "sum(a > 1)", "mean(a)"]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["P(crahs) <= 0.1"], ["'crahs'", "'P(crahs) <= 0.1'", "did you mean 'crash'?"]),
        (["P(torque) <= 0.1"], ["'torque'", "choose one of: crash, goal"]),
        (["P(crash) <= 0.1", "P(crash)<=1e-1"], ["given twice"]),
        (["P(crash) <= 0.1", "P(crash) <= 0.1 with initial 1"], ["given twice"]),
        (["P(crahs > 2) <= 0.1"], ["'crahs'", "'P(crahs > 2) <= 0.1'", "did you mean 'crash'?"]),
        ("P(crash) <= 0.1", ["the one constraint 'P(crash) <= 0.1'", "['P(crash) <= 0.1']"]),
        (parse("P(crash) <= 0.1"), ["the one constraint", "give a list"]),
        ([("crash", 0.1)], ["got ('crash', 0.1) as a constraint"]),
        ([Constraint(Probability(), "rock", 0.1)], ["'rock'"]),
    ],
)
def test_constraints_that_the_environment_cannot_have(texts: Any, words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        parse_all(texts, ["crash", "goal"])
    for word in words:
        assert word in str(refused.value)
