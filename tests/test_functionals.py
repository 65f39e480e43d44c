"""What an episode is worth: the built-in functionals on hand-made episodes, and functionals of one's own."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rcpo
from rcpo import functionals
from rcpo.constraints import Constraint, parse
from rcpo.episodes import check
from rcpo.errors import UsageError
from rcpo.functionals import Discounted, Functional, Maximum, Mean, Probability, Sum, register_functional

EPISODES = {
    "nothing": [0.0, 0.0, 0.0],
    "one event": [0.0, 1.0, 0.0, 0.0],
    "two events": [0.0, 1.0, 1.0, 0.0],
    "one step": [0.25],
    "wear": [0.5, 0.25, 0.125, 0.125],
    "both signs": [-0.5, -0.25, 0.5, -1.0],
    "negative": [-2.0, -1.0, -4.0],
}
BUILT_IN = [Sum(), Mean(), Discounted(0.9), Probability(), Maximum()]


@final
@dataclass(frozen=True)
class Longest(Functional):
    """The most steps in a row that cost more than `level`."""

    level: float = 0.0

    def start(self, like: Any) -> Any:
        return 0.0 * like, 0.0 * like

    def step(self, total: Any, cost: Any, elapsed: Any) -> Any:
        row, longest = total
        row = (row + 1.0) * (cost > self.level)
        return row, rcpo.where(row > longest, row, longest)

    def value(self, total: Any, length: Any) -> Any:
        return total[1]

    def penalty(self, before: Any, after: Any, cost: Any) -> Any:
        return after[1] - before[1]


@pytest.fixture
def longest() -> Iterator[None]:
    register_functional("longest", Longest)
    yield
    del functionals.FUNCTIONALS["longest"]


def play(functional: Functional, costs: list[Any], like: Any = 0.0) -> tuple[Any, list[Any]]:
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
        (Sum(), [0.0, 1.0, 2.0, 0.25, 1.0, -1.25, -7.0]),
        (Mean(), [0.0, 0.25, 0.5, 0.25, 0.25, -0.3125, -7 / 3]),
        (Discounted(0.5), [0.0, 0.5, 0.75, 0.25, 0.671875, -0.625, -3.5]),
        (Discounted(1.0), [0.0, 1.0, 2.0, 0.25, 1.0, -1.25, -7.0]),
        (Probability(), [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]),
        (Maximum(), [0.0, 1.0, 1.0, 0.25, 0.5, 0.5, -1.0]),
        (Longest(), [0.0, 1.0, 2.0, 1.0, 4.0, 1.0, 0.0]),
        (Longest(0.2), [0.0, 1.0, 2.0, 1.0, 2.0, 1.0, 0.0]),
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
    assert paid == [[0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [1], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0]]


def test_the_penalty_of_a_maximum_is_the_first_cost_and_then_every_rise() -> None:
    paid = [play(Maximum(), costs)[1] for costs in EPISODES.values()]
    expected = [[0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0.25], [0.5, 0, 0, 0], [-0.5, 0.25, 0.75, 0], [-2, 1, 0]]
    assert paid == expected


COSTS = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20)


@given(COSTS)
def test_a_maximum_is_the_largest_cost_and_its_penalties_add_up_to_it(costs: list[float]) -> None:
    value, penalties = play(Maximum(), costs)
    assert value == max(costs)
    assert sum(penalties) == pytest.approx(max(costs), abs=1e-9)


@given(st.integers(0, 2**32 - 1), st.sampled_from([*BUILT_IN, Longest(0.3)]))
def test_many_episodes_at_once_are_the_same_as_one_by_one(seed: int, functional: Functional) -> None:
    """In numpy and in JAX, which the same classes serve."""
    costs = np.random.default_rng(seed).choice([0.0, 0.0, 0.5, 1.0, -0.25], size=(6, 5)).astype(np.float32)
    slow = [play(functional, costs[:, n].astype(float).tolist()) for n in range(5)]
    for array in (costs, jnp.asarray(costs)):
        value, penalties = play(functional, list(array), like=array[0])
        np.testing.assert_allclose(value, [one[0] for one in slow], rtol=1e-5)
        np.testing.assert_allclose(np.array(penalties).T, [one[1] for one in slow], rtol=1e-5)


@pytest.mark.parametrize("functional", [*BUILT_IN, Longest()])
def test_compiled_it_is_the_same(functional: Functional) -> None:
    """As a scan over steps, which asks that an accumulator keeps its shape and type."""
    costs = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    elapsed = jnp.arange(7)

    @jax.jit
    def value(costs: jax.Array) -> jax.Array:
        total, _ = jax.lax.scan(
            lambda total, now: (functional.step(total, *now), None), functional.start(costs[0]), (costs, elapsed)
        )
        return functional.value(total, jnp.full(4, 7))

    slow = [play(functional, costs[:, n].astype(float).tolist())[0] for n in range(4)]
    np.testing.assert_allclose(value(jnp.asarray(costs)), slow, rtol=1e-5)


def test_an_episode_without_steps_has_a_mean() -> None:
    assert Mean().value(0.0, 0) == 0.0


def test_a_sum_and_a_mean_are_known_from_average_steps() -> None:
    assert Sum().from_steps(0.25, 200.0) == 50.0 and Mean().from_steps(0.25, 200.0) == 0.25
    assert all(one.from_steps(0.25, 200.0) is None for one in (Discounted(), Probability(), Maximum(), Longest()))


@pytest.mark.parametrize("discount", [0.0, -0.5, 1.5])
def test_a_discount_lies_in_its_range(discount: float) -> None:
    with pytest.raises(UsageError, match=r"a discount lies in \(0, 1\]"):
        Discounted(discount)


# One's own


def test_one_of_ones_own_is_written_like_the_others(longest: None) -> None:
    assert parse("longest(force, 2) <= 5") == Constraint(Longest(2.0), "force", 5.0)
    assert parse("longest(force > 3) >= 1") == Constraint(Longest(), "force > 3", 1.0, at_least=True)
    assert str(parse("longest(force)<=5")) == "longest(force, 0) <= 5"


def test_as_an_object_it_needs_no_name() -> None:
    constraint = Constraint(Longest(2.0), "force", 5.0)
    assert str(constraint) == "Longest(force, 2) <= 5"
    check((constraint,))
    with pytest.raises(UsageError, match="unknown functional 'Longest'"):
        parse(str(constraint))


def test_one_without_fields_equals_its_like() -> None:
    class Last(Functional):
        def start(self, like: Any) -> Any:
            return 0.0 * like

        def step(self, total: Any, cost: Any, elapsed: Any) -> Any:
            return cost + 0.0 * total

        def value(self, total: Any, length: Any) -> Any:
            return total

    assert Last() == Last() and hash(Last()) == hash(Last()) and Last() != Longest()
    assert Constraint(Last(), "force", 1.0) == Constraint(Last(), "force", 1.0)
    assert play(Last(), [1.0, 3.0]) == (3.0, [1.0, 3.0]), "the penalty is the cost unless it says otherwise"
    check((Constraint(Last(), "force", 1.0),))


class Lacking(Functional):
    def start(self, like: Any) -> Any:
        return like


class Argued(Functional):
    def __init__(self, level: float):
        self.level = level

    def start(self, like: Any) -> Any:
        return like

    def step(self, total: Any, cost: Any, elapsed: Any) -> Any:
        return total

    def value(self, total: Any, length: Any) -> Any:
        return total


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("longest run", Longest, ["'longest run'", "letters, digits and underscores"]),
        ("3rd", Longest, ["'3rd'", "letters"]),
        ("", Longest, ["''", "letters"]),
        ("mean", Longest, ["'mean' is there already", "another name"]),
        ("longest", Longest(), ["Longest(level=0.0)", "a class derived from rcpo.Functional"]),
        ("longest", dict, ["<class 'dict'>", "a class derived from rcpo.Functional"]),
        ("longest", max, ["function max", "a class derived from rcpo.Functional"]),
        ("lacking", Lacking, ["Lacking lacks step, value"]),
        ("argued", Argued, ["'argued' takes arguments", "@dataclass(frozen=True)"]),
    ],
)
def test_what_cannot_be_registered(name: str, kind: Any, words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        register_functional(name, kind)
    for word in words:
        assert word in str(refused.value)
    assert functionals.FUNCTIONALS == functionals.BUILT_IN


def test_one_that_can_change_is_refused() -> None:
    @dataclass
    class Loose(Functional):
        level: float = 0.0

        def start(self, like: Any) -> Any:
            return like

        def step(self, total: Any, cost: Any, elapsed: Any) -> Any:
            return total

        def value(self, total: Any, length: Any) -> Any:
            return total

    for refuse in (lambda: register_functional("loose", Loose), lambda: Constraint(Loose(), "force", 1.0)):
        with pytest.raises(UsageError, match=r"could change during a run; write @dataclass\(frozen=True\) above Loose"):
            refuse()


def test_the_numbers_behind_the_column(longest: None) -> None:
    @dataclass(frozen=True)
    class Above(Maximum):  # type: ignore[misc]
        level: float
        weight: float = 1.0

    functionals.FUNCTIONALS["above"] = Above
    try:
        for text, words in (
            ("above(force) <= 1", "at character 7: above needs numbers behind the column: level"),
            ("above(force, 1, 2, 3) <= 1", "at character 20: above takes no number but level and weight behind"),
            ("longest(force, 1, 2) <= 1", "at character 19: longest takes no number but level behind the column"),
        ):
            with pytest.raises(UsageError) as refused:
                parse(text)
            assert words in str(refused.value)
    finally:
        del functionals.FUNCTIONALS["above"]


def broken(part: str) -> Functional:
    """A functional that fails in one of its parts."""

    @final
    @dataclass(frozen=True)
    class Broken(Functional):
        def start(self, like: Any) -> Any:
            return 0.0 if part == "start" else 0.0 * like

        def step(self, total: Any, cost: Any, elapsed: Any) -> Any:
            if part == "if":
                return cost if cost > total else total
            if part == "numpy":
                return np.maximum(np.asarray(cost), total)
            if part == "type":
                return rcpo.where(cost > total, 1, 0)
            return total + (cost.sum() if part == "nothing" else cost)

        def value(self, total: Any, length: Any) -> Any:
            return total.sum() if part == "value" else total

        def penalty(self, before: Any, after: Any, cost: Any) -> Any:
            return 0.0 if part == "penalty" else cost

    return Broken()


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("start", ["the functional Broken gives the shape () for 2 episodes in start", "shape (2,)"]),
        ("value", ["the functional Broken gives the shape () for 2 episodes in value"]),
        ("penalty", ["the functional Broken gives the shape () for 2 episodes in penalty"]),
        ("if", ["the functional Broken fails on arrays of episodes: ValueError", "rcpo.where instead of if"]),
    ],
)
def test_a_mistake_in_ones_own_is_said_at_once(part: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        Constraint(broken(part), "force", 1.0)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize("part", ["numpy", "type"])
def test_what_cannot_be_compiled_is_said_before_a_run(part: str) -> None:
    constraint = Constraint(broken(part), "force", 1.0)
    with pytest.raises(UsageError, match=r"the functional Broken cannot be compiled: .*; use arithmetic and"):
        check((constraint,))
