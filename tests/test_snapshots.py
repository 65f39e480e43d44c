"""Of the last checkpoints the newest good one is found, whatever was done to the others."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rcpo.errors import UsageError
from rcpo.snapshots import Snapshots


def arrays(number: int) -> dict[str, np.ndarray]:
    return {"number": np.array(number), "numbers": np.arange(5, dtype=np.float32) + number}


def newest(snapshots: Snapshots) -> tuple[int, list[str]]:
    """The newest good one's number, and what was said of the others."""
    said: list[str] = []

    def read(number: int, found: dict[str, np.ndarray], path: Path) -> int:
        assert {name: array.tolist() for name, array in found.items()} == {
            name: array.tolist() for name, array in arrays(number).items()
        }
        return number

    return snapshots.newest(read, 10_000, said.append), said


@pytest.fixture
def three(tmp_path: Path) -> Snapshots:
    snapshots = Snapshots(tmp_path / "checkpoints")
    for number in (7, 120, 1000):
        snapshots.write(number, arrays(number))
    return snapshots


def test_the_last_two_are_kept(three: Snapshots) -> None:
    assert three.numbers == [1000, 120]
    assert sorted(path.name for path in three.folder.iterdir()) == [
        f"{number:010d}{kind}" for number in (120, 1000) for kind in (".json", ".safetensors")
    ]
    assert newest(three) == (1000, [])


def test_the_checksum_is_what_others_would_reckon(three: Snapshots) -> None:
    data = (three.folder / "0000001000.safetensors").read_bytes()
    document = json.loads((three.folder / "0000001000.json").read_text())
    assert document == {"format": 1, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_there_may_be_none(tmp_path: Path) -> None:
    assert Snapshots(tmp_path / "nothing").numbers == []


@pytest.mark.parametrize("kind", [".safetensors", ".json"])
@given(data=st.data())
def test_any_flipped_bit_or_lost_end_is_found(tmp_path_factory: pytest.TempPathFactory, kind: str, data: Any) -> None:
    folder = tmp_path_factory.mktemp("flip")
    snapshots = Snapshots(folder)
    for number in (1, 2):
        snapshots.write(number, arrays(number))
    path = folder / f"0000000002{kind}"
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[place:]
    # A manifest may be written otherwise and say the same, with a tab for a space or without its last newline.
    same = kind == ".json" and _says_the_same(bytes(content), path.read_bytes())
    path.write_bytes(content)
    number, said = newest(snapshots)
    shutil.rmtree(folder)
    if same:
        assert (number, said) == (2, [])
    else:
        assert number == 1
        assert len(said) == 1 and "0000000002" in said[0] and "\n" not in said[0]


def _says_the_same(one: bytes, two: bytes) -> bool:
    try:
        return bool(json.loads(one) == json.loads(two))
    except ValueError:
        return False


def become_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda arrays, manifest: arrays.unlink(), "No such file"),
        (lambda arrays, manifest: arrays.write_bytes(arrays.read_bytes() + b"\0"), "is damaged"),
        (lambda arrays, manifest: arrays.write_bytes(b"\0" * 20_000), "at most 10000 belong there"),
        (lambda arrays, manifest: become_a_pipe(arrays), "it is no file"),
        (lambda arrays, manifest: (arrays.unlink(), arrays.symlink_to("/dev/zero")), "it is no file"),
        (lambda arrays, manifest: (arrays.unlink(), arrays.mkdir()), "irectory"),
        (lambda arrays, manifest: manifest.write_text("[]"), "is damaged"),
        (lambda arrays, manifest: manifest.write_text("[" * 9000), "cannot read"),
    ],
)
def test_a_damaged_one_is_named_and_the_one_before_is_used(three: Snapshots, damage: Any, said: str) -> None:
    damage(three.folder / "0000001000.safetensors", three.folder / "0000001000.json")
    number, heard = newest(three)
    assert number == 120
    assert len(heard) == 1 and "0000001000" in heard[0] and said in heard[0]


def test_none_that_can_be_used_is_said(three: Snapshots) -> None:
    for path in three.folder.glob("*.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(UsageError, match=r"no checkpoint in .* can be used; the newest: .*0000001000"):
        newest(three)


def test_one_without_its_checksum_is_not_there_yet(three: Snapshots) -> None:
    (three.folder / "0000001000.json").unlink()
    assert newest(three) == (120, [])


def test_what_was_left_unfinished_goes_and_what_is_not_ours_stays(three: Snapshots) -> None:
    for name in ("0000002000.safetensors.part", "0000002000.safetensors", "notes.txt", "1.json"):
        (three.folder / name).write_text("{}")
    three.write(1500, arrays(1500))
    assert sorted(path.name for path in three.folder.iterdir()) == [
        "0000001000.json", "0000001000.safetensors", "0000001500.json", "0000001500.safetensors", "1.json", "notes.txt",
    ]  # fmt: skip
    three.clear()
    assert sorted(path.name for path in three.folder.iterdir()) == ["1.json", "notes.txt"]


def test_what_claims_to_be_newer_does_not_push_out_what_is_good(three: Snapshots) -> None:
    for number in (3000, 4000, 9999999999):
        (three.folder / f"{number:010d}.json").write_text("{}")
    assert newest(three)[0] == 1000
    three.write(1100, arrays(1100))
    assert three.numbers == [1100, 1000]
