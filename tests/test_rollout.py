"""Collected experience, followed step by step by a slow loop over what it recorded."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from rcpo import envs
from rcpo.constraints import Constraint, parse
from rcpo.envs.base import Column, EnvSpec, JaxEnvironment
from rcpo.envs.finite import FiniteEnvironment
from rcpo.envs.mars_rover import MarsRover
from rcpo.envs.settings import MarsRoverSettings
from rcpo.networks import TabularActorCritic
from rcpo.rollout import advance, collect, first_episodes, look, measure, start
from rcpo.types import Rollout, Transition, Worker

pytestmark = pytest.mark.usefixtures("quick_compile")

EXPLORED = 1000


class Walk(JaxEnvironment):
    """Counts its steps, from 0, or from 1000 after an exploring start; ends at random. All it pays can be read off."""

    max_steps: int = eqx.field(static=True)
    ending: float = eqx.field(static=True)

    @property
    def spec(self) -> EnvSpec:
        columns = (Column("third", "", ""), Column("turn", "", ""))
        return EnvSpec("walk", columns, 3, (), self.max_steps)

    def reset(self, key: Array, batch: int, exploring: Any) -> tuple[Array, Array]:
        from_start = jax.random.uniform(key, (batch,)) >= exploring
        return jnp.where(from_start, 0, EXPLORED), from_start

    def step(self, key: Array, state: Array, action: Array) -> Transition:
        return Transition(
            state=state + 1,
            reward=walk_reward(state),
            costs=jnp.stack([(state % 3 == 1) * 0.5, action * 0.25], axis=-1),
            terminated=jax.random.uniform(key, state.shape) < self.ending,
        )

    def observe(self, state: Array) -> Array:
        return state


def walk_reward(state: Any) -> Any:
    return 0.125 * (state % 7) - 0.25


WALK_CONSTRAINTS = tuple(
    parse(text)
    for text in (
        "P(third) <= 0.5",
        "sum(third) <= 1",
        "mean(turn) >= 0.2",
        "discounted(turn, 0.9) <= 2",
        "P(turn) >= 1",
        "sum(turn > 0.25) <= 1",
        "P(turn <= 0) >= 0.5",
        "max(turn) <= 0.25",
    )
)


def anything(actions: int) -> Any:
    return lambda key, obs: jax.random.randint(key, obs.shape[:1], 0, actions)


@partial(jax.jit, static_argnames=("constraints", "batch", "steps", "count", "actions"))
def rollouts(
    environment: JaxEnvironment,
    constraints: tuple[Constraint, ...],
    key: Array,
    batch: int,
    steps: int,
    exploring: float,
    count: int = 1,
    actions: int = 3,
) -> tuple[Worker, Worker, Rollout]:
    """The first worker, the last, and `count` rollouts in a row as one long one."""
    first_key, key = jax.random.split(key)
    first = worker = start(environment, constraints, first_key, batch, exploring)
    parts = []
    for part_key in jax.random.split(key, count):
        worker, part = collect(environment, constraints, anything(actions), worker, part_key, steps, exploring)
        parts.append(part)
    return first, worker, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


@dataclass
class Running:
    """One environment's running episode."""

    from_start: bool
    costs: list[Any] = field(default_factory=list)
    reward: float = 0.0


def episode_value(constraint: Constraint, costs: list[float]) -> float:
    """What an episode is worth, written out anew."""
    kind = constraint.quantity.split("(")[0]
    if kind == "max":
        return max(costs)
    if kind == "P":
        return float(any(cost > 0 for cost in costs))
    if kind == "discounted":
        discount = float(constraint.quantity.split(",")[1].rstrip(")"))
        return sum(discount**t * cost for t, cost in enumerate(costs))
    return sum(costs) / (len(costs) if kind == "mean" else 1)


def counts(constraint: Constraint, cost: float) -> float:
    """What counts of a cost: where there is an event, whether it happens."""
    if "turn > 0.25" in constraint.quantity:
        return float(cost > 0.25)
    return float(cost <= 0) if "turn <= 0" in constraint.quantity else cost


def step_penalty(constraint: Constraint, costs: list[float]) -> float:
    """What the last of these costs is felt as: of a probability the first event only; a lower bound pays instead."""
    felt = costs[-1]
    if constraint.quantity.startswith("max("):
        felt = max(costs) - max([0.0, *costs[:-1]] if len(costs) == 1 else costs[:-1])
    if constraint.quantity.startswith("P("):
        felt = float(costs[-1] > 0 and not any(cost > 0 for cost in costs[:-1]))
    return -felt if constraint.at_least else felt


