"""The multiplier's rules against scalar loops."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcpo.config import MultiplierConfig
from rcpo.constraints import parse
from rcpo.errors import UsageError
from rcpo.multipliers import aim, ascend, remember_first, remember_lengths, rules, start
from rcpo.schedules import Schedule
from rcpo.types import Episodes, MultiplierState

pytestmark = pytest.mark.usefixtures("quick_compile")


def run(
    config: MultiplierConfig,
    violations: list[list[float]],
    measured: list[list[bool]] | None = None,
    limit: list[float] | None = None,
    iterations: int = 100,
) -> tuple[np.ndarray, MultiplierState]:
    """The multipliers after each iteration [I, K], and the last state."""
    count = len(violations[0])
    state, values = start((config,) * count), []
    for i, violation in enumerate(violations):
        seen = jnp.array(measured[i], bool) if measured else jnp.ones(count, bool)
        bound = jnp.asarray(limit or [1.0] * count, jnp.float32)
        state = ascend((config,) * count, state, jnp.asarray(violation, jnp.float32), bound, seen, iterations)
        values.append(np.asarray(state.value))
    return np.array(values), state


def test_integral_by_hand() -> None:
    """The paper's rule with eta = 0.1, projected onto [0, 0.5]."""
    config = MultiplierConfig(rule="integral", initial=0.2, maximum=0.5, step_size=Schedule(0.1))
    values, _ = run(config, [[1.0], [1.0], [5.0], [5.0], [-1.0], [-10.0], [-10.0], [2.0]])
    np.testing.assert_allclose(values[:, 0], [0.3, 0.4, 0.5, 0.5, 0.4, 0.0, 0.0, 0.2], atol=1e-6)


def test_pi_by_hand() -> None:
    """The proportional term comes on top of the integral and leaves with the violation."""
    config = MultiplierConfig(rule="pi", initial=0.2, maximum=0.9, step_size=Schedule(0.1), proportional=0.5)
    values, state = run(config, [[1.0], [0.0], [-1.0], [4.0], [0.0]])
    np.testing.assert_allclose(values[:, 0], [0.8, 0.3, 0.0, 0.9, 0.6], atol=1e-6)
    np.testing.assert_allclose(state.integral, [0.6], atol=1e-6)


def test_the_integral_does_not_wind_up() -> None:
    config = MultiplierConfig(rule="pi", maximum=1.0, step_size=Schedule(1.0), proportional=1.0)
    values, _ = run(config, [[1.0]] * 50 + [[-0.25]])
    assert values[-1, 0] == pytest.approx(1.0 - 0.25 - 0.25)


def test_integral_ignores_the_proportional_gain_and_fixed_ignores_all() -> None:
    violations = [[1.0], [-0.5], [2.0]]
    plain = MultiplierConfig(rule="integral", initial=0.3, step_size=Schedule(0.1))
    gained = MultiplierConfig(rule="integral", initial=0.3, step_size=Schedule(0.1), proportional=7.0)
    np.testing.assert_array_equal(run(plain, violations)[0], run(gained, violations)[0])
    fixed = MultiplierConfig(rule="fixed", initial=0.3, step_size=Schedule(0.1), proportional=7.0)
    np.testing.assert_array_equal(run(fixed, violations)[0], np.full((3, 1), np.float32(0.3)))


@pytest.mark.parametrize("rule", ["fixed", "integral", "pi"])
def test_where_nothing_was_measured_nothing_moves(rule: Any) -> None:
    """Not even where the violation is not a number."""
    config = MultiplierConfig(rule=rule, initial=0.4, step_size=Schedule(0.1, "power"), proportional=0.5)
    violations = [[1.0, 1.0], [np.nan, 1.0], [np.inf, np.nan], [1.0, 1.0]]
    measured = [[True, True], [False, True], [False, False], [True, True]]
    values, state = run(config, violations, measured)
    assert np.isfinite(values).all() and np.isfinite(np.asarray(state.integral)).all()
    assert values[1, 0] == values[0, 0]
    np.testing.assert_array_equal(values[2], values[1])
    np.testing.assert_array_equal(state.updates, [2, 3])
    # The step size of a multiplier counts its own updates: the first one goes on as if the gap had not been.
    without_gap, _ = run(config, [[1.0], [1.0]])
    assert values[3, 0] == without_gap[1, 0]


