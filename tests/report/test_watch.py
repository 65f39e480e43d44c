"""The watch: the page while a run goes on, for this machine alone, and nothing else of the disk."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from saved_runs import record, verdict_of, wavy, write_run

from rcpo.errors import UsageError
from rcpo.report.watch import called_rightly, make_server, watch


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A run on its way, and the port that it is watched on."""
    folder = write_run(tmp_path / "run", wavy(5, 5e5))
    (tmp_path / "secret.txt").write_text("secret")
    with make_server(folder, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield folder, server.server_address[1]
        server.shutdown()
        thread.join()


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    """A request with the path exactly as it is written."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, dict(answer.getheaders())


def test_the_page_follows_the_run(served: tuple[Path, int]) -> None:
    folder, port = served
    status, text, headers = ask(port, "/")
    assert status == 200 and 'data-live="2"' in text and "connect-src 'self'" in text
    assert headers["Content-Type"] == "text/html; charset=utf-8" and headers["Cache-Control"] == "no-store"
    status, text, headers = ask(port, "/main?have=")
    assert status == 200 and "500k of 1M steps" in text and "<html" not in text
    have = headers["X-Version"]
    assert ask(port, f"/main?have={have}")[0] == 204  # nothing new
    line = json.dumps(record(600_000, {"mean(torque)": 0.2}))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(line[:40])
        file.flush()
        assert ask(port, f"/main?have={have}")[0] == 204  # half a line is no news
        file.write(line[40:] + "\n")
    status, text, headers = ask(port, f"/main?have={have}")
    assert status == 200 and "600k of 1M steps" in text and headers["X-Version"] != have
    write_run(folder, wavy(10, 1e6), verdict_of())
    assert 'class="card satisfied"' in ask(port, "/main")[1]


@pytest.mark.parametrize(
    "path",
    [
        "/config.json", "/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "//etc/passwd",
        "/main/../../secret.txt",
        "/./", "/main/", "/favicon.ico", "/%00", "/report.html", "/?/../config.json/..%5c", "/\\..\\secret.txt",
    ],
)  # fmt: skip
def test_there_is_nothing_but_the_page(served: tuple[Path, int], path: str) -> None:
    status, text, _ = ask(served[1], path)
    assert "secret" not in text and "learner" not in text.partition("<main>")[0]
    assert status == (200 if path.startswith("/?") else 404)


def test_a_strange_host_is_refused(served: tuple[Path, int]) -> None:
    """A page elsewhere whose name was made to point to this machine must not read what is here."""
    _, port = served
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1",
        f"127.0.0.1:{port + 1}",
        f"127.0.0.1.evil:{port}",
        "",
    ):
        status, text, _ = ask(port, "/", Host=host)
        assert status == 403 and "Walker" not in text, host
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}"):
        assert ask(port, "/", Host=host)[0] == 200


def test_only_questions_are_answered(served: tuple[Path, int]) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
        assert ask(served[1], "/", method)[0] == 501


def test_it_listens_on_this_machine_alone(served: tuple[Path, int]) -> None:
    _, port = served
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {line[1] for line in lines if line[3] == "0A" and line[1].endswith(f":{port:04X}")}
    assert listening == {f"0100007F:{port:04X}"}  # 127.0.0.1, and not 0.0.0.0


def test_a_run_that_breaks_while_it_is_watched_is_said(served: tuple[Path, int]) -> None:
    folder, port = served
    (folder / "config.json").write_text("{")
    status, text, _ = ask(port, "/")
    assert status == 503 and "cannot read" in text and "Traceback" not in text


def test_host_names() -> None:
    assert called_rightly("127.0.0.1:80", 80) and called_rightly("Localhost:80", 80)
    assert not called_rightly("127.0.0.1:80", 81) and not called_rightly("[::1]:80", 80)


def test_a_port_that_is_taken_and_a_folder_that_is_no_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", wavy(5, 5e5))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="cannot listen on port"):
            watch(folder, taken.getsockname()[1], print)
    with pytest.raises(UsageError, match="cannot listen on port 70000"):
        watch(folder, 70_000, print)
    with pytest.raises(UsageError, match="is no run"):
        watch(tmp_path, 0, print)


def test_an_interrupt_leaves_cleanly(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", wavy(5, 5e5))
    # Who runs the tests in the background has it ignored, and so has every child.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from rcpo.cli import main; main()"
    command: list[Any] = [sys.executable, "-c", heard, "watch", folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        said = process.stdout.readline()
        port = int(said.partition("http://127.0.0.1:")[2].partition("/")[0])
        assert ask(port, "/")[0] == 200
        os.kill(process.pid, signal.SIGINT)
        try:
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
        assert "the watch is over" in process.stdout.read()
        assert process.stderr.read() == ""
