"""The wrapper against sums by hand: what a step pays, what an episode is worth, how lambda moves."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, final

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList
from worlds import Script, SixValues, costs, play

import rcpo
from rcpo.controller import Multipliers
from rcpo.functionals import Functional, where
from rcpo.wrappers import RewardConstrained, RewardConstrainedVector

PLAIN: dict[str, Any] = {"episodes_per_update": 1, "centred_penalty": False}
EPISODES = [costs(1.0, 0.0, 2.0), costs(0.0, 0.0), costs(3.0)]


# What a step pays


def test_the_integral_rule_by_hand() -> None:
    """lambda: 0, then + 0.1 (3 - 1), then + 0.1 (0 - 1), then + 0.1 (3 - 1)."""
    env = RewardConstrained(Script(EPISODES), "sum(cost) <= 1", step_size=0.1, **PLAIN)
    played = play(env, 4)
    rewards = [[reward for reward, _ in steps] for steps in played]
    expected = [[1.0, 1.0, 1.0], [1.0, 1.0], [1.0 - 0.1 * 3.0], [1.0 - 0.3, 1.0, 1.0 - 0.3 * 2.0]]
    assert rewards == [pytest.approx(part) for part in expected]
    assert env.multipliers.value == {"sum(cost)": pytest.approx(0.5)}
    told = played[3][-1][1]["rcpo"]
    assert told["reward"] == 1.0 and told["costs"] == {"cost": 2.0} and told["penalties"] == {"sum(cost)": 2.0}
    assert told["multipliers"] == {"sum(cost)": pytest.approx(0.3)}
    assert told["episode"] == {"reward": 3.0, "length": 3, "values": {"sum(cost)": 3.0}}
    assert all("episode" not in info["rcpo"] for _, info in played[3][:-1])
    assert played[3][0][1]["cost"] == 1.0


def test_a_probability_is_paid_at_the_first_event_only() -> None:
    env = RewardConstrained(Script([costs(0.0, 2.0, 3.0)]), "P(cost) <= 0.5", initial=0.4, rule="fixed", **PLAIN)
    assert [reward for reward, _ in play(env, 1)[0]] == pytest.approx([1.0, 0.6, 1.0])
    assert env.multipliers.value == {"P(cost)": 0.4}


def test_a_lower_bound_pays_for_what_it_has() -> None:
    """sum >= 4 with lambda 0.5: each unit earns 0.5; 3 is 1 short, so lambda rises by 0.1."""
    env = RewardConstrained(Script(EPISODES[:1]), "sum(cost) >= 4", initial=0.5, step_size=0.1, **PLAIN)
    assert [reward for reward, _ in play(env, 1)[0]] == pytest.approx([1.5, 1.0, 2.0])
    assert env.multipliers.value == {"sum(cost)": pytest.approx(0.6)}


@pytest.mark.parametrize(("text", "sign"), [("mean(cost) <= 0.5", 1.0), ("mean(cost) >= 0.5", -1.0)])
def test_a_mean_is_charged_around_its_aim(text: str, sign: float) -> None:
    """The aim is a tenth inside the limit; the sum of what is charged is lambda T (mean - aim)."""
    env = RewardConstrained(Script(EPISODES), text, initial=2.0, rule="fixed", margin=0.1)
    aim = 0.5 - sign * 0.05
    (steps,) = play(env, 1)
    assert [reward for reward, _ in steps] == pytest.approx([1.0 - sign * 2.0 * (c - aim) for c in (1.0, 0.0, 2.0)])


def test_what_is_centred_does_not_tax_being_alive() -> None:
    """A step that costs just what it may is free; charged plainly, to live longer would cost more."""
    env = RewardConstrained(Script([costs(*[0.25] * 40)]), "mean(cost) <= 0.25", initial=8.0, rule="fixed")
    assert sum(reward for reward, _ in play(env, 1)[0]) == pytest.approx(40.0)
    plain = RewardConstrained(
        Script([costs(*[0.25] * 40)]), "mean(cost) <= 0.25", initial=8.0, rule="fixed", centred_penalty=False
    )
    assert sum(reward for reward, _ in play(plain, 1)[0]) == pytest.approx(40.0 - 80.0)


def test_the_size_of_the_reward_can_be_kept() -> None:
    env = RewardConstrained(
        Script(EPISODES), "sum(cost) <= 1", initial=3.0, rule="fixed", divide_by_multiplier=True, **PLAIN
    )
    assert [reward for reward, _ in play(env, 1)[0]] == pytest.approx([(1.0 - 3.0) / 4.0, 0.25, (1.0 - 6.0) / 4.0])


@final
class Longest(Functional):
    """How many steps in a row cost something, at most; two numbers are remembered."""

    def start(self, like: Any) -> Any:
        return 0.0 * like, 0.0 * like

    def step(self, total: Any, cost: Any, elapsed: Any) -> Any:
        run = where(cost > 0.0, total[0] + 1.0, 0.0 * total[0])
        return run, where(run > total[1], run, total[1])

    def value(self, total: Any, length: Any) -> Any:
        return total[1]


CONSTRAINTS = [
    "mean(cost) <= 0.5",
    "sum(cost > 0.5) <= 1",
    "discounted(cost, 0.5) <= 1",
    "P(cost) <= 0.2",
    "max(cost) <= 1",
    rcpo.Constraint(Longest(), "cost", 1.0),
]


def test_all_functionals_at_once_by_hand() -> None:
    steps = play(RewardConstrained(Script([costs(2.0, 1.0, 0.0, 0.25)]), CONSTRAINTS), 1)[0]
    values = steps[-1][1]["rcpo"]["episode"]["values"]
    expected = [3.25 / 4, 2.0, 2.0 + 0.5 + 0.25 / 8, 1.0, 2.0, 2.0]
    assert list(values.values()) == pytest.approx(expected)
    assert list(values) == ["mean(cost)", "sum(cost > 0.5)", "discounted(cost, 0.5)", "P(cost)", "max(cost)",
                            "Longest(cost)"]  # fmt: skip
    assert [info["rcpo"]["penalties"]["P(cost)"] for _, info in steps] == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["one", "same step", "next step"])
def test_constraints_are_written_as_for_training(kind: str) -> None:
    """Events of a key inside a key and of a function, a maximum from below, two bounds on one mean; each with its own
    multiplier. By hand: speeds 1, 2, 3; a rise of the maximum earns 0.25, a fast step costs 0.5, a late one 2."""
    bounds = [
        "sum(outer.speed > 1.5) <= 1 with initial 0.5",
        rcpo.Constraint(rcpo.Probability(), lateness, 0.5, event=rcpo.Event(">", 2.0), initial=2.0),
        "max(outer.speed) >= 1 with initial 0.25, maximum 9",
        "mean(outer.speed) <= 3",
        "mean(outer.speed) >= 0",
    ]
    make = partial(Script, [[(1.0, {"outer": {"speed": speed}}) for speed in (1.0, 2.0, 3.0)]])
    values = {
        "sum(outer.speed > 1.5)": 2.0,
        "P(lateness() > 2)": 1.0,
        "max(outer.speed)": 3.0,
        "mean(outer.speed) <= 3": 2.0,
        "mean(outer.speed) >= 0": 2.0,
    }
    if kind == "one":
        steps = play(RewardConstrained(make(), bounds, rule="fixed", **PLAIN), 1)[0]
        assert [reward for reward, _ in steps] == [1.25, 0.75, -1.25]
        assert steps[-1][1]["rcpo"]["episode"]["values"] == values
        return
    mode = AutoresetMode.SAME_STEP if kind == "same step" else AutoresetMode.NEXT_STEP
    vector = RewardConstrainedVector(SyncVectorEnv([make] * 2, autoreset_mode=mode), bounds, rule="fixed", **PLAIN)
    vector.reset()
    for expected in (1.25, 0.75, -1.25):
        _, reward, _, _, info = vector.step(np.zeros(2, int))
        assert reward.tolist() == [expected] * 2
    assert {name: value.tolist() for name, value in info["rcpo"]["episode"]["values"].items()} == {
        name: [value] * 2 for name, value in values.items()
    }


def test_an_abandoned_episode_counts_for_nothing() -> None:
    env = RewardConstrained(Script(EPISODES[:1]), "sum(cost) <= 1", step_size=0.1, **PLAIN)
    env.reset()
    env.step(0)
    env.step(0)
    assert play(env, 1)[0][-1][1]["rcpo"]["episode"]["values"] == {"sum(cost)": 3.0}
    assert env.multipliers.updates == 1


def test_truncated_episodes_count() -> None:
    env = RewardConstrained(Script(EPISODES[:1], truncate=True), "sum(cost) <= 1", step_size=0.1, **PLAIN)
    play(env, 1)
    assert env.multipliers.value == {"sum(cost)": pytest.approx(0.2)}


def test_frozen_multipliers_stay_and_are_still_charged() -> None:
    env = RewardConstrained(Script(EPISODES[:1]), "sum(cost) <= 1", initial=0.3, step_size=0.1, **PLAIN)
    env.freeze()
    assert [reward for reward, _ in play(env, 2)[1]] == pytest.approx([0.7, 1.0, 0.4])
    env.unfreeze()
    play(env, 1)
    assert env.multipliers.value == {"sum(cost)": pytest.approx(0.5)}
    fixed = RewardConstrained(Script(EPISODES[:1]), env.multipliers, training=False)
    play(fixed, 3)
    assert env.multipliers.updates == 1


def test_several_environments_share_one_multiplier() -> None:
    shared = Multipliers("sum(cost) <= 1", step_size=0.1, episodes_per_update=2, centred_penalty=False)
    first, second = (RewardConstrained(Script([episode]), shared) for episode in EPISODES[:2])
    play(first, 1)
    assert shared.updates == 0
    play(second, 1)
    assert shared.value == {"sum(cost)": pytest.approx(0.1 * (1.5 - 1.0))}
    assert play(first, 1)[0][-1][0] == pytest.approx(1.0 - 0.05 * 2.0)


# Where costs come from


def test_columns_are_found_by_key_by_path_and_by_function() -> None:
    info = {"a.b": 1.0, "outer": {"inner": {"deep": np.float32(2.0)}, "flag": True}, "one": np.array(3)}
    env = RewardConstrained(
        Script([[(0.0, info)]]),
        ["sum(a.b) <= 1", "sum(outer.inner.deep) <= 1", "sum(risk) <= 1", "P(outer.flag) <= 1", "sum(one) <= 1"],
        costs={"risk": lambda obs, action, following, info: 10.0 * obs[1] + action + following[1] + info["one"]},
    )
    env.reset()
    told = env.step(2)[-1]["rcpo"]
    assert told["costs"] == {"a.b": 1.0, "outer.inner.deep": 2.0, "risk": 2.0 + 1.0 + 3.0, "outer.flag": 1.0,
                             "one": 3.0}  # fmt: skip
    assert all(type(cost) is float for cost in told["costs"].values())


def test_a_single_function_is_the_column_cost_and_a_column_may_have_another_key() -> None:
    env = RewardConstrained(Script(EPISODES), "sum(cost) <= 1", costs=lambda obs, action, following, info: 0.5)
    assert play(env, 1)[0][0][1]["rcpo"]["costs"] == {"cost": 0.5}
    env = RewardConstrained(Script(EPISODES), "sum(risk) <= 1", costs={"risk": "cost"})
    assert play(env, 1)[0][2][1]["rcpo"]["costs"] == {"risk": 2.0}


def lateness(obs: Any, action: Any, following: Any, info: Any) -> Any:
    return following[..., 1]


def test_a_constraint_may_bring_its_function() -> None:
    bound = rcpo.Constraint(rcpo.Sum(), lateness, 1.0)
    assert play(RewardConstrained(Script(EPISODES), [bound]), 1)[0][-1][1]["rcpo"]["episode"]["values"] == {
        "sum(lateness())": 1.0 + 2.0 + 3.0
    }


def test_six_values_become_five() -> None:
    env = RewardConstrained(SixValues(), "sum(cost) <= 1", initial=1.0, rule="fixed")
    ((first, last),) = play(env, 1)
    assert first[0] == -1.5 and first[1]["cost"] == 2.5 and first[1]["other"] == 7.0
    assert last[1]["rcpo"]["episode"]["values"] == {"sum(cost)": 5.0}


# Gymnasium's own expectations


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasiums_checker_passes() -> None:
    env = gymnasium.make("CartPole-v1")
    wrapped = RewardConstrained(env, "P(off) <= 0.1", costs={"off": far})
    check_env(wrapped, skip_render_check=True)
    assert wrapped.spec is not None
    again = gymnasium.make(wrapped.spec)
    assert isinstance(again, RewardConstrained) and again.multipliers.names == ["P(off)"]


def far(obs: Any, action: Any, following: Any, info: Any) -> Any:
    return np.abs(following[..., 2]) > 0.05


WITHOUT_THEM = """
import sys
for name in ("jax", "jaxlib", "mujoco", "equinox", "optax", "scipy", "matplotlib", "torch", "stable_baselines3"):
    sys.modules[name] = None
