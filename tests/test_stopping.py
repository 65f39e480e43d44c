"""The first signal is a wish, the second ends the process, and afterwards signals do what they did before."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from rcpo.errors import Stopped
from rcpo.stopping import SIGNALS, Stopper, listening


def test_nobody_wishes_anything() -> None:
    stopper = Stopper()
    stopper.at_once("farewell")
    assert not stopper.asked


@pytest.mark.parametrize("number", SIGNALS)
def test_a_wish_is_heard_and_granted_with_the_code_of_its_signal(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with listening() as stopper:
        heard = [stopper.asked]
        os.kill(os.getpid(), number)
        assert [*heard, stopper.asked] == [False, True]
        with pytest.raises(Stopped, match=r"^farewell$") as stopped:
            stopper.leave("farewell")
        time.sleep(0.2)
    assert stopped.value.code == 128 + number
    assert [signal.getsignal(each) for each in SIGNALS] == before
    assert "stopping at the next point; again: at once" in capfd.readouterr().err


def test_where_all_is_saved_a_wish_is_granted_when_it_comes() -> None:
    with listening() as stopper:
        stopper.at_once("all is saved")
        with pytest.raises(Stopped, match="all is saved") as stopped:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
    assert stopped.value.code == 143


def test_a_wish_from_before_is_granted_then() -> None:
    with listening() as stopper:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Stopped, match="all is saved"):
            stopper.at_once("all is saved")


def test_another_thread_changes_nothing() -> None:
    before, found = [signal.getsignal(each) for each in SIGNALS], []

    def listen() -> None:
        with listening() as stopper:
            found.append((stopper.asked, [signal.getsignal(each) for each in SIGNALS]))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert found == [(False, before)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_second_signal_ends_even_what_python_cannot_interrupt(number: signal.Signals, code: int) -> None:
    """The main thread waits in C, as it does for a compiled program: Python's own handlers are not called."""
    waits = (
        "import hashlib\nfrom rcpo.stopping import listening\nwith listening():\n    print('ready', flush=True)\n"
        "    hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", waits], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(number)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == code
    assert "again: at once" in said and "stopped at once" in said
