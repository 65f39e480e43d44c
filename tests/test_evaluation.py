"""Sampled episodes against the exact value of the policy that played them."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Coin, Noise, ProbeCopies
from scipy import stats
from scipy.sparse import csr_array

from rcpo import envs, evaluation, exact
from rcpo.constraints import Constraint, parse
from rcpo.envs.base import JaxEnvironment
from rcpo.envs.finite import FiniteEnvironment
from rcpo.evaluation import Sample, evaluate_policy, exact_value, mean_interval, sample, summarise
from rcpo.exact import FiniteCMDP
from rcpo.networks import SeparateActorCritic, TabularActorCritic, separate_actor_critic
from rcpo.policy import Policy, mix, single

pytestmark = pytest.mark.usefixtures("quick_compile")

# One environment for all: each new one is compiled anew.
FORK = envs.make_finite("fork")
CRASH = (parse("P(crash) <= 0.05"), parse("sum(goal) >= 0.9"))


def table(seed: int) -> TabularActorCritic:
    logits = np.random.default_rng(seed).normal(size=(5, 2)).astype(np.float32)
    return TabularActorCritic(jnp.asarray(logits), jnp.zeros(5))


def certain(*actions: int) -> TabularActorCritic:
    """The policy that takes these actions, without doubt."""
    return TabularActorCritic(60.0 * jnp.asarray(np.eye(2)[list(actions)], jnp.float32), jnp.zeros(5))


SHORT_FORK = FiniteEnvironment.build(envs.tables("fork"), "fork", max_steps=4)
"""Capped so that the detour just ends and a long walk on the bridge is cut."""


def agrees(environment: JaxEnvironment, policy: Policy, drawn: Sample) -> None:
    """Means of thousands of episodes, each within four and a half standard errors of the truth."""
    truth = exact_value(environment, policy)
    assert truth is not None
    names = environment.spec.column_names
    for numbers, expected in (
        (drawn.reward, truth.reward),
        (drawn.length, truth.steps),
        (drawn.truncated, truth.truncated),
        (drawn.columns[:, names.index("crash")], truth.values["crash"]),
        (drawn.columns[:, names.index("goal")], truth.values["goal"]),
        (drawn.value[:, 0], truth.outcomes["crash"]),
        (drawn.value[:, 1], truth.outcomes["goal"]),
    ):
        error = numbers.std() / math.sqrt(len(numbers))
        assert abs(numbers.mean() - expected) < 4.5 * error + 1e-6


@pytest.mark.parametrize("environment", [FORK, SHORT_FORK], ids=["whole", "capped"])
def test_samples_agree_with_the_truth(environment: JaxEnvironment) -> None:
    policies = [
        single(table(3), greedy=False),
        single(table(3), greedy=True),
        mix([single(table(4), False), single(table(5), True)], [0.3, 0.7]),
    ]
    for seed, policy in enumerate(policies if environment is FORK else policies[2:]):
        agrees(environment, policy, sample(environment, CRASH, policy, 4096, jax.random.key(seed)))


def test_the_truth_of_a_policy_is_that_of_its_parts() -> None:
    """Written out with numpy for the capped fork: run with 1/4, else take the detour, which ends in the fourth step."""
    policy = mix([single(certain(0, 0, 0, 0, 0), False), single(certain(1, 0, 0, 0, 0), True)], [1.0, 3.0])
    truth = exact_value(SHORT_FORK, policy)
    assert truth is not None
    assert truth.values["crash"] == pytest.approx(0.25 * 0.3) and truth.steps == pytest.approx(0.25 * 2 + 0.75 * 4)
    assert truth.reward == pytest.approx(-0.1 * truth.steps) and truth.truncated == pytest.approx(0.0)


def test_one_component_for_a_whole_episode() -> None:
    """Drawn once: an episode of the detour has 4 steps, a run has 2; redrawn at every step there would be others."""
    policy = mix([single(certain(0, 0, 0, 0, 0), False), single(certain(1, 0, 0, 0, 0), False)], [0.4, 0.6])
    drawn = sample(FORK, CRASH, policy, 4096, jax.random.key(0))
    short, long = (drawn.length == 2).sum(), (drawn.length == 4).sum()
    assert short + long == 4096
    assert stats.binomtest(int(short), 4096, 0.4).pvalue > 0.001


def test_a_component_without_weight_never_plays() -> None:
    policy = mix([single(certain(0, 0, 0, 0, 0), False), single(certain(1, 0, 0, 0, 0), False)], [0.0, 1.0])
    assert (sample(FORK, CRASH, policy, 4096, jax.random.key(0)).length == 4).all()


@pytest.mark.parametrize("episodes", [16, 40])
def test_exactly_so_many_episodes(episodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "PARALLEL", 16)
    drawn = sample(SHORT_FORK, CRASH, single(table(3), False), episodes, jax.random.key(1))
    assert drawn.value.shape == (episodes, 2) and drawn.columns.shape == (episodes, 2)
    assert len(drawn.reward) == len(drawn.length) == len(drawn.truncated) == episodes
    # Whole episodes, each of them: as many steps as its reward says, and an end of one kind.
    np.testing.assert_allclose(drawn.reward, -0.1 * drawn.length, atol=1e-5)
    np.testing.assert_array_equal(drawn.columns.sum(axis=1), ~drawn.truncated)


def test_no_two_batches_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "PARALLEL", 16)
    drawn = sample(SHORT_FORK, CRASH, single(table(3), False), 48, jax.random.key(1))
    assert not np.array_equal(drawn.length[:16], drawn.length[16:32])
    again = sample(SHORT_FORK, CRASH, single(table(3), False), 48, jax.random.key(1))
    np.testing.assert_array_equal(drawn.length, again.length)


def test_every_functional_of_the_same_episodes() -> None:
    """One state that wears by 0.5 and ends with 1/3: all values follow from an episode's length."""
    tables = FiniteCMDP(
        transitions=csr_array(np.array([[2 / 3], [2 / 3]])),
        reward=np.full((1, 2), 1.0),
        columns={"wear": np.array([[0.5, 0.5]]), "goal": np.full((1, 2), 1 / 3)},
        initial=np.ones(1),
        outcomes={"goal": np.full((1, 2), 1 / 3)},
    )
    environment = FiniteEnvironment.build(tables, max_steps=6)
    texts = ("sum(wear) <= 1", "mean(wear) <= 1", "discounted(wear, 0.5) <= 1", "P(wear) <= 1", "P(goal) >= 0.5")
    policy = single(TabularActorCritic(jnp.zeros((1, 2)), jnp.zeros(1)), False)
    drawn = sample(environment, tuple(parse(text) for text in texts), policy, 2000, jax.random.key(0))
    length = drawn.length
    assert set(length) == {1, 2, 3, 4, 5, 6} and (length[drawn.truncated] == 6).all()
    ones = np.ones(2000)
    for k, expected in enumerate((0.5 * length, 0.5 * ones, 1 - 0.5**length, ones, 1.0 * ~drawn.truncated)):
        np.testing.assert_allclose(drawn.value[:, k], expected, rtol=1e-6)
    counts = np.bincount(length)[1:]
    expected_counts = 2000 * np.array([(2 / 3) ** t / 3 for t in range(5)] + [(2 / 3) ** 5])
    assert stats.chisquare(counts, expected_counts).pvalue > 0.001


