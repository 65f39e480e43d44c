"""Costs worked out by a function of the user's: on the host and in JAX, followed step by step."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Noise

import rcpo
from rcpo import envs, host
from rcpo.constraints import Constraint, Event, function_name, parse, parse_all
from rcpo.costs import add_costs, all_columns
from rcpo.errors import UsageError
from rcpo.functionals import Maximum, Mean, Probability, Sum
from rcpo.rollout import collect, start

pytestmark = pytest.mark.usefixtures("quick_compile")


def effort(obs: Any, action: Any, next_obs: Any, info: Mapping[str, Any]) -> Any:
    return action[:, 0] ** 2 + abs(next_obs - obs).sum(axis=1) + info["touch"]


def stride(obs: Any, action: Any, next_obs: Any, info: Mapping[str, Any]) -> Any:
    return 1.0 * (next_obs - obs) + 0.25 * action + info["goal"]


class Jump:
    def __call__(self, obs: Any, action: Any, next_obs: Any, info: Mapping[str, Any]) -> Any:
        return abs(next_obs[:, 0] - obs[:, 0])


def act(obs: np.ndarray, noise: np.ndarray) -> Any:
    return np.tanh(obs) + noise


def test_on_the_host_every_step_is_given_to_the_function() -> None:
    constraints = (
        Constraint(Sum(), effort, 5.0),
        parse("mean(push) <= 0.25"),
        Constraint(Probability(), Jump(), 0.5, event=Event(">", 0.2)),
        Constraint(Maximum(), effort, 3.0, at_least=True),
    )
    environment = Noise()
    with host.crews_of(environment, 6) as crews:
        worker = host.begin(crews, environment.spec, constraints, 1, False)
        noise = np.random.default_rng(0).normal(size=(40, 6, 2)).astype(np.float32)
        _, rollout = host.collect(crews, environment.spec, constraints, act, noise, worker)
        plain_worker = host.begin(crews, environment.spec, constraints[1:2], 1, False)
        _, plain = host.collect(crews, environment.spec, constraints[1:2], act, noise, plain_worker)
        again = environment.open(6)
        again.reset((1, 0))
        costs = []
        for action in np.asarray(rollout.action):
            costs.append(again.step(host.in_range(environment.spec.actions, action)))
    np.testing.assert_array_equal(rollout.penalty[..., 1], plain.penalty[..., 0])
    obs, next_obs = np.asarray(rollout.obs), np.asarray(rollout.next_obs)
    action = host.in_range(environment.spec.actions, np.asarray(rollout.action))
    touch = np.array([step.costs[:, 1] for step in costs])
    faulty = np.array([step.faulty for step in costs])
    spent = np.where(faulty, 0.0, action[..., 0] ** 2 + np.abs(next_obs - obs).sum(axis=-1) + touch)
    assert faulty.any() and touch.any()
    np.testing.assert_allclose(rollout.penalty[..., 0], spent, rtol=1e-5, atol=1e-6)
    jumped = ~faulty & (np.abs(next_obs - obs)[..., 0] > 0.2)
    ended = np.asarray(rollout.terminated | rollout.truncated)
    episode = rollout.episode
    assert episode.columns.shape == (40, 6, 4), "push, touch, effort(), Jump()"
    for n in range(6):
        begun = 0
        for t in np.flatnonzero(ended[:, n]):
            mine = slice(begun, t + 1)
            assert episode.value[t, n, 0] == pytest.approx(spent[mine, n].sum(), rel=1e-5)
            assert episode.value[t, n, 2] == jumped[mine, n].any()
            assert episode.value[t, n, 3] == pytest.approx(spent[mine, n].max(), rel=1e-5)
            assert episode.columns[t, n, 2] == pytest.approx(spent[mine, n].sum(), rel=1e-5)
            begun = int(t) + 1


def test_in_jax_the_same() -> None:
    constraints = (Constraint(Sum(), stride, 5.0), parse("P(crash) <= 0.5"), Constraint(Mean(), stride, 1.0))
    environment = envs.make_finite("fork")

    @jax.jit
    def played(key: jax.Array) -> Any:
        worker = start(environment, constraints, key, 7, 0.0)
        return collect(
            environment, constraints, lambda key, obs: jax.random.randint(key, (7,), 0, 2), worker, key, 30, 0.0
        )[1]

    rollout = played(jax.random.key(0))
    obs, next_obs, action = (np.asarray(part) for part in (rollout.obs, rollout.next_obs, rollout.action))
    ended = np.asarray(rollout.terminated | rollout.truncated)
    reached = ended & (np.asarray(rollout.penalty[..., 1]) == 0)
    spent = next_obs - obs + 0.25 * action + reached
    np.testing.assert_allclose(rollout.penalty[..., 0], spent, atol=1e-6)
    np.testing.assert_allclose(rollout.penalty[..., 2], spent, atol=1e-6)
    assert ended.sum() > 20 and reached.any() and not reached[ended].all()
    for n in range(7):
        begun = 0
        for t in np.flatnonzero(ended[:, n]):
            total = spent[begun : t + 1, n].sum()
            assert rollout.episode.value[t, n, 0] == pytest.approx(total, abs=1e-5)
            assert rollout.episode.value[t, n, 2] == pytest.approx(total / (t + 1 - begun), abs=1e-5)
            begun = int(t) + 1


def test_without_functions_nothing_is_added() -> None:
    costs = np.ones((3, 2))
    assert add_costs([parse("sum(a) <= 1")], ["a", "b"], None, None, None, costs) is costs
    assert all_columns(["a", "b"], [parse("sum(a) <= 1")]) == ("a", "b")


def test_names() -> None:
    assert [function_name(one) for one in (effort, Jump(), partial(effort, 3), lambda o, a, n, i: o)] == [
        "effort", "Jump", "effort", "lambda"]  # fmt: skip
    constraint = Constraint(Sum(), effort, 25)
    assert str(constraint) == "sum(effort()) <= 25" and constraint.cost is effort
    assert all_columns(["a"], [constraint, Constraint(Mean(), effort, 1)]) == ("a", "effort()")
    assert parse_all([constraint], ["a"]) == (constraint,)
    assert constraint == Constraint(Sum(), effort, 25) != Constraint(Sum(), Jump(), 25)


def test_two_functions_of_one_name_are_refused() -> None:
    pair = [Constraint(Sum(), lambda o, a, n, i: o, 1), Constraint(Mean(), lambda o, a, n, i: a, 1)]
    with pytest.raises(UsageError, match=r"two cost functions are called lambda\(\); give them different names"):
        parse_all(pair, [])


def failing(obs: Any, action: Any, next_obs: Any, info: Mapping[str, Any]) -> Any:
    return info["speed"]


def branching(obs: Any, action: Any, next_obs: Any, info: Mapping[str, Any]) -> Any:
    return 1.0 * action if action[0] > 0 else 0.0 * action


def single(obs: Any, action: Any, next_obs: Any, info: Mapping[str, Any]) -> Any:
    return obs.sum()


def short(obs: Any) -> Any:
    return obs


@pytest.mark.parametrize(
    ("cost", "space", "words"),
    [
        (failing, np, ["the cost function failing failed: KeyError: 'speed'", "cost(obs, action, next_obs, info)"]),
        (short, np, ["the cost function short failed: TypeError", "cost(obs, action, next_obs, info)"]),
        (single, np, ["the cost function single gave the shape () for 3 steps", "shape (3,)"]),
        (single, jnp, ["the cost function single gave the shape () for 3 steps", "shape (3,)"]),
        (branching, jnp, ["the cost function branching failed: TracerBoolConversionError", "use jax.numpy"]),
    ],
)
def test_a_function_that_cannot_be_used(cost: Any, space: Any, words: list[str]) -> None:
    constraint, arrays = Constraint(Sum(), cost, 1.0), [space.ones(3), space.ones(3), space.ones(3), space.ones((3, 1))]

    def worked_out(*arrays: Any) -> Any:
        return add_costs([constraint], ["c"], *arrays)

    with pytest.raises(UsageError) as refused:
        (worked_out if space is np else jax.jit(worked_out))(*arrays)
    for word in words:
        assert word in str(refused.value)


def test_a_run_on_a_function_is_loaded_with_it(tmp_path: Any) -> None:
    constraints: list[str | Constraint] = [Constraint(Mean(), stride, 2.0, initial=0.5), "P(crash) <= 0.5"]
    evaluation = rcpo.EvaluationConfig(points=1, episodes=64, shortlist_episodes=64, verdict_episodes=64, looks=1)
    config = rcpo.TrainConfig(
        learner=rcpo.LearnerConfig(environments=8, rollout_steps=4, exploring=rcpo.Schedule(0.0)), evaluation=evaluation
    )
    run = rcpo.train("fork", constraints, config=config, steps=64, out=tmp_path / "run")
    assert run.records[-1]["constraint/mean(stride())/multiplier"] >= 0.0
    assert run.exact_constraints()[0] is None and run.exact_constraints()[1] is not None
    with pytest.raises(UsageError, match=r"stride\(\) is a function in Python.*constraints=\[\.\.\.\]"):
        rcpo.load(tmp_path / "run")
    loaded = rcpo.load(tmp_path / "run", constraints=constraints)
    assert loaded.constraints == run.constraints and loaded.evaluate(32) == run.evaluate(32)
    other: list[str | Constraint] = [Constraint(Mean(), stride, 3.0, initial=0.5), "P(crash) <= 0.5"]
    for wrong, words in (
        (other, r"'mean\(stride\(\)\) <= 2 with initial 0.5', and got 'mean\(stride\(\)\) <= 3 with"),
        (constraints[:1], r"'P\(crash\) <= 0.5', and got 'no constraint'"),
        ([*constraints, "sum(goal) >= 0"], r"'no constraint', and got 'sum\(goal\) >= 0'"),
    ):
        with pytest.raises(UsageError, match=words):
            rcpo.load(tmp_path / "run", constraints=wrong)
