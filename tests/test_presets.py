"""The presets are made, and say what they are meant to say."""

from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import pytest

from rcpo import envs, host
from rcpo.algorithms import ppo
from rcpo.config import PPOConfig
from rcpo.constraints import parse_all
from rcpo.envs.base import HostEnvironment
from rcpo.envs.settings import MarsRoverSettings, RobotSettings
from rcpo.errors import UsageError
from rcpo.learn import Plan, aim, ascend, begin, experience_on_host, iterate
from rcpo.presets import PRESETS, preset
from rcpo.schedules import Schedule

FINITE = [name for name, entry in PRESETS.items() if set(entry.environments) & envs.FINITE.keys()]
ROBOTS = [name for name in PRESETS if name not in FINITE]
OF_ROBOTS = [(name, environment) for name in ROBOTS for environment in PRESETS[name].environments]


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


def differences(one: Any, other: Any, name: str = "") -> set[str]:
    """The fields, named by their path, in which two configurations differ."""
    if not is_dataclass(one) or type(one) is not type(other):
        return set() if one == other else {name}
    return set().union(
        *(
            differences(getattr(one, f.name), getattr(other, f.name), f"{name}.{f.name}".lstrip("."))
            for f in fields(one)
        )
    )


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize(("name", "robot"), OF_ROBOTS)
def test_every_preset_can_learn_on_each_of_its_robots(name: str, robot: str) -> None:
    """Two steps of four copies are really taken; a whole update, in the preset's own sizes, is traced."""
    config = PRESETS[name].config_for(robot)
    environment = envs.make(robot, config.env)
    assert isinstance(environment, HostEnvironment)
    constraints = parse_all(config.constraints, environment.spec.column_names)
    few = replace(config.learner, environments=4, rollout_steps=2, ppo=replace(config.learner.ppo, minibatches=1))
    plan = Plan(replace(config, learner=few), constraints, 10)
    with host.crews_of(environment, 4) as crews:
        state, rollout = experience_on_host(plan, crews, environment.spec, begin(plan, environment, crews))
    assert rollout.action.shape == (2, 4, environment.spec.outputs) and rollout.penalty.shape == (2, 4, 1)
    whole = (config.learner.rollout_steps, config.learner.environments)

    def stretched(leaf: Any, lead: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*whole[2 - lead :], *leaf.shape[lead:]), leaf.dtype)

    def update(agent: Any, multipliers: Any, rollout: Any, key: Any, now: Any) -> Any:
        aimed = aim(plan, multipliers, now)
        agent, batch = ppo.prepare(config.learner, constraints, agent, rollout, multipliers.value, aimed)
        network, memory = agent.network, agent.optimiser
        actor = ppo.update_actor(config.learner, network.actor, memory.actor, batch, key, now, 10)
        critic = ppo.update_critic(config.learner, network.critic, memory.critic, batch, key, now, 10)
        return actor, critic, ascend(plan, multipliers, now, rollout)

    agent = state.agent
    if agent.returns is not None:
        running = stretched(agent.returns.running, 1)
        agent = eqx.tree_at(lambda agent: agent.returns.running, agent, running)
    seen = jax.tree.map(partial(stretched, lead=2), rollout)
    actor, critic, (moved, _) = jax.eval_shape(update, agent, state.multipliers, seen, state.key, state.iteration)
    before = jax.tree.leaves((state.agent.network.actor, state.agent.network.critic, state.multipliers))
    after = jax.tree.leaves((actor[0], critic[0], moved))
    assert [leaf.shape for leaf in after] == [leaf.shape for leaf in before]


