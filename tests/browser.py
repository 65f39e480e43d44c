"""Headless Chromium, spoken to through a pipe (its DevTools protocol): no driver, no port, no network."""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
TIMEOUT = 60.0


@final
class Browser:
    """One page of a browser, and all that it said and asked for."""

    def __init__(self, commands: int, answers: int):
        self._commands, self._answers = os.fdopen(commands, "wb", buffering=0), answers
        self._left, self._number, self._session = b"", 0, ""
        os.set_blocking(answers, False)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command; what it answers."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        self._commands.write(json.dumps(message).encode() + b"\0")
        ends = time.monotonic() + TIMEOUT
        while time.monotonic() < ends:
            for answer in self._read():
                if answer.get("id") == self._number:
                    assert "error" not in answer, answer["error"]
                    return dict(answer["result"])
        raise TimeoutError(method)

    def _read(self) -> Iterator[dict[str, Any]]:
        try:
            self._left += os.read(self._answers, 1 << 20)
        except BlockingIOError:
            time.sleep(0.01)
        while b"\0" in self._left:
            line, self._left = self._left.split(b"\0", 1)
            message = json.loads(line)
            self._note(message.get("method"), message.get("params", {}))
            yield message

    def _note(self, method: str | None, said: dict[str, Any]) -> None:
        if method == "Log.entryAdded":
            self.complaints.append(said["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(said["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(said["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Go to a page on a screen of this width, in light or dark mode, and wait until it stands."""
        self.complaints.clear()
        self.requests.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 20.0) -> None:
        """Until an expression holds."""
        ends = time.monotonic() + seconds
        while not self.ask(expression):
            assert time.monotonic() < ends, f"waited in vain for {expression}"
            time.sleep(0.05)

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    @property
    def wider_than_the_screen(self) -> float:
        """By how many pixels the page can be scrolled sideways."""
        return float(self.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A fresh browser with a profile of its own; gone afterwards."""
    assert CHROMIUM is not None
    to_read, commands = os.pipe()
    answers, to_write = os.pipe()
    # Chromium reads its commands from descriptor 3 and answers on 4.
    plumbing = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
    process = subprocess.Popen(
        ["bash", "-c", plumbing, CHROMIUM, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    os.close(to_read)
    os.close(to_write)
    try:
        yield Browser(commands, answers)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(answers)
