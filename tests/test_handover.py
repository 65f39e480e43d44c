"""Which policy is handed over: the linear program by brute force, and whole hand-overs on a fork known exactly."""

from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcpo import envs, handover
from rcpo.config import EvaluationConfig
from rcpo.constraints import parse
from rcpo.evaluation import exact_value
from rcpo.handover import Candidate, best_mixture, closest, hand_over, margins
from rcpo.networks import TabularActorCritic

pytestmark = pytest.mark.usefixtures("quick_compile")

# One environment for all: each new one is compiled anew.
ENVIRONMENT = envs.make_finite("fork")
QUICK = EvaluationConfig(shortlist_episodes=4096, verdict_episodes=8192)
LIMITED = (parse("P(crash) <= 0.05"),)


def candidate(
    reward: float, *value: float, network: Any = None, greedy: bool = False, iteration: int = 0, careful: bool = False
) -> Candidate:
    spread = np.full(len(value), 0.5)
    return Candidate(iteration, network, greedy, 100, reward, np.array(value), spread, careful)


def certain(*actions: int) -> TabularActorCritic:
    """A policy on the fork that takes these actions."""
    return TabularActorCritic(60.0 * jnp.asarray(np.eye(2)[list(actions)], jnp.float32), jnp.zeros(5))


RUN, WALK, DETOUR = certain(0, 0, 0, 0, 0), certain(0, 1, 0, 0, 0), certain(1, 0, 0, 0, 0)
"""P(crash) and reward are (0.3, -0.2), (0.1, -0.3) and (0, -0.4): what `FORK` says of them is true."""
FORK = (
    candidate(-0.2, 0.3, network=RUN, iteration=1),
    candidate(-0.3, 0.1, network=WALK, iteration=2),
    candidate(-0.4, 0.0, network=DETOUR, iteration=3),
)


# The choice


def best_pair(rewards: np.ndarray, excess: np.ndarray, margin: float) -> float:
    """The largest reward of one candidate, or of two mixed so that the limit is just kept; -inf when there is none."""
    best = max((r for r, e in zip(rewards, excess, strict=True) if e <= -margin), default=-np.inf)
    for i, j in combinations(range(len(rewards)), 2):
        if (excess[i] + margin) * (excess[j] + margin) < 0:
            weight = (-margin - excess[j]) / (excess[i] - excess[j])
            best = max(best, weight * rewards[i] + (1 - weight) * rewards[j])
    return float(best)


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.booleans(), st.sampled_from([0.0, 0.05, 0.3]))
@settings(max_examples=100)
def test_the_best_mixture_is_the_best_pair(seed: int, count: int, at_least: bool, margin: float) -> None:
    rng = np.random.default_rng(seed)
    constraint = parse(f"sum(c) {'>=' if at_least else '<='} 0.4")
    pool = [candidate(reward, value) for reward, value in zip(rng.normal(size=count), rng.random(count), strict=True)]
    weights = best_mixture(pool, [constraint], np.array([margin]))
    rewards = np.array([one.reward for one in pool])
    excess = np.array([one.value[0] - 0.4 for one in pool]) * (-1 if at_least else 1)
    expected = best_pair(rewards, excess, margin)
    if weights is None:
        assert expected == -np.inf
        return
    assert weights.sum() == pytest.approx(1.0) and (weights >= 0).all() and np.count_nonzero(weights) <= 2
    assert weights @ excess <= -margin + 1e-6
    assert weights @ rewards == pytest.approx(expected, abs=1e-5)


def test_two_constraints_are_kept_together() -> None:
    """No mixture out of many drawn at random keeps both and is better."""
    rng = np.random.default_rng(5)
    constraints = [parse("sum(a) <= 0.4"), parse("sum(b) >= 0.5")]
    pool = [candidate(rng.normal(), *rng.random(2)) for _ in range(6)]
    weights = best_mixture(pool, constraints, np.array([0.02, 0.03]))
    assert weights is not None and np.count_nonzero(weights) <= 3
    value = np.array([one.value for one in pool])
    rewards = np.array([one.reward for one in pool])
    drawn = rng.dirichlet(np.full(6, 0.3), 200_000)
    kept = ((drawn @ value)[:, 0] <= 0.38) & ((drawn @ value)[:, 1] >= 0.53)
    assert kept.sum() > 100
    best = (drawn[kept] @ rewards).max()
    assert best - 1e-6 <= weights @ rewards <= best + 0.2
    assert (weights @ value)[0] <= 0.38 + 1e-6 and (weights @ value)[1] >= 0.53 - 1e-6


