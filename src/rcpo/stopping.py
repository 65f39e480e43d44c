"""A wish to stop: the first Ctrl-C or SIGTERM is granted at the next point, once that is saved, the second at once."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, final

from rcpo.errors import Stopped

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@final
class Stopper:
    """Knows whether somebody wishes that a run stops. Nobody does, unless it was made by `listening`."""

    def __init__(self) -> None:
        self._signal: int | None = None
        self._farewell: str | None = None

    @property
    def asked(self) -> bool:
        return self._signal is not None

    def leave(self, farewell: str) -> None:
        """Grant the wish."""
        raise Stopped(farewell, 128 + (self._signal or signal.SIGINT))

    def at_once(self, farewell: str) -> None:
        """From here on all is saved: a wish is granted when it comes."""
        self._farewell = farewell
        if self.asked:
            self.leave(farewell)

    def heard(self, number: int, frame: FrameType | None = None) -> None:
        """What Python calls, between two of its own steps."""
        self._signal = self._signal or number
        if self._farewell is not None:
            self.leave(self._farewell)

    def watch(self, wakeup: socket.socket) -> None:
        """What a thread does that is told of signals while Python waits for a compiled program to end."""
        times = 0
        for number in iter(lambda: wakeup.recv(1), b""):
            if number[0] not in SIGNALS:
                continue
            times += 1
            if times > 1:
                # What is on disk is whole at any time; only the terminal wants its cursor back.
                print("\x1b[?25h" if sys.stderr.isatty() else "", "rcpo: stopped at once", file=sys.stderr, flush=True)
                os._exit(128 + number[0])
            if self._farewell is None:
                print("rcpo: stopping at the next point; again: at once", file=sys.stderr, flush=True)


@contextmanager
def listening() -> Iterator[Stopper]:
    """Signals become wishes, in the main thread, which alone may change what signals do."""
    stopper = Stopper()
    if threading.current_thread() is not threading.main_thread():
        yield stopper
        return
    ear, mouth = socket.socketpair()
    mouth.setblocking(False)
    before = {number: signal.signal(number, stopper.heard) for number in SIGNALS}
    wakeup = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=stopper.watch, args=(ear,), daemon=True)
    watcher.start()
    try:
        yield stopper
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        mouth.close()
        watcher.join()
        ear.close()
