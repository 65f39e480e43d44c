"""Collecting on the host, checked step by step by a slow loop over what the copies themselves said."""

from collections.abc import Mapping
from typing import Any, final

import jax
import numpy as np
import pytest
from probes import Choice, Clock, Noise
from threadpoolctl import threadpool_info, threadpool_limits

from rcpo import host
from rcpo.constraints import Constraint, parse
from rcpo.envs.base import Box, HostCopies
from rcpo.types import EnvStep, Rollout, Worker

pytestmark = pytest.mark.usefixtures("quick_compile")

CONSTRAINTS = tuple(
    parse(text)
    for text in (
        "mean(push) <= 0.25",
        "sum(push) >= 1",
        "discounted(push, 0.9) <= 2",
        "P(touch) <= 0.5",
        "P(push) >= 0.1",
        "sum(push > 0.5) <= 3",
        "P(push < -0.5) <= 0.5",
        "mean(touch < 1) >= 0.5",
        "max(push) <= 1",
        "max(push <= 0.25) >= 1",
    )
)
STEPS, BATCH = 11, 7
SAID = ("obs", "next_obs", "reward", "costs", "terminated", "truncated", "faulty")


@final
class Witness(HostCopies):
    """Live copies, with all that went in and came out of them kept."""

    def __init__(self, copies: HostCopies):
        self.copies, self.taken, self.said = copies, [], []  # type: ignore[var-annotated]

    @property
    def count(self) -> int:
        return self.copies.count

    def reset(self, seed: int | tuple[int, ...], spread: bool = False) -> np.ndarray:
        self.first = self.copies.reset(seed, spread).copy()
        return self.first

    def step(self, action: np.ndarray) -> EnvStep:
        step = self.copies.step(action)
        self.taken.append(action.copy())
        self.said.append({name: np.array(getattr(step, name)) for name in SAID})
        return step

    def save(self) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def restore(self, saved: Mapping[str, np.ndarray]) -> np.ndarray:
        raise NotImplementedError


def act(obs: np.ndarray, noise: np.ndarray) -> Any:
    """A policy that hangs on what it sees, on the noise, and on each copy alike."""
    return np.tanh(obs) + noise


def collected(crews: tuple[int, ...], spread: bool, rollouts: int = 4) -> tuple[list[Witness], Worker, list[Rollout]]:
    """Rollouts in a row from crews of these sizes, and the witnesses of each."""
    environment = Noise()
    witnesses = [Witness(environment.open(size)) for size in crews]
    worker = host.begin(tuple(witnesses), environment.spec, CONSTRAINTS, 3, spread)
    noise = np.random.default_rng(8).normal(size=(rollouts, STEPS, sum(crews), 2)).astype(np.float32)
    parts = []
    for part in noise:
        worker, rollout = host.collect(tuple(witnesses), environment.spec, CONSTRAINTS, act, part, worker)
        parts.append(rollout)
    return witnesses, worker, parts


def value(constraint: Constraint, costs: list[float]) -> float:
    """What an episode is worth, written out anew."""
    return {
        "mean": np.mean(costs),
        "sum": np.sum(costs),
        "discounted": sum(0.9**t * cost for t, cost in enumerate(costs)),
        "P": float(max(costs) > 0),
        "max": max(costs),
    }[constraint.quantity.split("(")[0]]


HAPPENS = {"push > 0.5": lambda c: c > 0.5, "push < -0.5": lambda c: c < -0.5, "touch < 1": lambda c: c < 1,
           "push <= 0.25": lambda c: c <= 0.25}  # fmt: skip


def paid(constraint: Constraint, cost: float) -> float:
    """What counts of a cost: where there is an event, whether it happens."""
    inside = constraint.quantity.split("(")[1].split(",")[0].rstrip(")")
    return float(HAPPENS[inside](np.float32(cost))) if inside in HAPPENS else cost


