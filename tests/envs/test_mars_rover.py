"""The JAX rover against its own tables, against the Gymnasium rover, and against maps small enough to solve by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2, chisquare

from rcpo.envs.gymnasium_rover import MarsRoverEnv
from rcpo.envs.mars_rover import MarsRover
from rcpo.envs.settings import MarsRoverSettings
from rcpo.exact import evaluate

UP, RIGHT, DOWN, LEFT = range(4)
BLUNT = "S..#.\n.#..G\n...W.\n"
WriteMap = Callable[[str], str]


@pytest.fixture
def write_map(tmp_path: Path) -> WriteMap:
    def write(text: str) -> str:
        path = tmp_path / "map.txt"
        path.write_text(text)
        return str(path)

    return write


def pairs(environment: MarsRover) -> tuple[np.ndarray, np.ndarray]:
    """Every state that does not end the episode, with every action."""
    open_states = np.flatnonzero(~np.asarray(environment.goal | environment.rock))
    return np.repeat(open_states, 4), np.tile(np.arange(4), len(open_states))


step_of = jax.jit(lambda environment, *arguments: environment.step(*arguments))
reset_of = jax.jit(
    lambda environment, key, batch, exploring: environment.reset(key, batch, exploring), static_argnums=2
)


def step(environment: MarsRover, states: np.ndarray, actions: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    made = step_of(environment, jax.random.key(seed), jnp.asarray(states), jnp.asarray(actions))
    return {name: np.asarray(getattr(made, name)) for name in ("state", "reward", "costs", "terminated")}


def test_it_is_the_gymnasium_rover() -> None:
    """From every cell of the paper's map, with every action: the same picture, the same reward, the same end."""
    environment = MarsRover.build(MarsRoverSettings(slip=0.0, step_reward=-0.03, goal_reward=0.7))
    other = MarsRoverEnv(slip=0.0, step_reward=-0.03, goal_reward=0.7)
    states, actions = pairs(environment)
    found = step(environment, states, actions)
    pictures = np.asarray(environment.states())
    first, _ = other.reset(seed=0)
    np.testing.assert_array_equal(pictures[environment.start], first)
    assert pictures.shape[1:] == other.observation_space.shape == environment.spec.observation_shape
    for i, (state, action) in enumerate(zip(states, actions, strict=True)):
        other.reset()
        other.state = int(state)
        observation, reward, terminated, _, info = other.step(action)
        np.testing.assert_array_equal(pictures[found["state"][i]], observation)
        assert found["reward"][i] == pytest.approx(reward, abs=1e-7)
        assert found["terminated"][i] == terminated
        assert found["costs"][i].tolist() == [info[name] for name in environment.spec.column_names]
    assert found["costs"][:, 0].any() and found["costs"][:, 1].any()


@pytest.mark.parametrize("slip", [0.05, 0.5, 1.0])
def test_moves_are_as_frequent_as_the_tables_say(slip: float, write_map: WriteMap) -> None:
    """All states and actions of a small map at once, so many times that every branch is seen."""
    environment = MarsRover.build(MarsRoverSettings(map=write_map(BLUNT), slip=slip))
    tables = environment.cmdp()
    assert tables is not None
    states, actions = pairs(environment)
    draws = 4000
    made = step(environment, np.repeat(states, draws), np.repeat(actions, draws))
    crash, goal = (made["costs"][:, k].reshape(-1, draws) for k in range(2))
    after, ended = made["state"].reshape(-1, draws), made["terminated"].reshape(-1, draws)
    np.testing.assert_array_equal(ended, (crash + goal).astype(bool))
    statistic, freedom = 0.0, 0
    for i, (state, action) in enumerate(zip(states, actions, strict=True)):
        row = tables.transitions[[state * 4 + action]].toarray()[0]
        expected = draws * np.append(
            row, [tables.outcomes["crash"][state, action], tables.outcomes["goal"][state, action]]
        )
        went = np.bincount(after[i][~ended[i]], minlength=len(row))
        observed = np.append(went, [crash[i].sum(), goal[i].sum()])
        assert expected.sum() == pytest.approx(draws)
        assert (observed[expected == 0] == 0).all()
        possible = expected > 0
        statistic += ((observed - expected)[possible] ** 2 / expected[possible]).sum()
        freedom += possible.sum() - 1
    assert 0.001 < chi2.sf(statistic, freedom) < 0.999


def test_every_way_out_of_the_papers_map() -> None:
    """Its 3,000 pairs of state and action, a hundred times each: as many crashes, goals and ends as the tables say."""
    environment = MarsRover.build(MarsRoverSettings(slip=0.3, goal_reward=0.5))
    tables = environment.cmdp()
    assert tables is not None
    states, actions = pairs(environment)
    draws = 100
    made = step(environment, np.repeat(states, draws), np.repeat(actions, draws))
    found = {"crash": made["costs"][:, 0], "goal": made["costs"][:, 1], "ending": made["terminated"]}
    for name, table in (tables.outcomes | {"ending": tables.ending}).items():
        chance = table[states, actions]
        count = found[name].reshape(-1, draws).sum(axis=1)
        assert (count[chance == 0] == 0).all() and (count[chance == 1] == draws).all()
        deviations = (count.sum() - draws * chance.sum()) / np.sqrt(draws * (chance * (1 - chance)).sum())
        assert count.sum() > 100 and abs(deviations) < 4, name
    # The reward follows from where one arrives; the tables hold its mean.
    np.testing.assert_allclose(made["reward"], -0.01 + 0.5 * made["costs"][:, 1], rtol=1e-6)
    np.testing.assert_allclose(tables.reward[states, actions], -0.01 + 0.5 * tables.outcomes["goal"][states, actions])