def test_without_constraints_the_best_alone() -> None:
    weights = best_mixture([candidate(1.0), candidate(3.0), candidate(2.0)], [], np.zeros(0))
    np.testing.assert_array_equal(weights, [0, 1, 0])


def test_the_closest_by_the_worst_violation_in_units_of_its_limit() -> None:
    constraints = [parse("sum(a) <= 2"), parse("sum(b) >= 0.5"), parse("sum(c) <= 0")]
    pool = [
        candidate(9.0, 4.0, 0.5, 0.0),  # a is twice its limit: 1
        candidate(0.0, 2.2, 0.3, 0.0),  # b lacks 0.2 of 0.5: 0.4
        candidate(0.0, 1.0, 0.9, 0.7),  # c has no unit but 1: 0.7
    ]
    np.testing.assert_array_equal(closest(pool, constraints), [0, 1, 0])
    np.testing.assert_array_equal(closest(pool[::2], constraints), [0, 1])


def test_of_those_equally_close_the_best() -> None:
    pool = [candidate(0.86, 0.0), candidate(0.94, 0.0), candidate(0.99, 0.02), candidate(0.9, 0.0)]
    np.testing.assert_array_equal(closest(pool, LIMITED), [0, 1, 0, 0])


def test_margins_are_standard_errors_of_the_verification() -> None:
    """1.96 standard errors for the interval itself, and so many more as the look says."""
    pool = [candidate(0.0, 0.5, 3.0), candidate(0.0, 0.5, 3.0)]
    constraints = [parse("P(a) <= 0.2"), parse("sum(b) <= 3")]
    found = margins(constraints, pool, episodes=10_000, confidence=0.95, extra=2.0)
    np.testing.assert_allclose(found, [(1.95996 + 2) * 0.4 / 100, (1.95996 + 2) * 0.5 / 100], rtol=1e-5)


@pytest.mark.parametrize(("text", "never"), [("P(a) <= 0.05", 0.0), ("P(a) >= 0.95", 1.0)])
def test_a_margin_leaves_room_for_what_never_happens(text: str, never: float) -> None:
    """Of 100 episodes, 5 % is about one standard error of 2.2 % away from 0: no policy could be further inside."""
    (constraint,) = constraints = [parse(text)]
    pool = [candidate(1.0, 0.5), candidate(3.0, never), candidate(2.0, never)]
    (margin,) = margins(constraints, pool, episodes=100, confidence=0.95, extra=2.0)
    assert margin == pytest.approx(0.05) and constraint.excess(never) <= -margin
    np.testing.assert_array_equal(best_mixture(pool, constraints, np.array([margin])), [0, 1, 0])


# Whole hand-overs


def test_the_fork_is_handed_over_near_its_optimum() -> None:
    """The LP walks and takes the detour half of the time each: 3.5 steps. What is verified keeps the limit in truth."""
    said: list[str] = []
    found = hand_over(ENVIRONMENT, LIMITED, FORK, QUICK, jax.random.key(0), said.append)
    truth = exact_value(ENVIRONMENT, found.policy)
    assert truth is not None
    assert found.verified and found.evaluation.satisfied
    assert truth.values["crash"] <= 0.05
    assert -0.365 <= truth.reward <= -0.35
    assert set(found.iterations) == {2, 3} and found.policy.components == 2
    assert len(said) == found.looks and "satisfied" in said[-1]


def test_a_lucky_measurement_is_not_believed() -> None:
    """The run looked as if it never crashed. Measured again it is not chosen, whatever the mixture would have been."""
    liars = (candidate(-0.2, 0.0, network=RUN, iteration=1), *FORK[1:])
    found = hand_over(ENVIRONMENT, LIMITED, liars, QUICK, jax.random.key(1))
    truth = exact_value(ENVIRONMENT, found.policy)
    assert truth is not None
    assert found.verified and truth.values["crash"] <= 0.05 and truth.reward >= -0.365


