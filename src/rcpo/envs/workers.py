"""Copies of a Gymnasium environment in processes of their own, which share the arrays they are stepped into.

A worker is a fresh Python without JAX that never runs the user's script: it needs no `if __name__ == "__main__"`, and
forks no process with threads in it. One that hangs or dies is noticed, said, and ended.
"""

import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Final, final

import cloudpickle

from rcpo.envs.stepping import Arrays, Layout, Stepper, Task, arrays, needed
from rcpo.errors import EnvironmentFault, UsageError

GRACE: Final = 5.0
"""How many seconds a worker has to close its copies, and the others have to answer once one has broken down."""
START: Final = 60.0
"""How many seconds a worker has to start and to make its copies, beyond the time that it has for a step."""
PROGRAM: Final = "import sys; from rcpo.envs.workers import work; work(int(sys.argv[1]), int(sys.argv[2]))"


@final
class Workers:
    """All copies, shared out among some processes."""

    def __init__(self, task: Task, layout: Layout, copies: int, workers: int, timeout: float):
        self._task, self._timeout, self._faults = task, timeout, 0
        self._rows = [slice(copies * w // workers, copies * (w + 1) // workers) for w in range(workers)]
        with tempfile.TemporaryFile() as file:
            file.truncate(needed(layout))
            self._memory = mmap.mmap(file.fileno(), needed(layout))
            self.arrays: Arrays = arrays(layout, self._memory)
            try:
                packed = cloudpickle.dumps((task, layout, sys.path))
            except Exception as error:
                raise UsageError(f"cannot send {task.source.name} to another process: {error}; give a function that "
                                 "makes one, or use env.vectorization sync") from None  # fmt: skip
            self._pipes: list[Connection] = []
            self._processes: list[subprocess.Popen] = []
            try:
                for w, rows in enumerate(self._rows):
                    self._start(file.fileno())
                    self._pipes[w].send_bytes(packed)
                    self._pipes[w].send((rows.start, rows.stop, w))
                self._gather("was being made", START + timeout)
            except BaseException:
                self.close()
                raise

    @property
    def faults(self) -> int:
        return self._faults

    def _start(self, memory: int) -> None:
        ours, theirs = Pipe()
        descriptors = (theirs.fileno(), memory)
        # What an environment prints must not run into a document on our standard output; and Ctrl-C is for us to hear,
        # who may want to save a run first.
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *map(str, descriptors)],
            pass_fds=descriptors,
            stdout=2,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        theirs.close()
        self._pipes.append(ours)
        self._processes.append(process)

    def reset(self, seeds: Sequence[int]) -> None:
        for pipe, rows in zip(self._pipes, self._rows, strict=True):
            self._tell(pipe, list(seeds[rows]))
        self._gather("began an episode", self._timeout)

    def step(self) -> None:
        for pipe in self._pipes:
            self._tell(pipe, "step")
        self._gather("took a step", self._timeout)

    def _tell(self, pipe: Connection, word: object) -> None:
        try:
            pipe.send(word)
        except OSError:
            raise self._lost(self._pipes.index(pipe)) from None

    def _gather(self, doing: str, seconds: float) -> None:
        """Every worker's answer: how many copies have broken down so far, or what went wrong.

        Copies that break down in the same step answer in any order; the first of them by number is said, every time.
        """
        missing = {pipe: w for w, pipe in enumerate(self._pipes)}
        wrong: dict[int, Exception] = {}
        faults, until = 0, time.monotonic() + seconds
        while missing:
            ready = wait(list(missing), max(0.0, until - time.monotonic()))
            if not ready and wrong:
                break
            if not ready:
                w = min(missing.values())
                copy = self._rows[w].start + int(self.arrays.at[w])
                raise EnvironmentFault(f"the environment {self._task.source.name} hangs: copy {copy} gave no answer "
                                       f"for {seconds:g} seconds while it {doing}, after "
                                       f"{int(self.arrays.elapsed[copy])} steps of its episode; raise --env.timeout "
                                       "if it is only slow")  # fmt: skip
            for pipe in ready:
                assert isinstance(pipe, Connection)
                w = missing.pop(pipe)
                try:
                    answer = pipe.recv()
                except (EOFError, OSError):
                    wrong[w] = self._lost(w)
                    continue
                if isinstance(answer, tuple):
                    kind, text = answer
                    wrong[w] = (UsageError if kind == "usage" else EnvironmentFault)(text)
                else:
                    faults += answer
            if wrong:
                until = min(until, time.monotonic() + GRACE)
        if wrong:
            raise wrong[min(wrong)]
        self._faults = faults

    def _lost(self, w: int) -> EnvironmentFault:
        code = self._processes[w].wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        copy = self._rows[w].start + int(self.arrays.at[w])
        return EnvironmentFault(f"the process of copy {copy} of the environment {self._task.source.name} {how}, after "
                                f"{int(self.arrays.elapsed[copy])} steps of the copy's episode")  # fmt: skip

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        until = time.monotonic() + GRACE
        for process in self._processes:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._pipes, self._processes = [], []


def work(descriptor: int, memory: int) -> None:
    """A worker's life: make its copies, and step them until nobody asks any more."""
    pipe = Connection(descriptor)
    stepper: Stepper | None = None
    try:
        task, layout, path = cloudpickle.loads(pipe.recv_bytes())
        sys.path[:] = path
        start, stop, worker = pipe.recv()
        shared = arrays(layout, mmap.mmap(memory, needed(layout)))
        stepper = Stepper(task, shared.part(slice(start, stop), worker), start)
        pipe.send(0)
        while True:
            word = pipe.recv()
            stepper.step() if isinstance(word, str) else stepper.reset(word)
            pipe.send(stepper.faults)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass
    except EnvironmentFault as error:
        pipe.send(("fault", str(error)))
    except UsageError as error:
        pipe.send(("usage", str(error)))
    except Exception as error:
        pipe.send(("usage", f"cannot make the environment in a process of its own: {type(error).__name__}: {error}"))
    finally:
        if stepper is not None:
            stepper.close()
