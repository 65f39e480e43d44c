"""How far a run has come: all that it goes on from, as arrays and back. Reading it back runs no code."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from rcpo import host
from rcpo.checkpoint import LARGEST_HEADER, check_arrays, check_finite, from_json, named_leaves, size
from rcpo.constraints import Constraint
from rcpo.errors import UsageError
from rcpo.files import parse_json
from rcpo.folder import check_records
from rcpo.handover import Candidate
from rcpo.loggers import Record
from rcpo.looks import Look
from rcpo.looks import from_document as looks_from_document
from rcpo.looks import to_document as looks_to_document
from rcpo.types import TrainState

STATE, COPIES, CANDIDATES, NETWORK, DOCUMENT = "state", "copies", "candidates.", "candidates.network", "document"
MAY_BE_INFINITE: Final = (f"{STATE}[0].worker.tally", f"{STATE}[0].agent.optimiser", f"{CANDIDATES}reward")
"""A largest cost before the first step, a step size's worth of a huge gradient, a reward of no episode."""
JUDGED: Final = {"which": np.int64, "iteration": np.int64, "greedy": bool, "episodes": np.int64, "reward": np.float64,
                 "careful": bool}  # fmt: skip
"""What is kept of each candidate beside its values; `which` network it is."""
MOST_CANDIDATES: Final = 64
LARGEST_RECORD: Final = 2**16
"""At one point of a run: far more than there are, so that what is larger is not even read."""


