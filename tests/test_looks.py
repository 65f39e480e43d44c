"""Verification along the way: when it looks, at whom, what it remembers, and how often it is wrong."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learners import QUICK
from probes import Effort
from scipy.stats import binom

from rcpo import envs, handover, looks
from rcpo.config import EvaluationConfig, MultiplierConfig, TrainConfig
from rcpo.constraints import parse
from rcpo.errors import UsageError
from rcpo.evaluation import Evaluation, Sample, summarise
from rcpo.handover import Candidate, Handover, error_per_look, hand_over
from rcpo.looks import Look, choose, due, look_along_the_way, looks_record, verified_so_far
from rcpo.run import Run, train
from rcpo.schedules import Schedule

pytestmark = pytest.mark.usefixtures("quick_compile")

ENVIRONMENT = envs.make_finite("fork")
LIMIT = 0.3
LIMITED = (parse(f"P(crash) <= {LIMIT}"),)
CONFIG = EvaluationConfig(points=16, episodes=64, shortlist_episodes=150, verdict_episodes=150, training_looks=8)


def candidate(chance: float, reward: float, value: float, episodes: int = 64, iteration: int = 0) -> Candidate:
    """A policy that crashes with this chance, and what its few episodes said."""
    network = {"chance": np.float32(chance)}
    return Candidate(iteration, network, False, episodes, reward, np.array([value]), np.array([0.3]))


def drawn(rng: np.random.Generator, chance: float, reward: float, episodes: int) -> Sample:
    crashed = (rng.random(episodes) < chance).astype(float)
    nothing = np.zeros(episodes)
    return Sample(
        crashed[:, None], np.zeros((episodes, 2)), nothing + reward, nothing.astype(int) + 3, np.zeros(episodes, bool)
    )


class Coins:
    """Stands for `sample`: a policy is no more than its chance to crash, and pays the more the bolder it is."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.episodes: list[int] = []

    def __call__(self, environment: Any, constraints: Any, policy: Any, episodes: int, key: Any) -> Sample:
        self.episodes.append(episodes)
        chance = float(np.asarray(policy.networks["chance"]) @ np.asarray(policy.weights))
        return drawn(self.rng, chance, chance, episodes)


