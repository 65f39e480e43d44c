"""The checkpoints of a run: the last few, each whole or not there, each with a checksum."""

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, final

from rcpo.checkpoint import arrays_as_bytes, arrays_from_bytes
from rcpo.errors import UsageError
from rcpo.files import read_bytes, read_json, write_atomically, write_json

KEPT: Final = 2
"""How many checkpoints stay: should the last one be damaged, there is the one before."""
FORMAT: Final = 1
ARRAYS, MANIFEST, UNFINISHED = ".safetensors", ".json", ".part"
NAME: Final = re.compile(r"(\d{10})(\.safetensors|\.json)(\.part)?")

Content = TypeVar("Content")


@final
class Snapshots:
    """Checkpoints in a folder, each known by a number that grows: `0000000120.safetensors`, and its checksum beside it.

    The arrays are written first. A checkpoint is there once its checksum is.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    @property
    def numbers(self) -> list[int]:
        """Which there are, the newest first."""
        return sorted((number for number, kind, _ in self._files() if kind == MANIFEST), reverse=True)

    def write(self, number: int, arrays: Mapping[str, Any]) -> None:
        """Add one, and let go of those that are too old."""
        data = arrays_as_bytes(arrays)
        write_atomically(self._path(number, ARRAYS), data)
        write_json(self._path(number, MANIFEST), manifest(data))
        # What is newer than this could not be used, or this would not have been written.
        kept = [old for old in self.numbers if old <= number][:KEPT]
        for old, kind, path in sorted(self._files(unfinished=True), key=lambda entry: entry[1]):
            if old not in kept or kind.endswith(UNFINISHED):
                path.unlink(missing_ok=True)

    def newest(self, read: Callable[[int, dict, Path], Content], largest: int, say: Callable[[str], None]) -> Content:
        """The newest checkpoint that can be used; of each newer one it is said why it cannot."""
        faults = []
        for number in self.numbers:
            path = self._path(number, ARRAYS)
            try:
                return read(number, arrays_from_bytes(self._checked(number, largest), path), path)
            except UsageError as error:
                faults.append(str(error))
                say(f"note: a checkpoint cannot be used: {error}")
        raise UsageError(f"no checkpoint in {str(self.folder)!r} can be used; the newest: {faults[0]}")

    def clear(self) -> None:
        """Remove them all: what they hold last, so that none is ever without its checksum."""
        for _, _, path in sorted(self._files(unfinished=True), key=lambda entry: entry[1]):
            path.unlink(missing_ok=True)

    def _checked(self, number: int, largest: int) -> bytes:
        path = self._path(number, ARRAYS)
        expected = read_json(self._path(number, MANIFEST))
        data = read_bytes(path, largest)
        if manifest(data) != expected:
            raise UsageError(f"{str(path)!r} is damaged: it does not have the length and the checksum beside it")
        return data

    def _path(self, number: int, kind: str) -> Path:
        return self.folder / f"{number:010d}{kind}"

    def _files(self, unfinished: bool = False) -> list[tuple[int, str, Path]]:
        """The files that are ours, each with its number and kind."""
        if not self.folder.is_dir():
            return []
        found = [(NAME.fullmatch(path.name), path) for path in self.folder.iterdir()]
        files = [(int(match[1]), match[2] + (match[3] or ""), path) for match, path in found if match]
        return [file for file in files if unfinished or not file[1].endswith(UNFINISHED)]


def manifest(data: bytes) -> dict[str, Any]:
    """What has to be so of a checkpoint's arrays."""
    return {"format": FORMAT, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
