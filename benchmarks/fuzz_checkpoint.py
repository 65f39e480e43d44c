"""Hostile files: whatever is done to what a run leaves on disk, reading it ends in a result or in one sentence.

    python benchmarks/fuzz_checkpoint.py --inputs 100000 --json benchmarks/results/fuzz_checkpoint.jsonl

Inputs are drawn by hypothesis. Half of them are the bytes of true files with parts flipped, cut, doubled and moved;
the other half keep to the grammar of the file and lie in it: headers of safetensors with other shapes, kinds, places
and names, JSON whose entries are of another kind, too large, too deep or missing, arrays with numbers that are none.
Checksums are made right again, for they protect from accidents alone. Anything but a result or a `UsageError` counts
as a failure and is printed with its input; so does a reader that takes more than `--memory` bytes.
"""

import argparse
import json
import random
import resource
import shutil
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

import rcpo
from rcpo import envs, folder, presets, progress
from rcpo.checkpoint import arrays_from_bytes, from_json
from rcpo.config import EvaluationConfig, TrainConfig
from rcpo.constraints import parse_all
from rcpo.envs.settings import RobotSettings
from rcpo.errors import UsageError
from rcpo.evaluation import Sample, summarise
from rcpo.files import parse_json
from rcpo.handover import Candidate, Handover, judge_candidate
from rcpo.looks import Look
from rcpo.points import Session, keep, make_record, training
from rcpo.policy import single
from rcpo.progress import Progress
from rcpo.run import Run, make_plan
from rcpo.saving import Saver
from rcpo.snapshots import Snapshots, manifest

Draw = random.Random
LITTLE = EvaluationConfig(points=3, episodes=0, shortlist_episodes=8, verdict_episodes=16, looks=1)
NUMBERS = (0, -1, 1, 2, 7, 255, 2**16, 2**31, 2**32, 2**62, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e308, 1e-320)
WORDS = ("", "0", "../../etc/passwd", "/dev/zero", "a" * 5000, "\x00", "\ud800", "F64", "BF16", "mars-rover", "NaN")
RAW = ("NaN", "Infinity", "-Infinity", "1e999", "[" * 3000 + "]" * 3000, '{"a":' * 2000 + "1" + "}" * 2000, "9" * 5000)
"""What Python's JSON takes and JSON's grammar does not, or what is too much of it."""
KINDS = ("F64", "F32", "F16", "BF16", "I64", "U64", "I32", "U32", "I16", "U8", "BOOL", "C64", "F8_E4M3", "F4", "X")