def flip(monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> Coins:
    coins = Coins(seed)
    monkeypatch.setattr(looks, "sample", coins)
    monkeypatch.setattr(handover, "sample", coins)
    return coins


def judged(chance: float, reward: float, seed: int = 0) -> Evaluation:
    return summarise(ENVIRONMENT, LIMITED, drawn(np.random.default_rng(seed), chance, reward, 400), 0.95)


LOOK = json.loads(json.dumps(looks.to_document((Look(3, judged(0.05, 1.0)),))))[0]

# When and at whom


def test_looks_fall_due_evenly_and_never_more_than_were_planned() -> None:
    config = replace(CONFIG, training_looks=4)
    assert [due(config, point, 10) for point in range(1, 11)] == [0, 0, 1, 1, 2, 2, 2, 3, 3, 4]
    assert [due(replace(config, training_looks=0), point, 10) for point in (1, 10)] == [0, 0]


def test_the_best_of_those_that_seem_to_keep_the_limit_is_chosen() -> None:
    pool = [
        candidate(0.6, 9.0, 0.6),  # breaks the limit
        candidate(0.0, 1.0, 0.0),
        candidate(0.0, 2.0, 0.0),
        candidate(0.0, 3.0, 0.27),  # inside the limit, but 64 episodes cannot tell
        candidate(0.0, 8.0, 0.0, episodes=0),  # nothing is known of it
    ]
    assert choose(pool, LIMITED, (), 0.95) == 2
    assert choose(pool, LIMITED, (Look(2, judged(0.0, 2.0)),), 0.95) is None  # verified: nobody is better
    assert choose(pool, LIMITED, (Look(2, judged(0.5, 2.0)),), 0.95) == 1  # failed: the next one
    assert choose(pool[:1], LIMITED, (), 0.95) is None


def test_a_look_costs_the_shortlists_episodes_and_nobody_is_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    coins = flip(monkeypatch)
    pool = [candidate(0.0, 1.0, 0.0), candidate(0.01, 0.5, 0.0)]
    seen: tuple[Look, ...] = ()
    said: list[str] = []
    for point in range(1, 9):
        seen = look_along_the_way(ENVIRONMENT, LIMITED, pool, seen, CONFIG, 0, point, 8, said.append)
        assert len(seen) <= due(CONFIG, point, 8)
    assert [look.candidate for look in seen] == [0, 1]  # measured again the first is worth 0, so the second is better
    assert coins.episodes == [150, 150] and all(one.careful and one.episodes == 150 for one in pool)
    assert len(said) == 2 and said[0].startswith("look 1 of 8 along the way: verified; reward")
    assert all(look.evaluation.confidence == pytest.approx(1 - 0.05 / 12) for look in seen)


def test_the_looks_survive_json() -> None:
    seen = (Look(3, judged(0.05, 1.0)), Look(0, judged(0.5, 2.0)))
    document = json.loads(json.dumps(looks.to_document(seen)))
    assert looks.from_document(document, LIMITED, 4, Path("here")) == seen


@pytest.mark.parametrize(
    ("document", "candidates"),
    [
        (None, 4),
        (7, 4),
        ("looks", 4),
        ({"candidate": 0}, 4),
        ([None], 4),
        ([{}], 4),
        ([{"candidate": 0}], 4),
        ([LOOK | {"candidate": 0.5}], 4),
        ([LOOK | {"candidate": True}], 4),
        ([LOOK | {"candidate": "0"}], 4),
        ([LOOK | {"candidate": -1}], 4),
        ([LOOK], 3),
        ([LOOK | {"candidate": 10**400}], 4),
        ([LOOK | {"reward": 1.0}], 4),
        ([LOOK | {"reward": {"mean": "nan", "low": 0.0, "high": 0.0}}], 4),
        ([LOOK | {"episodes": 1e999}], 4),
        ([LOOK | {"constraints": []}], 4),
        ([LOOK | {"constraints": LOOK["constraints"] * 2}], 4),
        ([LOOK | {"constraints": [LOOK["constraints"][0] | {"verdict": "perhaps"}]}], 4),
        ([LOOK | {"distributions": [1]}], 4),
        ([LOOK | {"distributions": 1}], 4),
    ],
)
def test_looks_that_are_none_are_refused(document: Any, candidates: int) -> None:
    assert looks.from_document([LOOK], LIMITED, 4, Path("here"))
    with pytest.raises(UsageError, match="'here' does not hold this run"):
        looks.from_document(document, LIMITED, candidates, Path("here"))


def test_what_a_record_says() -> None:
    assert looks_record(()) == {}
    assert looks_record((Look(0, judged(0.5, 2.0)),)) == {"looks": 1, "verified/reward": None}
    both = looks_record((Look(0, judged(0.5, 2.0)), Look(1, judged(0.0, -1.5))))
    assert both == {"looks": 2, "verified/reward": -1.5}


# What is handed over


def handed(monkeypatch: pytest.MonkeyPatch, pool: list[Candidate], known: Handover | None, spent: int) -> Handover:
    flip(monkeypatch)
    return hand_over(ENVIRONMENT, LIMITED, pool, CONFIG, jax.random.key(0), spent=spent, verified=known)


def test_the_better_of_what_was_verified_along_the_way_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    bold, tame = candidate(0.02, 5.0, 0.02, iteration=1), candidate(0.0, 0.001, 0.0, iteration=2)
    for reward, best in ((5.0, (1,)), (-1.0, (2,))):
        known = verified_so_far([bold, tame], (Look(0, judged(0.02, reward)),), CONFIG)
        assert known is not None and known.verified and known.iterations == (1,)
        found = handed(monkeypatch, [tame], known, 1)
        assert found.verified and found.iterations == best and found.looks == 2


def test_what_was_verified_along_the_way_stays_verified_when_the_end_proves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bold = candidate(0.5, 5.0, 0.5, iteration=2)
    known = verified_so_far([candidate(0.0, 1.0, 0.0, iteration=1)], (Look(0, judged(0.0, 1.0)),), CONFIG)
    found = handed(monkeypatch, [bold], known, 1)
    assert found.verified and found.iterations == (1,) and found.looks == 1 + CONFIG.looks
    assert verified_so_far([bold], (Look(0, judged(0.5, 1.0)),), CONFIG) is None


# How often it is wrong


def test_the_errors_of_all_looks_add_up_to_the_whole() -> None:
    """Whatever was used along the way; what was not is left to the end. Without looks along the way nothing changes."""
    for spent in range(9):
        total = spent * error_per_look(CONFIG) + CONFIG.looks * error_per_look(CONFIG, spent)
        assert total == pytest.approx(0.05)
    assert error_per_look(EvaluationConfig(), 0) == (1 - 0.95) / 4


def whole_run(rng: np.random.Generator, chance: float) -> bool:
    """Candidates come one by one, each with a lucky or unlucky first measurement; whether any is called verified."""
    pool: list[Candidate] = []
    seen: tuple[Look, ...] = ()
    for point in range(1, CONFIG.points + 1):
        luck = rng.binomial(CONFIG.episodes, 0.4 * LIMIT) / CONFIG.episodes
        pool.append(candidate(chance, rng.normal(), luck, iteration=point))
        seen = look_along_the_way(ENVIRONMENT, LIMITED, pool, seen, CONFIG, 0, point, CONFIG.points)
    known = verified_so_far(pool, seen, CONFIG)
    return hand_over(ENVIRONMENT, LIMITED, pool, CONFIG, jax.random.key(0), spent=len(seen), verified=known).verified


def wrong(monkeypatch: pytest.MonkeyPatch, runs: int) -> int:
    """How many of so many runs verify a policy, where all policies crash just more often than they may."""
    flip(monkeypatch, seed=7)
    rng = np.random.default_rng(8)
    return sum(whole_run(rng, LIMIT + 1e-9) for _ in range(runs))


@pytest.mark.slow
def test_a_policy_that_breaks_its_limit_is_called_verified_in_five_runs_of_a_hundred_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole procedure, looks along the way and at the end, on policies at the edge; and what sharing is good for:
    with the whole error at every look the same procedure would be wrong far too often."""
    runs = 200
    most = binom.ppf(0.999, runs, 0.05)
    assert wrong(monkeypatch, runs) <= most
    monkeypatch.setattr(handover, "error_per_look", lambda config, spent=None: 0.05)
    monkeypatch.setattr(looks, "error_per_look", lambda config, spent=None: 0.05)
    assert wrong(monkeypatch, runs) > most


def test_a_policy_that_keeps_its_limit_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same procedure finds what is there."""
    flip(monkeypatch, seed=7)
    rng = np.random.default_rng(9)
    assert sum(whole_run(rng, 0.1) for _ in range(20)) >= 18


# Whole runs


SETTINGS = TrainConfig(
    constraints=("mean(cost) <= 0.3",),
    steps=64 * 4 * 30,
    learner=QUICK,
    multipliers=MultiplierConfig(step_size=Schedule(0.5)),
    evaluation=EvaluationConfig(points=6, episodes=0, shortlist_episodes=64, verdict_episodes=64, looks=1),
)


def effort(training_looks: int) -> Run:
    evaluation = replace(SETTINGS.evaluation, training_looks=training_looks)
    return train(Effort(), config=replace(SETTINGS, evaluation=evaluation))


def test_looks_along_the_way_change_nothing_that_is_learned() -> None:
    without, with_looks = effort(0), effort(3)
    assert with_looks.records[-1]["looks"] >= 1 and "looks" not in without.records[-1]
    for one, two in zip(without.records, with_looks.records, strict=True):
        same = {key for key in one if not key.startswith("time/")}
        assert {key: one[key] for key in same} == {key: two[key] for key in same}
    assert with_looks.best is not None and with_looks.handover.looks >= 2
    value = with_looks.evaluate(2000, seed=5).constraints[0].interval.value
    assert value <= 0.3


def test_a_number_of_looks_below_zero_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^got -1 for training_looks; give a number that is not negative$"):
        EvaluationConfig(training_looks=-1)


def test_the_policy_of_a_look_is_the_candidates() -> None:
    known = verified_so_far([candidate(0.0, 1.0, 0.0, iteration=4)], (Look(0, judged(0.0, 1.0)),), CONFIG)
    assert known is not None and known.iterations == (4,) and known.confidence == 0.95 and known.looks == 1
    np.testing.assert_array_equal(known.policy.networks["chance"], jnp.zeros(1))
