"""Files are whole or not there; what is no file, too large, or not JSON is refused in one sentence."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from rcpo.errors import UsageError
from rcpo.files import parse_json, read_bytes, write_atomically


def refused(read: Any, *arguments: Any) -> str:
    with pytest.raises(UsageError) as error:
        read(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_all_of_a_file_that_is_not_too_large(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bytes(tmp_path / "file", 5) == b"12345"
    assert "it has 5 bytes, and at most 4 belong there" in refused(read_bytes, tmp_path / "file", 4)


def test_a_huge_file_is_not_even_read(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(2**40)  # a hole, which takes no room
    assert "at most 1000 belong there" in refused(read_bytes, tmp_path / "file", 1000)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_what_is_no_file(tmp_path: Path) -> None:
    """A pipe without a writer would let its reader wait for ever, /dev/zero would give it more than there is memory."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        assert str(path) in refused(read_bytes, path, 1000)
    assert "No such file" in refused(read_bytes, tmp_path / "missing", 1000)
    assert "null" in refused(read_bytes, tmp_path / "a\x00b", 1000)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("NaN", "NaN is no number in JSON"),
        ('{"a": [-Infinity]}', "-Infinity is no number in JSON"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("9" * 5000, "digits"),
        ('"\x01"', "control character"),
        ("", "Expecting value"),
    ],
)
def test_what_is_no_json(text: str, why: str) -> None:
    assert why in refused(parse_json, text.encode(), Path("file"))


def test_bytes_that_are_no_text() -> None:
    assert "utf-8" in refused(parse_json, b"\xff\xfe", Path("file"))


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    write_atomically(tmp_path / "file", b"old")

    def full(descriptor: int) -> None:
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=os.strerror(fault)):
        write_atomically(tmp_path / "file", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"old")]


def test_the_folder_is_made_to_last_after_the_file_is_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First what is in the file, then its name, then the folder that the name is in."""
    done: list[tuple[str, bool]] = []

    def told(name: str, proper: Any) -> Any:
        def do(what: Any, *more: Any) -> Any:
            done.append((name, os.path.isdir(f"/proc/self/fd/{what}" if name == "fsync" else what)))
            return proper(what, *more)

        return do

    for name in ("fsync", "replace", "rename"):
        monkeypatch.setattr(os, name, told(name, getattr(os, name)))
    write_atomically(tmp_path / "file", b"new")
    assert [name for name, _ in done] in (["fsync", "replace", "fsync"], ["fsync", "rename", "fsync"])
    if Path("/proc/self/fd").exists():
        assert [folder for _, folder in done] == [False, False, True]
