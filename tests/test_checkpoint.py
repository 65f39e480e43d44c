"""What is written is read back bit for bit, and whatever was damaged is refused in one sentence."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import PyTree
from safetensors.numpy import load_file, save_file

from rcpo.checkpoint import from_json, load_tree, named_leaves, read_json, save_tree, write_atomically, write_json
from rcpo.config import TrainConfig
from rcpo.envs.settings import MarsRoverSettings
from rcpo.errors import UsageError
from rcpo.networks import ConvolutionalActorCritic, TabularActorCritic
from rcpo.policy import Policy, mix, single
from rcpo.presets import PRESETS
from rcpo.schedules import Schedule

pytestmark = pytest.mark.usefixtures("quick_compile")


def two_networks(seed: int) -> Policy:
    """Two of the paper's networks, filled with numbers."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(lambda: ConvolutionalActorCritic(jax.random.key(0), (1, 30, 30), 4))
    networks = [
        jax.tree.map(lambda leaf: rng.normal(scale=0.1, size=leaf.shape).astype(np.float32), shapes) for _ in range(2)
    ]
    return mix([single(networks[0], False), single(networks[1], True)], [0.3, 0.7])


def table(seed: int = 0) -> Policy:
    draw = np.random.default_rng(seed).normal(size=(3, 2)).astype(np.float32)
    return single(TabularActorCritic(jnp.asarray(draw), jnp.asarray(draw[:, 0])), greedy=True)


def test_bit_for_bit(tmp_path: Path) -> None:
    policy, like = two_networks(1), two_networks(2)
    save_tree(tmp_path / "policy.safetensors", policy)
    found = load_tree(tmp_path / "policy.safetensors", like)
    assert named_leaves(found).keys() == named_leaves(policy).keys()
    for name, leaf in named_leaves(policy).items():
        again = named_leaves(found)[name]
        assert again.dtype == leaf.dtype
        assert np.asarray(again).tobytes() == np.asarray(leaf).tobytes(), name
    # And it acts alike.
    seen = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (5, 1, 30, 30)).astype(np.float32))
    outputs = jax.jit(jax.vmap(lambda network: network(seen)))
    np.testing.assert_array_equal(outputs(policy.networks)[0], outputs(found.networks)[0])
    assert [path.name for path in tmp_path.iterdir()] == ["policy.safetensors"], "nothing unfinished is left"


def test_the_shapes_alone_are_enough_to_read(tmp_path: Path) -> None:
    save_tree(tmp_path / "p", table())
    found = load_tree(tmp_path / "p", jax.eval_shape(lambda: table()))
    np.testing.assert_array_equal(found.networks.logits, table().networks.logits)


def refused(read: Any, *arguments: Any) -> str:
    with pytest.raises(UsageError) as error:
        read(*arguments)
    sentence = str(error.value)
    assert "\n" not in sentence and sentence
    return sentence


@pytest.mark.parametrize("kept", [0, 4, 8, 60, -1])
def test_a_truncated_file(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "p"
    save_tree(path, table())
    path.write_bytes(path.read_bytes()[:kept])
    assert str(path) in refused(load_tree, path, table())


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello " * 100)
    for path in (tmp_path / "missing", tmp_path, tmp_path / "text"):
        assert str(path) in refused(load_tree, path, table())


def damaged(path: Path, change: Any) -> PyTree:
    """A policy's file after `change` had its arrays, and the policy that it was."""
    save_tree(path, table())
    arrays = dict(load_file(path))
    change(arrays)
    save_file(arrays, path)
    return table()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda arrays: arrays.pop(".weights"), ["'.weights'", "missing"]),
        (lambda arrays: arrays.update(more=np.zeros(1)), ["'more'", "strange"]),
        (lambda arrays: arrays.update({".weights": np.ones(2, np.float32)}), ["'.weights'", "(2,)", "(1,)"]),
        (lambda arrays: arrays.update({".weights": np.ones(1)}), ["'.weights'", "float64", "float32"]),
        (lambda arrays: arrays[".weights"].fill(np.nan), ["'.weights'", "not finite"]),
        (lambda arrays: arrays[".networks.logits"].itemset(3, np.inf), ["'.networks.logits'", "not finite"])
        if hasattr(np.ndarray, "itemset")
        else (lambda arrays: arrays[".networks.logits"].flat.__setitem__(3, np.inf), ["logits", "not finite"]),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, change: Any, words: list[str]) -> None:
    path = tmp_path / "p"
    sentence = refused(load_tree, path, damaged(path, change))
    for word in [str(path), *words]:
        assert word in sentence


