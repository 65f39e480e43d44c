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
from rcpo.report.card import verdict_card
from rcpo.report.saved import read_bound, read_run
from rcpo.report.svg import gauge

GOOD = record(100, {"mean(torque)": 0.5})


@pytest.mark.parametrize(
    "text",
    [
        "P(crash) <= 0.01",
        "mean(speed) >= -2.5",
        "discounted(torque, 0.9) <= 1e-05",
        "sum(push) >= 100.0",
        "P( height<0.8 )<=.05",
        "max(a.b >= 3) >= 2 with maximum 50, initial 0.6",
    ],
)
def test_a_written_constraint_means_what_it_means_to_the_parser(text: str) -> None:
    bound, parsed = read_bound(text), parse(text)
    assert bound is not None
    assert (bound.quantity, bound.limit, bound.at_least) == (parsed.quantity, parsed.limit, parsed.at_least)
    assert str(bound) == str(parsed) and bound.read == parsed
    for value in (-3.0, 0.0, parsed.limit, 7.0):
        assert bound.excess(value) == parsed.excess(value)


def test_the_last_comparison_is_the_bound() -> None:
    """Where a text cannot be read: a function stands in it, or a functional that is not known here."""
    for text, quantity, settings in (
        ("sum(effort()) <= 0.1", "sum(effort())", {}),
        ("P(effort() >= 3) <= 0.1 with maximum 50, margin 0.2", "P(effort() >= 3)", {"maximum": 50.0, "margin": 0.2}),
        ("strangest(cost, 2) <= 0.1 with initial 0.5", "strangest(cost, 2)", {"initial": 0.5}),
    ):
        bound = read_bound(text)
        assert bound is not None and (bound.quantity, bound.limit, bound.at_least) == (quantity, 0.1, False)
        assert bound.text == text and bound.read is not None and bound.read.settings == settings
    assert read_bound("no bound") is None and read_bound("x <= many") is None


SEVERAL = {
    # As written, as the records name it, and the multiplier at the end.
    "P(height<0.8) <= 0.05": ("P(height < 0.8)", 3.0),
    "mean(torque) <= 0.25 with initial 0.6, maximum 50": ("mean(torque) <= 0.25", 50.0),
    "mean(torque) >= 0.1 with maximum 10": ("mean(torque) >= 0.1", 9.0),
    "sum(effort()) <= 7 with maximum 20": ("sum(effort())", 20.0),
}


def several(folder: Path) -> Path:
    """A run under constraints of every kind; each value and each multiplier is another."""
    records = []
    for i in range(1, 21):
        one = record(50_000 * i, {name: 0.1 * k + 1.0 for k, (name, _) in enumerate(SEVERAL.values())})
        records.append(one | {f"constraint/{name}/multiplier": end for name, end in SEVERAL.values()})
    return write_run(folder, records, config=config_of(tuple(SEVERAL)))


def test_every_constraint_has_its_own_value_limit_multiplier_and_rule(tmp_path: Path) -> None:
    run = read_run(several(tmp_path))
    assert [(one.limit, one.at_least) for one in run.bounds] == [(0.05, False), (0.25, False), (0.1, True), (7, False)]
    assert [rule.maximum for rule in run.rules] == [1000.0, 50.0, 10.0, 20.0]
    assert [rule.initial for rule in run.rules] == [0.0, 0.6, 0.0, 0.0]
    assert [one.pinned for one in run.health] == [0.0, 1.0, 0.0, 1.0]
    assert [one.beyond for one in run.health] == [1.0, 1.0, 0.0, 0.0]
    notes = " ".join(run.advice)
    assert "'mean(torque) <= 0.25 with initial 0.6, maximum 50' stood at its maximum 50 for" in notes
    assert "stood at its maximum 20" in notes and notes.count("stood at its maximum") == 2
    page = verdict_card(run)
    for k, (text, (_, multiplier)) in enumerate(SEVERAL.items()):
        written = text.replace("height<0.8", "height < 0.8").replace("<", "&lt;").replace(">", "&gt;")
        assert f"<b>{written}</b><span>now {1 + 0.1 * k:g}, multiplier {multiplier:g}</span>" in page


def test_a_rule_that_cannot_be_is_the_runs(tmp_path: Path) -> None:
    """The plain rule has no proportional gain: such a run could not begin, but its page can be looked at."""
    config = config_of(("mean(torque) <= 0.25 with proportional 3",))
    assert read_run(write_run(tmp_path, wavy(5, 1e5), config=config)).rules[0].proportional == 0.0


@pytest.mark.parametrize(("sign", "word"), [("<=", "violated"), (">=", "satisfied")])
def test_the_gauge_looks_the_right_way(sign: str, word: str, tmp_path: Path) -> None:
    """Also where a multiplier's settings stand behind the limit."""
    text = f"mean(torque) {sign} 0.25 with maximum 50, margin 0.1"
    verdict = verdict_of((text,), "violated")
    verdict["constraints"][0]["verdict"] = word
    one = verdict_card(read_run(write_run(tmp_path / "tuned", wavy(5, 1e5), verdict, config=config_of((text,)))))
    plain = verdict | {"constraints": [verdict["constraints"][0] | {"constraint": f"mean(torque) {sign} 0.25"}]}
    bare = verdict_card(read_run(write_run(tmp_path / "bare", wavy(5, 1e5), plain, config=config_of((text,)))))
    assert one.replace(" with maximum 50, margin 0.1", "") == bare
    assert (sign == ">=") == (gauge(0.4, 0.39, 0.41, 0.25, True) in one)


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
