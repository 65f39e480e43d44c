"""Any finite CMDP as an environment: what it samples against what its tables say."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import chi2, chisquare

from rcpo import envs
from rcpo.envs.finite import FiniteEnvironment
from rcpo.envs.settings import MarsRoverSettings
from rcpo.errors import UsageError
from rcpo.exact import Bound, FiniteCMDP, solve


def random_tables(seed: int, states: int = 4, actions: int = 3) -> FiniteCMDP:
    """Some moves are impossible, two outcomes, and one column that is paid at every step."""
    rng = np.random.default_rng(seed)
    moves = rng.dirichlet(np.full(states, 0.5), (states, actions))
    moves[rng.random(moves.shape) < 0.3] = 0.0
    ends = rng.uniform(0.05, 0.4, (2, states, actions))
    left = 1.0 - ends.sum(axis=0)
    total = moves.sum(axis=-1)
    ends[0] += np.where(total == 0, left, 0.0)
    moves *= (left / np.where(total == 0, 1.0, total))[..., None]
    outcomes = {"crash": ends[0], "goal": ends[1]}
    return FiniteCMDP(
        transitions=csr_array(moves.reshape(states * actions, states)),
        reward=rng.normal(size=(states, actions)),
        columns={"wear": rng.uniform(0, 2, (states, actions)), "goal": ends[1]},
        initial=np.array([0.5, 0.0, 0.3, 0.2]),
        outcomes=outcomes,
    )


def test_branches_are_as_frequent_as_the_tables_say() -> None:
    tables = random_tables(0)
    environment = FiniteEnvironment.build(tables)
    draws = 6000
    states, actions = (part.ravel() for part in np.indices(tables.reward.shape))
    step = jax.jit(lambda environment, *arguments: environment.step(*arguments))
    made: Any = step(
        environment, jax.random.key(1), jnp.asarray(np.repeat(states, draws)), jnp.asarray(np.repeat(actions, draws))
    )
    ended = np.asarray(made.terminated).reshape(-1, draws)
    after = np.asarray(made.state).reshape(-1, draws)
    goal = np.asarray(made.costs[:, 1]).reshape(-1, draws)
    np.testing.assert_allclose(made.reward.reshape(-1, draws)[:, 0], tables.reward.ravel(), rtol=1e-6)
    np.testing.assert_allclose(
        made.costs[:, 0].reshape(-1, draws), np.tile(tables.columns["wear"].ravel()[:, None], draws), rtol=1e-6
    )
    assert set(np.unique(goal)) == {0.0, 1.0} and not goal[~ended].any()
    statistic, freedom = 0.0, 0
    for i, (state, action) in enumerate(zip(states, actions, strict=True)):
        moves = tables.transitions.toarray()[state * 3 + action]
        ends = [tables.outcomes[name][state, action] for name in ("crash", "goal")]
        expected = draws * np.append(moves, ends)
        observed = np.append(
            np.bincount(after[i][~ended[i]], minlength=4), [(ended[i] & (goal[i] == 0)).sum(), goal[i].sum()]
        )
        assert (observed[expected == 0] == 0).all()
        possible = expected > 0
        statistic += ((observed - expected)[possible] ** 2 / expected[possible]).sum()
        freedom += possible.sum() - 1
    assert 0.001 < chi2.sf(statistic, freedom) < 0.999


def test_starts() -> None:
    environment = FiniteEnvironment.build(random_tables(0))
    reset = jax.jit(lambda *arguments: environment.reset(*arguments), static_argnums=1)
    state, from_start = (np.asarray(part) for part in reset(jax.random.key(0), 20_000, 0.0))
    assert from_start.all() and not (state == 1).any()
    assert chisquare(np.bincount(state)[[0, 2, 3]], [10_000, 6_000, 4_000]).pvalue > 0.001
    state, from_start = (np.asarray(part) for part in reset(jax.random.key(1), 20_000, 0.25))
    assert chisquare([from_start.sum(), (~from_start).sum()], [15_000, 5_000]).pvalue > 0.001
    assert chisquare(np.bincount(state[~from_start], minlength=4)).pvalue > 0.001
    assert not reset(jax.random.key(1), 20_000, 1.0)[1].any()


def test_what_is_known_of_it() -> None:
    tables = random_tables(0)
    environment = FiniteEnvironment.build(tables, "mine", max_steps=17)
    spec = environment.spec
    assert (spec.name, spec.actions, spec.observation_shape, spec.max_steps) == ("mine", 3, (), 17)
    assert (spec.column_names, spec.success) == (("wear", "goal"), "goal")
    assert environment.cmdp() is tables
    np.testing.assert_array_equal(environment.states(), np.arange(4))
    np.testing.assert_array_equal(environment.observe(jnp.array([2, 0])), [2, 0])
    # Without a column of that name there is no success to speak of.
    columns = {"wear": tables.columns["wear"]}
    nameless = FiniteCMDP(tables.transitions, tables.reward, columns, tables.initial, tables.outcomes)
    assert FiniteEnvironment.build(nameless).spec.success is None


def test_endings_without_a_name_are_refused() -> None:
    tables = random_tables(0)
    named = {"goal": tables.outcomes["goal"]}
    lacking = FiniteCMDP(tables.transitions, tables.reward, tables.columns, tables.initial, named)
    with pytest.raises(UsageError, match="not to 1; name every way in which an episode can end as an outcome"):
        FiniteEnvironment.build(lacking)


def test_the_fork_is_worth_what_its_description_says() -> None:
    """P(crash) and steps are (0.3, 2), (0.1, 3) or (0, 4); under P(crash) <= 0.05: 3.5 steps, multiplier 1."""
    tables = envs.tables("fork")
    optimum = solve(tables, [Bound("crash", 0.05)])
    assert (optimum.reward, optimum.steps) == pytest.approx((-0.35, 3.5))
    assert optimum.values == pytest.approx((0.05,)) and optimum.multipliers == pytest.approx((1.0,))
    for limit, steps in ((1.0, 2.0), (0.3, 2.0), (0.2, 2.5), (0.1, 3.0), (0.0, 4.0)):
        assert solve(tables, [Bound("crash", limit)]).steps == pytest.approx(steps)
    # Half walking: the bridge is taken with 1/2, and walked.
    np.testing.assert_allclose(optimum.policy[0], [0.5, 0.5], atol=1e-7)
    np.testing.assert_allclose(optimum.policy[1], [0.0, 1.0], atol=1e-7)


def test_environments_by_name() -> None:
    assert set(envs.FINITE) == {"mars-rover", "fork"}
    for name in envs.FINITE:
        assert envs.make(name).spec.name == name
    assert envs.make_finite("mars-rover", MarsRoverSettings(max_steps=3)).spec.max_steps == 3
    with pytest.raises(UsageError, match=r"unknown environment 'mars-rovr'; did you mean 'mars-rover'\?"):
        envs.make("mars-rovr")
    with pytest.raises(UsageError, match="'fork' has no such settings"):
        envs.make_finite("fork", MarsRoverSettings(slip=0.5))