def made_up(value: Any, columns: Any, length: Any) -> Sample:
    count = len(length)
    return Sample(
        np.asarray(value, float).reshape(count, -1),
        np.asarray(columns, float),
        -0.1 * np.asarray(length, float),
        np.asarray(length, int),
        np.asarray(columns, float).sum(axis=1) == 0,
    )


def test_a_summary_of_made_up_episodes() -> None:
    """Ten episodes: 2 crashes, 7 goals, 1 cut; the intervals are scipy's."""
    columns = [[1, 0]] * 2 + [[0, 1]] * 7 + [[0, 0]]
    length = [3, 5, 10, 12, 11, 10, 14, 9, 12, 20]
    constraints = (parse("P(crash) <= 0.6"), parse("sum(goal) >= 0.99"), parse("P(goal) >= 0.9"))
    value = [[crash, goal, goal] for crash, goal in columns]
    found = summarise(FORK, constraints, made_up(value, columns, length), 0.9)
    assert found.episodes == 10 and found.truncated == pytest.approx(0.1) and found.confidence == 0.9
    crash, goal_sum, goal = found.constraints
    exact_interval = stats.binomtest(2, 10).proportion_ci(0.9, "exact")
    assert crash.interval == pytest.approx((0.2, exact_interval.low, exact_interval.high), rel=1e-6)
    assert crash.verdict == "satisfied"
    goals = np.array([entry[1] for entry in columns], float)
    low, high = stats.t.interval(0.9, 9, loc=goals.mean(), scale=stats.sem(goals))
    assert goal_sum.interval == pytest.approx((0.7, low, high)) and goal_sum.verdict == "violated"
    assert goal.interval.value == pytest.approx(0.7) and goal.verdict == "undecided"
    assert found.success is not None and found.success == goal.interval
    assert found.steps.value == pytest.approx(np.mean(length))
    assert found.reward.value == pytest.approx(-0.1 * np.mean(length))
    assert found.steps_given_success is not None
    assert found.steps_given_success.value == pytest.approx(np.mean(length[2:9]))
    assert not found.satisfied


