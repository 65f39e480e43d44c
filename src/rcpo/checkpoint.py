"""What a run leaves on disk: arrays in safetensors, everything else in JSON. Reading it back runs no code."""

import dataclasses
import math
import reprlib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError
from safetensors.numpy import load, save

from rcpo.errors import UsageError
from rcpo.files import read_bytes, read_json, unreadable, write_atomically, write_json

__all__ = ["from_json", "load_tree", "named_leaves", "read_json", "save_tree", "write_atomically", "write_json"]

LARGEST_HEADER: Final = 2**20
"""Bytes of a safetensors file that only say what is in it."""
LONGEST_TEXT: Final = 1000
"""Of a setting: it may be said again in a sentence about it."""


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """The arrays of a tree by their paths."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in paths}


def arrays_as_bytes(arrays: Mapping[str, Any]) -> bytes:
    return save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def arrays_from_bytes(data: bytes, path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file; whatever it holds, no code of its is run."""
    if int.from_bytes(data[:8], "little") > LARGEST_HEADER:
        raise unreadable(path, "it is no safetensors file, or has too large a header")
    try:
        return load(data)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise unreadable(path, error) from None


def save_tree(path: Path, tree: PyTree) -> None:
    """Write a tree of arrays."""
    write_atomically(path, arrays_as_bytes(named_leaves(tree)))


def load_tree(path: Path, like: PyTree) -> PyTree:
    """Read a tree of arrays back into the shape of `like`; whatever does not fit is refused."""
    wanted = named_leaves(like)
    arrays = arrays_from_bytes(read_bytes(path, LARGEST_HEADER + 8 + size(wanted)), path)
    check_arrays(arrays, wanted, "this policy", path)
    check_finite(arrays, path)
    leaves = [jnp.asarray(arrays[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def size(leaves: Mapping[str, Any]) -> int:
    """How many bytes arrays of these shapes take."""
    return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in leaves.values())


def check_arrays(arrays: Mapping[str, np.ndarray], wanted: Mapping[str, Any], what: str, path: Path) -> None:
    """Refuse arrays that are not the wanted ones: by name, shape and kind of number."""
    if arrays.keys() != wanted.keys():
        strange = min(arrays.keys() ^ wanted.keys())
        raise UsageError(
            f"{str(path)!r} does not hold {what}: the array {shortly(strange)} is missing or strange to it"
        )
    for name, leaf in wanted.items():
        found = arrays[name]
        if found.shape != leaf.shape or found.dtype != leaf.dtype:
            raise UsageError(f"{str(path)!r} does not hold {what}: {name!r} has shape {found.shape} "
                             f"{found.dtype}, expected {leaf.shape} {leaf.dtype}")  # fmt: skip


def check_finite(arrays: Mapping[str, np.ndarray], path: Path, infinite: tuple[str, ...] = ()) -> None:
    """Refuse numbers that are none; in arrays whose name begins with one of `infinite` they may be without end."""
    for name, array in arrays.items():
        if np.issubdtype(array.dtype, np.inexact):
            fine = ~np.isnan(array) if name.startswith(infinite) else np.isfinite(array)
            if not fine.all():
                raise UsageError(f"{str(path)!r} is not usable: {name!r} holds numbers that are not finite")


def from_json(kind: Any, document: Any, where: str = "config") -> Any:
    """Build a value of the annotated kind (dataclasses, tuples, optional and plain values) from a JSON document."""
    if dataclasses.is_dataclass(kind):
        return _record_from_json(kind, document, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return from_json(arguments[0], document, where)
    if origin is types.UnionType:
        return None if document is None else from_json(_fitting(arguments, document), document, where)
    if origin is tuple and isinstance(document, list):
        return tuple(from_json(arguments[0], entry, where) for entry in document)
    if origin is typing.Literal:
        fits = document in arguments
    else:
        # JSON has one kind of number, and in Python a bool is an int.
        allowed = (float, int) if kind is float else (kind,)
        fits = origin is None and isinstance(document, allowed) and isinstance(document, bool) == (kind is bool)
    fits = fits and not (isinstance(document, str) and len(document) > LONGEST_TEXT)
    # A computer's whole numbers end somewhere, and JSON's 1e999 is infinite in Python.
    if fits and isinstance(document, int | float):
        fits = abs(document) < 2**63 if isinstance(document, int) else math.isfinite(document)
    if not fits:
        raise UsageError(f"cannot read {where}: got {shortly(document)}, expected {kind}")
    return float(document) if kind is float else document


def _fitting(kinds: tuple[Any, ...], document: Any) -> Any:
    """The kind that a document is meant for: among records, the one whose fields it has."""
    fields = document.keys() if isinstance(document, dict) else set()
    records = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    return next((kind for kind in records if fields == {field.name for field in dataclasses.fields(kind)}), kinds[0])


def _record_from_json(kind: Any, document: Any, where: str) -> Any:
    hints = typing.get_type_hints(kind)
    if not isinstance(document, dict):
        raise UsageError(f"cannot read {where}: got {shortly(document)}, expected the fields of {kind.__name__}")
    if strange := sorted(hints.keys() ^ document.keys()):
        raise UsageError(f"cannot read {where}: the field {shortly(strange[0])} is missing, or unknown to this version")
    return kind(**{key: from_json(hints[key], value, f"{where}.{key}") for key, value in document.items()})


def shortly(document: Any) -> str:
    """The beginning of something that may be long, for a sentence."""
    return reprlib.repr(document)