def felt(constraint: Constraint, costs: list[float]) -> float:
    """What the last of these costs is to the learner."""
    cost = costs[-1]
    if constraint.is_probability:
        cost = float(cost > 0 and not any(before > 0 for before in costs[:-1]))
    if constraint.quantity.startswith("max"):
        cost = max(costs) - (max(costs[:-1]) if costs[:-1] else 0.0)
    return -cost if constraint.at_least else cost


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("crews", [(BATCH,), (4, 3)], ids=["one crew", "two crews"])
def test_rollouts_in_a_row_are_recorded_step_by_step(crews: tuple[int, ...], spread: bool) -> None:
    witnesses, worker, parts = collected(crews, spread)
    seen: Any = jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *parts)
    steps = STEPS * len(parts)
    noise = np.random.default_rng(8).normal(size=(len(parts), STEPS, BATCH, 2)).astype(np.float32)
    noise = noise.reshape(steps, BATCH, 2)
    happened = {"whole": 0, "cut": 0, "broken": 0, "uncounted": 0}
    n = 0
    for witness in witnesses:
        for mine in range(witness.count):
            obs = witness.first[mine].astype(np.float32)
            costs: list[np.ndarray] = []
            reward, from_start = 0.0, not spread
            for t in range(steps):
                said = {name: array[mine] for name, array in witness.said[t].items()}
                np.testing.assert_array_equal(seen.obs[t, n], obs)
                np.testing.assert_array_equal(seen.next_obs[t, n], said["next_obs"].astype(np.float32))
                action = np.tanh(obs) + noise[t, n]
                np.testing.assert_allclose(seen.action[t, n], action, rtol=1e-6)
                # The box is [-1, 3] x [0, 0.5]: its middle and half its width, and never beyond.
                expected = np.clip(np.array([1.0, 0.25]) + np.array([2.0, 0.25]) * action, [-1, 0], [3, 0.5])
                np.testing.assert_allclose(witness.taken[t][mine], expected, rtol=1e-5, atol=1e-6)
                costs.append(said["costs"])
                reward += said["reward"]
                by_constraint = [[paid(c, cost[int(c.column == "touch")]) for cost in costs] for c in CONSTRAINTS]
                pairs = list(zip(CONSTRAINTS, by_constraint, strict=True))
                np.testing.assert_allclose(seen.penalty[t, n], [felt(*pair) for pair in pairs], rtol=1e-5, atol=1e-6)
                assert seen.reward[t, n] == pytest.approx(said["reward"], rel=1e-6)
                assert seen.terminated[t, n] == said["terminated"] and seen.truncated[t, n] == said["truncated"]
                ended = bool(said["terminated"] or said["truncated"])
                counted = ended and from_start and not said["faulty"]
                assert seen.episode.counted[t, n] == counted
                if ended:
                    worth = [value(*pair) for pair in pairs]
                    np.testing.assert_allclose(seen.episode.value[t, n], worth, rtol=1e-5, atol=1e-5)
                    np.testing.assert_allclose(seen.episode.columns[t, n], np.sum(costs, axis=0), rtol=1e-5, atol=1e-5)
                    assert seen.episode.reward[t, n] == pytest.approx(reward, abs=1e-5)
                    assert seen.episode.length[t, n] == len(costs)
                    assert seen.episode.truncated[t, n] == said["truncated"]
                    kind = "broken" if said["faulty"] else "cut" if said["truncated"] else "whole"
                    happened[kind] += 1
                    happened["uncounted"] += not counted
                    costs, reward, from_start = [], 0.0, True
                obs = said["obs"].astype(np.float32)
            # What is unfinished goes on with the worker.
            np.testing.assert_array_equal(worker.obs[n], obs)
            assert worker.tally.length[n] == len(costs) and bool(worker.tally.from_start[n]) == from_start
            assert worker.tally.reward[n] == pytest.approx(reward, abs=1e-5)
            n += 1
    assert n == BATCH and min(happened.values()) > 0
    assert happened["uncounted"] == happened["broken"] + spread * happened_first(witnesses)


