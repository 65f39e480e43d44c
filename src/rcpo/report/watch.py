"""The report of a run while it goes on, served to this machine alone."""

import hashlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any, Final, final
from urllib.parse import parse_qs, urlsplit

from rcpo.errors import UsageError
from rcpo.report import report_body, report_page
from rcpo.report.saved import read_run

ADDRESS: Final = "127.0.0.1"
NAMES: Final = (ADDRESS, "localhost")
"""What a browser may call this server. A page elsewhere whose name was made to point here calls it otherwise."""


def watch(folder: Path, port: int, say: Callable[[str], None]) -> None:
    """Serve until interrupted. Port 0: any that is free."""
    read_run(folder)
    try:
        server = make_server(folder, port)
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen on port {port} of {ADDRESS}: {error}; give another --port, or 0") from None
    with server:
        say(f"watching {folder} on http://{ADDRESS}:{server.server_address[1]}/ until Ctrl-C")
        try:
            server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            say("the watch is over; the run goes on")


def make_server(folder: Path, port: int) -> ThreadingTCPServer:
    """A server of the one page `/`, and of its inside `/main` for whoever has an older one."""

    @final
    class Page(BaseHTTPRequestHandler):
        server_version, sys_version, timeout = "rcpo", "", 30

        def do_GET(self) -> None:
            if not called_rightly(self.headers.get("Host", ""), server.server_address[1]):
                return self._answer(403, b"this server answers to 127.0.0.1 alone\n", "text/plain")
            asked = urlsplit(self.path)
            try:
                if asked.path == "/":
                    return self._answer(200, report_page([read_run(folder)], live=True).encode(), "text/html")
                if asked.path == "/main":
                    return self._news(parse_qs(asked.query).get("have", [""])[0])
            except UsageError as error:
                return self._answer(503, f"{error}\n".encode(), "text/plain")
            return self._answer(404, b"there is nothing here but /\n", "text/plain")

        def _news(self, have: str) -> None:
            body = report_body([read_run(folder)]).encode()
            version = hashlib.sha256(body).hexdigest()[:16]
            if have == version:
                return self._answer(204, b"", "text/html", version)
            return self._answer(200, body, "text/html", version)

        def _answer(self, code: int, body: bytes, kind: str, version: str = "") -> None:
            self.send_response(code)
            headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)),
                       "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
                       "X-Frame-Options": "DENY", "X-Version": version}  # fmt: skip
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nobody wants a line for each time that a browser asks."""

    # Not http.server's own: that one asks for this machine's name, and perhaps the network for it.
    @final
    class Server(ThreadingTCPServer):
        allow_reuse_address, daemon_threads = True, True

    server = Server((ADDRESS, port), Page)
    return server


def called_rightly(host: str, port: int) -> bool:
    """Whether a request was meant for this server by its name: the names of this machine, with its port."""
    return host.lower() in {f"{name}:{port}" for name in NAMES}
