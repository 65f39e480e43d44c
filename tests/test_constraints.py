"""Constraints: what an episode is worth, and how they are written."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rcpo.constraints import Constraint, Discounted, Functional, Mean, Probability, Sum, parse, parse_all
from rcpo.errors import UsageError

EPISODES = {
    "nothing": [0.0, 0.0, 0.0],
    "one event": [0.0, 1.0, 0.0, 0.0],
    "two events": [0.0, 1.0, 1.0, 0.0],
    "one step": [0.25],
    "wear": [0.5, 0.25, 0.125, 0.125],
}


def play(functional: Functional, costs: list[float], like: Any = 0.0) -> tuple[Any, list[Any]]:
    """The value of an episode, and the penalty of each of its steps."""
    total, penalties = functional.start(like), []
    for elapsed, cost in enumerate(costs):
        after = functional.step(total, cost, elapsed)
        penalties.append(functional.penalty(total, after, cost))
        total = after
    return functional.value(total, len(costs)), penalties


@pytest.mark.parametrize(
    ("functional", "values"),
    [
        (Sum(), [0.0, 1.0, 2.0, 0.25, 1.0]),
        (Mean(), [0.0, 0.25, 0.5, 0.25, 0.25]),
        (Discounted(0.5), [0.0, 0.5, 0.75, 0.25, 0.5 + 0.125 + 0.03125 + 0.015625]),
        (Discounted(1.0), [0.0, 1.0, 2.0, 0.25, 1.0]),
        (Probability(), [0.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_the_value_of_an_episode(functional: Functional, values: list[float]) -> None:
    assert [play(functional, costs)[0] for costs in EPISODES.values()] == pytest.approx(values)


@pytest.mark.parametrize("functional", [Sum(), Mean(), Discounted(0.9)])
def test_the_penalty_is_the_cost_itself(functional: Functional) -> None:
    for costs in EPISODES.values():
        assert play(functional, costs)[1] == costs


def test_the_penalty_of_an_event_is_paid_once() -> None:
    paid = [play(Probability(), costs)[1] for costs in EPISODES.values()]
    assert paid == [[0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [1], [1, 0, 0, 0]]


@given(st.integers(0, 2**32 - 1), st.sampled_from([Sum(), Mean(), Discounted(0.9), Probability()]))
def test_many_episodes_at_once_are_the_same_as_one_by_one(seed: int, functional: Functional) -> None:
    """In numpy and in JAX, which the same classes serve."""
    costs = np.random.default_rng(seed).choice([0.0, 0.0, 0.5, 1.0], size=(6, 5)).astype(np.float32)
    slow = [play(functional, costs[:, n].astype(float).tolist()) for n in range(5)]
    for array in (costs, jnp.asarray(costs)):
        value, penalties = play(functional, list(array), like=array[0])
        np.testing.assert_allclose(value, [one[0] for one in slow], rtol=1e-5)
        np.testing.assert_allclose(np.array(penalties).T, [one[1] for one in slow], rtol=1e-5)


def test_an_episode_without_steps_has_a_mean() -> None:
    assert Mean().value(0.0, 0) == 0.0


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
    ],
)
def test_reading(text: str, constraint: Constraint) -> None:
    assert parse(text) == constraint


def test_writing() -> None:
    assert str(parse("P( crash )<=1e-2")) == "P(crash) <= 0.01"
    assert str(parse("discounted(c) >= 3")) == "discounted(c, 0.99) >= 3.0"
    assert parse("mean(torque) <= 1").quantity == "mean(torque)"


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SHARES = st.floats(0.0, 1.0)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True)
DISCOUNTS = st.floats(0.0, 1.0, exclude_min=True).map(Discounted)
WRITTEN = st.one_of(
    st.builds(Constraint, st.just(Probability()), NAMES, SHARES, st.booleans()),
    st.builds(Constraint, st.one_of(st.just(Sum()), st.just(Mean()), DISCOUNTS), NAMES, NUMBERS, st.booleans()),
)


@given(WRITTEN)
def test_what_is_written_is_read_back(constraint: Constraint) -> None:
    assert parse(str(constraint)) == constraint


def sentence_of(text: str) -> str:
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "character", "got", "expected"),
    [
        ("", 1, "the end", "one of mean, sum, discounted, P"),
        ("   ", 4, "the end", "one of mean, sum, discounted, P"),
        ("0.01 >= P(crash)", 1, "'0.01 >= P(cr'", "one of mean, sum, discounted, P"),
        ("P crash <= 1", 3, "'crash <= 1'", "'('"),
        ("P[crash] <= 1", 2, "'[crash] <= 1'", "'('"),
        ("P() <= 1", 3, "') <= 1'", "the name of a cost column"),
        ("P(1) <= 1", 3, "'1) <= 1'", "the name of a cost column"),
        ("P(crash <= 1", 9, "'<= 1'", "')'"),
        ("P(crash,) <= 1", 9, "') <= 1'", "a discount"),
        ("discounted(c, x) <= 1", 15, "'x) <= 1'", "a discount"),
        ("discounted(c, 0.9, 3) <= 1", 18, "', 3) <= 1'", "')'"),
        ("P(crash)", 9, "the end", "'<=' or '>='"),
        ("P(crash) < 0.1", 10, "'< 0.1'", "'<=' or '>='"),
        ("P(crash) = 0.1", 10, "'= 0.1'", "'<=' or '>='"),
        ("P(crash) <=", 12, "the end", "the limit, a number"),
        ("P(crash) <= a", 13, "'a'", "the limit, a number"),
        ("P(crash) <= nan", 13, "'nan'", "the limit, a number"),
        ("P(crash) <= inf", 13, "'inf'", "the limit, a number"),
        ("P(crash) <= 0.01%", 17, "'%'", "the end"),
        ("P(crash) <= 0.01 0.02", 18, "'0.02'", "the end"),
        ("P(crash) <= 1_0", 14, "'_0'", "the end"),
        ("P(crash) <= 0,01", 14, "',01'", "the end"),
    ],
)
def test_a_mistake_is_shown_where_it_is(text: str, character: int, got: str, expected: str) -> None:
    sentence = sentence_of(text)
    assert f"{text!r} at character {character}: got {got}, expected {expected}; write it like" in sentence


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("maen(torque) <= 1", ["'maen'", "did you mean 'mean'?"]),
        ("discount(c) <= 1", ["'discount'", "did you mean 'discounted'?"]),
        ("median(c) <= 1", ["'median'", "did you mean 'mean'?"]),
        ("probability(c) <= 1", ["'probability'", "choose one of: P, discounted, mean, sum"]),
        ("P(crash) <= 1.01", ["1.01", "P(crash)", "[0, 1]"]),
        ("P(crash) >= -0.01", ["-0.01", "P(crash)", "[0, 1]"]),
        ("sum(c) <= 1e999", ["inf", "sum(c)", "finite"]),
        ("P(crash) <= 1e999", ["inf", "P(crash)", "finite"]),
        ("mean(c, 0.9) <= 1", ["mean takes no second argument", "discounted(column, 0.99)"]),
        ("P(c, 0.9) <= 1", ["P takes no second argument"]),
        ("sum(c, 7) <= 1", ["sum takes no second argument"]),
        ("discounted(c, 0) <= 1", ["discount 0 ", "(0, 1]"]),
        ("discounted(c, 1.5) <= 1", ["discount 1.5", "(0, 1]"]),
        ("discounted(c, -0.5) <= 1", ["discount -0.5", "(0, 1]"]),
    ],
)
def test_what_cannot_be_meant(text: str, words: list[str]) -> None:
    sentence = sentence_of(text)
    for word in words:
        assert word in sentence


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


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["P(crahs) <= 0.1"], ["'crahs'", "'P(crahs) <= 0.1'", "did you mean 'crash'?"]),
        (["P(torque) <= 0.1"], ["'torque'", "choose one of: crash, goal"]),
        (["P(crash) <= 0.1", "P(crash)<=1e-1"], ["given twice"]),
        ([Constraint(Probability(), "rock", 0.1)], ["'rock'"]),
    ],
)
def test_constraints_that_the_environment_cannot_have(texts: list[Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        parse_all(texts, ["crash", "goal"])
    for word in words:
        assert word in str(refused.value)
