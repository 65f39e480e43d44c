"""The presets are made, and say what they are meant to say."""

import jax
import pytest

from rcpo import envs
from rcpo.constraints import parse_all
from rcpo.envs.settings import MarsRoverSettings
from rcpo.errors import UsageError
from rcpo.learn import Plan, begin, iterate
from rcpo.presets import PRESETS, preset
from rcpo.schedules import Schedule

FINITE = [name for name, entry in PRESETS.items() if set(entry.environments) <= envs.FINITE.keys()]
ROBOTS = [name for name in PRESETS if name not in FINITE]


@pytest.mark.parametrize("name", FINITE)
def test_every_preset_can_learn(name: str) -> None:
    entry = PRESETS[name]
    environment = envs.make_finite(entry.environments[0])
    constraints = parse_all(entry.config.constraints, environment.spec.column_names)
    plan = Plan(entry.config, constraints, 10)
    # Traced, not run: everything is built and every shape checked, through a whole iteration.
    state, metrics = jax.eval_shape(lambda: iterate(plan, environment, begin(plan, environment), 1))
    assert state.worker.tally.length.shape == (entry.config.learner.environments,)
    assert metrics["multiplier"].shape == (1, len(constraints))
    assert preset(name, entry.environments[0]) == entry.config


def test_the_paper_to_the_letter() -> None:
    """Appendix B: 1e-3, 5e-4, lambda from 0.6 at 2.5e-5, gamma 0.99, random restarts that decay linearly."""
    config = PRESETS["mars-rover-paper"].config
    assert isinstance(config.env, MarsRoverSettings)
    learner, multipliers = config.learner, config.multipliers
    assert (learner.actor_step_size, learner.critic_step_size) == (Schedule(1e-3), Schedule(5e-4))
    assert (multipliers.rule, multipliers.initial, multipliers.step_size) == ("integral", 0.6, Schedule(2.5e-5))
    assert (learner.discount, learner.gae_decay, config.evaluation.episodes) == (0.99, 1.0, 1024)
    assert (config.env.slip, config.env.step_reward, config.env.goal_reward) == (0.05, -0.01, 0.0)
    assert [learner.exploring.at(k, 100) for k in (0, 50, 100)] == [1.0, 0.5, 0.0]
    assert not multipliers.relative and multipliers.proportional == 0.0 and learner.box is None


def test_the_papers_own_step_sizes_break_its_conditions() -> None:
    """Constant, so no squares converge and no timescale vanishes; and the critic is slower than the actor."""
    broken = PRESETS["mars-rover-paper"].config.broken_conditions
    for part in ("multiplier", "actor", "critic"):
        assert sum(f"the {part}'s step sizes have an infinite sum of squares" in sentence for sentence in broken) == 1
    assert "the actor's first step size 0.001 is not below the critic's 0.0005" in broken
    assert "the multiplier's step size does not vanish against the actor's" in broken
    assert "the actor's step size does not vanish against the critic's" in broken
    assert len(broken) == 6


def test_the_theory_keeps_them_all() -> None:
    config = PRESETS["theory"].config
    assert config.theory and config.broken_conditions == []
    # What else the theorem asks for: a compact set of parameters, the plain gradient, the plain rule.
    assert config.learner.box is not None and config.learner.optimiser == "sgd" and config.learner.gradient_clip == 0
    assert config.multipliers.rule == "integral" and not config.multipliers.relative
    for iteration in (0, 10, 10_000, 10**7):
        slow, middle, fast = (
            schedule.at(iteration, 1)
            for schedule in (
                config.multipliers.step_size,
                config.learner.actor_step_size,
                config.learner.critic_step_size,
            )
        )
        assert 0 < slow < middle < fast


def test_without_a_name_it_is_the_environments_own() -> None:
    assert preset(None, "mars-rover") == PRESETS["mars-rover"].config
    assert preset(None, "fork") == PRESETS["theory"].config
    assert preset(None, "my-own").constraints == ()


@pytest.mark.parametrize(
    ("name", "environment", "words"),
    [
        ("mars-rover-papr", "mars-rover", ["'mars-rover-papr'", "did you mean 'mars-rover-paper'?"]),
        ("zzz", "mars-rover", ["'zzz'", "choose one of: ", "theory"]),
        ("theory", "mars-rover", ["'theory'", "for fork, not for mars-rover", "use mars-rover or "]),
        ("theory", "my-own", ["for fork, not for my-own"]),
    ],
)
def test_presets_that_do_not_fit(name: str, environment: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        preset(name, environment)
    for word in words:
        assert word in str(refused.value)