def test_step_sizes_decay_with_the_updates() -> None:
    """eta = 1 / (1 + k): 1, 1/2, 1/3."""
    config = MultiplierConfig(step_size=Schedule(1.0, "power"))
    values, _ = run(config, [[1.0], [1.0], [1.0]])
    np.testing.assert_allclose(values[:, 0], [1.0, 1.5, 1.5 + 1 / 3], rtol=1e-6)


def test_relative_violations_are_in_units_of_the_limit_and_clipped() -> None:
    config = MultiplierConfig(initial=0.5, step_size=Schedule(0.1), relative=True)
    limits = [0.01, 0.01, 2.0, -2.0, 0.0]
    values, _ = run(config, [[0.99, -0.005, 1.0, 1.0, 0.5]], limit=limits)
    np.testing.assert_allclose(values[0], [0.6, 0.45, 0.55, 0.55, 0.55], atol=1e-6)


def test_a_lower_bound_moves_when_the_value_is_below_it() -> None:
    """The violation is what lies beyond the limit, whichever side that is."""
    config = MultiplierConfig(step_size=Schedule(1.0))
    upper, lower = parse("sum(speed) <= 3"), parse("sum(speed) >= 3")
    for value, expected in ((5.0, [2.0, 0.0]), (1.0, [0.0, 2.0])):
        values, _ = run(config, [[upper.excess(value), lower.excess(value)]], limit=[3.0, 3.0])
        np.testing.assert_allclose(values[0], expected)


RULES = st.sampled_from(["fixed", "integral", "pi"])


@given(st.integers(0, 2**32 - 1), RULES, st.booleans(), st.integers(1, 3))
@settings(max_examples=40)
def test_any_run_is_a_scalar_loop(seed: int, rule: Any, relative: bool, constraints: int) -> None:
    rng = np.random.default_rng(seed)
    config = MultiplierConfig(
        rule=rule,
        initial=0.5,
        maximum=2.0,
        step_size=Schedule(0.3, "power", exponent=0.7, offset=5.0),
        proportional=0.4,
        relative=relative,
    )
    violations = rng.normal(scale=2.0, size=(12, constraints))
    measured = rng.random((12, constraints)) < 0.7
    limit = rng.choice([-0.5, 0.0, 0.1, 3.0], size=constraints)
    values, _ = run(config, violations.tolist(), measured.tolist(), limit.tolist())
    assert values.min() >= 0.0 and values.max() <= 2.0
    for k in range(constraints):
        integral = value = 0.5
        updates = 0
        for i in range(12):
            if measured[i, k] and rule != "fixed":
                violation = violations[i, k]
                if relative:
                    violation = min(max(violation / (abs(limit[k]) if limit[k] else 1.0), -1.0), 1.0)
                integral = min(max(integral + 0.3 / (1 + updates / 5) ** 0.7 * violation, 0.0), 2.0)
                value = min(max(integral + (0.4 if rule == "pi" else 0.0) * violation, 0.0), 2.0)
                updates += 1
            assert values[i, k] == pytest.approx(value, abs=1e-5)


def test_no_constraints_no_multipliers() -> None:
    values, state = run(MultiplierConfig(), [[]], [[]])
    assert values.shape == (1, 0) and state.value.shape == (0,)


# What the multipliers steer towards


def known(first: list[float], updates: int = 1) -> MultiplierState:
    """Multipliers that have measured these values first."""
    count = len(first)
    return MultiplierState(
        value=jnp.zeros(count),
        integral=jnp.zeros(count),
        updates=jnp.full(count, updates),
        first=jnp.asarray(first, jnp.float32),
        lately=jnp.ones(2),
    )


def aimed(config: MultiplierConfig, state: MultiplierState, texts: list[str], iteration: int, iterations: int) -> Any:
    bounds = [parse(text) for text in texts]
    limit = jnp.array([bound.limit for bound in bounds])
    sign = jnp.array([bound.sign for bound in bounds])
    return np.asarray(aim(rules(config, bounds), state, limit, sign, jnp.asarray(iteration), iterations))


def test_without_more_ado_one_aims_at_the_limit() -> None:
    for iteration in (0, 50, 100):
        found = aimed(MultiplierConfig(), known([9.0, 9.0]), ["sum(a) <= 3", "sum(b) >= -2"], iteration, 100)
        np.testing.assert_array_equal(found, [3.0, -2.0])


