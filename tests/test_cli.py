"""The commands as a user types them: each mistake is one sentence, exit code 2, and no traceback."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rcpo import cli

SLOW = pytest.mark.slow
FAST = [
    "--steps", "8000", "--evaluation.points", "2", "--evaluation.episodes", "64",
    "--evaluation.shortlist-episodes", "64", "--evaluation.verdict-episodes", "256", "--evaluation.looks", "1",
]  # fmt: skip


def run(*words: str) -> int:
    """Run a command in this process; its exit code."""
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    return int(stopped.value.code or 0)


def shell(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "rcpo", *words],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.fixture(scope="module")
def fork_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "fork"
    assert run("train", "fork", *FAST, "--out", str(folder), "--no-pictures") == 0
    return folder


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trian"], "unknown command 'trian'; did you mean 'train'?"),
        (["train", "mars-rovr"], "unknown environment 'mars-rovr'; did you mean 'mars-rover'?"),
        (["solve", "mars"], "unknown environment 'mars'; did you mean 'mars-rover'?"),
        (["train", "mars-rover", "--constraint", "P(crash)"], "at character 9: got the end, expected '<=' or '>='"),
        (["train", "mars-rover", "--constraint", "Q(crash) <= 0.1"], "unknown functional 'Q'"),
        (["train", "mars-rover", "--constraint", "P(crush) <= 0.1"], "unknown cost column 'crush'"),
        (["train", "mars-rover", "--constraint", "P(crash) <= 1.5"], "a probability lies in [0, 1]"),
        (["train", "mars-rover", "--constraint", "P(crash) <= -0.1"], "a probability lies in [0, 1]"),
        (["train", "mars-rover", "--learner.actor-step-size.initial", "-1"], "got the actor's step size -1"),
        (["train", "mars-rover", "--learner.critic-step-size.initial", "-1"], "got the critic's step size -1"),
        (["train", "mars-rover", "--multipliers.step-size.initial", "-1"], "got the multiplier's step size -1"),
        (["train", "mars-rover", "--multiplier", "-1"], "got the multiplier -1"),
        (["train", "mars-rover", "--env.slip", "2"], "got the slip probability 2"),
        (["train", "mars-rover", "--env.map", "nowhere.txt"], "cannot read the map 'nowhere.txt'"),
        (["train", "mars-rover", "--preset", "mars"], "unknown preset 'mars'"),
        (["train", "mars-rover", "--preset", "theory"], "the preset 'theory' is for fork"),
        (["train", "mars-rover", "--steps", "0"], "got 0 steps"),
        (["train", "mars-rover", "--seed", "-1"], "got the seed -1"),
        (["train", "mars-rover", "--theory"], "break the conditions of Theorem 2"),
        (["train", "fork", "--env.slip", "0.1"], "the environment 'fork' has no such settings"),
        (["evaluate", "nowhere"], "'nowhere' is no run"),
        (["resume", "nowhere"], "'nowhere' is no run"),
        (["train", "mars-rover", "--checkpoint.share", "2"], "got the share 2 of the time for checkpoints"),
        (["train", "mars-rover", "--checkpoint.every", "0"], "got 0 for every of the checkpoints"),
        (["train", "mars-rover", "--steps", "inf"], "got inf steps"),
        (["train", "mars-rover", "--multipliers.maximum", "inf"], "a setting is no finite number"),
        (["paper", "figure2", "--seeds", "0"], "got 0 seeds"),
        (["bench", "--seconds", "0"], "give --seconds above 0"),
        (["report"], "got no run to report on"),
        (["report", "nowhere"], "'nowhere' is no run"),
        (["watch", "nowhere"], "'nowhere' is no run"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert sentence in output.err
    assert output.err.startswith("rcpo: ") and output.err.count("\n") == 1
    assert not list(tmp_path.rglob("verdict.json"))


@pytest.mark.parametrize(
    ("drawing", "sentence"),
    [
        ("W.G\n", "has 0 starts"),
        ("S..\n", "has no goal"),
        ("S#G\n", "has no way from 'S' to 'G'"),
        ("SWG\n", "has no way from 'S' to 'G'"),
        ("S.G\n.\n", "has 1 cells in line 2 but 3 in its first row"),
        ("S?G\n", "has '?' in line 1"),
    ],
)
def test_a_bad_map_is_one_sentence(
    drawing: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("map.txt").write_text(drawing)
    for command in ("train", "solve"):
        assert run(command, "mars-rover", "--env.map", "map.txt") == 2
        output = capsys.readouterr().err
        assert sentence in output and output.count("\n") == 1


def test_an_option_that_does_not_exist_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "mars-rover", "--stepz", "3") == 2
    assert "--stepz" in capsys.readouterr().err
    assert run("train") == 2


def test_solve_prints_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("solve", "fork", "--constraint", "P(crash) <= 0.05", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["feasible"] is True
    assert document["steps"] == pytest.approx(3.5)
    assert document["reward"] == pytest.approx(-0.35)
    (constraint,) = document["constraints"]
    assert constraint["multiplier"] == pytest.approx(1.0)
    assert constraint["value"] == pytest.approx(0.05)


def test_solve_says_that_a_limit_is_infeasible(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("solve", "mars-rover", "--constraint", "P(crash) <= 1e-9") == 0
    assert "cannot be met" in capsys.readouterr().out
    assert run("solve", "mars-rover", "--constraint", "P(crash) <= 1e-9", "--json") == 0
    document = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert document["feasible"] is False and document["steps"] is None
    assert document["outcomes"] == {"crash": None, "goal": None}


def test_train_and_evaluate_print_the_documented_json(fork_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run("evaluate", str(fork_run), "--episodes", "300", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    wanted = {"env", "method", "seed", "steps", "episodes", "deterministic", "reward", "constraints", "exact"}
    assert wanted <= document.keys()
    assert document["episodes"] == 300 and document["deterministic"] is False
    assert document["reward"].keys() == {"mean", "low", "high"}
    (constraint,) = document["constraints"]
    assert constraint.keys() == {"constraint", "value", "low", "high", "limit", "verdict"}
    assert constraint["verdict"] in ("satisfied", "violated", "undecided")
    exact = document["exact"]
    assert {"reward", "steps", "constraints"} <= exact.keys()
    assert exact["reward"] == pytest.approx(-0.1 * exact["steps"])
    # Fresh episodes agree with the truth to within five standard errors.
    reward = document["reward"]
    assert abs(reward["mean"] - exact["reward"]) < 2.5 * (reward["high"] - reward["low"])


def test_train_json_keeps_standard_output_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert run("train", "fork", *FAST, "--json", "--no-pictures", "--out", str(out)) == 0
    output = capsys.readouterr()
    document = json.loads(output.out)
    assert document["folder"] == str(out)
    assert isinstance(document["verified"], bool)
    assert "steps/s" in output.err


def test_report_writes_one_page_of_a_run_and_of_several(
    fork_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("report", str(fork_run)) == 0
    page = (fork_run / "report.html").read_text()
    assert f"written to {fork_run / 'report.html'}" in capsys.readouterr().out
    verdict = json.loads((fork_run / "verdict.json").read_text())
    words = {entry["verdict"] for entry in verdict["constraints"]}
    assert f'<section class="card {words.pop()}">' in page
    assert "exactly" in page  # the fork is finite
    # Every episode of the verification is in its histograms.
    assert {sum(one["counts"]) for one in verdict["distributions"]} == {verdict["episodes"]}
    assert [one["name"] for one in verdict["distributions"]] == ["reward", "steps", "P(crash)"]
    assert run("report", str(fork_run), str(fork_run), "--out", "both.html") == 0
    assert "2 runs on fork" in Path("both.html").read_text()


def test_the_health_of_the_dual_is_written(fork_run: Path) -> None:
    document = json.loads((fork_run / "health.json").read_text())
    (health,) = document["constraints"]
    records = [json.loads(line) for line in (fork_run / "metrics.jsonl").read_text().splitlines()]
    beyond = [record["constraint/P(crash)/value"] > 0.05 for record in records]
    assert health["beyond"] == pytest.approx(sum(beyond) / len(beyond))  # all records are of as many steps
    assert isinstance(document["advice"], list)


def test_train_writes_the_page_with_its_pictures_and_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboardX")
    out = tmp_path / "run"
    assert run("train", "fork", *FAST, "--out", str(out), "--log", "tensorboard") == 0
    assert "P(crash) <= 0.05: beyond the limit in" in capsys.readouterr().out
    assert "<!doctype html>" in (out / "report.html").read_text()
    assert len(list((out / "tensorboard").iterdir())) == 1


def test_a_missing_extra_stops_before_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert run("train", "fork", *FAST, "--out", str(tmp_path / "run"), "--log", "wandb") == 2
    assert "pip install 'rcpo[wandb]'" in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_run_is_not_overwritten_by_accident(fork_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (fork_run / "verdict.json").read_bytes()
    assert run("train", "fork", *FAST, "--out", str(fork_run)) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert (fork_run / "verdict.json").read_bytes() == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=SLOW)])
def test_a_run_that_is_told_to_end_saves_and_is_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int, code: int
) -> None:
    out = tmp_path / "run"
    words = ["train", "fork", "--steps", "1e6", "--evaluation.points", "100", "--evaluation.episodes", "0", *FAST[6:]]
    process = subprocess.Popen(
        [sys.executable, "-m", "rcpo", *words, "--checkpoint.share", "1", "--out", str(out), "--no-pictures"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not list(out.glob("checkpoints/*.json")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=600)
    assert process.returncode == code
    assert f"go on with: rcpo resume {out}" in said and "Traceback" not in said
    assert not (out / "verdict.json").exists()
    for words in (["train", "fork", "--out", str(out)], ["evaluate", str(out)]):
        assert run(*words) == 2
        refusal = capsys.readouterr().err
        assert "is not finished" in refusal and f"go on with: rcpo resume {out}" in refusal
    assert run("resume", str(out), "--no-pictures", "--json", "--require-satisfied") in (0, 3)
    document = json.loads(capsys.readouterr().out)
    assert document["folder"] == str(out) and document["steps"] >= 1e6
    assert run("resume", str(out)) == 2
    assert "is finished; look at it with: rcpo evaluate" in capsys.readouterr().err


def test_require_satisfied_exits_with_3(tmp_path: Path) -> None:
    impossible = ["train", "fork", *FAST, "--constraint", "P(crash) >= 0.9", "--no-pictures"]
    assert run(*impossible, "--out", str(tmp_path / "a"), "--require-satisfied") == 3
    assert run(*impossible, "--out", str(tmp_path / "b")) == 0


def test_export_and_play_a_run(fork_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("play", str(fork_run), "--gif") == 2
    assert "there is no picture of fork" in capsys.readouterr().err
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    file = tmp_path / "policy.onnx"
    assert run("export", str(fork_run), str(file), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["file"] == str(file) and file.is_file() and document["difference"] <= 1e-5
    assert document["card"]["verdict"]["outcome"] in ("verified", "unverified", "infeasible as far as we can tell")
    assert run("export", str(fork_run), str(file), "--component", "0") == 0
    assert "differs from the run's policy by" in capsys.readouterr().out


def test_envs_lists_columns_and_presets(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("envs") == 0
    assert "mars-rover" in capsys.readouterr().out
    assert run("envs", "mars-rover", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [column["name"] for column in document["columns"]] == ["crash", "goal"]
    assert document["observation_shape"] == [1, 30, 30]
    assert "mars-rover-paper" in document["presets"]


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    overview = capsys.readouterr().out
    for command in cli.COMMANDS:
        assert command in overview
        assert run(command, "--help") == 0
        assert "usage: rcpo" in capsys.readouterr().out
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("rcpo 0.")


def test_the_start_is_light() -> None:
    """What is heavy must not be imported by `import rcpo` or `rcpo --help`: counted, since seconds vary by machine."""
    heavy = ("jax", "equinox", "optax", "scipy", "matplotlib", "rich", "torch")
    code = f"import sys, rcpo, rcpo.cli; print([name for name in {heavy!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
    # The exact solver needs no JAX either.
    code = "import sys, rcpo; rcpo.solve('fork', ['P(crash) <= 0.05']); print('jax' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_the_start_is_quick() -> None:
    """Processor time of the process itself, so that a busy machine does not decide; the best of three."""

    def seconds(code: str) -> float:
        timed = f"import time, contextlib\n{code}\nprint(time.process_time())"
        command = [sys.executable, "-c", timed]
        answers = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(3)]
        return min(float(answer.stdout.split()[-1]) for answer in answers)

    assert seconds("import rcpo") < 1.0
    assert seconds("from rcpo import cli\nwith contextlib.suppress(SystemExit):\n    cli.main(['--help'])") < 0.5


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m rcpo train --help | head -1"
    answer = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert answer.returncode == 0
    assert "Traceback" not in answer.stderr and "BrokenPipe" not in answer.stderr


def test_an_interrupt_stops_with_a_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("rcpo.commands_look.solve", interrupted)
    assert run("solve", "fork") == cli.INTERRUPTED
    assert "stopped" in capsys.readouterr().err


def test_a_narrow_terminal_still_reads() -> None:
    answer = shell("train", "--help", COLUMNS="40")
    assert answer.returncode == 0
    assert max(map(len, answer.stdout.splitlines())) <= 60