def bytes_changed(draw: Draw, data: bytes) -> bytes:
    """A few places of a file flipped, cut out, put in, doubled or written over."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 5))):
        place, length = draw.randrange(len(changed) + 1), draw.choice((1, 1, 4, 8, 64, 1000))
        kind = draw.randrange(6)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del changed[place : place + length]
        elif kind == 2:
            changed[place:place] = draw.randbytes(length)
        elif kind == 3:
            changed[place:place] = changed[place : place + length]
        elif kind == 4:
            changed[place : place + 8] = struct.pack("<Q", draw.choice((0, 1, 2**20, 2**31, 2**63, 2**64 - 1)))
        else:
            del changed[place:]
    return bytes(changed)


def strange(draw: Draw, depth: int = 3) -> Any:
    """Some JSON value that was not asked for."""
    kind = draw.randrange(7)
    if kind == 0:
        return draw.choice(NUMBERS)
    if kind == 1:
        return draw.choice(WORDS)
    if kind == 2:
        return draw.choice((None, True, False))
    if kind == 3:
        return f"\x01{draw.choice(RAW)}\x01"
    if depth and kind == 4:
        return [strange(draw, depth - 1) for _ in range(draw.randrange(4))]
    if depth and kind == 5:
        return {str(strange(draw, 0)): strange(draw, depth - 1) for _ in range(draw.randrange(4))}
    return draw.uniform(-10.0, 10.0)


def document_changed(draw: Draw, document: Any) -> Any:
    """The same JSON with an entry replaced, removed, added or renamed, somewhere inside."""
    if isinstance(document, dict) and document and draw.random() < 0.9:
        key = draw.choice(list(document))
        kind, rest = draw.randrange(8), {name: entry for name, entry in document.items() if name != key}
        if kind == 0:
            return rest
        if kind == 1:
            return {**document, str(strange(draw, 0)): strange(draw)}
        if kind == 2:
            return {**rest, str(strange(draw, 0)): document[key]}
        return {**document, key: document_changed(draw, document[key])}
    if isinstance(document, list) and document and draw.random() < 0.8:
        place, kind = draw.randrange(len(document)), draw.randrange(6)
        if kind == 0:
            return document[:place] + document[place + 1 :]
        if kind == 1:
            return [*document[:place], strange(draw), *document[place:]]
        if kind == 2:
            return document * draw.randrange(4)
        return [*document[:place], document_changed(draw, document[place]), *document[place + 1 :]]
    return strange(draw)


def written(document: Any) -> bytes:
    """JSON, with what is no JSON put in raw where it was marked."""
    text = json.dumps(document)
    for raw in RAW:
        text = text.replace(json.dumps(f"\x01{raw}\x01"), raw)
    return text.encode("utf-8", "surrogatepass")


def json_changed(draw: Draw, data: bytes) -> bytes:
    return written(document_changed(draw, json.loads(data)))


def lines_changed(draw: Draw, data: bytes) -> bytes:
    lines = data.splitlines()
    place = draw.randrange(len(lines))
    lines[place] = json_changed(draw, lines[place])
    return b"\n".join(lines) + b"\n"


def header_changed(draw: Draw, data: bytes) -> bytes:
    """A safetensors file whose header lies."""
    length = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    name, kind = draw.choice(list(header)), draw.randrange(6)
    entry = dict(header[name])
    if kind == 0:
        entry["dtype"] = draw.choice(KINDS)
    elif kind == 1:
        entry["shape"] = [draw.choice((0, 1, 2, 5, 2**31, 2**63, -1)) for _ in range(draw.randrange(5))]
    elif kind == 2:
        entry["data_offsets"] = [draw.choice((*entry["data_offsets"], 0, len(body), 2**63, -1)) for _ in range(2)]
    header[name] = entry
    text = written(document_changed(draw, header) if kind > 3 else header)
    size = len(text) if draw.random() < 0.8 else draw.choice((0, len(text) + 1, 2**20 + 1, 2**40, 2**64 - 1))
    return struct.pack("<Q", size) + text + body


def arrays_changed(draw: Draw, data: bytes) -> bytes:
    """A proper safetensors file with other arrays in it."""
    arrays = {name: array.copy() for name, array in load(data).items()}
    name, kind = draw.choice(list(arrays)), draw.randrange(7)
    array = arrays[name]
    if name == progress.DOCUMENT:
        arrays[name] = np.frombuffer(json_changed(draw, array.tobytes()), np.uint8)
    elif kind == 0:
        del arrays[name]
    elif kind == 1:
        arrays[draw.choice(("../x", "state", name + "x", ""))] = array
    elif kind == 2:
        arrays[name] = np.resize(array, [draw.randrange(4) for _ in range(draw.randrange(4))])
    elif kind == 3:
        arrays[name] = array.astype(draw.choice((np.float64, np.float32, np.int8, np.int64, np.uint64, bool)))
    elif kind == 4:
        arrays[name] = np.repeat(array[None], draw.randrange(3), axis=0)
    elif array.size:
        worst = (np.nan, np.inf, -np.inf, 1e38, -1.0) if array.dtype.kind == "f" else (-1, 2**31 - 1, 0, 127)
        with np.errstate(all="ignore"):
            array.flat[draw.randrange(array.size)] = np.array(draw.choice(worst)).astype(array.dtype)
    return save(arrays)


Change = Callable[[Draw, bytes], bytes]
Reader = Callable[[bytes], object]


@final
@dataclass(frozen=True)
class Victim:
    """A run that was never trained but left the files of one that was; and what reads its checkpoints."""

    place: Path
    environment: envs.base.Environment
    saver: Saver
    session: Session
    largest: int

    @property
    def checkpoint(self) -> Path:
        return max((self.place / "checkpoints").glob("*.safetensors"))


def made_up(place: Path, name: str, stack: ExitStack) -> Victim:
    """The files of a run of three points, after its second."""
    own = presets.preset(None, name)
    ppo = replace(own.learner.ppo, hidden=(4,), minibatches=2, epochs=1)
    learner = replace(own.learner, environments=4, rollout_steps=4, ppo=ppo)
    config = replace(own, steps=4 * 4 * 6, learner=learner, evaluation=LITTLE)
    if name in envs.ROBOTS:
        config = replace(config, env=RobotSettings(max_steps=8, threads=1))
    folder.begin_anew(place)
    folder.write_config(place, name, config)
    environment = envs.make(name, config.env)
    constraints = parse_all(config.constraints, environment.spec.column_names)
    plan, chunk = make_plan(config, constraints, environment)
    session = stack.enter_context(training(plan, environment))
    first = Progress(session.first, jax.random.key(1))
    saver = Saver(plan, chunk, environment, session.crews, first, place / "checkpoints")

    draw = np.random.default_rng(0)
    zeros = {key: np.zeros(chunk) for key in ("episodes", "reward", "length")}
    zeros |= {key: np.zeros((chunk, len(constraints))) for key in ("value", "value_squared", "multiplier", "aim")}
    reached = [eqx.tree_at(lambda state: state.iteration, first.state, jnp.int32(chunk * k)) for k in (1, 2)]
    points = [
        make_record(plan, environment, state, zeros, 1.0) | {"faults": 0, "time/seconds": 1.0} for state in reached
    ]
    seen = Sample(
        value=draw.random((9, len(constraints))),
        columns=draw.random((9, len(environment.spec.columns))),
        reward=draw.random(9),
        length=np.full(9, 5),
        truncated=np.zeros(9, bool),
    )
    network = keep(first.state.agent.network)
    nothing = np.zeros(len(constraints))
    known = [judge_candidate(Candidate(k, network, bool(k), 0, 0.0, nothing, nothing), seen) for k in range(2)]
    evaluation = summarise(environment, constraints, seen, 0.95)
    now = Progress(reached[1], first.evaluation_key, tuple(points), tuple(known), (Look(1, evaluation),), 2.0)
    Snapshots(place / "checkpoints").write(chunk, progress.save(now, session.crews, saver._about))
    Snapshots(place / "checkpoints").write(2 * chunk, progress.save(now, session.crews, saver._about))

    handed = Handover(single(network, False), evaluation, False, 0.95, 1, (1,))
    finished = Run(name, environment, config, constraints, handed, tuple(points), 96, 2.0, place)
    folder.write_result(finished, place)
    (place / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
    return Victim(place, environment, saver, session, progress.largest(first, session.crews, 3))


def checkpoint_reader(victim: Victim) -> tuple[bytes, Reader]:
    """The bytes of a checkpoint, and what reads them when a run is resumed; a robot then takes a step."""
    path = victim.checkpoint

    def read(data: bytes) -> object:
        if len(data) > victim.largest:
            raise UsageError("the file is too large, and not read")
        found = victim.saver._read(int(path.stem), arrays_from_bytes(data, path), path)
        for copies in victim.session.crews:
            copies.step(np.zeros((copies.count, victim.environment.spec.outputs)))
        return found

    return path.read_bytes(), read


def folder_reader(place: Path, name: str) -> tuple[bytes, Reader]:
    """The bytes of one of a run's files, and `rcpo.load` of a folder in which they are replaced."""
    copy = place.with_name(f"{place.name}-{name}")
    shutil.copytree(place, copy)

    def read(data: bytes) -> object:
        (copy / name).write_bytes(data)
        return rcpo.load(copy)

    return (place / name).read_bytes(), read