def follow(
    rollout: Rollout,
    first: Worker,
    constraints: tuple[Constraint, ...],
    names: tuple[str, ...],
    costs_of: Any,
    reward_of: Any,
    begun_at_start: Any,
    max_steps: int,
) -> list[Running]:
    """Check every number of a rollout; the episodes that still run at its end."""
    seen = jax.tree.map(np.asarray, rollout)
    steps, batch = seen.reward.shape
    running = [Running(bool(flag)) for flag in np.asarray(first.tally.from_start)]
    for n in range(batch):
        for t in range(steps):
            one = running[n]
            obs, after, action = int(seen.obs[t, n]), int(seen.next_obs[t, n]), int(seen.action[t, n])
            one.costs.append(costs_of(obs, action, after, bool(seen.terminated[t, n])))
            one.reward += reward_of(obs, action, after)
            assert seen.reward[t, n] == pytest.approx(reward_of(obs, action, after), abs=1e-6)
            by_constraint = [[counts(c, cost[names.index(c.column)]) for cost in one.costs] for c in constraints]
            felt = [step_penalty(c, costs) for c, costs in zip(constraints, by_constraint, strict=True)]
            np.testing.assert_allclose(seen.penalty[t, n], felt, atol=1e-6)
            cut = len(one.costs) >= max_steps and not seen.terminated[t, n]
            ended = cut or bool(seen.terminated[t, n])
            assert bool(seen.truncated[t, n]) == cut
            assert bool(seen.episode.counted[t, n]) == (ended and one.from_start)
            if t + 1 < steps and not ended:
                assert seen.obs[t + 1, n] == after
            if ended:
                worth = [episode_value(c, costs) for c, costs in zip(constraints, by_constraint, strict=True)]
                np.testing.assert_allclose(seen.episode.value[t, n], worth, rtol=1e-5, atol=1e-6)
                np.testing.assert_allclose(seen.episode.columns[t, n], np.sum(one.costs, axis=0), rtol=1e-5, atol=1e-6)
                assert seen.episode.reward[t, n] == pytest.approx(one.reward, abs=1e-5)
                assert seen.episode.length[t, n] == len(one.costs)
                assert bool(seen.episode.truncated[t, n]) == cut
                running[n] = Running(begun_at_start(t + 1, n))
    return running


@pytest.mark.parametrize("exploring", [0.0, 0.4, 1.0])
def test_a_walk_is_recorded_step_by_step(exploring: float) -> None:
    """Three rollouts in a row: episodes run on from one to the next."""
    environment = Walk(max_steps=6, ending=0.15)
    first, last, rollout = rollouts(environment, WALK_CONSTRAINTS, jax.random.key(5), 12, 15, exploring, count=3)
    obs = np.append(np.asarray(rollout.obs), np.asarray(last.obs)[None], axis=0)
    running = follow(
        rollout,
        first,
        WALK_CONSTRAINTS,
        environment.spec.column_names,
        costs_of=lambda obs, action, after, ended: [(obs % 3 == 1) * 0.5, action * 0.25],
        reward_of=lambda obs, action, after: walk_reward(obs),
        begun_at_start=lambda t, n: obs[t, n] == 0,
        max_steps=6,
    )
    # Every episode begins at one of the two starts, and the next observation is the state before any reset.
    ended = np.asarray(rollout.terminated | rollout.truncated)
    assert set(obs[1:][ended]) <= {0, EXPLORED}
    assert len(set(obs[1:][ended])) == (2 if exploring == 0.4 else 1)
    np.testing.assert_array_equal(rollout.next_obs, rollout.obs + 1)
    # All kinds of ends happened, and the worker carries what is unfinished.
    assert rollout.truncated.any() and rollout.terminated.any()
    for n, one in enumerate(running):
        assert last.tally.length[n] == len(one.costs)
        assert bool(last.tally.from_start[n]) == one.from_start
        assert last.tally.reward[n] == pytest.approx(one.reward, abs=1e-5)
        np.testing.assert_allclose(last.tally.columns[n], np.sum(one.costs, axis=0) if one.costs else [0, 0], atol=1e-5)
    counted = np.asarray(rollout.episode.counted)[ended].mean()
    assert {0.0: counted == 1.0, 0.4: 0.4 < counted < 0.8, 1.0: counted == 0.0}[exploring]