def test_a_promise_is_kept_only_if_every_part_is() -> None:
    columns, length = [[0, 1]] * 400, [4] * 200 + [5] * 200
    keeps, breaks, unsure = parse("P(crash) <= 0.05"), parse("P(crash) >= 0.5"), parse("P(crash) <= 0.001")
    verdicts: dict[tuple[Constraint, ...], bool] = {
        (): True,
        (keeps,): True,
        (breaks,): False,
        (unsure,): False,
        (keeps, breaks): False,
        (keeps, unsure): False,
        (keeps, keeps): True,
    }
    for constraints, kept in verdicts.items():
        drawn = made_up(np.zeros((400, len(constraints))), columns, length)
        assert summarise(FORK, constraints, drawn, 0.95).satisfied == kept


def test_nobody_reached_the_goal() -> None:
    found = summarise(FORK, (), made_up(np.zeros((3, 0)), [[1, 0]] * 3, [2, 2, 3]), 0.95)
    assert found.success is not None and found.success.value == 0.0
    assert found.steps_given_success is not None and math.isnan(found.steps_given_success.value)
    assert found.steps_given_success.low == -math.inf
    assert math.isnan(mean_interval(np.zeros(0), 0.95).value)


def test_a_run_of_evaluations_covers_the_truth() -> None:
    """Of 60 evaluations with 90 % intervals of an exactly known policy, no fewer than 45 hold the truth."""
    policy = single(table(3), False)
    truth = exact_value(FORK, policy)
    assert truth is not None
    held = {"crash": 0, "reward": 0}
    for seed in range(60):
        found = evaluate_policy(FORK, CRASH, policy, 4096, seed, confidence=0.9)
        crash = found.constraints[0].interval
        held["crash"] += crash.low <= truth.values["crash"] <= crash.high
        held["reward"] += found.reward.low <= truth.reward <= found.reward.high
    assert min(held.values()) >= 45 and held["reward"] < 60


def test_without_tables_there_is_no_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(exact_value(FORK, single(table(3), False)), exact.ExactValue)
    monkeypatch.setattr(FiniteEnvironment, "cmdp", lambda self: None)
    assert exact_value(FORK, single(table(3), False)) is None


# Environments on the host


def decided(action: int) -> SeparateActorCritic:
    """A network that takes one of two actions, without doubt."""
    network = separate_actor_critic(jax.random.key(0), 1, 2, (), 1.0, see=False)
    body = network.actor.body
    sure = eqx.tree_at(lambda body: body.layers[0].bias, body, 60.0 * jnp.eye(2)[action])
    return eqx.tree_at(lambda network: network.actor.body, network, sure)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[ProbeCopies]:
    """All live copies of coins that were opened, in turn."""
    copies: list[ProbeCopies] = []
    plain = Coin.open

    def remember(self: Coin, count: int, parts: int = 1) -> ProbeCopies:
        copies.append(plain(self, count, parts))
        return copies[-1]

    monkeypatch.setattr(Coin, "open", remember)
    return copies


