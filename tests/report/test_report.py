"""The page: what it says about runs whose answers are known, what it refuses, how large it is and how long it takes."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from saved_runs import config_of, record, verdict_of, wavy, write_run

from rcpo.errors import UsageError
from rcpo.report import LARGEST_PICTURE, flat, report_page, write_report
from rcpo.report.many import by_method, together
from rcpo.report.saved import read_run

HOSTILE = """"><script>alert(1)</script><img src=x onerror=alert(2)>'"""


class Tags(HTMLParser):
    """Every tag of a page with its attributes, and the words outside of tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


def page_of(*folders: Path) -> str:
    return report_page([read_run(folder) for folder in folders])


@pytest.mark.parametrize("word", ["satisfied", "violated", "undecided"])
def test_the_verdict_is_one_large_word(word: str, tmp_path: Path) -> None:
    text = page_of(write_run(tmp_path, wavy(30, 1e6), verdict_of(word=word)))
    assert re.search(rf'<section class="card {word}"><h2><span aria-hidden="true">.</span> {word}</h2>', text)
    words = Tags(text).words
    assert ("Verified at 95 % confidence" in words) == (word == "satisfied")
    assert ("Not verified" in words) == (word != "satisfied")
    assert "200 fresh episodes, 2 looks" in words and "98.75 % interval" in words
    assert "3900" in words and "3860 to 3940" in words


def test_the_worst_constraint_speaks_for_the_run(tmp_path: Path) -> None:
    texts = ("mean(torque) <= 0.25", "mean(speed) >= 0.25")
    verdict = verdict_of(texts)
    verdict["constraints"][1]["verdict"] = "undecided"
    assert 'card undecided"' in page_of(write_run(tmp_path, wavy(3, 1e6), verdict, config=config_of(texts)))


def test_the_page_says_where_it_comes_from(tmp_path: Path) -> None:
    command = "rcpo train HalfCheetah-v5 --constraint 'mean(torque) <= 0.25'"
    words = Tags(page_of(write_run(tmp_path, wavy(3, 1e6), verdict_of(), command=command))).words
    assert command in words
    assert "learner.actor_step_size.initial" in words and "0.10.2" in words
    assert "Walker-of-mine: mean(torque) <= 0.25" in words


def test_stretches_above_the_limit_are_shaded(tmp_path: Path) -> None:
    values = [0.5, 0.5, 0.2, 0.2]
    records = [record(100 * (i + 1), {"mean(torque)": value}) for i, value in enumerate(values)]
    text = page_of(write_run(tmp_path, records))
    assert text.count('<path class="shade" d="M0.0 0V300H500.0V0Z"/>') == 2  # under the reward, and under the value
    assert text.count('<path class="limit"') == 1


def test_a_run_on_its_way_has_no_verdict(tmp_path: Path) -> None:
    words = Tags(page_of(write_run(tmp_path, wavy(10, 4e5)))).words
    assert "on its way" in words and "400k of 1M steps" in words and "There is no verdict before the end" in words
    assert "Verified" not in words
    (tmp_path / "metrics.jsonl").write_text("")
    assert "Nothing was recorded yet" in page_of(tmp_path)


def test_no_constraint_at_all(tmp_path: Path) -> None:
    words = Tags(page_of(write_run(tmp_path, [record(9, {})], verdict_of(()), config=config_of(())))).words
    assert "No constraint was asked for" in words and "no constraint" in words


def test_advice_and_damage_are_on_the_page(tmp_path: Path) -> None:
    config = config_of()
    config["multipliers"] |= {"maximum": 0.5}
    folder = write_run(tmp_path, wavy(20, 1e6), verdict_of(), config=config)
    (folder / "metrics.jsonl").write_text("what?\n" + (folder / "metrics.jsonl").read_text())
    words = Tags(page_of(folder)).words
    assert "stood at its maximum 0.5 for 55 % of the run" in words
    assert "1 lines of metrics.jsonl are damaged" in words


def test_hostile_words_stay_words(tmp_path: Path) -> None:
    text = f"{HOSTILE} <= 0.25"
    config = config_of((text,)) | {"method": HOSTILE, HOSTILE: {HOSTILE: HOSTILE}}
    verdict = verdict_of((text,))
    verdict["outcome"] = HOSTILE
    records = [record(100, {HOSTILE: 0.5}), record(200, {HOSTILE: 0.3})]
    folder = write_run(tmp_path / "<b>&'", records, verdict, HOSTILE, config, HOSTILE)
    other = write_run(tmp_path / "other", records, verdict, HOSTILE, config, HOSTILE)
    for page in (page_of(folder), page_of(folder, other)):
        tags = Tags(page)
        assert [attributes for tag, attributes in tags.tags if tag == "script"] == [{}]  # ours, and it alone
        assert not [
            tag for tag, attributes in tags.tags if tag == "img" or any(name.startswith("on") for name in attributes)
        ]
        assert HOSTILE in tags.words
        assert not [attributes for _, attributes in tags.tags if {"src", "href"} & attributes.keys() and
                    not str(attributes.get("href", "")).startswith(("#", "data:"))]  # fmt: skip


def test_a_verdict_that_makes_no_sense_is_one_sentence(tmp_path: Path) -> None:
    for damage in ({"constraint": "mean(torque) <= 0.25", "verdict": "perhaps", "limit": 0.25},
                   {"constraint": "mean(torque) <= 0.25", "verdict": "satisfied", "limit": "low"}):  # fmt: skip
        verdict = verdict_of() | {"constraints": [damage]}
        with pytest.raises(UsageError, match="cannot read the verdict on"):
            page_of(write_run(tmp_path, wavy(3, 1e6), verdict))
    with pytest.raises(UsageError, match="distributions"):
        page_of(write_run(tmp_path, wavy(3, 1e6), verdict_of() | {"distributions": [{"name": 3}]}))


def test_pictures_of_the_robot_are_shown_where_they_lie(tmp_path: Path) -> None:
    folder = write_run(tmp_path, wavy(3, 1e6), verdict_of(), "Hopper-v5")
    assert "<img" not in page_of(folder) and "There are no pictures of the robot" in page_of(folder)
    (folder / "film.png").write_bytes(b"\x89PNG")
    (folder / "film-large.png").write_bytes(b"0" * (LARGEST_PICTURE + 1))
    text = page_of(folder)
    assert text.count("<img") == 1 and "no pictures" not in text and 'src="data:image/png;base64,iVBORw=="' in text


def test_a_million_steps_fit_into_three_megabytes_and_ten_seconds(tmp_path: Path) -> None:
    """A record every 64 steps is more than any run writes; three constraints, each with intervals."""
    texts = tuple(f"mean(column{k}) <= 0.25" for k in range(3))
    generator = np.random.default_rng(0)
    records = []
    for i, values in enumerate(generator.uniform(0.1, 0.4, (15_625, 3))):
        one = record(
            64 * (i + 1), {f"mean(column{k})": float(value) for k, value in enumerate(values)}, float(values[0])
        )
        for k, value in enumerate(values):
            ends = {"value": value, "low": value - 0.1, "high": value + 0.1}
            one |= {f"sampled/mean(column{k})/{end}": float(number) for end, number in ends.items()}
        records.append(one)
    folder = write_run(tmp_path, records, verdict_of(texts), config=config_of(texts))
    code = "import sys, time; from rcpo import cli\ntry: cli.main(sys.argv[1:])\nfinally: print(time.process_time())"
    answer = subprocess.run(
        [sys.executable, "-c", code, "report", str(folder)], capture_output=True, text=True, check=True
    )
    # Processor time, all imports included: a busy machine does not decide.
    assert float(answer.stdout.split()[-1]) < 10.0
    assert (folder / "report.html").stat().st_size < 500_000  # 3 MB is what is promised


def test_settings_have_their_full_names() -> None:
    assert flat({"a": 1, "b": {"c": [1, 2], "d": None}, "e": "x"}) == [
        ("a", "1"),
        ("b.c", "[1, 2]"),
        ("b.d", "null"),
        ("e", "x"),
    ]


# Several runs


def test_runs_are_compared_by_method_and_seeds_make_one_line(tmp_path: Path) -> None:
    runs = []
    for method in ("rcpo", "fixed"):
        for seed in range(4):
            verdict = verdict_of(word="satisfied" if method == "rcpo" else "violated")
            config = config_of(method=method, seed=seed)
            runs.append(write_run(tmp_path / f"{method}-{seed}", wavy(20, 1e6), verdict, config=config))
    text = page_of(*runs)
    words = Tags(text).words
    assert "rcpo, 4 seeds" in words and "fixed, 4 seeds" in words
    assert "satisfied in 4 of 4 finished runs" in words and "satisfied in 0 of 4 finished runs" in words
    assert len(re.findall(r"<section><h2>Walker", text)) == 1
    other = write_run(tmp_path / "other", wavy(20, 1e6), config=config_of(("mean(torque) <= 0.5",)))
    assert len(re.findall(r"<section><h2>Walker", page_of(*runs, other))) == 2


def test_the_same_method_with_other_settings_is_another_line(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / str(i), wavy(5, 1e6), config=config_of(steps=steps, seed=i)))
            for i, steps in enumerate((1e6, 1e6, 2e6))]  # fmt: skip
    assert {name: len(members) for name, members in by_method(runs).items()} == {
        "rcpo, settings A": 2,
        "rcpo, settings B": 1,
    }
    assert list(by_method(runs[:2])) == ["rcpo"]


def test_curves_meet_at_the_same_steps(tmp_path: Path) -> None:
    """One run records twice as often as the other, and is ahead of it; where nothing was measured, straight lines."""
    slow = [record(200 * i, {"mean(torque)": 1.0 * i}) for i in range(1, 6)]
    fast = [record(100 * i, {"mean(torque)": None if i == 5 else 0.5 * i}) for i in range(1, 13)]
    runs = [read_run(write_run(tmp_path / name, records)) for name, records in (("a", slow), ("b", fast))]
    drawn = together(runs, lambda run: np.array([r.get("constraint/mean(torque)/value", np.nan) for r in run.records]))
    assert drawn is not None
    steps, scores = drawn
    assert steps[0] == 200.0 and steps[-1] == 1000.0
    assert scores == pytest.approx(np.tile(steps / 200.0, (2, 1)))
    assert together(runs, lambda run: np.full(len(run.records), np.nan)) is None


def test_many_runs_are_compared_without_a_page_each(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(seed), wavy(5, 1e6), config=config_of(seed=seed)) for seed in range(13)]
    assert "Each run" in page_of(*runs[:12]) and "Each run" not in page_of(*runs)


def test_a_report_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", wavy(3, 1e6))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        write_report([folder], tmp_path / "file" / "report.html")


def test_the_readout_is_json(tmp_path: Path) -> None:
    tags = Tags(page_of(write_run(tmp_path, wavy(30, 1e6))))
    documents = [json.loads(str(found["data-values"])) for _, found in tags.tags if "data-values" in found]
    assert len(documents) == 3 and all(document["ends"] == [0.0, 1e6] for document in documents)