def test_the_paper_on_robots_to_the_letter() -> None:
    """Appendix B: 2,048 steps a batch, 10 epochs, 32 minibatches, clip 0.2, gamma 0.99, tau 0.95, two layers of 64,
    3e-4 and 1.5e-4; lambda from 0 at 5e-7, times kappa = 1 - 1e-9, per step of the environment."""
    entry = PRESETS["paper"]
    config, learner, multipliers = entry.config, entry.config.learner, entry.config.multipliers
    assert set(entry.environments) == set(envs.ROBOTS) and entry.exceptions == {}
    assert (learner.algorithm, learner.optimiser) == ("ppo", "adam")
    assert learner.environments * learner.rollout_steps == 2048
    assert (learner.actor_step_size, learner.critic_step_size) == (Schedule(3e-4, "linear"), Schedule(1.5e-4, "linear"))
    assert [learner.actor_step_size.at(k, 100) for k in (0, 50, 100)] == pytest.approx([3e-4, 1.5e-4, 0.0])
    assert (learner.discount, learner.gae_decay, learner.normalise_advantage) == (0.99, 0.95, True)
    assert (learner.ppo.epochs, learner.ppo.minibatches, learner.ppo.hidden) == (10, 32, (64, 64))
    assert learner.ppo.initial_std == 1.0 and learner.ppo.clip.initial == 0.2
    # Penalised before rewards are normalised, with lambda c itself, and not divided by anything.
    own = PPOConfig(clip=learner.ppo.clip, clip_value=learner.ppo.clip_value)
    assert learner.ppo == own and not (own.penalise_normalised or own.centred_penalty or learner.divide_by_multiplier)
    assert (multipliers.rule, multipliers.initial, multipliers.measure) == ("integral", 0.0, "episodes")
    assert (multipliers.margin, multipliers.ramp, multipliers.relative) == (0.0, 0.0, False)
    for iteration in (0, 1, 488):
        per_step = multipliers.step_size.at(iteration, 489) / 2048
        assert per_step == pytest.approx(5e-7 * (1 - 1e-9) ** (2048 * iteration), rel=1e-9)
    assert config.constraints == ("mean(torque) <= 0.25",) and config.env == RobotSettings()


def test_exceptions_are_few_and_named() -> None:
    """One set for all robots; only the swimmer looks farther ahead, and the hopper takes larger steps."""
    further = {f"learner.{name}" for name in ("discount", "gae_decay", "environments", "rollout_steps")}
    larger = {"learner.actor_step_size.initial", "learner.critic_step_size.initial"}
    exceptions = {"Swimmer-v5": further, "Hopper-v5": larger}
    for name, entry in PRESETS.items():
        for environment in entry.environments:
            found = differences(entry.config, entry.config_for(environment))
            best = name == "robot" or name.startswith("safe-velocity/")
            assert found == (exceptions.get(environment, set()) if best else set())
    swimmer = preset("robot", "Swimmer-v5").learner
    assert (swimmer.discount, swimmer.gae_decay) == (0.9999, 0.98)
    assert swimmer.environments * swimmer.rollout_steps == 2048


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
    assert preset(None, "HalfCheetah-v5") == PRESETS["robot"].config
    assert preset("paper", "Hopper-v5") == PRESETS["paper"].config
    # For an environment of one's own on the host, `own` says which; another may still be asked for.
    assert preset(None, "my-own", own="robot") == PRESETS["robot"].config
    assert preset("paper", "my-own", own="robot") == PRESETS["paper"].config


@pytest.mark.parametrize(
    ("name", "environment", "words"),
    [
        ("mars-rover-papr", "mars-rover", ["'mars-rover-papr'", "did you mean 'mars-rover-paper'?"]),
        ("zzz", "mars-rover", ["'zzz'", "choose one of: ", "theory"]),
        ("theory", "mars-rover", ["'theory'", "for fork, not for mars-rover", "use mars-rover or "]),
        ("theory", "my-own", ["for fork, not for my-own"]),
        ("robot", "mars-rover", ["Swimmer-v5, ", "not for mars-rover", "use mars-rover or "]),
        ("mars-rover", "Hopper-v5", ["for mars-rover, not for Hopper-v5", "use robot or paper"]),
    ],
)
def test_presets_that_do_not_fit(name: str, environment: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        preset(name, environment)
    for word in words:
        assert word in str(refused.value)


def test_the_safe_velocity_tasks_are_the_robots_own_settings_with_another_limit() -> None:
    """The limits that Safety-Gymnasium publishes, on the speed of each step; at most 25 steps may be faster."""
    published = {
        "Ant": "2.6222",
        "HalfCheetah": "3.2096",
        "Hopper": "0.7402",
        "Walker2d": "2.3415",
        "Swimmer": "0.2282",
        "Humanoid": "1.4149",
    }
    assert {name for name in PRESETS if name.startswith("safe")} == {f"safe-velocity/{name}" for name in published}
    for name, limit in published.items():
        robot = f"{name}-v5"
        config = preset(f"safe-velocity/{name}", robot)
        assert config.constraints == (f"sum(speed > {limit}) <= 25",)
        own = {"multipliers.clip"} if name == "Swimmer" else set()
        assert differences(config, preset("robot", robot)) == {"constraints"} | own
        assert preset(None, robot) == preset("robot", robot), "which stays what a robot is trained with unless asked"
    with pytest.raises(UsageError, match="'safe-velocity/Ant' is for Ant-v5, not for Hopper-v5"):
        preset("safe-velocity/Ant", "Hopper-v5")