import gymnasium, rcpo
env = rcpo.RewardConstrained(gymnasium.make("CartPole-v1"), "mean(off) <= 0.1", step_size=0.1,
                             costs={"off": lambda obs, action, following, info: abs(following[2]) > 0.05})
env.reset(seed=0)
for t in range(1000):
    _, _, terminated, truncated, info = env.step(t % 2)
    if terminated or truncated:
        env.reset()
print(env.multipliers.value["mean(off)"] > 0.0)
"""


def test_neither_jax_nor_mujoco_is_needed() -> None:
    source = Path(__file__).parents[1] / "src"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THEM], capture_output=True, text=True, env={"PYTHONPATH": str(source)}
    )
    assert done.stdout == "True\n", done.stderr


# The vector form


def copies(same_step: bool, asynchronous: bool = False) -> Any:
    """Copies with episodes of different lengths."""
    mode = AutoresetMode.SAME_STEP if same_step else AutoresetMode.NEXT_STEP
    scripts = [
        [costs(1.0, 0.0, 2.0), costs(4.0)],
        [costs(0.0, 3.0)],
        [costs(0.5), costs(0.25, 0.0, 0.0, 1.0), costs(0.0, 7.0)],
    ]
    makers = [partial(Script, script) for script in scripts]
    if asynchronous:
        # Not forked: by now JAX has threads, and a fork of those may hang.
        return AsyncVectorEnv(makers, autoreset_mode=mode, context="spawn"), makers
    return SyncVectorEnv(makers, autoreset_mode=mode), makers


def follow(envs: Any, steps: int) -> tuple[list[tuple[int, float, dict[str, float]]], list[tuple[int, list[float]]]]:
    """Copy, reward and costs of every real step; copy and values of every episode, in the order of their ends."""
    envs.reset()
    seen: list[tuple[int, float, dict[str, float]]] = []
    ended: list[tuple[int, list[float]]] = []
    for _ in range(steps):
        *_, info = (outcome := envs.step(np.zeros(envs.num_envs, int)))
        told = info["rcpo"]
        for n in np.flatnonzero(info["_rcpo"]):
            seen.append((int(n), float(outcome[1][n]), {name: cost[n] for name, cost in told["costs"].items()}))
        for n in np.flatnonzero(told.get("_episode", [])):
            ended.append((int(n), [float(value[n]) for value in told["episode"]["values"].values()]))
    return seen, ended


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("same_step", [False, True])
def test_the_vector_form_pays_what_single_environments_pay(same_step: bool, asynchronous: bool) -> None:
    """With fixed multipliers, copy for copy and step for step, in both modes of autoreset."""
    settings: dict[str, Any] = {"rule": "fixed", "initial": 0.7, "divide_by_multiplier": True}
    envs, makers = copies(same_step, asynchronous)
    vector = RewardConstrainedVector(envs, CONSTRAINTS, **settings)
    try:
        seen, ended = follow(vector, 24)
    finally:
        vector.close()
    for n, make in enumerate(makers):
        single = play(RewardConstrained(make(), CONSTRAINTS, **settings), 30)
        steps = [step for episode in single for step in episode]
        mine = [(reward, cost) for copy, reward, cost in seen if copy == n]
        assert len(mine) > (23 if same_step else 11)
        for (reward, cost), (wanted, info) in zip(mine, steps, strict=False):
            assert reward == pytest.approx(wanted, abs=1e-9) and cost == info["rcpo"]["costs"]
        values = [list(episode[-1][1]["rcpo"]["episode"]["values"].values()) for episode in single]
        found = [mine for copy, mine in ended if copy == n]
        assert len(found) >= 5
        for value, expected in zip(found, values, strict=False):
            assert value == pytest.approx(expected)


@pytest.mark.parametrize("same_step", [False, True])
def test_all_copies_move_one_multiplier(same_step: bool) -> None:
    """The episodes in the order of their ends, as one environment after the other."""
    envs, _ = copies(same_step)
    vector = RewardConstrainedVector(envs, "sum(cost) <= 1", step_size=0.1, episodes_per_update=3)
    _, ended = follow(vector, 20)
    alone = Multipliers("sum(cost) <= 1", step_size=0.1, episodes_per_update=3)
    for _, values in ended:
        alone.record(values)
    assert vector.multipliers.value == alone.value and vector.multipliers.updates == len(ended) // 3 > 3
    assert vector.multipliers.value["sum(cost)"] > 0.0
    vector.freeze()
    follow(vector, 10)
    assert vector.multipliers.updates == len(ended) // 3


def test_copies_that_the_user_resets() -> None:
    envs = SyncVectorEnv([lambda: Script([costs(1.0, 2.0, 4.0)])] * 2, autoreset_mode=AutoresetMode.DISABLED)
    vector = RewardConstrainedVector(envs, "sum(cost) <= 1", rule="fixed")
    vector.reset()
    vector.step(np.zeros(2, int))
    vector.reset(options={"reset_mask": np.array([True, False])})
    vector.step(np.zeros(2, int))
    told = vector.step(np.zeros(2, int))[-1]["rcpo"]
    assert told["_episode"].tolist() == [False, True]
    assert told["episode"]["values"]["sum(cost)"].tolist() == [0.0, 7.0]
    vector.reset(options={"reset_mask": np.array([False, True])})
    told = vector.step(np.zeros(2, int))[-1]["rcpo"]
    assert told["episode"]["values"]["sum(cost)"].tolist() == [7.0, 0.0]


@pytest.mark.parametrize("same_step", [False, True])
def test_a_function_sees_what_the_step_led_to(same_step: bool) -> None:
    """Not what the copy was reset to: within an episode time goes 1, 2, 3."""
    envs, makers = copies(same_step)
    bound = rcpo.Constraint(rcpo.Sum(), lateness, 1.0)
    _, ended = follow(RewardConstrainedVector(envs, [bound]), 20)
    for n, make in enumerate(makers):
        lengths = [len(episode) for episode in play(make(), 20)]
        found = [value for copy, (value,) in ended if copy == n]
        assert found == [length * (length + 1) / 2 for length in lengths[: len(found)]] and len(found) > 3


def test_infos_can_be_turned_into_lists() -> None:
    envs, _ = copies(True)
    listed = DictInfoToList(RewardConstrainedVector(envs, "sum(cost) <= 1", initial=0.5, rule="fixed"))
    listed.reset()
    infos = listed.step(np.zeros(3, int))[-1]
    assert infos[2]["rcpo"]["episode"]["values"]["sum(cost)"] == 0.5
    assert infos[0]["rcpo"]["multipliers"]["sum(cost)"] == 0.5 and "episode" not in infos[0]["rcpo"]


def test_costs_that_some_copies_do_not_report() -> None:
    """Only with `missing` are they free; the same for one environment."""
    scripts = [[(1.0, {"cost": 2.0}), (1.0, {})], [(1.0, {}), (1.0, {"cost": 1.0})]]
    envs = SyncVectorEnv([partial(Script, [s]) for s in scripts], autoreset_mode=AutoresetMode.SAME_STEP)
    _, ended = follow(RewardConstrainedVector(envs, "sum(cost) <= 1", missing=0.0), 2)
    assert ended == [(0, [2.0]), (1, [1.0])]
    with pytest.raises(rcpo.UsageError, match=r"no cost column 'cost'.*missing=0.0"):
        follow(RewardConstrainedVector(envs, "sum(cost) <= 1"), 2)
    env = RewardConstrained(Script(scripts[:1]), "sum(cost) <= 1", missing=0.25)
    assert play(env, 1)[0][-1][1]["rcpo"]["episode"]["values"] == {"sum(cost)": 2.25}


# Mistakes


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({"crash": 1.0, "outer": {"speed": 2.0}}, r"no cost column 'cost', it has: crash, outer\.speed; say costs="),
        ({}, r"it has: nothing"),
        ({"cost": float("nan")}, r"got the cost nan in column 'cost'; a cost is a finite number"),
        ({"cost": float("inf")}, r"got the cost inf in column 'cost'"),
        ({"cost": np.zeros(3)}, r"got an array of shape \(3,\) in column 'cost'; a cost is one number a step"),
        ({"cost": "much"}, r"got 'much' in column 'cost'"),
        ({"cost": None}, r"got None in column 'cost'"),
    ],
)
def test_costs_that_are_none(info: dict[str, Any], said: str) -> None:
    with pytest.raises(rcpo.UsageError, match=said):
        play(RewardConstrained(Script([[(1.0, info)]]), "sum(cost) <= 1"), 1)


def test_costs_of_copies_that_are_none() -> None:
    for value, said in (
        (np.zeros(2), r"got an array of shape \(1, 2\) in column 'cost'; give one cost for each of the 1 copies"),
        (float("nan"), r"got the costs \[nan\] in column 'cost'"),
        ("much", r"got 'much' in column 'cost'"),
    ):
        envs = SyncVectorEnv([partial(Script, [[(1.0, {"cost": value})]])])
        with pytest.raises(rcpo.UsageError, match=said):
            follow(RewardConstrainedVector(envs, "sum(cost) <= 1"), 1)


def test_environments_that_are_none() -> None:
    for given, said in (
        ("CartPole-v1", "an object of type str, which is no Gymnasium environment"),
        (Script, "the class Script, which is no Gymnasium environment"),
        (SyncVectorEnv([lambda: Script(EPISODES)]), "for gymnasium.vector there is RewardConstrainedVector"),
    ):
        with pytest.raises(rcpo.UsageError, match=said):
            RewardConstrained(given, "sum(cost) <= 1")
    with pytest.raises(rcpo.UsageError, match=r"no gymnasium.vector.VectorEnv; for a single environment there is"):
        RewardConstrainedVector(Script(EPISODES), "sum(cost) <= 1")


@final
class FourValues(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def step(self, action: Any) -> Any:
        return 0, 1.0, False, {}


def test_a_step_of_four_values() -> None:
    with pytest.raises(rcpo.UsageError, match="returned 4 values; Gymnasium's returns five"):
        RewardConstrained(FourValues(), []).step(0)


@pytest.mark.parametrize("given", [3, {"cost": 5}, [lateness]])
def test_cost_functions_that_are_none(given: Any) -> None:
    with pytest.raises(rcpo.UsageError, match=r"as costs; give a function cost\(obs, action, next_obs, info\)"):
        RewardConstrained(Script(EPISODES), "sum(cost) <= 1", costs=given)


def test_a_cost_that_nobody_bounds() -> None:
    with pytest.raises(rcpo.UsageError, match=r"a column 'risk' that no constraint bounds; .* are: cost"):
        RewardConstrained(Script(EPISODES), "sum(cost) <= 1", costs={"risk": lateness})


def test_two_functions_of_one_name() -> None:
    bounds = [rcpo.Constraint(rcpo.Sum(), cost, 1.0) for cost in (lambda *step: 0.0, lambda *step: 1.0)]
    bounds[1] = rcpo.Constraint(rcpo.Mean(), bounds[1].cost, 1.0)
    with pytest.raises(rcpo.UsageError, match="two cost functions are called"):
        RewardConstrained(Script(EPISODES), bounds)


@final
class Pair(gymnasium.Env):
    """Counts its steps in one part of what it shows, and in another how many are left; after three it ends."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, named: bool) -> None:
        box = gymnasium.spaces.Box(-9.0, 9.0, (1,), np.float32)
        self.named = named
        self.observation_space = (
            gymnasium.spaces.Dict(done=box, left=box) if named else gymnasium.spaces.Tuple((box, box))
        )

    def _see(self) -> Any:
        done, left = (np.array([value], np.float32) for value in (self.time, 3 - self.time))
        return {"done": done, "left": left} if self.named else (done, left)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._see(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self._see(), 1.0, self.time == 3, False, {}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_a_cost_function_sees_all_parts_of_what_is_shown(named: bool, mode: AutoresetMode) -> None:
    """Alone and in a vector: 10 t + left after the step + a hundredth of what was left before it, also at the end."""
    first, second = ("done", "left") if named else (0, 1)

    def cost(obs: Any, action: Any, next_obs: Any, info: Any) -> Any:
        return (10.0 * next_obs[first] + next_obs[second] + 0.01 * obs[second])[..., 0]

    expected = [12.03, 21.02, 30.01]
    env = RewardConstrained(Pair(named), "sum(cost) <= 1", costs=cost, rule="fixed")
    (steps,) = play(env, 1)
    np.testing.assert_allclose([info["rcpo"]["costs"]["cost"] for _, info in steps], expected, rtol=1e-6)
    assert steps[-1][1]["rcpo"]["episode"]["values"] == {"sum(cost)": pytest.approx(sum(expected))}

    envs = SyncVectorEnv([lambda: Pair(named)] * 2, autoreset_mode=mode)
    vector = RewardConstrainedVector(envs, "sum(cost) <= 1", costs=cost, rule="fixed")
    vector.reset(seed=0)
    seen = [vector.step(np.zeros(2, int))[4]["rcpo"] for _ in range(3)]
    for told, value in zip(seen, expected, strict=True):
        np.testing.assert_allclose(told["costs"]["cost"], [value, value], rtol=1e-6)
    np.testing.assert_allclose(seen[-1]["episode"]["values"]["sum(cost)"], [sum(expected)] * 2, rtol=1e-6)


@final
class SixVector(SyncVectorEnv):
    """A vector of copies that returns what the step cost as a value of its own, and says nothing of it elsewhere."""

    def step(self, actions: Any) -> Any:
        obs, rewards, terminated, truncated, info = super().step(actions)
        cost = np.array(info.pop("cost", np.zeros(self.num_envs)), float)
        if "final_info" in info:
            cost = np.where(terminated | truncated, info["final_info"].pop("cost"), cost)
        return obs, rewards, cost, terminated, truncated, info


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_a_vector_of_six_values_is_worth_what_one_of_five_is(mode: AutoresetMode) -> None:
    makers = [partial(Script, EPISODES), partial(Script, EPISODES[::-1])]
    found = []
    for kind in (SyncVectorEnv, SixVector):
        vector = RewardConstrainedVector(kind(makers, autoreset_mode=mode), "sum(cost) <= 1", initial=0.5, rule="fixed")
        vector.reset(seed=0)
        steps = [vector.step(np.zeros(2, int)) for _ in range(12)]
        found.append([(rewards, info["rcpo"]["costs"]["cost"]) for _, rewards, _, _, info in steps])
    for (reward, cost), (other_reward, other_cost) in zip(*found, strict=True):
        np.testing.assert_array_equal(reward, other_reward)
        np.testing.assert_array_equal(cost, other_cost)
    assert sum(cost.sum() for _, cost in found[0]) > 10.0