@final
@dataclass(frozen=True)
class Progress:
    """A run between two of its points."""

    state: TrainState
    evaluation_key: jax.Array
    """What the next evaluation draws from."""
    records: tuple[Record, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    looks: tuple[Look, ...] = ()
    """What was verified along the way."""
    seconds: float = 0.0
    """How long the run has taken so far."""

    @property
    def iteration(self) -> int:
        return int(self.state.iteration)

    @property
    def faults(self) -> int:
        """How many episodes ended so far because a copy broke down."""
        return self.records[-1]["faults"] if self.records else 0


def save(progress: Progress, crews: host.Crews, about: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """All of it as arrays; `about` says of JSON's kind what the run is."""
    looks = looks_to_document(progress.looks)
    document = {"about": about, "seconds": progress.seconds, "records": progress.records, "looks": looks}
    return {
        **_named(STATE, (progress.state, progress.evaluation_key)),
        **_named(COPIES, _saved(crews)),
        **_candidates_as_arrays(progress.candidates),
        DOCUMENT: np.frombuffer(json.dumps(document, allow_nan=False).encode(), np.uint8),
    }


def largest(first: Progress, crews: host.Crews, points: int) -> int:
    """How many bytes a checkpoint of this run can have at most."""
    fixed = size(_named(STATE, (first.state, first.evaluation_key)) | _named(COPIES, _saved(crews)))
    candidate = size(named_leaves(first.state.agent.network)) + 2**10
    return LARGEST_HEADER + fixed + (points + 1) * (MOST_CANDIDATES * candidate + LARGEST_RECORD)


def document(arrays: dict[str, np.ndarray], path: Path) -> dict[str, Any]:
    """What is no array in a checkpoint."""
    found = parse_json(arrays.pop(DOCUMENT, np.zeros(0, np.uint8)).tobytes(), path)
    if not isinstance(found, dict) or found.keys() != {"about", "seconds", "records", "looks"}:
        raise UsageError(f"{str(path)!r} does not hold this run: its document is not a checkpoint's")
    return found


def restore(
    arrays: Mapping[str, np.ndarray],
    document: Mapping[str, Any],
    path: Path,
    first: Progress,
    crews: host.Crews,
    constraints: tuple[Constraint, ...],
) -> Progress:
    """What was saved, checked against the `first` progress of the same run. The crews go on from where they were."""
    state, copies = (first.state, first.evaluation_key), _saved(crews)
    wanted = _named(STATE, state) | _named(COPIES, copies) | _wanted_candidates(arrays, first, len(constraints))
    check_arrays(arrays, wanted, "this run", path)
    check_finite(arrays, path, MAY_BE_INFINITE)
    records = document["records"] if isinstance(document["records"], list) else [None]
    checked = check_records(records, constraints, repr(str(path)))
    candidates = _candidates_from_arrays(arrays, first, path)
    looks = looks_from_document(document["looks"], constraints, len(candidates), path)
    seconds = from_json(float, document["seconds"], f"{path}, seconds")
    _put_back(crews, _filled(COPIES, copies, arrays), path)
    found, key = _filled(STATE, state, arrays)
    return Progress(found, key, checked, candidates, looks, seconds)


def _saved(crews: host.Crews) -> list[dict[str, np.ndarray]]:
    """What each crew goes on from; nothing where it cannot say so."""
    return [copies.save() for copies in crews if copies.resumable]


def _put_back(crews: host.Crews, saved: Sequence[Mapping[str, Any]], path: Path) -> None:
    for copies, mine in zip([copies for copies in crews if copies.resumable], saved, strict=True):
        try:
            copies.restore({name: np.asarray(array) for name, array in mine.items()})
        except (ValueError, OverflowError, KeyError, TypeError, IndexError) as error:
            raise UsageError(f"{str(path)!r} does not hold this run: its copies cannot be restored: {error}") from None


def _named(prefix: str, tree: PyTree) -> dict[str, np.ndarray]:
    """The arrays of a tree by their paths; a random key is the numbers that it is made of."""
    return {f"{prefix}{name}": np.asarray(_plain(leaf)) for name, leaf in named_leaves(tree).items()}


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _filled(prefix: str, like: PyTree, arrays: Mapping[str, np.ndarray]) -> Any:
    """A tree like another one, with these arrays in it: on the host what was there, in JAX's hands what was there."""

    def leaf(name: str, old: Any) -> Any:
        new = arrays[f"{prefix}{name}"]
        if not isinstance(old, jax.Array):
            return new.copy()
        return jax.random.wrap_key_data(jnp.asarray(new)) if _is_key(old) else jnp.asarray(new)

    return jax.tree.unflatten(jax.tree.structure(like), [leaf(name, old) for name, old in named_leaves(like).items()])


# Candidates: networks that several share are kept once, so what is kept is a stack of networks and who has which.


def _candidates_as_arrays(candidates: Sequence[Candidate]) -> dict[str, np.ndarray]:
    networks = {id(candidate.network): candidate.network for candidate in candidates}
    place = {identity: number for number, identity in enumerate(networks)}
    rows = [{**vars(candidate), "which": place[id(candidate.network)]} for candidate in candidates]
    arrays = {f"{CANDIDATES}{name}": np.array([row[name] for row in rows], kind) for name, kind in JUDGED.items()}
    for name in ("value", "spread"):
        arrays[f"{CANDIDATES}{name}"] = np.stack([row[name] for row in rows]).astype(np.float64)
    return arrays | _named(NETWORK, jax.tree.map(lambda *leaves: np.stack(leaves), *networks.values()))


def _wanted_candidates(arrays: Mapping[str, np.ndarray], first: Progress, constraints: int) -> dict[str, Any]:
    """What the arrays of candidates have to look like; only how many there are is read from the arrays."""
    network = named_leaves(first.state.agent.network)
    which, stack = arrays.get(f"{CANDIDATES}which"), arrays.get(f"{NETWORK}{next(iter(network))}")
    count, networks = (0 if found is None or not found.ndim else len(found) for found in (which, stack))
    network = {f"{NETWORK}{name}": _blank((networks, *leaf.shape), leaf.dtype) for name, leaf in network.items()}
    values = {f"{CANDIDATES}{name}": _blank((count, constraints), np.float64) for name in ("value", "spread")}
    return network | values | {f"{CANDIDATES}{name}": _blank((count,), kind) for name, kind in JUDGED.items()}


def _blank(shape: tuple[int, ...], kind: Any) -> np.ndarray:
    """An array of this shape that takes no memory."""
    return np.broadcast_to(np.zeros((), kind), shape)


def _candidates_from_arrays(arrays: Mapping[str, np.ndarray], first: Progress, path: Path) -> tuple[Candidate, ...]:
    column = {name: arrays[f"{CANDIDATES}{name}"] for name in (*JUDGED, "value", "spread")}
    like = first.state.agent.network
    stack = [arrays[f"{NETWORK}{name}"] for name in named_leaves(like)]
    fits = (column["which"] >= 0).all() and (column["which"] < len(stack[0])).all() and (column["episodes"] >= 0).all()
    if not (fits and (column["spread"] >= 0.0).all() and (column["reward"] < np.inf).all() and len(column["which"])):
        raise UsageError(f"{str(path)!r} does not hold this run: its candidates are none")
    networks = [
        jax.tree.unflatten(jax.tree.structure(like), [np.asarray(leaf[m]) for leaf in stack])
        for m in range(len(stack[0]))
    ]
    return tuple(
        Candidate(
            iteration=int(column["iteration"][i]),
            network=networks[column["which"][i]],
            greedy=bool(column["greedy"][i]),
            episodes=int(column["episodes"][i]),
            reward=float(column["reward"][i]),
            value=column["value"][i],
            spread=column["spread"][i],
            careful=bool(column["careful"][i]),
        )
        for i in range(len(column["which"]))
    )
