import time
from contextlib import nullcontext

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcpo import bench as module
from rcpo import envs, presets
from rcpo.bench import ITERATIONS, BenchResult, Program, bench, learner, physics, rate
from rcpo.constraints import parse_all
from rcpo.envs.base import JaxEnvironment
from rcpo.errors import UsageError
from rcpo.learn import Plan, begin, experience
from rcpo.run import make_plan

KEYS = {"env", "physics_steps_per_second", "learner_steps_per_second", "train_steps_per_second", "bound",
        "ratio_to_bound"}  # fmt: skip


def fork() -> tuple[Plan, JaxEnvironment]:
    config, environment = presets.preset("theory", "fork"), envs.make_finite("fork")
    return make_plan(config, parse_all(config.constraints, environment.spec.column_names), environment)[0], environment


def test_the_bound_is_what_the_two_parts_take_one_after_the_other() -> None:
    result = BenchResult("fork", 3e6, 6e6, 1e6, compile_seconds=5.0)
    # A million steps take 1/3 s of physics and 1/6 s of learning: half a second. Training takes a second.
    assert result.bound == pytest.approx(2e6)
    assert result.ratio_to_bound == pytest.approx(0.5)
    assert result.document() == {
        "env": "fork",
        "physics_steps_per_second": 3e6,
        "learner_steps_per_second": 6e6,
        "train_steps_per_second": 1e6,
        "bound": pytest.approx(2e6),
        "ratio_to_bound": pytest.approx(0.5),
    }


def test_the_fork_is_measured() -> None:
    started = time.perf_counter()
    result = bench("fork", seconds=0.1, repeats=3)
    assert time.perf_counter() - started > 3 * 3 * 0.1 + result.compile_seconds
    document = result.document()
    assert document.keys() == KEYS
    assert document.pop("env") == "fork"
    assert str(result).splitlines()[0].startswith("fork") and len(str(result).splitlines()) == 5
    assert all(isinstance(value, float) and 0.0 < value < np.inf for value in document.values())
    # Training cannot be much faster than its parts: what is left is the machine's noise.
    assert 0.2 < result.ratio_to_bound < 5.0
    assert result.compile_seconds > 0.0


def test_parts_take_turns_and_medians_count(monkeypatch: pytest.MonkeyPatch) -> None:
    names, asked = ("physics", "learner", "train"), []
    programs = {name: Program(lambda: None, 1, 2.0) for name in names}
    rates = iter([90.0, 90.0, 90.0, 10.0, 40.0, 7.0, 30.0, 60.0, 5.0, 20.0, 50.0, 6.0])

    def fake(program: Program, seconds: float) -> float:
        asked.append((next(name for name in names if programs[name] is program), seconds))
        return next(rates)

    monkeypatch.setattr(module, "prepared", lambda environment, preset: nullcontext(programs))
    monkeypatch.setattr(module, "rate", fake)
    result = bench("fork", seconds=6.0, repeats=3)
    assert asked == [(name, 0.0) for name in names] + 3 * [(name, 6.0) for name in names]
    assert result == BenchResult("fork", 20.0, 50.0, 6.0, compile_seconds=6.0)


def test_a_rate_counts_every_step_and_no_more() -> None:
    calls: list[int] = []

    def call() -> None:
        time.sleep(0.01)
        calls.append(1)

    started = time.perf_counter()
    measured = rate(Program(call, steps=7, compile_seconds=0.0), seconds=0.1)
    elapsed = time.perf_counter() - started
    assert elapsed >= 0.1
    assert 7 * len(calls) / elapsed <= measured <= 7 / 0.01


def test_physics_runs_every_step_it_counts() -> None:
    plan, environment = fork()
    state = begin(plan, environment)
    _, rollout = experience(plan, environment, state)
    blank = jax.tree.map(jnp.zeros_like, rollout)
    worker, last = physics(plan, environment, state.worker, blank, state.key, count=3)
    steps, batch = plan.config.learner.rollout_steps, plan.config.learner.environments
    assert last.action.shape == (steps, batch)
    assert set(np.unique(np.asarray(last.action))) == {0, 1}
    assert abs(float(np.asarray(last.action).mean()) - 0.5) < 4 * 0.5 / np.sqrt(steps * batch)
    # No environment has taken more steps in its present episode than three rollouts have; some episodes ended.
    assert 0 < int(np.asarray(worker.tally.length).max()) < 3 * steps
    # What was seen last is where the environments stand now, unless their episodes ended.
    goes_on = ~np.asarray(last.terminated | last.truncated)[-1]
    np.testing.assert_array_equal(np.asarray(last.next_obs)[-1][goes_on], np.asarray(worker.obs)[goes_on])


def test_the_learner_learns_from_actions_of_its_own() -> None:
    plan, environment = fork()
    state = begin(plan, environment)
    _, rollout = experience(plan, environment, state)
    before = np.asarray(state.agent.network.logits)
    learned, metrics = learner(plan, environment, state, rollout, count=ITERATIONS)
    assert int(learned.iteration) == ITERATIONS
    assert metrics["loss/value"].shape == (ITERATIONS,)
    assert float(np.abs(np.asarray(learned.agent.network.logits) - before).max()) > 0.0
    # The actions are drawn anew from the network, so whatever the fixed rollout says of them does not matter.
    other = eqx.tree_at(lambda rollout: rollout.action, rollout, 1 - rollout.action)
    again, _ = learner(plan, environment, state, other, count=ITERATIONS)
    np.testing.assert_array_equal(again.agent.network.logits, learned.agent.network.logits)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"environment": "forc"}, "fork"),
        ({"environment": "fork", "preset": "mars-rover"}, "theory"),
        ({"environment": "fork", "seconds": -1.0}, "not negative"),
        ({"environment": "fork", "repeats": 0}, "at least 1"),
    ],
)
def test_wrong_words_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bench(**arguments)