def test_a_finite_environment_is_recorded_step_by_step() -> None:
    """The fork: which way an episode ended is seen from the sum of its columns."""
    environment = FiniteEnvironment.build(envs.tables("fork"), "fork", max_steps=4)
    constraints = (parse("P(crash) <= 0.1"), parse("sum(goal) >= 0.5"))
    first, _, rollout = rollouts(environment, constraints, jax.random.key(1), 48, 40, 0.0, actions=2)
    crashed = np.asarray(rollout.penalty[..., 0])
    position = {"t": 0, "n": 0}

    def costs_of(obs: int, action: int, after: int, ended: bool) -> list[float]:
        t, n = position["t"], position["n"]
        position["t"], position["n"] = ((t + 1) % 40, n + (t == 39))
        return [float(crashed[t, n]), float(ended and not crashed[t, n])]

    follow(
        rollout,
        first,
        constraints,
        environment.spec.column_names,
        costs_of=costs_of,
        reward_of=lambda obs, action, after: -0.1,
        begun_at_start=lambda t, n: True,
        max_steps=4,
    )
    # From the fork, a crash is possible on the bridge (state 1) only, the goal on the bridge and on the hill (state 4).
    obs, ended = np.asarray(rollout.obs), np.asarray(rollout.terminated)
    assert set(obs[crashed == 1.0]) == {1} and set(obs[ended & (crashed == 0.0)]) == {1, 4}
    assert rollout.truncated.any()


def test_the_mars_rover_is_recorded_step_by_step(tmp_path: Any) -> None:
    path = tmp_path / "map.txt"
    path.write_text("S.#.\n....\n#..G\n")
    settings = MarsRoverSettings(map=str(path), slip=0.2, step_reward=-0.01, goal_reward=0.5, max_steps=9)
    environment = MarsRover.build(settings)
    grid = environment.grid()
    constraints = (parse("P(crash) <= 0.1"), parse("P(goal) >= 0.5"), parse("mean(crash) <= 1"))
    first, last, rollout = rollouts(environment, constraints, jax.random.key(2), 10, 50, 0.5, count=2, actions=4)
    obs = np.append(np.asarray(rollout.obs), np.asarray(last.obs)[None], axis=0)
    counted = np.asarray(rollout.episode.counted)
    ended = np.asarray(rollout.terminated | rollout.truncated)

    def begun_at_start(t: int, n: int) -> bool:
        """As the end of the episode says it: what is not recorded is only whether a start was an exploring one."""
        ends = np.flatnonzero(ended[t:, n])
        return bool(counted[t + ends[0], n]) if len(ends) else bool(last.tally.from_start[n])

    follow(
        rollout,
        first,
        constraints,
        environment.spec.column_names,
        costs_of=lambda obs, action, after, ended: [float(grid.rock[after]), float(grid.goal[after])],
        reward_of=lambda obs, action, after: -0.01 + 0.5 * float(grid.goal[after]),
        begun_at_start=begun_at_start,
        max_steps=9,
    )
    np.testing.assert_array_equal(rollout.terminated, grid.terminal[np.asarray(rollout.next_obs)])
    # What counts began at the start; and what the worker stands on is never a rock or a goal.
    for t, n in np.argwhere(counted):
        begun = t - int(rollout.episode.length[t, n]) + 1
        assert obs[begun, n] == grid.start
    assert not grid.terminal[obs].any()
    assert rollout.truncated.any() and rollout.episode.columns[counted][:, 0].any()


