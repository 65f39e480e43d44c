"""Whatever is wrong with an environment is one sentence, before training begins."""

import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import gymnasium
import gyms
import numpy as np
import pytest
from gymnasium import spaces

from rcpo import envs
from rcpo.envs.gym import GymEnvironment
from rcpo.envs.settings import GymSettings, RobotSettings
from rcpo.errors import UsageError


class Fixed(gyms.Walk):
    """A walk of which anything can be replaced."""

    def __init__(self, reset: Any = None, outcome: Any = None, **parts: Any):
        self._reset, self._outcome = reset, outcome
        for name, part in parts.items():
            setattr(self, name, part)

    def reset(self, **options: Any) -> Any:
        begun = super().reset(**options)
        return begun if self._reset is None else self._reset(*begun)

    def step(self, action: Any) -> Any:
        outcome = super().step(np.int64(0))
        return outcome if self._outcome is None else self._outcome(*outcome)


def raising(error: Exception) -> Any:
    def fail(*_: Any) -> Any:
        raise error

    return fail


class OldReset(gyms.Walk):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class Unbound:
    observation_space = action_space = None


class Locked(gyms.Walk):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def sight(space: Any) -> Any:
    return lambda: Fixed(observation_space=space)


def box(low: Any, high: Any, dtype: Any = np.float32) -> Any:
    return lambda: Fixed(action_space=spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype))


def outcome(change: Any) -> Any:
    return lambda: Fixed(outcome=change)


