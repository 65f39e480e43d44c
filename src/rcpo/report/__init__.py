"""What a run is and did, on one page that opens offline; several runs side by side."""

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from rcpo.envs import ROBOTS
from rcpo.errors import UsageError
from rcpo.files import write_atomically
from rcpo.report.card import distributions, health_section, table, verdict_card
from rcpo.report.curves import run_charts
from rcpo.report.many import comparison
from rcpo.report.page import page
from rcpo.report.saved import SavedRun, read_run
from rcpo.report.svg import short

REPORT: Final = "report.html"
FILM: Final = ("film*.png", "film*.jpg")
"""Pictures of the robot that lie in a run's folder are shown on its page."""
LARGEST_PICTURE, MOST_PICTURES = 250_000, 8
DETAILED: Final = 12
"""With more runs than this the page compares them, and leaves each one's own page to it."""


def write_report(folders: Sequence[Path], out: Path) -> Path:
    """Write the page of one run, or of several."""
    text = report_page([read_run(folder) for folder in folders])
    try:
        write_atomically(out, text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {str(out)!r}: {error.strerror}; give another --out") from None
    return out


def report_page(runs: Sequence[SavedRun], live: bool = False) -> str:
    """The page as HTML."""
    return page(_title(runs), report_body(runs), live)


def report_body(runs: Sequence[SavedRun]) -> str:
    """What the page shows."""
    if len(runs) == 1:
        return _head(runs[0]) + _one(runs[0])
    states = ", ".join(f"{sum(run.state == state for run in runs)} {state}" for state in
                       ("finished", "running", "stands still") if any(run.state == state for run in runs))  # fmt: skip
    head = f'<header><h1>{escape(_title(runs))}</h1><p class="faint">{states}</p></header>\n'
    own = "".join(_folded(run) for run in runs) if len(runs) <= DETAILED else ""
    return head + comparison(runs) + (f"<section><h2>Each run</h2>{own}</section>\n" if own else "")


def _title(runs: Sequence[SavedRun]) -> str:
    if len(runs) == 1:
        return f"{runs[0].environment}: {', '.join(one.text for one in runs[0].bounds) or 'no constraint'}"
    return f"{len(runs)} runs on {', '.join(dict.fromkeys(run.environment for run in runs))}"


def _head(run: SavedRun) -> str:
    facts = f"{run.method}, seed {run.seed}, {short(run.steps)} steps, {run.state}"
    return f'<header><h1>{escape(_title([run]))}</h1><p class="faint">{escape(facts)}</p></header>\n'


def _folded(run: SavedRun) -> str:
    facts = f"{run.folder.name}: {run.method}, seed {run.seed}, {run.state}"
    return f"<details><summary>{escape(facts)}</summary>{_one(run)}</details>\n"


def _one(run: SavedRun) -> str:
    from rcpo.report.policy import policy_section, truth_of

    try:
        shown = [verdict_card(run, truth_of(run)), distributions(run.verdict)]
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"the verdict of {str(run.folder)!r} cannot be read: {error}; "
                         "was it written by another version?") from None  # fmt: skip
    curves = f"<section><h2>Curves</h2>{run_charts(run)}</section>\n"
    health = health_section(run.health, run.advice, run.unreadable)
    return shown[0] + health + curves + shown[1] + policy_section(run) + film(run) + _origin(run)


def film(run: SavedRun) -> str:
    """Pictures of the robot, where some lie in the run's folder."""
    found = sorted(path for pattern in FILM for path in run.folder.glob(pattern) if path.is_file())
    small = [path for path in found if path.stat().st_size <= LARGEST_PICTURE][:MOST_PICTURES]
    if not small:
        missing = "There are no pictures of the robot (film*.png in the run's folder)."
        return f'<p class="note">{missing}</p>\n' if run.environment in ROBOTS and run.verdict else ""
    images = "".join(
        f'<img alt="{escape(path.stem)}" src="data:image/{"png" if path.suffix == ".png" else "jpeg"};base64,'
        f'{base64.b64encode(path.read_bytes()).decode()}">'
        for path in small
    )
    return f'<section><h2>The robot</h2><div class="film">{images}</div></section>\n'


def _origin(run: SavedRun) -> str:
    """Where it comes from: the command, the versions, every setting."""
    settings = table(("setting", "value"), flat(run.config))
    versions = table(("package", "version"), [(str(name), str(version)) for name, version in run.versions.items()])
    return (
        f"<section><h2>How it was made</h2><pre>{escape(run.command)}</pre>"
        f"<details><summary>Settings</summary>{settings}</details>"
        f"<details><summary>Versions</summary>{versions}</details></section>\n"
    )


def flat(settings: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Settings by their full names, as the command line has them."""
    rows = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            rows += flat(value, f"{before}{key}.")
        else:
            rows.append((f"{before}{key}", value if isinstance(value, str) else json.dumps(value)))
    return rows
