"""When a run's checkpoints are written, and how a run is found again."""

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import equinox as eqx
import jax
import numpy as np

from rcpo import host, progress
from rcpo.checkpoint import from_json
from rcpo.config import CheckpointConfig, TrainConfig
from rcpo.envs.base import Environment, HostEnvironment
from rcpo.errors import UsageError
from rcpo.folder import versions
from rcpo.learn import Plan, begin_again
from rcpo.progress import Progress
from rcpo.snapshots import Snapshots


@final
class Saver:
    """Writes a run's progress into a folder, where there is one, and resets copies that cannot be saved."""

    def __init__(
        self,
        plan: Plan,
        chunk: int,
        environment: Environment,
        crews: host.Crews,
        first: Progress,
        folder: Path | None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """By the seconds of `clock` it is seen to it that no more than their share goes into writing."""
        self._clock = clock
        self._plan, self._chunk, self._environment, self._crews, self._first = plan, chunk, environment, crews, first
        self._snapshots = None if folder is None else Snapshots(folder)
        self._about = about(plan, environment)
        self._begun, self._spent, self._cost, self.saved = self._clock(), 0.0, 0.0, 0

    @property
    def resumable(self) -> bool:
        """Whether the copies go on from wherever they are saved."""
        return all(copies.resumable for copies in self._crews)

    @property
    def spacing(self) -> int:
        """How many points there are from one reset of the copies to the next."""
        return spacing(self._plan.config.checkpoint, self._plan, self._chunk, self._environment)

    def restored(self, say: Callable[[str], None]) -> Progress:
        """Where the run stands: at its newest checkpoint, or at its beginning."""
        if self._snapshots is None or not self._snapshots.numbers:
            return self._first
        largest = progress.largest(self._first, self._crews, self._plan.iterations // self._chunk)
        found, then = self._snapshots.newest(self._read, largest, say)
        strange = [f"{name} {then.get(name)}, here {now}" for name, now in versions().items() if then.get(name) != now]
        if strange:
            say(f"note: the run was begun with {'; '.join(strange)}: it goes on, but perhaps not bit for bit")
        self.saved = found.iteration
        return self._reset(found) if self._resets(found) else found

    def after(self, now: Progress, stopping: bool) -> Progress:
        """What the run goes on from after a point, which is saved if it is time for that."""
        last = now.iteration >= self._plan.iterations
        if self._resets(now):
            now = self._reset(now)
        if last or (self._resets(now) if not self.resumable else stopping or self._due(now)):
            self._write(now)
        return now

    def _resets(self, now: Progress) -> bool:
        """Whether copies that cannot be saved begin anew here, at points that the clock does not choose."""
        last = now.iteration >= self._plan.iterations
        return not self.resumable and not last and now.iteration % (self.spacing * self._chunk) == 0

    def _reset(self, now: Progress) -> Progress:
        assert isinstance(self._environment, HostEnvironment)
        return dataclasses.replace(now, state=begin_again(self._plan, self._environment, self._crews, now.state))

    def _due(self, now: Progress) -> bool:
        config = self._plan.config.checkpoint
        enough = now.iteration - self.saved >= config.every * self._chunk
        # One more is taken to cost what the last one did.
        return enough and self._spent + self._cost <= config.share * (self._clock() - self._begun)

    def _write(self, now: Progress) -> None:
        if self._snapshots is None:
            return
        begun = self._clock()
        self._snapshots.write(now.iteration, progress.save(now, self._crews, self._about))
        self._cost, self.saved = self._clock() - begun, now.iteration
        self._spent += self._cost

    def _read(self, number: int, arrays: dict[str, np.ndarray], path: Path) -> tuple[Progress, dict[str, Any]]:
        plan, chunk = self._plan, self._chunk
        document = progress.document(arrays, path)
        then = document["about"]
        if not isinstance(then, dict) or then.keys() != self._about.keys() or not isinstance(then["versions"], dict):
            raise UsageError(f"{str(path)!r} does not hold this run: it does not say what it is of")
        if then["settings"] != self._about["settings"]:
            raise UsageError(f"{str(path)!r} was written under other settings than config.json has now; put them back")
        if then["environment"] != self._about["environment"]:
            raise UsageError(f"{str(path)!r} was written in another environment; give the one the run was begun in")
        found = progress.restore(arrays, document, path, self._first, self._crews, plan.constraints)
        points = [record["iteration"] for record in found.records]
        if not (found.iteration == number <= plan.iterations and points == [*range(chunk, number + 1, chunk)]):
            raise UsageError(f"{str(path)!r} does not hold this run: it is not from where its name says")
        return found, then["versions"]


def spacing(config: CheckpointConfig, plan: Plan, chunk: int, environment: Environment) -> int:
    """So many points lie between two resets of copies that cannot be saved: most episodes have to run their course."""
    steps = chunk * plan.config.learner.rollout_steps
    return max(config.every, math.ceil(config.episodes * environment.spec.max_steps / steps))


def about(plan: Plan, environment: Environment) -> dict[str, Any]:
    """What a checkpoint is of: digests of the settings and of the environment, and the versions."""
    leaves = [] if isinstance(environment, HostEnvironment) else filter(eqx.is_array, jax.tree.leaves(environment))
    parts = [repr(environment.spec).encode(), *(np.asarray(leaf).tobytes() for leaf in leaves)]
    # As they are read back: whoever asked for 1000 steps finds 1000.0 there.
    config = from_json(TrainConfig, json.loads(json.dumps(dataclasses.asdict(plan.config))))
    settings = json.dumps(dataclasses.asdict(config), sort_keys=True).encode()
    return {
        "settings": hashlib.sha256(settings).hexdigest(),
        "environment": hashlib.sha256(b"\0".join(parts)).hexdigest(),
        "versions": versions(),
    }
