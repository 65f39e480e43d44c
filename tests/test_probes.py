"""What PPO learns on the host, on tasks small enough that the answer is known in closed form."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Alive, Choice, Clock, Effort, Probe, Target, TwoSteps

import rcpo
from rcpo.config import EvaluationConfig, LearnerConfig, MultiplierConfig, PPOConfig, TrainConfig
from rcpo.networks import SeparateActorCritic
from rcpo.run import Run
from rcpo.schedules import Schedule

pytestmark = pytest.mark.usefixtures("quick_compile")

PLAIN = LearnerConfig(
    algorithm="ppo",
    environments=64,
    rollout_steps=4,
    actor_step_size=Schedule(1e-2, "linear"),
    critic_step_size=Schedule(1e-2, "linear"),
    optimiser="adam",
    entropy=Schedule(0.0),
    discount=0.9,
    gae_decay=0.95,
    normalise_advantage=True,
    ppo=PPOConfig(
        epochs=4,
        minibatches=4,
        hidden=(16,),
        initial_std=0.5,
        normalise_observations=False,
        normalise_rewards=False,
    ),
)
EVALUATION = EvaluationConfig(
    points=1, episodes=0, shortlist_episodes=64, verdict_episodes=1024, looks=1, mixture=False
)


def trained(environment: Probe, learner: LearnerConfig, iterations: int, points: int = 1, **settings: Any) -> Run:
    config = TrainConfig(
        **{"constraints": ()} | settings,
        steps=iterations * learner.environments * learner.rollout_steps,
        learner=learner,
        evaluation=replace(EVALUATION, points=points),
    )
    return rcpo.train(environment, config=config)


def network_of(run: Run) -> SeparateActorCritic:
    return jax.tree.map(lambda leaf: leaf[0], run.policy.networks)


# Without constraints


def test_a_target_is_found() -> None:
    """In units of half the range, 2, around its middle, 1, the target is 0.4 of what is seen; the noise dies out."""
    network = network_of(trained(Target(), PLAIN, 60))
    seen = jnp.linspace(-1.0, 1.0, 9)[:, None]
    np.testing.assert_allclose(network.distribution(seen).mode(), 0.4 * seen, atol=0.04)
    assert network.actor.log_std is not None and math.exp(float(network.actor.log_std[0])) < 0.1


@pytest.mark.slow
def test_the_right_choice_is_found() -> None:
    network = network_of(trained(Choice(), PLAIN, 40))
    policy = jax.nn.softmax(network.distribution(jnp.eye(3)).logits)  # type: ignore[attr-defined]
    np.testing.assert_allclose(policy, np.eye(3), atol=0.03)


def test_what_pays_later_is_credited_by_the_critic_alone() -> None:
    """Without GAE's sum the first choice learns from V(s') only. V is 1 at the good place and gamma before it."""
    run = trained(TwoSteps(), replace(PLAIN, rollout_steps=8, gae_decay=0.0), 60)
    network = network_of(run)
    policy = jax.nn.softmax(network.distribution(jnp.eye(3)).logits)  # type: ignore[attr-defined]
    assert policy[0, 0] > 0.98
    np.testing.assert_allclose(network.value(jnp.eye(3))[:2], [0.9, 1.0], atol=0.02)
    assert run.handover.evaluation.reward.value > 0.95


@pytest.mark.parametrize(("ends", "value"), [(False, 10.0), (True, 1.0 / (1.0 - 0.9 * 0.8))])
def test_a_cut_episode_goes_on_and_an_ended_one_does_not(ends: bool, value: float) -> None:
    """Reward 1 for ever is worth 1 / (1 - gamma) = 10, however often it is cut; with an end in every fifth step that
    nothing announces V = 1 + gamma 4/5 V."""
    learner = replace(PLAIN, rollout_steps=10, gae_decay=0.0)
    network = network_of(trained(Clock(ends=ends), learner, 100))
    assert float(network.value(jnp.zeros((1, 1)))[0]) == pytest.approx(value, rel=0.02)


# With constraints


LIMIT, ENTROPY = 0.25, 0.1
CAREFUL = replace(
    PLAIN,
    environments=512,
    rollout_steps=1,
    actor_step_size=Schedule(3e-3, "linear"),
    entropy=Schedule(ENTROPY),
    normalise_advantage=False,
    ppo=replace(PLAIN.ppo, initial_std=0.1),
)
INTEGRAL = MultiplierConfig(rule="integral", step_size=Schedule(0.1, "linear"), maximum=10.0)
PI = MultiplierConfig(rule="pi", step_size=Schedule(0.1), proportional=1.0, maximum=10.0)


def saddle() -> tuple[float, float, float]:
    """Mean, standard deviation and multiplier of `Effort` on its limit.

    With entropy of weight h the learner climbs -(m - 1)^2 - s^2 - lambda (m^2 + s^2) + h log s, so 1 + lambda = 1 / m
    and s^2 = h / (2 (1 + lambda)) = h m / 2; on the limit m^2 + h m / 2 = limit.
    """
    mean = -ENTROPY / 4 + math.sqrt((ENTROPY / 4) ** 2 + LIMIT)
    return mean, math.sqrt(ENTROPY * mean / 2), 1 / mean - 1


@pytest.mark.parametrize("rule", [INTEGRAL, pytest.param(PI, marks=pytest.mark.slow)], ids=["integral", "pi"])
def test_the_multiplier_of_an_effort(rule: MultiplierConfig) -> None:
    run = trained(Effort(), CAREFUL, 250, 20, constraints=(f"mean(cost) <= {LIMIT}",), multipliers=rule)
    mean, std, multiplier = saddle()
    late = run.records[-5:]
    found = {key: float(np.mean([record[key] for record in late])) for key in
             ("constraint/mean(cost)/multiplier", "constraint/mean(cost)/value", "reward/episode")}  # fmt: skip
    assert found["constraint/mean(cost)/multiplier"] == pytest.approx(multiplier, abs=0.04)
    assert found["constraint/mean(cost)/value"] == pytest.approx(LIMIT, abs=0.008)
    assert found["reward/episode"] == pytest.approx(-((mean - 1) ** 2) - std**2, abs=0.015)
    assert 4.0 * late[-1]["policy/std"] == pytest.approx(std, abs=0.015)


@pytest.mark.slow
def test_a_lower_bound_pulls_the_other_way() -> None:
    """At least a cost of 4: 1 - lambda = 1 / m, s^2 = h m / 2 and m^2 + h m / 2 = 4, so m = 1.9752, lambda = 0.4937."""
    run = trained(Effort(), CAREFUL, 200, 20, constraints=("mean(cost) >= 4",), multipliers=replace(PI, relative=True))
    mean = -ENTROPY / 4 + math.sqrt((ENTROPY / 4) ** 2 + 4.0)
    found = np.mean([record["constraint/mean(cost)/multiplier"] for record in run.records[-5:]])
    assert found == pytest.approx(1 - 1 / mean, abs=0.03)
    assert run.records[-1]["constraint/mean(cost)/value"] == pytest.approx(4.0, abs=0.1)


def in_unit(unit: float, after: bool) -> tuple[float, float, bool]:
    """The cost in the end, the reward in its unit, and whether the policy is verified."""
    learner = replace(CAREFUL, ppo=replace(CAREFUL.ppo, normalise_rewards=True, penalise_normalised=after))
    rule = MultiplierConfig(rule="pi", initial=5.0, step_size=Schedule(0.5), proportional=4.0, margin=0.15)
    constraints = (f"mean(cost) <= {LIMIT}",)
    run = trained(Effort(unit=unit), learner, 150, 10, constraints=constraints, multipliers=rule)
    late = run.records[-1]
    return late["constraint/mean(cost)/value"], late["reward/episode"] / unit, run.handover.verified


@pytest.mark.slow
def test_the_unit_of_the_rewards_does_not_matter() -> None:
    """Subtracted after normalisation, the penalty weighs the same in every unit: the same policy, the same verdict."""
    found = [in_unit(unit, after=True) for unit in (1.0, 100.0, 10_000.0)]
    assert [verified for *_, verified in found] == [True] * 3
    np.testing.assert_allclose([one[:2] for one in found], [found[1][:2]] * 3, atol=0.02)
    assert found[1][0] == pytest.approx(0.9 * LIMIT, abs=0.025)


@pytest.mark.slow
def test_in_the_papers_order_it_does() -> None:
    """Subtracted before it, the same gains as above are lost among rewards of another size."""
    cost, _, verified = in_unit(10_000.0, after=False)
    assert cost > 2 * LIMIT and not verified


@pytest.mark.parametrize("centred", [True, False])
def test_a_tax_on_being_alive(centred: bool) -> None:
    """Idling costs 1 a step, an effort 0.5, and 0.75 are allowed; whoever ends the episode pays nothing.

    With lambda (c - 0.75) idling is worth 1 - lambda / 4 and an effort 0.3 + lambda / 4: at lambda = 1.4 both are worth
    0.65, every other step is an effort, and 20 steps earn 13. With lambda c the two break even at -0.4: it is better to
    end the episode, which keeps the limit too.
    """
    learner = replace(
        PLAIN,
        environments=32,
        rollout_steps=20,
        discount=0.99,
        entropy=Schedule(0.1),
        ppo=replace(PLAIN.ppo, centred_penalty=centred),
    )
    rule = MultiplierConfig(rule="pi", step_size=Schedule(0.1), proportional=2.0, maximum=10.0)
    run = trained(Alive(), learner, 200, 10, constraints=("mean(cost) <= 0.75",), multipliers=rule)
    late = run.records[-4:]
    length, reward, cost, multiplier = (
        float(np.mean([record[key] for record in late]))
        for key in (
            "length/episode",
            "reward/episode",
            "constraint/mean(cost)/value",
            "constraint/mean(cost)/multiplier",
        )
    )
    assert cost == pytest.approx(0.75, abs=0.03)
    if centred:
        assert length > 19.5 and reward == pytest.approx(13.0, abs=0.5)
        assert multiplier == pytest.approx(1.4, abs=0.15)
    else:
        assert length < 12.0 and reward < 10.0
