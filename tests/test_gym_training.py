"""Learning on Gymnasium environments whose best answer is known; runs that are loaded, and runs that break."""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import gyms
import jax
import numpy as np
import pytest
from gymnasium import spaces

import rcpo
from rcpo.cli import main as command
from rcpo.constraints import parse
from rcpo.envs.base import EnvSpec
from rcpo.envs.gym import GymEnvironment
from rcpo.envs.settings import GymSettings
from rcpo.errors import EnvironmentFault, UsageError
from rcpo.evaluation import evaluate_policy
from rcpo.loggers import Logger, Record
from rcpo.presets import PRESETS

EXAMPLES = Path(__file__).parents[1] / "examples"
QUICK: dict[str, Any] = dict(
    evaluation=rcpo.EvaluationConfig(
        points=20, episodes=0, shortlist_episodes=400, verdict_episodes=2000, mixture=False
    ),
)


class Wager(gyms.Walk):
    """One step: the first choice earns 0, 1 or 2, and 2 loses the stake half of the time; the second earns 0 or 1.

    At P(lost) <= 0.1 the best is to wager 2 in a fifth of the episodes, and 1 in the others: 1.2, and 1 beside it.
    """

    action_space = spaces.MultiDiscrete([3, 2])
    observation_space = spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(-1.0, 1.0, (1, 2), np.float32)})

    def look(self) -> Any:
        return {"b": 1, "a": np.zeros((1, 2), np.float32)}

    def step(self, action: Any) -> Any:
        lost = action[0] == 2 and self.np_random.random() < 0.5
        return self.look(), float(action[0] + action[1]), True, False, {"table": {"lost": lost}}


class SixWager(gyms.Walk):
    """The same wager with one choice, and the loss as the third of six values."""

    action_space: gymnasium.Space = spaces.Discrete(3)
    observation_space: gymnasium.Space = spaces.Discrete(2)

    def look(self) -> Any:
        return 0

    def step(self, action: Any) -> Any:
        return 1, float(action), float(action == 2 and self.np_random.random() < 0.5), True, False, {}


def lost(obs: np.ndarray, action: np.ndarray, next_obs: np.ndarray, info: Any) -> Any:
    return np.array([one["table"]["lost"] for one in info])


@pytest.mark.parametrize("origin", [Wager, SixWager], ids=lambda kind: kind.__name__)
def test_a_wager_under_a_limit(origin: Any) -> None:
    column, extra, costs = ("lost", 1.0, {"lost": lost}) if origin is Wager else ("cost", 0.0, {})
    environment = GymEnvironment(origin, costs=costs)
    run = rcpo.train(environment, [f"P({column}) <= 0.1"], steps=6e4, seed=0, **QUICK)
    assert run.handover.verified
    # 1 + extra without a wager; a twentieth of a wager less than what is allowed is what the margin costs.
    assert 1.05 + extra < run.handover.evaluation.reward.value < 1.2 + extra
    free = rcpo.train(environment, [], steps=3e4, seed=0, **QUICK)
    assert free.handover.evaluation.reward.value > 1.95 + extra


def test_a_picture_is_learned_from() -> None:
    run = rcpo.train(gyms.Picture, [], steps=5e3, seed=0, **QUICK)
    assert run.environment.spec.pixels
    assert run.evaluate(500, deterministic=True).reward.value > 0.98


@pytest.mark.slow
def test_cartpole_stays_in_a_band() -> None:
    """Free, it balances to the end and wanders; bounded, it balances just as long within the band."""
    band = GymEnvironment("CartPole-v1", costs={"outside": lambda o, a, next_obs, i: np.abs(next_obs[:, 0]) > 0.25})
    evaluation = rcpo.EvaluationConfig(episodes=0, shortlist_episodes=100, verdict_episodes=200, mixture=False)
    free = rcpo.train(band, [], steps=8e4, seed=0, evaluation=evaluation)
    limit = (parse("P(outside) <= 0.05"),)
    wandering = evaluate_policy(band, limit, free.policy, 200, 0)
    assert wandering.reward.value > 400 and wandering.constraints[0].verdict == "violated"
    run = rcpo.train(band, limit, steps=8e4, seed=0, evaluation=evaluation)
    assert run.handover.verified and run.handover.evaluation.reward.value > 400