def snapshot_reader(place: Path) -> tuple[bytes, Reader]:
    """The bytes of a checkpoint's checksum; and the search for the newest checkpoint that can be used."""
    copy = place.with_name(f"{place.name}-snapshots")
    shutil.copytree(place / "checkpoints", copy)
    newest = max(copy.glob("*.json"))
    snapshots = Snapshots(copy)

    def read(data: bytes) -> object:
        newest.write_bytes(data)
        found = snapshots.newest(lambda number, arrays, path: number, 2**30, lambda text: None)
        assert found < int(newest.stem) or json.loads(data) == manifest(newest.with_suffix(".safetensors").read_bytes())
        return found

    return newest.read_bytes(), read


def targets(place: Path, stack: ExitStack) -> dict[str, tuple[int, bytes, Reader, tuple[Change, ...]]]:
    """What is attacked: how often among 100 inputs, the true bytes, what reads them, and how they are changed."""
    grid, robot = made_up(place / "fork", "fork", stack), made_up(place / "robot", "HalfCheetah-v5", stack)
    settings = json.dumps(json.loads((grid.place / "config.json").read_text())["config"]).encode()
    tensors, document = (bytes_changed, header_changed, arrays_changed, arrays_changed), (bytes_changed, json_changed)
    found: dict[str, tuple[int, bytes, Reader, tuple[Change, ...]]] = {
        "checkpoint": (40, *checkpoint_reader(grid), tensors),
        "checkpoint of a robot": (18, *checkpoint_reader(robot), tensors),
        "settings": (30, settings, lambda data: from_json(TrainConfig, parse_json(data, Path("settings"))), document),
        "checksum": (6, *snapshot_reader(grid.place), document),
        "config.json": (1, *folder_reader(grid.place, "config.json"), document),
        "verdict.json": (2, *folder_reader(grid.place, "verdict.json"), document),
        "metrics.jsonl": (1, *folder_reader(grid.place, "metrics.jsonl"), (bytes_changed, lines_changed)),
        "policy.safetensors": (2, *folder_reader(grid.place, "policy.safetensors"), tensors[:3]),
    }
    for _, data, read, _ in found.values():
        read(data)  # what was not changed is read
    return found