def test_an_episode_from_start_to_goal_by_hand(write_map: WriteMap) -> None:
    """`SG`: right reaches the goal with 1 - 3/4 slip, all else stays: 1 / (1 - 3/4 slip) steps on average."""
    slip = 0.4
    environment = MarsRover.build(MarsRoverSettings(map=write_map("SG"), slip=slip, step_reward=-0.1, goal_reward=2.0))
    tables = environment.cmdp()
    assert tables is not None
    value = evaluate(tables, np.tile(np.eye(4)[RIGHT], (2, 1)), cap=None)
    steps = 1 / (1 - 0.75 * slip)
    assert value.steps == pytest.approx(steps)
    assert value.reward == pytest.approx(2.0 - 0.1 * steps)
    assert value.outcomes["goal"] == pytest.approx(1.0)


def test_a_risk_by_hand(write_map: WriteMap) -> None:
    """`#SG`: going right crashes when the slip goes left: 1/4 slip against 1 - 3/4 slip."""
    slip = 0.4
    tables = MarsRover.build(MarsRoverSettings(map=write_map("#SG"), slip=slip)).cmdp()
    assert tables is not None
    value = evaluate(tables, np.tile(np.eye(4)[RIGHT], (3, 1)), cap=None)
    assert value.outcomes["crash"] == pytest.approx(0.25 * slip / (1 - 0.5 * slip))
    assert value.values["crash"] == value.outcomes["crash"]


def test_terminal_states_lead_nowhere() -> None:
    tables = MarsRover.build(MarsRoverSettings()).cmdp()
    environment = MarsRover.build(MarsRoverSettings())
    assert tables is not None
    terminal = np.asarray(environment.goal | environment.rock)
    leaving = tables.transitions.toarray().reshape(len(terminal), 4, -1)
    assert terminal.sum() == 30, "29 rocks and the goal"
    assert not leaving[terminal].any() and not leaving[:, :, terminal].any()
    assert not tables.columns["crash"][terminal].any() and not tables.reward[terminal].any()


def test_starts(write_map: WriteMap) -> None:
    environment = MarsRover.build(MarsRoverSettings(map=write_map(BLUNT)))
    open_states = np.flatnonzero(~np.asarray(environment.goal | environment.rock))
    for exploring in (0.0, 1.0):
        state, from_start = reset_of(environment, jax.random.key(0), 500, exploring)
        assert bool(from_start.all()) == (exploring == 0.0) and bool(from_start.any()) == (exploring == 0.0)
    assert (np.asarray(reset_of(environment, jax.random.key(0), 500, 0.0)[0]) == environment.start).all()
    state, from_start = (np.asarray(part) for part in reset_of(environment, jax.random.key(1), 20_000, 0.7))
    assert (state[from_start] == environment.start).all()
    assert chisquare([from_start.sum(), (~from_start).sum()], [6000, 14000]).pvalue > 0.001
    counts = np.bincount(state[~from_start], minlength=environment.goal.shape[0])
    assert counts[open_states].sum() == counts.sum(), "never on a rock or on the goal"
    assert chisquare(counts[open_states]).pvalue > 0.001


def test_the_papers_numbers() -> None:
    """Appendix B: a move each step at -0.01, nothing at the goal, 5 % slip; 5 layers see one channel."""
    environment = MarsRover.build(MarsRoverSettings())
    states, actions = pairs(environment)
    made = step(environment, states, actions)
    assert np.unique(made["reward"]).tolist() == [np.float32(-0.01)]
    assert environment.spec.observation_shape == (1, 30, 30) and environment.spec.actions == 4
    assert environment.spec.column_names == ("crash", "goal") and environment.spec.success == "goal"
    assert environment.spec.max_steps == 200
    # A slip may pick the chosen move, or another one that a wall stops as well.
    leads_to = np.asarray(environment.next_state)
    as_told = 0.95 + 0.05 * (leads_to[states] == leads_to[states, actions][:, None]).mean(axis=1)
    strayed = step(environment, np.repeat(states, 40), np.repeat(actions, 40))
    count = (strayed["state"].reshape(-1, 40) == leads_to[states, actions][:, None]).sum()
    assert abs(count - 40 * as_told.sum()) < 4 * np.sqrt(40 * (as_told * (1 - as_told)).sum())


def test_what_is_seen_is_the_states_number() -> None:
    environment = MarsRover.build(MarsRoverSettings())
    states: Any = jnp.arange(5)
    np.testing.assert_array_equal(environment.observe(states), states)
    seen = np.asarray(environment.states())
    # The rover stands on another cell in every picture, and nothing else is as bright.
    assert (seen == 1.0).sum(axis=(1, 2, 3)).tolist() == [1] * len(seen)
    assert len({tuple(np.argwhere(picture == 1.0)[0]) for picture in seen}) == len(seen)