def happened_first(witnesses: list[Witness]) -> int:
    """The copies whose first episode, cut short from the start, ended without breaking down."""
    sound = 0
    for witness in witnesses:
        for n in range(witness.count):
            ends = [said for said in witness.said if said["terminated"][n] or said["truncated"][n]]
            sound += not ends[0]["faulty"][n]
    return sound


def test_spread_starts_end_one_by_one() -> None:
    """Without it all copies of a task of fixed length end in the same step, for ever."""
    ends = {}
    for spread in (False, True):
        environment = Clock(max_steps=8)
        with host.crews_of(environment, 16) as crews:
            worker = host.begin(crews, environment.spec, (), 0, spread)
            noise = np.zeros((16, 16, 1), np.float32)
            _, rollout = host.collect(crews, environment.spec, (), lambda obs, noise: noise, noise, worker)
        ends[spread] = np.asarray(rollout.truncated)
        # Every copy ends once in 8 steps, whenever it began; only the first episode may be short, and does not count.
        np.testing.assert_array_equal(ends[spread][:8], ends[spread][8:])
        np.testing.assert_array_equal(ends[spread][:8].sum(axis=0), np.ones(16))
        np.testing.assert_array_equal(np.asarray(rollout.episode.counted)[:8], ends[spread][:8] * (not spread))
        np.testing.assert_array_equal(np.asarray(rollout.episode.counted)[8:], ends[spread][8:])
        np.testing.assert_array_equal(np.asarray(rollout.episode.length)[8:][ends[spread][8:]], np.full(16, 8))
    assert len(np.unique(ends[False][:8].argmax(axis=0))) == 1
    assert len(np.unique(ends[True][:8].argmax(axis=0))) > 4


def test_crews_share_the_copies() -> None:
    for copies, sizes in ((1, [1]), (2, [1, 1]), (7, [4, 3]), (64, [32, 32])):
        with host.crews_of(Noise(side_by_side=True), copies) as crews:
            assert [crew.count for crew in crews] == sizes
        with host.crews_of(Noise(), copies) as crews:
            assert [crew.count for crew in crews] == [copies]


def test_crews_draw_from_streams_of_their_own() -> None:
    environment = Noise(side_by_side=True)
    with host.crews_of(environment, 8) as crews:
        first, again, other = (host.begin(crews, environment.spec, (), seed, False).obs for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(np.concatenate([first, other]), axis=0)) == 16


def test_a_policys_unit_is_half_of_each_motors_range() -> None:
    box = Box((-1.0, 0.0, -0.4), (3.0, 0.5, 0.4))
    action = np.array([[0.0, 0.0, 0.0], [1.0, -1.0, 0.5], [-7.0, 7.0, -1.01]], np.float32)
    expected = [[1.0, 0.25, 0.0], [3.0, 0.0, 0.2], [-1.0, 0.5, -0.4]]
    np.testing.assert_allclose(host.in_range(box, action), expected, rtol=1e-6)
    choices = np.array([2, 0], np.int32)
    assert host.in_range(3, choices) is choices


def test_choices_come_as_numbers_and_without_constraints_nothing_is_felt() -> None:
    environment = Choice()
    with host.crews_of(environment, 5) as crews:
        worker = host.begin(crews, environment.spec, (), 0, False)
        noise = np.random.default_rng(0).normal(size=(4, 5, 3)).astype(np.float32)
        _, rollout = host.collect(crews, environment.spec, (), lambda obs, noise: noise.argmax(axis=1), noise, worker)
    np.testing.assert_array_equal(rollout.action, noise.argmax(axis=2))
    np.testing.assert_array_equal(rollout.reward, np.asarray(rollout.obs).argmax(axis=2) == noise.argmax(axis=2))
    assert rollout.penalty.shape == (4, 5, 0) and rollout.episode.counted.all()


def test_while_copies_live_linear_algebra_keeps_to_one_thread() -> None:
    """Else its threads spin on the cores that step the physics, and how many they are decides the last bits."""

    def threads() -> list[int]:
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        assert threads() and set(threads()) == {2}
        with host.crews_of(Clock(), 2):
            assert set(threads()) == {1}
        assert set(threads()) == {2}