def fuzz(inputs: int, seconds: float = 10.0) -> tuple[Counter[str], list[str]]:
    """How many inputs each reader took or refused, and what else came out of it."""
    counts: Counter[str] = Counter()
    failures: list[str] = []
    seen: set[bytes] = set()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        attacked = targets(place, stack)
        names, shares = list(attacked), [attacked[name][0] for name in attacked]

        @settings(
            max_examples=inputs, database=None, deadline=None, derandomize=True, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(st.randoms(use_true_random=True))
        def attack(draw: Draw) -> None:
            (name,) = draw.choices(names, shares)
            _, data, read, changes = attacked[name]
            changed = draw.choice(changes)(draw, data)
            seen.add(sha256(name.encode() + changed).digest())
            begun = time.process_time()
            try:
                read(changed)
                counts[f"{name}: read"] += 1
            except UsageError as error:
                counts[f"{name}: refused"] += 1
                if len(str(error)) > 4000 or not str(error).isprintable():
                    failures.append(f"{name}: no sentence: {str(error)[:300]!r}")
            except BaseException as error:
                failures.append(f"{name}: {type(error).__name__}: {str(error)[:300]}: {changed[:600]!r}")
            if time.process_time() - begun > seconds:
                failures.append(f"{name}: took {time.process_time() - begun:.1f} s: {changed[:600]!r}")

        attack()
    counts["distinct inputs"] = len(seen)
    return counts, failures


def main() -> None:
    parser = argparse.ArgumentParser(description="Attack what reads a run's files.")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--memory", type=int, default=6 * 2**30, help="more than so many bytes is a failure, too")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    begun = time.monotonic()
    counts, failures = fuzz(chosen.inputs)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    result = {"inputs": chosen.inputs, **counts, "failures": len(failures), "peak_bytes": peak,
              "seconds": round(time.monotonic() - begun, 1), "versions": folder.versions()}  # fmt: skip
    print(json.dumps(result, indent=2))
    print("\n".join(failures[:20]))
    if chosen.json:
        chosen.json.write_text(json.dumps(result) + "\n")
    raise SystemExit(bool(failures) or peak > chosen.memory)


if __name__ == "__main__":
    main()
