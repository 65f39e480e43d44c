"""What a run leaves on disk: arrays in safetensors, everything else in JSON. Reading it back runs no code."""

import dataclasses
import json
import os
import types
import typing
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from rcpo.errors import UsageError


def write_atomically(path: Path, data: bytes) -> None:
    """A reader finds the old file or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def write_json(path: Path, document: Any) -> None:
    write_atomically(path, (json.dumps(document, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {str(path)!r}: {error}; is its folder a run of rcpo?") from None


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """The arrays of a tree by their paths."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in paths}


def save_tree(path: Path, tree: PyTree) -> None:
    """Write a tree of arrays."""
    write_atomically(path, save({name: np.asarray(leaf) for name, leaf in named_leaves(tree).items()}))


def load_tree(path: Path, like: PyTree) -> PyTree:
    """Read a tree of arrays back into the shape of `like`; whatever does not fit is refused."""
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError, ValueError) as error:
        raise UsageError(f"cannot read {str(path)!r}: {error}; is its folder a run of rcpo?") from None
    wanted = named_leaves(like)
    if arrays.keys() != wanted.keys():
        strange = sorted(arrays.keys() ^ wanted.keys())[0]
        raise UsageError(f"{str(path)!r} does not hold this policy: the array {strange!r} is missing or strange to it")
    for name, leaf in wanted.items():
        if arrays[name].shape != leaf.shape or arrays[name].dtype != leaf.dtype:
            raise UsageError(f"{str(path)!r} does not hold this policy: {name!r} has shape {arrays[name].shape} "
                             f"{arrays[name].dtype}, expected {leaf.shape} {leaf.dtype}")  # fmt: skip
        if np.issubdtype(arrays[name].dtype, np.floating) and not np.isfinite(arrays[name]).all():
            raise UsageError(f"{str(path)!r} is not usable: {name!r} holds numbers that are not finite")
    leaves = [jnp.asarray(arrays[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


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
    if not fits:
        raise UsageError(f"cannot read {where}: got {document!r}, expected {kind}")
    return float(document) if kind is float else document


def _fitting(kinds: tuple[Any, ...], document: Any) -> Any:
    """The kind that a document is meant for: among records, the one whose fields it has."""
    fields = document.keys() if isinstance(document, dict) else set()
    records = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    return next((kind for kind in records if fields == {field.name for field in dataclasses.fields(kind)}), kinds[0])


def _record_from_json(kind: Any, document: Any, where: str) -> Any:
    hints = typing.get_type_hints(kind)
    if not isinstance(document, dict):
        raise UsageError(f"cannot read {where}: got {document!r}, expected the fields of {kind.__name__}")
    if strange := sorted(hints.keys() ^ document.keys()):
        raise UsageError(f"cannot read {where}: the field {strange[0]!r} is missing, or unknown to this version")
    return kind(**{key: from_json(hints[key], value, f"{where}.{key}") for key, value in document.items()})
