"""The rule on numpy's arrays against the same rule on JAX's, and with a rule of its own for each multiplier."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rcpo.ascent import aim, climb
from rcpo.config import MultiplierConfig
from rcpo.schedules import Schedule

RULES = (
    MultiplierConfig(step_size=Schedule(0.5, "power"), maximum=2.0, margin=0.1),
    MultiplierConfig(rule="pi", step_size=Schedule(0.1), proportional=0.4, relative=True, ramp=0.5, ramp_start=1.5),
    MultiplierConfig(rule="fixed", proportional=0.4),
)


@given(st.integers(0, 2**32 - 1))
def test_numpy_and_jax_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    limit, sign = rng.choice([-0.5, 0.0, 0.1, 3.0], 3), rng.choice([-1.0, 1.0], 3)
    integral, violation, first = rng.random(3), rng.normal(size=3), rng.normal(size=3)
    updates, known = rng.integers(0, 20, 3).astype(float), rng.random(3) < 0.5
    found = climb(RULES, integral, updates, violation, limit, 20)
    i, u, v, bound, s, f, k = map(jnp.asarray, (integral, updates, violation, limit, sign, first, known))
    np.testing.assert_allclose(found, np.asarray(climb(RULES, i, u, v, bound, 20)), rtol=1e-5, atol=1e-6)
    now = np.float64(seed % 20)
    aimed = aim(RULES, limit, sign, first, known, now, 20)
    there = aim(RULES, bound, s, f, k, jnp.asarray(now), 20)
    np.testing.assert_allclose(aimed, np.asarray(there), rtol=1e-5, atol=1e-6)


def test_each_multiplier_has_a_rule_of_its_own() -> None:
    """By hand: 1 + 0.5 / (1 + 1) * 3; 1 + 0.1 * 1 (clipped), and 0.4 beside it; the third one stays."""
    integral, value = climb(RULES, np.ones(3), np.ones(3), np.array([3.0, 3.0, 3.0]), np.full(3, 0.5), 10)
    np.testing.assert_allclose(integral, [1.75, 1.1, 1.0])
    np.testing.assert_allclose(value, [1.75, 1.5, 1.0])
    found = aim(RULES, np.full(3, 2.0), np.ones(3), np.full(3, 4.0), True, np.float64(1.0), 10)
    # Margin; a fifth of the way down from 1.5 * 4 to 2, which is a factor of 3; the limit itself.
    np.testing.assert_allclose(found, [1.8, 6.0 / 3.0 ** (1 / 5), 2.0])


@pytest.mark.parametrize("count", [0, 1])
def test_few_multipliers(count: int) -> None:
    """Also none at all."""
    ones = np.ones(count)
    integral, _ = climb(RULES[:count], ones, 0.0 * ones, ones, ones, 1)
    np.testing.assert_allclose(integral, [1.5] * count)
    assert aim(RULES[:count], ones, ones, ones, True, np.float64(0.0), 1).shape == (count,)