@pytest.mark.parametrize(("episodes", "side_by_side"), [(5, False), (64, False), (150, True)])
def test_of_each_copy_the_first_episodes(episodes: int, side_by_side: bool, opened: list[ProbeCopies]) -> None:
    """Exactly so many, shared out evenly, in the order in which each copy played them."""
    policy = single(decided(1), False)
    drawn = sample(Coin(side_by_side=side_by_side), (), policy, episodes, jax.random.key(1))
    played = [lengths for copies in opened for lengths in copies.lengths]
    assert len(opened) == 1 + side_by_side and len(played) == min(episodes, 64)
    each, more = divmod(episodes, len(played))
    expected = [length for n, lengths in enumerate(played) for length in lengths[: each + (n < more)]]
    assert drawn.length.tolist() == expected and len(expected) == episodes
    np.testing.assert_array_equal(drawn.reward, drawn.length)
    np.testing.assert_array_equal(drawn.columns, np.stack([(drawn.length == 60) * 60, drawn.length], axis=1))
    assert not drawn.truncated.any()


def test_short_episodes_are_no_likelier_to_be_seen() -> None:
    """A coin makes an episode 2 or 60 steps long: 31 in the mean. The first 512 to end would be short nearly all."""
    constraints = (parse("P(long) <= 0.6"), parse("mean(chosen) >= 0.9"))
    drawn = sample(Coin(), constraints, single(decided(1), False), 512, jax.random.key(2))
    long = int((drawn.length == 60).sum())
    assert set(drawn.length) == {2, 60} and stats.binomtest(long, 512, 0.5).pvalue > 0.001
    assert drawn.length.mean() == pytest.approx(31.0, abs=4.5 * 29 / math.sqrt(512))
    np.testing.assert_array_equal(drawn.value, np.stack([drawn.length == 60, np.ones(512)], axis=1))


def test_networks_on_the_host_are_mixed_as_their_weights_say() -> None:
    """One network for a whole episode: of the actions in one all are alike."""
    policy = mix([single(decided(0), False), single(decided(1), True)], [0.3, 0.7])
    drawn = sample(Coin(), (), policy, 400, jax.random.key(3))
    share = drawn.columns[:, 1] / drawn.length
    assert set(share) == {0.0, 1.0} and len(share) == 400
    assert stats.binomtest(int(share.sum()), 400, 0.7).pvalue > 0.001
    # A component without weight never plays.
    alone = mix([single(decided(0), False), single(decided(1), False)], [0.0, 1.0])
    drawn = sample(Coin(), (), alone, 40, jax.random.key(3))
    np.testing.assert_array_equal(drawn.columns[:, 1], drawn.length)


def test_an_episode_that_broke_down_is_played_again() -> None:
    """Of those that did not, the shares are what they are among all: 6 steps at most, cut or ended with 0.12 a step."""
    network = separate_actor_critic(jax.random.key(0), 2, Noise.actions, (4,), 0.5, see=False)
    drawn = sample(Noise(), (), single(network, False), 600, jax.random.key(4))
    assert len(drawn.length) == 600 and set(drawn.length) == {1, 2, 3, 4, 5, 6}
    # A sound step goes on with (1 - 0.12) (1 - 0.06); it ends, not broken, with 0.12 (1 - 0.06).
    goes_on, ends = 0.88 * 0.94, 0.12 * 0.94
    likely = np.array([goes_on**t * ends for t in range(5)] + [goes_on**5 * 0.94])
    assert stats.chisquare(np.bincount(drawn.length)[1:], 600 * likely / likely.sum()).pvalue > 0.001


def test_the_same_key_the_same_episodes_on_the_host() -> None:
    policy = single(separate_actor_critic(jax.random.key(0), 2, Noise.actions, (4,), 0.5, see=False), False)
    same, again, other = (sample(Noise(), (), policy, 30, jax.random.key(seed)).reward for seed in (0, 0, 1))
    np.testing.assert_array_equal(same, again)
    assert not np.array_equal(same, other)


def test_the_likeliest_action_of_a_gaussian_is_its_mean() -> None:
    """Cost `push` is the action itself: with the network's mean 0 that is the middle of the box, 1, at every step."""
    network = separate_actor_critic(jax.random.key(0), 2, Noise.actions, (), 0.5, see=False)
    still = eqx.tree_at(lambda n: n.actor.body.layers[0].weight, network, jnp.zeros((2, 2)))
    greedy = sample(Noise(), (parse("mean(push) <= 1"),), single(still, True), 50, jax.random.key(0))
    np.testing.assert_allclose(greedy.value[:, 0], np.ones(50), rtol=1e-6)
    drawn = sample(Noise(), (parse("mean(push) <= 1"),), single(still, False), 50, jax.random.key(0))
    assert drawn.value[:, 0].std() > 0.1
