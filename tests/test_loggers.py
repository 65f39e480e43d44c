"""Loggers: what was recorded arrives, under its name, at its step; nothing is sent anywhere."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rcpo.constraints import parse
from rcpo.errors import UsageError
from rcpo.loggers import JsonLines, Live, numbers, tracker

LIMIT = parse("P(crash) <= 0.01")
RECORDS: list[dict[str, Any]] = [
    {"steps": 100, "reward/episode": None, "constraint/P(crash)/value": None, "constraint/P(crash)/multiplier": 0.0,
     "time/steps_per_second": 10.0},
    {"steps": 250, "reward/episode": -1.5, "constraint/P(crash)/value": 0.25, "constraint/P(crash)/multiplier": 0.5,
     "time/steps_per_second": 12.0},
]  # fmt: skip


def test_json_lines_are_the_records(tmp_path: Path) -> None:
    logger = JsonLines(tmp_path / "sub" / "metrics.jsonl")
    for record in RECORDS:
        logger.record(record)
        # A reader sees each record at once: a run can be watched.
        assert json.loads((tmp_path / "sub" / "metrics.jsonl").read_text().splitlines()[-1]) == record
    logger.close()


def test_numbers_leave_out_what_is_none() -> None:
    assert numbers(RECORDS[0]).keys() == {"steps", "constraint/P(crash)/multiplier", "time/steps_per_second"}


def test_the_live_view_starts_and_stops(capsys: pytest.CaptureFixture[str]) -> None:
    logger = Live([LIMIT], 1000)
    for record in RECORDS:
        logger.record(record)
    logger.say("a sentence with [brackets]")
    logger.close()
    output = capsys.readouterr().out
    assert "a sentence with [brackets]" in output
    assert "P(crash) 0.25 <= 0.01 broken" in output


def test_tensorboard_reads_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    logger = tracker("tensorboard", tmp_path, {})
    for record in RECORDS:
        logger.record(record)
    logger.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    data = file.read_bytes()
    found: dict[tuple[str, int], float] = {}
    while data:  # a length in 8 bytes, its checksum in 4, the event, its checksum in 4
        size = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + size])
        found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
        data = data[16 + size :]
    # tensorboardX replaces the brackets in a tag: only the step and the number are looked at.
    assert {number for (_, step), number in found.items() if step == 250} == {250.0, -1.5, 0.25, 0.5, 12.0}
    assert found["reward/episode", 250] == -1.5 and ("reward/episode", 100) not in found


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_missing_extra_is_one_sentence(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"needs {package}, which is not installed: pip install 'rcpo\[{name}\]'"):
        tracker(name, tmp_path, {})


def test_the_extras_are_not_imported_until_used() -> None:
    code = (
        "import sys, rcpo.loggers; print([name for name in ('tensorboardX', 'wandb', 'rich') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


WANDB_RUN = """
import json, sys
from pathlib import Path
from rcpo.loggers import tracker
logger = tracker("wandb", Path(sys.argv[1]), {"seed": 3})
for record in json.loads(sys.argv[2]):
    logger.record(record)
logger.close()
"""


def _without_network() -> list[str]:
    """A command's prefix that leaves it no network but itself; empty where this machine does not allow that."""
    prefix = ["unshare", "--net", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*prefix, "true"], capture_output=True).returncode:
        return []
    return [*prefix, "sh", "-c", 'ip link set lo up; exec "$0" "$@"']


@pytest.mark.slow
def test_wandb_offline_keeps_the_numbers_on_disk(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    prefix = _without_network()
    if not prefix:
        pytest.skip("no namespace without a network is to be had here")
    quiet = {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false", "WANDB_DISABLE_CODE": "true"}
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")} | quiet
    command = [*prefix, sys.executable, "-c", WANDB_RUN, str(tmp_path), json.dumps(RECORDS)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert answer.returncode == 0, answer.stderr
    (file,) = tmp_path.rglob("*.wandb")
    assert file.parent.name.startswith("offline-run")
    data = file.read_bytes()
    assert b"constraint/P(crash)/value" in data and b"reward/episode" in data and b"-1.5" in data