MISTAKES: dict[str, tuple[Any, str]] = {
    "a number": (3, "got 3 for an environment; give a name, a Gymnasium environment, or a function that makes one"),
    "nothing": (None, "got None for an environment"),
    "makes nothing": (lambda: None, "is no Gymnasium environment: NoneType has no reset and no step and no obs"),
    "no spaces": (Unbound, "Unbound has no reset and no step and no observation_space and no action_space"),
    "a space of another kind": (lambda: Fixed(action_space=4), "the action_space of environment (factory) is builtins"
                                ".int; expected one of gymnasium.spaces"),
    "a vector": (lambda: gymnasium.make_vec("CartPole-v1", 2), "made a whole vector of environments"),
    "a vector object": (gymnasium.make_vec("CartPole-v1", 2), "got a whole vector of environments (CartPole"),
    "needs arguments": (lambda size: None, "missing a required argument: 'size'; give its arguments as JSON "
                        "(--env.arguments '{\"size\": 5}')"),
    "raises when made": (raising(RuntimeError("no licence")), "cannot make fail: RuntimeError: no licence"),
    "cannot be copied": (Locked(), "cannot copy the environment Locked: TypeError: cannot pickle"),
    "text is seen": (sight(spaces.Text(5)), "Text(1, 5, charset="),
    "a sequence is seen": (sight(spaces.Sequence(spaces.Discrete(2))), "cannot be written in one row of numbers; wrap"),
    "no bounds": (box([-np.inf], [1.0]), "its actions have no bounds"),
    "no room": (box([1.0], [1.0]), "an action's low is not below its high"),
    "whole numbers in a box": (box([0], [3], np.int64), "a Box of int64; whole numbers are chosen"),
    "actions of a kind": (lambda: Fixed(action_space=spaces.Dict(a=spaces.Discrete(2))), "expected Box, Discrete, Mul"),
    "reset without seed": (OldReset, "got an unexpected keyword argument 'seed'; expected reset(self, *, seed=None, "),
    "reset gives no pair": (lambda: Fixed(reset=lambda obs, info: obs), "expected a pair: observation, info"),
    "reset without a dict": (lambda: Fixed(reset=lambda obs, info: (obs, 3)), "expected a pair: observation, info"),
    "reset raises": (lambda: Fixed(reset=raising(OSError("no port"))), "cannot begin an episode: OSError: no port"),
    "step raises": (outcome(raising(KeyError("x"))), "cannot take a step: KeyError: 'x'"),
    "four values": (outcome(lambda o, r, t, u, i: (o, r, t, i)), "the step of environment (factory) gives 4 values"),
    "seven values": (outcome(lambda *all: (*all, 1, 2)), "gives 7 values; expected observation, reward, terminated,"),
    "no tuple": (outcome(lambda *all: None), "gives NoneType None; expected observation"),
    "reward a word": (outcome(lambda o, r, t, u, i: (o, "x", t, u, i)), "the reward of environment (factory) is no"),
    "reward many": (outcome(lambda o, r, t, u, i: (o, [1, 2], t, u, i)), "is no number: got list [1, 2]"),
    "cost none": (outcome(lambda o, r, t, u, i: (o, r, None, t, u, i)), "the cost of environment (factory) is no num"),
    "terminated a word": (outcome(lambda o, r, t, u, i: (o, r, "no", u, i)), "the terminated that environment (fac"),
    "truncated none": (outcome(lambda o, r, t, u, i: (o, r, t, None, i)), "is NoneType None; expected True or False"),
    "info none": (outcome(lambda o, r, t, u, i: (o, r, t, u, None)), "the info of environment (factory) is NoneType"),
    "too small": (outcome(lambda o, r, t, u, i: (o[:1], r, t, u, i)), "which does not fit its observation_space Box("),
    "seen none": (outcome(lambda o, r, t, u, i: (None, r, t, u, i)), "shows NoneType None, which does not fit"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_an_environment_is_one_sentence(mistake: str) -> None:
    origin, words = MISTAKES[mistake]
    with pytest.raises(UsageError) as refused:
        _ = GymEnvironment(origin).spec
    assert words in str(refused.value) and "\n" not in str(refused.value)


FILE = """
import gymnasium
class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, size=1): self.size = size
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return [0.5], {}
    def step(self, action):
        return [0.5], 1.0, False, False, {"used": self.size}
class Bare(Mine):
    def __init__(self, size): self.size = size
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CartPol-v1", "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'?"),
        ("HalfCheeta-v5", "did you mean 'HalfCheetah-v5'?"),
        (
            "zzz",
            "Walker2d-v5, fork, mars-rover, an id that Gymnasium knows, or FILE.py:CLASS",
        ),
        ("no_module:X-v0", "unknown environment 'no_module:X-v0': cannot import 'no_module'"),
        ("math:X-v0", "unknown environment 'math:X-v0'"),
        ("none.py:Mine", "'none.py' is no file"),
        ("mine.py", "'mine.py' does not say which environment; give its class too, as in mine.py:MyEnv"),
        ("mine.py:Min", "'mine.py' has no 'Min'; did you mean 'Mine'?"),
        ("mine.py:zzz", "its classes are: Bare, Mine"),
        ("mine.py:Bare", "cannot make Bare: missing a required argument: 'size'"),
        ("wrong.py:Mine", "cannot read 'wrong.py': SyntaxError"),
    ],
)
def test_a_wrong_name_is_one_sentence(name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(FILE)
    Path("wrong.py").write_text("class Mine(:")
    with pytest.raises(UsageError) as refused:
        _ = envs.make(name).spec
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_a_class_in_a_file_with_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(FILE)
    for name, size in (("mine.py:Mine", 1.0), ("mine.py:Bare", 7.0)):
        arguments = "" if size == 1.0 else '{"size": 7}'
        for vectorization in ("sync", "async"):
            settings = GymSettings(arguments=arguments, vectorization=vectorization, workers=1)
            environment = envs.make(name, settings)
            assert isinstance(environment, GymEnvironment) and environment.spec.column_names == ("obs_0", "used")
            with environment.open(2) as copies:
                copies.reset(0)
                np.testing.assert_array_equal(copies.step(np.zeros(2, np.int32)).costs, [[0.5, size]] * 2)
    # A file that was changed is read anew.
    Path("mine.py").write_text(FILE.replace('"used"', '"spent"'))
    assert envs.make("mine.py:Mine").spec.column_names == ("obs_0", "spent")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(max_steps=-1), "got an episode cap of -1 steps"),
        (dict(reward_scale=0.0), "got the reward scale 0"),
        (dict(workers=-1), "got -1 workers"),
        (dict(timeout=0.0), "got a timeout of 0 seconds"),
        (dict(arguments="{g: 1}"), "cannot read the environment's arguments '{g: 1}'"),
        (dict(arguments="[1]"), "got '[1]' for the environment's arguments; give a JSON object"),
    ],
)
def test_a_wrong_setting_is_one_sentence(settings: Any, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        GymSettings(**settings)
    assert words in str(refused.value)


def test_settings_and_costs_that_do_not_fit() -> None:
    for call, words in (
        (lambda: envs.make("CartPole-v1", RobotSettings()), "got RobotSettings for a Gymnasium environment; give Gym"),
        (
            lambda: GymEnvironment("CartPole-v1", GymSettings(arguments='{"zzz": 1}')).spec,
            r"cannot make CartPole-v1 with",
        ),
        (lambda: GymEnvironment(gyms.Walk(), GymSettings(arguments='{"zzz": 1}')).spec, "which is made already"),
        (lambda: GymEnvironment("CartPole-v1", costs={"x": 3}).spec, "got 3 for the cost 'x'; give a function"),
        (lambda: GymEnvironment("CartPole-v1").open(0), "got 0 copies of CartPole-v1; give at least 1"),
    ):
        with pytest.raises(UsageError, match=words):
            call()
    with pytest.raises(UsageError, match=r"column 5 of CartPole-v1 \(own costs\) gives shape \(2,\), expected \(3,\)"):
        copies = GymEnvironment("CartPole-v1", costs={"x": lambda obs, action, next_obs, info: np.zeros(2)}).open(3)
        copies.reset(0)
        copies.step(np.zeros(3, np.int32))


def test_a_script_without_a_main_guard_may_use_processes(tmp_path: Path) -> None:
    """And what an environment prints does not run into our standard output."""
    script = """
        import gymnasium, numpy as np
        from rcpo.envs.gym import GymEnvironment
        from rcpo.envs.settings import GymSettings
        class Mine(gymnasium.Wrapper):
            def step(self, action):
                print("stepping")
                return super().step(action)
        make = lambda: Mine(gymnasium.make("CartPole-v1"))
        copies = GymEnvironment(make, GymSettings(vectorization="async", workers=1)).open(1)
        copies.reset(0)
        print("then")
        copies.step(np.zeros(1, np.int32))
        copies.close()
    """
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "then" and done.stderr.splitlines()[-1] == "stepping"