@pytest.mark.slow
def test_pendulum_keeps_its_torque() -> None:
    def torque(obs: np.ndarray, action: np.ndarray, next_obs: np.ndarray, info: Any) -> np.ndarray:
        return np.abs(action[:, 0]) / 2.0

    pendulum = GymEnvironment("Pendulum-v1", costs={"torque": torque})
    evaluation = rcpo.EvaluationConfig(episodes=0, shortlist_episodes=100, verdict_episodes=200, mixture=False)
    run = rcpo.train(pendulum, ["mean(torque) <= 0.2"], steps=6e4, seed=0, evaluation=evaluation)
    first = run.records[1]["constraint/mean(torque)/value"]
    assert first > 0.25 and run.handover.verified


def test_minigrid_shows_a_text_that_has_to_be_left_out() -> None:
    """Its mission is no row of numbers: that is one sentence, and one of its wrappers leaves it out."""
    wrappers = pytest.importorskip("minigrid.wrappers")
    name = "minigrid:MiniGrid-LavaGapS5-v0"
    with pytest.raises(UsageError, match=f"^cannot see what {name} shows: .*; wrap it in gymnasium.wrappers"):
        _ = GymEnvironment(name).spec
    environment = GymEnvironment(lambda: wrappers.ImgObsWrapper(gymnasium.make(name)), GymSettings(max_steps=20))
    assert (environment.spec.observation_shape, environment.spec.pixels) == ((7, 7, 3), True)
    assert environment.spec.actions == 7 and environment.spec.max_steps == 20
    with environment.open(2) as copies:
        copies.reset(0)
        seen = copies.step(np.full(2, 2, np.int32)).obs
    assert seen.dtype == np.uint8 and seen.max() <= 10 and len(np.unique(seen)) > 2


@pytest.mark.slow
def test_minigrids_lava() -> None:
    """MiniGrid says nothing of lava in `info`; what the agent stands on does."""
    wrappers = pytest.importorskip("minigrid.wrappers")

    class Lava(gymnasium.Wrapper):
        def step(self, action: Any) -> Any:
            obs, reward, terminated, truncated, info = self.env.step(action)
            base: Any = self.unwrapped
            under = base.grid.get(*base.agent_pos)
            return obs, reward, terminated, truncated, {**info, "lava": under is not None and under.type == "lava"}

    def make(kind: Any) -> Any:
        return Lava(kind(gymnasium.make("MiniGrid-LavaGapS5-v0")))

    for kind, pixels in ((wrappers.ImgObsWrapper, True), (wrappers.FlatObsWrapper, False)):
        environment = GymEnvironment(lambda kind=kind: make(kind))
        assert environment.spec.pixels == pixels and "lava" in environment.spec.column_names
        evaluation = rcpo.EvaluationConfig(episodes=0, shortlist_episodes=50, verdict_episodes=200, mixture=False)
        run = rcpo.train(environment, ["P(lava) <= 0.05"], steps=4e4, seed=0, evaluation=evaluation)
        values = [r["constraint/P(lava)/value"] for r in run.records]
        assert max(value for value in values if value is not None) > 0.3
        assert run.handover.verified and run.handover.evaluation.reward.value > 0.9


@pytest.mark.slow
def test_lunar_lander() -> None:
    pytest.importorskip("Box2D")
    tilt = GymEnvironment("LunarLander-v3", costs={"tilt": lambda o, a, next_obs, i: np.abs(next_obs[:, 4])})
    evaluation = rcpo.EvaluationConfig(episodes=0, shortlist_episodes=20, verdict_episodes=50, mixture=False)
    run = rcpo.train(tilt, ["mean(tilt) <= 0.3"], steps=3e4, seed=0, evaluation=evaluation)
    assert run.records[-1]["reward/episode"] > run.records[0]["reward/episode"]


