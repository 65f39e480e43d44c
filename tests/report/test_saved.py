"""Reading a run that may be on its way: half lines, damaged lines, things that are no numbers."""

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saved_runs import config_of, record, verdict_of, wavy, write_run

from rcpo.constraints import parse
from rcpo.errors import UsageError
from rcpo.report.saved import read_bound, read_run

GOOD = record(100, {"mean(torque)": 0.5})


@pytest.mark.parametrize(
    "text",
    ["P(crash) <= 0.01", "mean(speed) >= -2.5", "discounted(torque, 0.9) <= 1e-05", "sum(push) >= 100.0"],
)
def test_a_written_constraint_means_what_it_means_to_the_parser(text: str) -> None:
    bound, parsed = read_bound(text), parse(text)
    assert bound is not None
    assert (bound.quantity, bound.limit, bound.at_least) == (parsed.quantity, parsed.limit, parsed.at_least)
    assert str(bound) == text
    for value in (-3.0, 0.0, parsed.limit, 7.0):
        assert bound.excess(value) == parsed.excess(value)


def test_the_last_comparison_is_the_bound() -> None:
    bound = read_bound("P(speed >= 3) <= 0.1")
    assert bound is not None and (bound.quantity, bound.limit, bound.at_least) == ("P(speed >= 3)", 0.1, False)
    assert read_bound("no bound") is None and read_bound("x <= many") is None


def test_a_half_line_is_waited_for(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [GOOD])
    line = json.dumps(record(200, {"mean(torque)": 0.4}))
    for length in range(len(line)):
        (folder / "metrics.jsonl").write_text(json.dumps(GOOD) + "\n" + line[:length])
        run = read_run(folder)
        assert (run.steps, run.unreadable) == (100, 0)
    (folder / "metrics.jsonl").write_text(json.dumps(GOOD) + "\n" + line + "\n")
    assert read_run(folder).steps == 200


def test_damaged_lines_are_counted_and_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [GOOD])
    lines = [
        json.dumps(GOOD),
        '{"steps": 1',
        "[1]",
        '{"steps": null}',
        '{"steps": "7"}',
        "\x00\xff",
        json.dumps(GOOD),
        "",
    ]
    (folder / "metrics.jsonl").write_bytes("\n".join(lines).encode("latin-1"))
    run = read_run(folder)
    assert len(run.records) == 2 and run.unreadable == 5


@given(st.lists(st.binary(max_size=80), max_size=6))
def test_any_bytes_are_read_without_a_stumble(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    folder = write_run(tmp_path_factory.mktemp("any"), [GOOD])
    (folder / "metrics.jsonl").write_bytes(b"\n".join(lines))
    assert read_run(folder).records == () or read_run(folder).steps >= 0


def test_what_state_a_run_is_in(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [GOOD])
    assert read_run(folder).state == "running"
    long_ago = time.time() - 3600.0
    for file in folder.iterdir():
        os.utime(file, (long_ago, long_ago))
    assert read_run(folder).state == "stands still"
    write_run(tmp_path, [GOOD], verdict_of())
    assert read_run(folder).state == "finished"


def test_before_the_first_record(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [])
    (folder / "metrics.jsonl").unlink()
    run = read_run(folder)
    assert (run.steps, run.records, run.state) == (0, (), "running")
    assert run.health[0].beyond is None


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "config.json").unlink(), "is no run: it has no config.json"),
        (lambda folder: (folder / "config.json").write_text("[]"), "config.json has no settings"),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot read"),
        (lambda folder: (folder / "verdict.json").write_text("{"), "cannot read"),
    ],
)
def test_a_damaged_folder_is_one_sentence(damage: object, said: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path, [GOOD], verdict_of())
    damage(folder)  # type: ignore[operator]
    with pytest.raises(UsageError, match=said):
        read_run(folder)


def test_the_health_knows_the_runs_own_rule(tmp_path: Path) -> None:
    records = wavy(20, 1e6)
    assert read_run(write_run(tmp_path / "a", records)).rule.maximum == 1000.0
    config = config_of()
    config["multipliers"] |= {"maximum": 0.5}
    pinned = read_run(write_run(tmp_path / "b", records, config=config))
    assert pinned.health[0].pinned == pytest.approx(0.55)
    assert any("stood at its maximum 0.5 for 55 % of the run" in note for note in pinned.advice)
    fixed = read_run(write_run(tmp_path / "c", records, config=config | {"method": "fixed"}))
    assert fixed.advice == []
    strange = read_run(write_run(tmp_path / "d", records, config={**config, "multipliers": {"of": "another version"}}))
    assert strange.rule.maximum == 1000.0