def test_a_margin_lies_inside_the_limit_on_its_side() -> None:
    texts = ["sum(a) <= 2", "sum(b) >= 2", "sum(c) <= -2", "sum(d) >= -2", "sum(e) <= 0"]
    found = aimed(MultiplierConfig(margin=0.1), known([0.0] * 5), texts, 0, 10)
    np.testing.assert_allclose(found, [1.8, 2.2, -2.2, -1.8, 0.0], rtol=1e-6)


def test_a_ramp_by_hand() -> None:
    """From 1.5 times the first value, 0.8, down to 0.2 within the first half, by a factor of 6 in all: its root is half
    of the way. Of a lower bound from 0.1 up to 0.7."""
    config = MultiplierConfig(ramp=0.5, ramp_start=1.5)
    texts, state = ["mean(a) <= 0.2", "mean(b) >= 0.7"], known([0.8, 0.1 / 1.5])
    for iteration, expected in (
        (0, [1.2, 0.1]),
        (10, [0.2 * 6.0**0.8, 0.7 / 7.0**0.8]),
        (25, [0.2 * 6.0**0.5, 0.7 / 7.0**0.5]),
        (50, [0.2, 0.7]),
        (99, [0.2, 0.7]),
    ):
        np.testing.assert_allclose(aimed(config, state, texts, iteration, 100), expected, rtol=1e-5)


def test_a_ramp_to_or_across_zero_is_a_line() -> None:
    """No factor leads there."""
    config = MultiplierConfig(ramp=0.5)
    texts, state = ["sum(a) <= 0", "sum(b) <= -1", "sum(c) >= 1"], known([2.0, 1.0, -3.0])
    for iteration, expected in (
        (0, [2.0, 1.0, -3.0]),
        (10, [1.6, 0.6, -2.2]),
        (25, [1.0, 0.0, -1.0]),
        (60, [0, -1, 1]),
    ):
        np.testing.assert_allclose(aimed(config, state, texts, iteration, 100), expected, rtol=1e-5, atol=1e-6)


def test_a_ramp_never_leads_inside_the_limit() -> None:
    """Where the untrained policy keeps the limit already there is nothing to come down from."""
    config = MultiplierConfig(ramp=1.0, margin=0.1)
    texts, state = ["mean(a) <= 0.2", "mean(b) >= 0.7"], known([0.05, 0.9])
    for iteration in (0, 5, 10):
        np.testing.assert_allclose(aimed(config, state, texts, iteration, 10), [0.18, 0.77], rtol=1e-5)


def test_a_ramp_waits_for_a_measurement() -> None:
    config = MultiplierConfig(ramp=1.0)
    np.testing.assert_allclose(aimed(config, known([0.0], updates=0), ["mean(a) >= 0.2"], 0, 10), [0.2])