@pytest.mark.usefixtures("quick_compile")
def test_a_file_of_the_users_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trained, written, read back and evaluated by its name; without it in place, one sentence says so."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text((EXAMPLES / "my_env.py").read_text())
    words = ["mine.py:Corridor", "--constraint", "P(crash) <= 0.5", "--steps", "4096", "--env.max-steps", "20"]
    words += ["--evaluation.shortlist-episodes", "50", "--evaluation.verdict-episodes", "100", "--no-pictures"]
    assert exits(["train", *words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["env"] == "mine.py:Corridor" and document["folder"] == "runs/mine.py-Corridor-rcpo-seed0"
    there = [document["folder"], "--environment", "mine.py:Corridor"]
    assert exits(["evaluate", *there, "--episodes", "64", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 64
    assert exits(["train", "mine.py:Corridor", "--constraint", "P(crsh) <= 0.5"]) == 2
    assert "unknown cost column 'crsh' in 'P(crsh) <= 0.5'; did you mean 'crash'?" in capsys.readouterr().err
    assert exits(["envs", "mine.py:Corridor"]) == 0
    said = capsys.readouterr().out
    assert "3 actions" in said and "crash" in said and "preset gym" in said
    Path("mine.py").unlink()
    assert exits(["evaluate", *there]) == 2
    assert "'mine.py' is no file" in capsys.readouterr().err


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("kind", ["mine.py:Corridor", "mine:Corridor-v0", "GymV26Environment-v0"])
def test_what_a_run_names_is_not_run_unasked(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run may come from anybody. Neither its file nor its module is touched by anything that reads the run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    small = rcpo.EvaluationConfig(points=1, episodes=0, shortlist_episodes=20, verdict_episodes=20, mixture=False)
    rcpo.train(
        "CartPole-v1", ["sum(obs_0) <= 9"], steps=2048, out="run", evaluation=small, env=GymSettings(max_steps=9)
    )
    Path("mine.py").write_text("from pathlib import Path\nPath('marker').write_text('it ran')\n")
    document = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps(document | {"environment": kind}))
    capsys.readouterr()
    for words in (["evaluate"], ["export", "policy.onnx"], ["play"]):
        assert exits([words[0], "run", *words[1:]]) == 2
        said = capsys.readouterr().err
        assert f"'run' is on '{kind}', an environment of its user's; what a run names is not run unasked" in said
        assert f"--environment {kind}" in said and said.count("\n") == 1
    assert exits(["report", "run"]) == 0 and Path("run/report.html").is_file()
    for read in (rcpo.load, rcpo.resume):
        if read is rcpo.resume:
            Path("run/verdict.json").unlink()
        with pytest.raises(UsageError, match="an environment of its user's"):
            read("run")
    assert exits(["resume", "run"]) == 2
    assert exits(["report", "run"]) == 0
    assert not Path("marker").exists()


@pytest.mark.usefixtures("quick_compile")
def test_an_environment_that_is_given_again_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, also where the file was moved; in Python and on the command line; another one is refused."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text((EXAMPLES / "my_env.py").read_text())
    small = rcpo.EvaluationConfig(points=1, episodes=0, shortlist_episodes=20, verdict_episodes=20, mixture=False)
    settings = GymSettings(max_steps=9)
    run = rcpo.train("mine.py:Corridor", ["P(crash) <= 0.5"], steps=2048, out="run", evaluation=small, env=settings)
    seen = run.evaluate(20)
    assert rcpo.load("run", "mine.py:Corridor").evaluate(20) == seen
    Path("away").mkdir()
    Path("mine.py").rename("away/mine.py")
    assert rcpo.load("run", "away/mine.py:Corridor").evaluate(20) == seen
    assert exits(["evaluate", "run", "--episodes", "20", "--environment", "away/mine.py:Corridor"]) == 0
    for other in ("CartPole-v1", "away/mine.py:Other"):
        with pytest.raises(UsageError, match=r"is on 'mine.py:Corridor'; got the environment|has no 'Other'"):
            rcpo.load("run", other)
    with pytest.raises(UsageError, match="unknown environment 'Zart'"):
        rcpo.load("run", "Zart")


def exits(words: list[str]) -> int:
    with pytest.raises(SystemExit) as left:
        command(words)
    return int(left.value.code or 0)


@pytest.mark.usefixtures("quick_compile")
def test_a_run_on_an_object_is_read_back_with_it(tmp_path: Path) -> None:
    small = rcpo.EvaluationConfig(points=2, episodes=0, shortlist_episodes=20, verdict_episodes=40, mixture=False)
    run = rcpo.train(
        gymnasium.make("CartPole-v1"), ["mean(obs_0) >= -1"], steps=4096, out=tmp_path, evaluation=small,
        env=GymSettings(max_steps=50),
    )  # fmt: skip
    assert run.environment_name == "CartPole-v1 (object)" and run.environment.spec.max_steps == 50
    with pytest.raises(UsageError, match="an environment of its user's"):
        rcpo.load(tmp_path)
    again = rcpo.load(tmp_path, gymnasium.make("CartPole-v1"))
    assert again.environment.spec.max_steps == 50
    assert again.evaluate(40) == run.evaluate(40)


def small_network(key: Any, spec: EnvSpec) -> tuple[Any, Any]:
    one, two = jax.random.split(key)
    size = int(np.prod(spec.observation_shape))
    return eqx.nn.MLP(size, spec.outputs, 8, 1, key=one), eqx.nn.MLP(size, "scalar", 8, 1, key=two)


@pytest.mark.usefixtures("quick_compile")
def test_a_network_of_ones_own(tmp_path: Path) -> None:
    small = rcpo.EvaluationConfig(points=2, episodes=0, shortlist_episodes=20, verdict_episodes=40, mixture=False)
    config = PRESETS["gym"].config
    for environment in ("CartPole-v1", "Pendulum-v1"):
        run = rcpo.train(
            environment, [], config=config, steps=4096, out=tmp_path / environment, evaluation=small,
            network=small_network,
        )  # fmt: skip
        leaves = jax.tree.leaves(run.policy.networks.actor.body)
        assert sorted(leaf.shape[1:] for leaf in leaves)[0] == (1,) or len(leaves) == 4
        with pytest.raises(UsageError, match="does not hold this policy"):
            rcpo.load(tmp_path / environment)
        read = rcpo.load(tmp_path / environment, GymEnvironment(environment, network=small_network))
        assert read.evaluate(20) == run.evaluate(20)
    for wrong, words in (
        (lambda key, spec: (3, 4), "got int from the network's factory; expected two Equinox modules"),
        (lambda key, spec: small_network(key, spec)[::-1], r"gives shape \(\) for one observation, expected \(2,\)"),
        (lambda key, spec: (eqx.nn.MLP(9, 2, 8, 1, key=key),) * 2, r"cannot take an observation of shape \(4,\)"),
    ):
        with pytest.raises(UsageError, match=words):
            rcpo.train("CartPole-v1", [], steps=4096, evaluation=small, network=wrong)
    with pytest.raises(UsageError, match="fork takes no network of one's own"):
        rcpo.train("fork", [], network=small_network)


class Listener(Logger):
    def __init__(self) -> None:
        self.records, self.closed = 0, False

    def record(self, record: Record) -> None:
        self.records += 1

    def close(self) -> None:
        self.closed = True


@pytest.mark.usefixtures("quick_compile")
def test_one_that_raises_in_the_middle_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was written stays, everything is closed, and there is one sentence."""
    listener = Listener()
    broken = GymEnvironment(lambda: gyms.Troubled("raise", 300), GymSettings(max_steps=100))
    with pytest.raises(EnvironmentFault, match="raised ValueError: the arm is broken"):
        rcpo.train(broken, [], steps=2e4, out=tmp_path / "run", loggers=[listener])
    assert listener.closed and listener.records == 2
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    (tmp_path / "trouble.py").write_text("from gyms import Troubled\nmake = lambda: Troubled('raise', 300)\n")
    words = ["train", str(tmp_path / "trouble.py") + ":make", "--steps", "2e4", "--out", str(tmp_path / "other")]
    assert exits(words) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and said[0].startswith("rcpo: the environment ") and "the arm is broken (copy 0" in said[0]
