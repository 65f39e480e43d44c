"""The exported file against JAX itself, on observations that the export never saw; and what its card says."""

import builtins
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import gyms
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from policies import finished, networks

from rcpo import export as exporting
from rcpo.bodies import custom
from rcpo.checkpoint import write_json
from rcpo.envs.base import Box, Choices
from rcpo.errors import UsageError
from rcpo.export import CARD, TOLERANCE, export
from rcpo.networks import SeparateActorCritic, TabularActorCritic
from rcpo.policy import mix, single
from rcpo.run import Run

pytestmark = pytest.mark.usefixtures("quick_compile")

LIMITS = {"mars-rover": "P(crash) <= 0.1", "fork": "P(crash) <= 0.1", "choices": "sum(cost) <= 1",
          "pictures": "sum(wrong) <= 1"}  # fmt: skip
OURS: dict[str, Any] = {"choices": gyms.Several, "pictures": gyms.Picture}
NAMES = ["Hopper-v5", "Ant-v5", "mars-rover", "fork", *OURS]


@pytest.fixture(scope="module", params=NAMES)
def world(request: pytest.FixtureRequest) -> Any:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    return request.param, *networks(OURS.get(request.param, request.param), 2)


def run_of(world: Any, *parts: Any) -> Run:
    name, environment, _ = world
    policy = parts[0] if len(parts) == 1 else mix(parts, [0.25, 0.75])
    return finished(environment, policy, name, LIMITS.get(name, "mean(torque) <= 0.25"))


def session(path: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def answers(path: Path, **feed: np.ndarray) -> dict[str, np.ndarray]:
    opened = session(path)
    return dict(zip((output.name for output in opened.get_outputs()), opened.run(None, feed), strict=True))


def observations(world: Any, count: int = 1000) -> np.ndarray:
    _, environment, (network, _) = world
    rng = np.random.default_rng(77)
    shape = environment.spec.observation_shape
    if environment.spec.pixels:
        return rng.integers(0, 256, size=(count, *shape), dtype=np.uint8)
    if isinstance(network, SeparateActorCritic):
        return rng.normal(scale=4.0, size=(count, *shape)).astype(np.float32)
    states = np.asarray(environment.states())
    return states[rng.integers(len(states), size=count)].astype(np.float32 if shape else np.int64)


def truth(network: Any, actions: int | Choices | Box, obs: np.ndarray) -> dict[str, np.ndarray]:
    """What the network itself gives in JAX; of choices their probabilities, one choice behind the other."""
    if isinstance(actions, Box):
        low, high = np.asarray(actions.low), np.asarray(actions.high)
        seen = network.distribution(jnp.asarray(obs))
        mean = (low + high) / 2 + (high - low) / 2 * np.asarray(seen.mode(), float)
        std = np.broadcast_to(np.exp(np.asarray(network.actor.log_std, float)) * (high - low) / 2, mean.shape)
        return {"mean": mean, "std": std, "action": np.clip(mean, low, high)}
    if isinstance(network, SeparateActorCritic):
        choices: Any = network.distribution(jnp.asarray(obs))
        logits = np.asarray(choices.logits, float)
    else:
        logits = np.asarray(network(jnp.asarray(obs))[0], float)
    each = [np.exp(part) / np.exp(part).sum(axis=1, keepdims=True) for part in parts_of(logits, actions)]
    return {"probabilities": np.concatenate(each, axis=1)}


def parts_of(numbers: np.ndarray, actions: int | Choices) -> list[np.ndarray]:
    """Those of each choice."""
    options = actions.options if isinstance(actions, Choices) else (actions,)
    return [numbers[:, sum(options[:d]) : sum(options[: d + 1])] for d in range(len(options))]


def test_the_file_does_what_jax_does_on_a_thousand_observations(world: Any, tmp_path: Path) -> None:
    _, environment, (network, _) = world
    path = tmp_path / "policy.onnx"
    found = export(run_of(world, single(network, False)), path)
    assert found.difference <= TOLERANCE
    obs = observations(world)
    got, expected = answers(path, observation=obs), truth(network, environment.spec.actions, obs)
    assert got.keys() == expected.keys() | {"action"}
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, atol=1e-5, rtol=0)
    if "probabilities" in got:
        actions = got["action"] if got["action"].ndim == 2 else got["action"][:, None]
        for action, part in zip(actions.T, parts_of(expected["probabilities"], environment.spec.actions), strict=True):
            ordered = np.sort(part, axis=1)
            clear = ordered[:, -1] - ordered[:, -2] > 1e-5
            assert clear.mean() > 0.9 and len(np.unique(action)) > 1
            np.testing.assert_array_equal(action[clear], part.argmax(axis=1)[clear])
    else:
        assert (got["action"] != got["mean"]).any()  # some means lie beyond the range


def test_one_observation_is_a_batch_of_one(world: Any, tmp_path: Path) -> None:
    run = run_of(world, single(world[2][0], False))
    export(run, tmp_path / "policy.onnx")
    obs = observations(world, 3)
    for i in range(3):
        alone = answers(tmp_path / "policy.onnx", observation=obs[i : i + 1])["action"][0]
        first = np.array([1, 0]) if world[0] == "choices" else 0  # what Gymnasium counts these choices from
        np.testing.assert_allclose(alone + first, run.act(obs[i]), atol=1e-5)