def test_what_was_measured_carefully_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    sample = handover.sample

    def counting(environment: Any, constraints: Any, policy: Any, episodes: int, key: Any) -> Any:
        counts.append(episodes)
        return sample(environment, constraints, policy, episodes, key)

    monkeypatch.setattr(handover, "sample", counting)
    hand_over(ENVIRONMENT, LIMITED, FORK, QUICK, jax.random.key(0))
    assert sorted(set(counts)) == [4096, 8192] and 2 <= counts.count(4096) <= 3


def test_a_limit_that_nobody_keeps() -> None:
    """The closest policy is handed over, and said to be unverified after every look that was allowed."""
    said: list[str] = []
    found = hand_over(ENVIRONMENT, LIMITED, FORK[:2], QUICK, jax.random.key(0), said.append)
    assert not found.verified and found.looks == QUICK.looks == len(said)
    assert found.iterations == (2,) and found.policy.components == 1
    assert found.evaluation.constraints[0].verdict == "violated"


def test_a_limit_of_zero_cannot_be_proved() -> None:
    """No number of episodes without a crash proves that there is none: the interval reaches above zero."""
    found = hand_over(ENVIRONMENT, (parse("P(crash) <= 0"),), FORK, QUICK, jax.random.key(0))
    assert not found.verified and found.iterations == (3,)
    assert found.evaluation.constraints[0].verdict == "undecided"


def test_no_promise_is_easily_kept() -> None:
    """Without constraints the best reward is handed over at the first look."""
    pool = tuple(candidate(one.reward, network=one.network, iteration=one.iteration) for one in FORK)
    found = hand_over(ENVIRONMENT, (), pool, QUICK, jax.random.key(0))
    assert found.verified and found.looks == 1 and found.iterations == (1,)


def test_a_lower_bound() -> None:
    """P(goal) >= 0.95 is P(crash) <= 0.05 on the fork."""
    pool = tuple(candidate(one.reward, 1 - one.value[0], network=one.network, iteration=one.iteration) for one in FORK)
    found = hand_over(ENVIRONMENT, (parse("P(goal) >= 0.95"),), pool, QUICK, jax.random.key(0))
    truth = exact_value(ENVIRONMENT, found.policy)
    assert truth is not None
    assert found.verified and truth.values["goal"] >= 0.95 and truth.reward >= -0.365


def test_without_mixtures_the_best_single_policy() -> None:
    config = EvaluationConfig(shortlist_episodes=4096, verdict_episodes=8192, mixture=False)
    found = hand_over(ENVIRONMENT, LIMITED, FORK, config, jax.random.key(0))
    assert found.verified and found.policy.components == 1 and found.iterations == (3,)


def test_greedy_candidates_act_greedily() -> None:
    """A network that prefers the detour only slightly is safe when its likeliest action is taken."""
    hesitant = TabularActorCritic(jnp.asarray([[0.0, 0.1]] * 5, jnp.float32), jnp.zeros(5))
    pool = [candidate(-0.4, 0.0, network=hesitant, greedy=greedy, iteration=int(greedy)) for greedy in (False, True)]
    config = EvaluationConfig(shortlist_episodes=4096, verdict_episodes=8192, mixture=False)
    found = hand_over(ENVIRONMENT, LIMITED, pool, config, jax.random.key(0))
    assert found.verified and found.iterations == (1,) and found.policy.greedy.tolist() == [True]


@pytest.mark.parametrize(("looks", "share"), [(1, 0.95), (4, 0.9875), (10, 0.995)])
def test_the_error_is_shared_among_the_looks(looks: int, share: float) -> None:
    """Whichever look succeeds, the statement as a whole has the confidence that was asked for."""
    config = EvaluationConfig(shortlist_episodes=4096, verdict_episodes=8192, looks=looks)
    found = hand_over(ENVIRONMENT, LIMITED, FORK, config, jax.random.key(0))
    assert found.confidence == 0.95
    assert found.evaluation.confidence == pytest.approx(share)
    assert found.looks <= looks