def test_an_interrupted_writer_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "file"
    write_atomically(path, b"old")

    def power_cut(descriptor: int) -> None:
        raise OSError("power cut")

    monkeypatch.setattr("os.fsync", power_cut)
    with pytest.raises(OSError, match="power cut"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("content", [b"", b"{", b"{'a': 1}", b"\xff\xfe\x00", b'{"a": 1} more'])
def test_what_is_no_json(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    assert str(path) in refused(read_json, path)


def test_a_missing_document(tmp_path: Path) -> None:
    assert "config.json" in refused(read_json, tmp_path / "config.json")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_json(tmp_path: Path, name: str) -> None:
    config = PRESETS[name].config
    write_json(tmp_path / "config.json", asdict(config))
    assert from_json(TrainConfig, read_json(tmp_path / "config.json")) == config


def test_what_no_preset_has_survives_json_too() -> None:
    config = TrainConfig(constraints=("P(crash) <= 0.1", "sum(goal) >= 0.5"), method="primal-dual", seed=7, steps=1e9)
    learner = replace(config.learner, box=2.5, optimiser="adam", exploring=Schedule(0.5, "power", offset=3.0))
    config = replace(config, learner=learner, env=MarsRoverSettings(map="somewhere.txt", max_steps=50))
    assert from_json(TrainConfig, json.loads(json.dumps(asdict(config)))) == config


def changed(**changes: Any) -> Any:
    """A configuration's document with some fields changed; `learner__discount` is the discount of the learner."""
    document = json.loads(json.dumps(asdict(TrainConfig())))
    for key, value in changes.items():
        *above, last = key.split("__")
        place = document
        for step in above:
            place = place[step]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return document


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (changed(seed=None), ["config", "'seed'"]),
        (changed(more=1), ["config", "'more'"]),
        (changed(learner__discount=None), ["config.learner", "'discount'"]),
        (changed(seed="0"), ["config.seed", "'0'"]),
        (changed(seed=0.5), ["config.seed", "0.5"]),
        (changed(seed=True), ["config.seed", "True"]),
        (changed(theory=1), ["config.theory", "1"]),
        (changed(steps="many"), ["config.steps", "'many'"]),
        (changed(steps=True), ["config.steps", "True"]),
        (changed(method="rpco"), ["config.method", "'rpco'", "primal-dual"]),
        (changed(learner=[]), ["config.learner", "[]"]),
        (changed(learner__actor_step_size=0.1), ["config.learner.actor_step_size", "0.1"]),
        (changed(learner__box="wide"), ["config.learner.box", "'wide'"]),
        (changed(learner__discount=7), ["discount 7", "[0, 1]"]),
        (changed(env__map=3), ["config.env.map", "3"]),
        (changed(constraints="P(crash) <= 0.1"), ["config.constraints", "'P(crash) <= 0.1'"]),
        (changed(constraints=[1]), ["config.constraints", "1"]),
        (changed(constraints={}), ["config.constraints"]),
        ([], ["config", "[]"]),
        ("text", ["config", "'text'"]),
        (7, ["config", "7"]),
    ],
)
def test_documents_that_are_no_configuration(document: Any, words: list[str]) -> None:
    sentence = refused(from_json, TrainConfig, document)
    for word in words:
        assert word in sentence


def test_plain_fields() -> None:
    @dataclass(frozen=True)
    class Point:
        x: float
        names: tuple[str, ...]
        label: str | None

    found = from_json(Point, {"x": 1, "names": ["a", "b"], "label": None})
    assert found == Point(1.0, ("a", "b"), None) and isinstance(found.x, float)