def test_a_mixture_follows_the_component_of_each_row(world: Any, tmp_path: Path) -> None:
    """One of its networks is greedy: it draws nothing."""
    _, environment, (one, two) = world
    run, path = run_of(world, single(one, True), single(two, False)), tmp_path / "policy.onnx"
    card = export(run, path).card
    assert card["weights"] == [0.25, 0.75] and "one network drawn" in card["about"]
    obs = observations(world, 100)
    rows = np.arange(100) % 2
    got = answers(path, observation=obs, component=rows)
    for m, network in enumerate((one, two)):
        for name, value in truth(network, environment.spec.actions, obs[m::2]).items():
            if m == 0 and name == "probabilities":
                parts = parts_of(value, environment.spec.actions)
                value = np.concatenate([np.eye(part.shape[1])[part.argmax(axis=1)] for part in parts], axis=1)
            if m == 0 and name == "std":
                value = np.zeros_like(value)
            np.testing.assert_allclose(got[name][m::2], value, atol=1e-5)
    with pytest.raises(Exception, match="component"):
        session(path).run(None, {"observation": obs})  # it cannot be left out by mistake


def test_one_network_of_a_mixture_alone(world: Any, tmp_path: Path) -> None:
    _, environment, (one, two) = world
    run, path = run_of(world, single(one, False), single(two, False)), tmp_path / "policy.onnx"
    card = export(run, path, component=1).card
    assert card["component"] == 1 and card["weights"] is None and "one network of that mixture alone" in card["about"]
    obs = observations(world, 50)
    for name, value in truth(two, environment.spec.actions, obs).items():
        np.testing.assert_allclose(answers(path, observation=obs)[name], value, atol=1e-5)
    with pytest.raises(UsageError, match=r"^got the component 2; this policy has 2, counted from 0$"):
        export(run, path, component=2)


def test_the_card_says_how_an_observation_is_written(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    for name, said in (("choices", "as gymnasium.spaces.flatten writes it"), ("pictures", "a picture of bytes")):
        world = name, *networks(OURS[name], 1)
        card = export(run_of(world, single(world[2][0], False)), tmp_path / "policy.onnx").card
        assert card["observation"]["meaning"].startswith(said)
        assert card["observation"]["shape"] == list(world[1].spec.observation_shape)
    assert card["actions"] == 2 and card["environment"] == "pictures"


def test_a_network_of_ones_own_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    environment, (network,) = networks("CartPole-v1", 1)
    body = custom(eqx.nn.MLP(4, 2, 8, 1, key=jax.random.key(0)), environment.spec, 2)
    own = eqx.tree_at(lambda whole: whole.actor.body, network, body)
    run = finished(environment, single(own, False), "CartPole-v1", "sum(obs_0) <= 1")
    assert run.act(np.zeros(4)) in (0, 1)
    with pytest.raises(UsageError, match=r"^the policy is a network of its user's own, .*; use run.act or run.actor"):
        export(run, tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_the_card_says_what_was_proved(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    world = "fork", *networks("fork", 1)
    run = replace(run_of(world, single(world[2][0], False)), folder=tmp_path)
    said = {"command": "rcpo train fork --seed 3", "versions": {"jax": "0.0.1"}}
    write_json(tmp_path / "config.json", said)
    export(run, tmp_path / "policy.onnx")
    model = onnx.load(tmp_path / "policy.onnx")
    onnx.checker.check_model(model, full_check=True)
    card = json.loads({entry.key: entry.value for entry in model.metadata_props}[CARD])
    assert card["command"] == said["command"] and card["versions"] == said["versions"]
    assert card["environment"] == "fork" and card["constraints"] == ["P(crash) <= 0.1"]
    (constraint,) = card["verdict"]["constraints"]
    assert constraint.keys() == {"constraint", "value", "low", "high", "limit", "verdict"}
    assert card["verdict"]["outcome"] == "verified" and card["verdict"]["confidence"] == 0.95
    assert card["exported_with"].keys() >= {"rcpo", "jax", "numpy"}


def test_a_file_that_differs_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    world = "fork", *networks("fork", 1)
    run = run_of(world, single(world[2][0], False))
    original = exporting.in_jax
    monkeypatch.setattr(exporting, "in_jax", lambda *known: jax.tree.map(lambda leaf: leaf + 1e-4, original(*known)))
    with pytest.raises(UsageError, match=r"differs from the run's by 0.0001, more than 1e-05; nothing was written"):
        export(run, tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_a_tie_between_two_actions_is_no_difference(tmp_path: Path) -> None:
    """A greedy network that cannot tell two actions apart: whichever is taken, the file is right."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    name, environment, (network,) = "fork", *networks("fork", 1)
    tied = TabularActorCritic(jnp.zeros((5, 2)).at[0, 1].set(1e-7), network.values)
    run = run_of((name, environment, [tied]), single(tied, True))
    assert np.isnan(exporting.in_jax(run, np.arange(5), 0)["probabilities"]).all()
    assert export(run, tmp_path / "policy.onnx").difference == 0.0


def test_a_missing_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = "fork", *networks("fork", 1)
    run = run_of(world, single(world[2][0], False))
    importing = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name.startswith("onnx"):
            raise ImportError(name)
        return importing(name, *rest, **options)

    monkeypatch.setattr("importlib.import_module", lambda name: without(name))
    with pytest.raises(UsageError, match=r"^the export needs onnx, which is not installed: pip install 'rcpo\[onnx\]'"):
        export(run, tmp_path / "policy.onnx")


def test_a_path_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    world = "fork", *networks("fork", 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"^cannot write '.*policy.onnx': .*; give another path$"):
        export(run_of(world, single(world[2][0], False)), tmp_path / "file" / "policy.onnx")