def test_rollouts_follow_their_key() -> None:
    environment = Walk(max_steps=6, ending=0.15)
    same, again, other = (
        rollouts(environment, WALK_CONSTRAINTS, jax.random.key(seed), 12, 15, 0.4, count=3)[2] for seed in (5, 5, 6)
    )
    for left, right in zip(jax.tree.leaves(same), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(left, right)
    assert not np.array_equal(same.action, other.action)
    # Two rollouts in a row draw anew.
    assert not np.array_equal(same.action[:15], same.action[15:30])


def test_without_constraints_nothing_is_felt() -> None:
    environment = Walk(max_steps=6, ending=0.15)
    _, _, rollout = rollouts(environment, (), jax.random.key(5), 12, 15, 0.0)
    assert rollout.penalty.shape == (15, 12, 0) and rollout.episode.value.shape == (15, 12, 0)
    value, measured = measure((), rollout)
    assert value.shape == measured.shape == (0,)


def test_an_episode_that_ends_in_its_last_step_is_not_truncated() -> None:
    environment = Walk(max_steps=1, ending=0.5)

    @jax.jit
    def once() -> Any:
        worker = start(environment, (), jax.random.key(0), 64, 0.0)
        return advance(environment, (), worker, jnp.zeros(64, jnp.int32), jax.random.key(1), 0.0)

    _, step, _, episodes = once()
    assert step.terminated.any() and not step.terminated.all()
    np.testing.assert_array_equal(step.truncated, ~step.terminated)
    np.testing.assert_array_equal(episodes.counted, np.ones(64, bool))
    np.testing.assert_array_equal(step.obs, np.zeros(64))
    np.testing.assert_array_equal(step.next_obs, np.ones(64))


def test_measured_values_are_means_over_finished_episodes() -> None:
    environment = Walk(max_steps=6, ending=0.15)
    _, _, rollout = rollouts(environment, WALK_CONSTRAINTS, jax.random.key(5), 12, 15, 0.4, count=3)
    worth = [
        np.asarray(rollout.episode.value[t, n])
        for t in range(45)
        for n in range(12)
        if (rollout.terminated | rollout.truncated)[t, n] and rollout.episode.counted[t, n]
    ]
    value, measured = measure(WALK_CONSTRAINTS, rollout)
    assert measured.all() and len(worth) > 10
    np.testing.assert_allclose(value, np.mean(worth, axis=0), rtol=1e-5)


def test_no_finished_episode_no_measurement() -> None:
    """Zero of them, and zeros rather than anything that is not a number."""
    environment = Walk(max_steps=100, ending=0.0)
    _, _, rollout = rollouts(environment, WALK_CONSTRAINTS, jax.random.key(0), 3, 5, 0.0)
    value, measured = measure(WALK_CONSTRAINTS, rollout)
    assert not measured.any()
    np.testing.assert_array_equal(value, np.zeros(len(WALK_CONSTRAINTS)))


def test_measured_on_steps() -> None:
    """For mean(...) the average cost of all steps, for sum(...) that times the length; others on their episodes."""
    environment = Walk(max_steps=6, ending=0.15)
    texts = ("mean(turn) >= 0.2", "P(third) <= 1", "mean(turn) <= 0.3", "sum(turn) >= 2", "sum(turn > 0.25) <= 1")
    constraints = tuple(parse(text) for text in texts)
    _, _, rollout = rollouts(environment, constraints, jax.random.key(5), 12, 15, 0.4, count=3)
    value, measured = measure(constraints, rollout, jnp.float32(4.0))
    on_episodes, _ = measure(constraints, rollout)
    action = np.asarray(rollout.action)
    turn = 0.25 * action.mean()
    expected = [turn, on_episodes[1], turn, 4.0 * turn, 4.0 * (action > 1).mean()]
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert measured.all() and abs(on_episodes[0] - turn) > 1e-4, "episodes of different lengths average otherwise"


def test_steps_are_there_before_any_episode_has_ended() -> None:
    """Then mean(...) and sum(...) are measured, and what only episodes tell is not."""
    environment = Walk(max_steps=100, ending=0.0)
    _, _, rollout = rollouts(environment, WALK_CONSTRAINTS, jax.random.key(0), 3, 5, 0.0)
    value, measured = measure(WALK_CONSTRAINTS, rollout, jnp.float32(100.0))
    told = [constraint.quantity.startswith(("mean", "sum")) for constraint in WALK_CONSTRAINTS]
    np.testing.assert_array_equal(measured, told)
    third, turn = (np.asarray(rollout.obs) % 3 == 1) * 0.5, 0.25 * np.asarray(rollout.action)
    expected = [0.0, 100.0 * third.mean(), turn.mean(), 0.0, 0.0, 100.0 * (turn > 0.25).mean(), 0.0, 0.0]
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_first_episodes() -> None:
    environment = Walk(max_steps=6, ending=0.15)
    _, _, rollout = rollouts(environment, WALK_CONSTRAINTS, jax.random.key(5), 12, 15, 0.4, count=3)
    expected = np.zeros((45, 12), bool)
    for n in range(12):
        for t in range(45):
            expected[t, n] = True
            if rollout.terminated[t, n] or rollout.truncated[t, n]:
                break
    np.testing.assert_array_equal(first_episodes(rollout), expected)


def test_a_look_up_keeps_the_leading_axes() -> None:
    environment = envs.make_finite("fork")
    rng = np.random.default_rng(0)
    logits, values = rng.normal(size=(5, 2)).astype(np.float32), rng.normal(size=5).astype(np.float32)
    at = look(TabularActorCritic(jnp.asarray(logits), jnp.asarray(values)), environment, 10**6)
    obs = rng.integers(0, 5, size=(3, 4))
    found = at(jnp.asarray(obs))
    np.testing.assert_array_equal(found[0], logits[obs])
    np.testing.assert_array_equal(found[1], values[obs])
