"""The shell of a page: one file that opens offline. Whatever it shows was escaped; nothing else may run or load."""

import base64
import hashlib
from html import escape
from importlib.resources import files
from typing import Final

from rcpo import __version__

LIVE_SECONDS: Final = 2
"""How often a page that is watched asks for news."""


def page(title: str, body: str, live: bool = False) -> str:
    """The whole document. The policy in its head lets this one script run, and forbids every other and any request."""
    style, script = (
        files("rcpo.report").joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    reach = "connect-src 'self'; " if live else ""
    allowed = f"default-src 'none'; {reach}img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    refresh = f' data-live="{LIVE_SECONDS}"' if live else ""
    return (
        f'<!doctype html>\n<html lang="en"{refresh}>\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n'
        f'<main>\n{body}</main>\n<footer>Made by rcpo {__version__}. <span id="live"></span></footer>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )
