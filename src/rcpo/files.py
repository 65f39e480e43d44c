"""Writing files so that they are whole or not there, and reading files that anybody may have written. Light."""

import contextlib
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, Final

from rcpo.errors import UsageError

LARGEST_JSON: Final = 2**24
"""Bytes: more than any settings or verdict needs."""


def write_atomically(path: Path, data: bytes) -> None:
    """A reader finds the old file or the new one, never half of one, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    try:
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync_folder(path.parent)
    except OSError:
        # Half a file is of no use, and where the disk is full it is in the way.
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last, not only what is in its files."""
    if os.name == "nt":
        return  # Windows opens no folders
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def plain_bytes(path: Path, largest: int) -> bytes:
    """All of a plain file no larger than it can rightly be; of anything else nothing is read."""
    # A pipe must not make us wait for whoever writes into it; Windows must not change what it takes for line ends.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        if found.st_size > largest:
            raise OSError(errno.EFBIG, f"it has {found.st_size} bytes, and at most {largest} belong there")
        return file.read(largest)


def read_bytes(path: Path, largest: int) -> bytes:
    """The same, a failure being one sentence."""
    try:
        return plain_bytes(path, largest)
    except (OSError, ValueError) as error:
        raise unreadable(path, getattr(error, "strerror", None) or error) from None


def unreadable(path: Path, reason: object) -> UsageError:
    """The sentence about a file that cannot be read; what others wrote into it must not spoil a terminal."""
    words = "".join(symbol if symbol.isprintable() else "?" for symbol in " ".join(str(reason).split()))
    words = words if len(words) <= 300 else f"{words[:300]}..."
    return UsageError(f"cannot read {str(path)!r}: {words}; is its folder a run of rcpo?")


def write_json(path: Path, document: Any) -> None:
    write_atomically(path, (json.dumps(document, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    return parse_json(read_bytes(path, LARGEST_JSON), path)


def parse_json(data: bytes, path: Path) -> Any:
    """A JSON document, and nothing else that Python would take for one."""
    try:
        return json.loads(data.decode(), parse_constant=_no_number)
    except RecursionError:
        raise unreadable(path, "it is nested too deeply") from None
    except ValueError as error:
        raise unreadable(path, error) from None


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number in JSON")