def test_the_first_value_is_remembered() -> None:
    """Of each constraint the first that was measured, whenever that was; later ones are not."""
    alike = (MultiplierConfig(),) * 3
    state = start(alike)
    values = [[5.0, 7.0, 9.0], [1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]
    measured = [[True, False, False], [True, True, False], [True, True, False]]
    for value, seen in zip(values, measured, strict=True):
        flags = jnp.array(seen)
        first = remember_first(state, jnp.asarray(value), flags)
        state = ascend(alike, state, jnp.zeros(3), jnp.ones(3), flags, 10)
        state = MultiplierState(state.value, state.integral, state.updates, first, state.lately)
    np.testing.assert_array_equal(state.first, [5.0, 2.0, 0.0])


def test_the_rule_keeps_what_was_remembered() -> None:
    state = known([5.0, 2.0])
    moved = ascend((MultiplierConfig(),) * 2, state, jnp.ones(2), jnp.ones(2), jnp.array([True, False]), 10)
    np.testing.assert_array_equal(moved.first, [5.0, 2.0])


# Each its own


TWO = ["P(crash) <= 0.5 with initial 0.6, maximum 1, step_size 0.25, proportional 0.5", "sum(cost) <= 25"]


def test_a_constraint_overrules_the_runs_settings_and_no_other_constraint() -> None:
    config = MultiplierConfig(rule="pi", initial=2.0, maximum=9.0, step_size=Schedule(0.1, "power"), proportional=1.0)
    own, others = rules(config, [parse(text) for text in TWO])
    assert others == config
    assert own == MultiplierConfig(
        rule="pi", initial=0.6, maximum=1.0, step_size=Schedule(0.25, "power"), proportional=0.5
    )


def test_multipliers_of_their_own_by_hand() -> None:
    config = MultiplierConfig(rule="pi", initial=2.0, maximum=9.0, step_size=Schedule(0.1), proportional=1.0)
    both = rules(config, [parse(text) for text in TWO])
    state = start(both)
    np.testing.assert_allclose(state.value, [0.6, 2.0])
    for violation, expected in ((1.0, [1.0, 3.1]), (-0.5, [0.475, 1.55]), (40.0, [1.0, 9.0]), (-2.0, [0.0, 3.85])):
        state = ascend(both, state, jnp.full(2, violation), jnp.ones(2), jnp.array([True, True]), 10)
        np.testing.assert_allclose(state.value, expected, atol=1e-5)
    np.testing.assert_allclose(state.integral, [0.5, 5.85], atol=1e-5)


def test_a_margin_and_a_ramp_of_ones_own() -> None:
    texts = ["mean(a) <= 0.2 with ramp 0, margin 0", "mean(b) <= 0.2", "mean(c) <= 0.2 with ramp 1"]
    config = MultiplierConfig(ramp=0.5, margin=0.1)
    found = aimed(config, known([1.0, 1.0, 1.0]), texts, 25, 100)
    np.testing.assert_allclose(found, [0.2, 0.18 * (1.0 / 0.18) ** 0.5, 0.18 * (1.0 / 0.18) ** 0.75], rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "config", "words"),
    [
        ("sum(c) <= 1 with initial 5, maximum 2", MultiplierConfig(), ["got the multiplier 5", "lambda_max = 2"]),
        ("sum(c) <= 1 with initial 5", MultiplierConfig(maximum=3.0), ["got the multiplier 5", "lambda_max = 3"]),
        ("sum(c) <= 1 with margin 1", MultiplierConfig(), ["got the margin 1", "[0, 1)"]),
        ("sum(c) <= 1 with ramp 2", MultiplierConfig(), ["ramp over 2", "[0, 1]"]),
        ("sum(c) <= 1 with proportional 2", MultiplierConfig(), ["proportional", "--multipliers.rule pi"]),
    ],
)
def test_settings_that_do_not_fit(text: str, config: MultiplierConfig, words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        rules(config, [parse(text)])
    for word in [*words, f"'{parse(text)}'"]:
        assert word in str(refused.value)


def test_a_fixed_multiplier_may_be_ones_own() -> None:
    config = MultiplierConfig(rule="fixed", initial=0.25)
    both = rules(config, [parse(text) for text in TWO])
    state = ascend(both, start(both), jnp.ones(2), jnp.ones(2), jnp.array([True, True]), 10)
    np.testing.assert_allclose(state.value, [0.6, 0.25])


# How long episodes are


def episodes(lengths: list[list[int]], counted: list[list[bool]]) -> Episodes:
    shape = np.shape(lengths)
    return Episodes(
        counted=jnp.array(counted),
        value=jnp.zeros((*shape, 1)),
        columns=jnp.zeros((*shape, 1)),
        reward=jnp.zeros(shape),
        length=jnp.array(lengths),
        truncated=jnp.zeros(shape, bool),
    )


def test_lengths_are_those_of_the_episodes_that_counted_lately() -> None:
    state = start((), max_steps=1000)
    np.testing.assert_array_equal(state.lately, [1, 1000])
    none = remember_lengths(state, episodes([[7, 9]], [[False, False]]))
    np.testing.assert_array_equal(none, [1, 1000])
    some = remember_lengths(state, episodes([[10, 90], [30, 5]], [[True, False], [True, False]]))
    np.testing.assert_allclose(some, [np.exp(-2 / 32) + 2, 1000 * np.exp(-2 / 32) + 40], rtol=1e-5)
    for _ in range(60):
        lately = remember_lengths(state, episodes([[10, 30]] * 4, [[True, True]] * 4))
        state = MultiplierState(state.value, state.integral, state.updates, state.first, lately)
    assert state.lately[1] / state.lately[0] == pytest.approx(20.0, abs=0.01)
