import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from rcpo import exact, presets
from rcpo.constraints import parse_all
from rcpo.envs import make_finite
from rcpo.errors import UsageError
from rcpo.evaluation import exact_value
from rcpo.experiments import figures, paper, studies, theory
from rcpo.learn import begin, iterate
from rcpo.policy import single
from rcpo.run import make_plan, train

RESULTS = Path(__file__).parents[2] / "results"
TINY = 2000.0
Drawn = list[tuple[Figure, Path]]


def quiet(text: str) -> None:
    pass


def run_tiny(
    out: Path, seeds: range = range(2), say: Callable[[str], None] = quiet, **changed: Any
) -> list[paper.Line]:
    settings: dict[str, Any] = {"alphas": (0.5,), "methods": ("rcpo",), "steps": TINY, "quick": True}
    return paper.run_figure2(out, seeds=seeds, say=say, **(settings | changed))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of two seeds; copy it before changing it."""
    folder = tmp_path_factory.mktemp("results") / "figure2"
    run_tiny(folder)
    return folder


@pytest.fixture
def study(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "figure2")


@pytest.fixture
def trains(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of the runs that are trained while a test runs."""
    seeds: list[int] = []

    def watched(*args: Any, **settings: Any) -> Any:
        seeds.append(settings["seed"])
        return train(*args, **settings)

    monkeypatch.setattr(paper, "train", watched)
    return seeds


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Drawn]:
    """The figures that are saved while a test runs, instead of files."""
    saved: Drawn = []
    monkeypatch.setattr(figures, "save", lambda figure, path: saved.append((figure, path)))
    yield saved


def check_line(line: dict[str, Any]) -> None:
    """What every line of the figure-2 study holds, and what must be true of it."""
    assert re.fullmatch(r'rcpo train mars-rover --constraint "P\(crash\) <= [\d.]+" --method \S+ --steps \S+ --seed \d+'
                        r"( --preset \S+)?", line["command"])  # fmt: skip
    assert {"python", "jax", "numpy", "rcpo"} <= line["versions"].keys()
    assert line["machine"]["cores"] >= 1
    steps = [point["steps"] for point in line["points"]]
    assert steps == sorted(set(steps)) and steps[-1] == line["steps"] and line["seconds"] > 0.0
    cap = line["settings"]["env"]["max_steps"]
    for point in line["points"]:
        assert point["multiplier"] >= 0.0
        for kind in ("sampled", "greedy"):
            assert 0.0 <= point[f"{kind}/P(crash)/value"] <= 1.0 and 0.0 <= point[f"{kind}/success"] <= 1.0
            assert 1.0 <= point[f"{kind}/steps"] <= cap
    final = line["final"]
    assert final["P(crash)"] + final["success"] + final["truncated"] == pytest.approx(1.0, abs=1e-5)
    assert final["interval"]["low"] <= final["interval"]["value"] <= final["interval"]["high"]
    assert sum(component["weight"] for component in final["components"]) == pytest.approx(1.0, abs=1e-5)
    assert not final["verified"] or final["interval"]["high"] <= line["alpha"]


def check_policy(line: dict[str, Any], folder: Path) -> None:
    """The exact values in the line are those of the policy that was kept."""
    cmdp = make_finite("mars-rover").cmdp()
    assert cmdp is not None
    probabilities, weights = paper.read_policy(paper.policy_file(folder, line["alpha"], line["method"], line["seed"]))
    worth = exact.mixture(
        [exact.evaluate(cmdp, policy, cap=line["settings"]["env"]["max_steps"]) for policy in probabilities], weights
    )
    assert worth.values["crash"] == pytest.approx(line["final"]["P(crash)"], rel=1e-3, abs=1e-6)
    assert worth.steps == pytest.approx(line["final"]["steps"], rel=1e-4)


def test_a_study_keeps_a_line_and_a_policy_for_each_run(trained: Path) -> None:
    lines = studies.read_lines(trained / "runs.jsonl")
    assert [(line["alpha"], line["method"], line["seed"]) for line in lines] == [(0.5, "rcpo", 0), (0.5, "rcpo", 1)]
    for line in lines:
        check_line(line)
        check_policy(line, trained)
        assert line["settings"]["steps"] == TINY
    assert lines[0]["points"] != lines[1]["points"]
    assert (trained / "figure2.png").stat().st_size > 10_000


def test_a_finished_study_trains_nothing(study: Path, trains: list[int]) -> None:
    before = (study / "runs.jsonl").read_bytes()
    heard: list[str] = []
    rows = run_tiny(study, say=heard.append)
    assert trains == []
    assert (study / "runs.jsonl").read_bytes() == before
    assert "2 of 2 runs are there" in heard[0]
    assert rows == json.loads((study / "summary.json").read_text())
    assert f"{rows[0]['steps']['value']:.4g}" in heard[1]


def test_an_interrupted_study_goes_on_with_what_is_missing(study: Path, trains: list[int]) -> None:
    first, second, _ = (study / "runs.jsonl").read_text().split("\n")
    (study / "runs.jsonl").write_text(f"{first}\n{second[:1000]}")
    run_tiny(study)
    assert trains == [1]
    again = studies.read_lines(study / "runs.jsonl")
    whole = json.loads(second)
    assert again[0] == json.loads(first)
    # Apart from the clock, the same run.
    assert {**again[1], "seconds": 0, "commit": 0} == {**whole, "seconds": 0, "commit": 0}


def test_runs_with_other_settings_are_not_mixed(study: Path, trains: list[int]) -> None:
    with pytest.raises(UsageError, match=r"other settings \(steps was 2000.0, is 3000.0\)"):
        run_tiny(study, steps=3000.0)
    assert trains == []


def test_a_broken_line_is_named(study: Path) -> None:
    with (study / "runs.jsonl").open("a") as file:
        file.write("{oops\n")
    with pytest.raises(UsageError, match=r"line 3 of .*runs.jsonl"):
        run_tiny(study, draw_only=True)


def test_drawing_needs_results(tmp_path: Path) -> None:
    for run in (paper.run_figure1, paper.run_figure2, paper.run_theory):
        with pytest.raises(UsageError, match="holds no runs"):
            run(tmp_path / "out", draw_only=True, say=quiet)


def test_the_picture_is_drawn_from_the_file_alone(study: Path, trains: list[int], drawn: Drawn) -> None:
    lines = studies.read_lines(study / "runs.jsonl")
    for line in lines:
        line["points"] = [
            {"steps": 10 * k, "sampled/steps": 30.0 + k + 2 * line["seed"], "sampled/P(crash)/value": 0.2 * k}
            for k in range(1, 5)
        ]
    (study / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shutil.rmtree(study / "policies")
    run_tiny(study, draw_only=True)
    ((figure, path),) = drawn
    assert path == study / "figure2.png" and trains == []
    top, bottom = figure.axes
    curve = {line.get_gid(): np.array(line.get_xydata()) for axes in (top, bottom) for line in axes.get_lines()}
    np.testing.assert_allclose(curve["RCPO"], [(10, 0.2), (20, 0.4), (30, 0.6), (40, 0.8)])
    np.testing.assert_allclose(curve["RCPO/invalid"], [(30, 0.6), (40, 0.8)])
    reward = next(line for line in top.get_lines() if line.get_gid() == "RCPO")
    np.testing.assert_allclose(np.array(reward.get_ydata()), [-32, -33, -34, -35])
    cmdp = make_finite("mars-rover").cmdp()
    assert cmdp is not None
    best = exact.solve(cmdp, [exact.Bound("crash", 0.5)])
    np.testing.assert_allclose(curve["optimum"][:, 1], -best.steps)
    np.testing.assert_allclose(curve["limit"][:, 1], 0.5)


def test_figure1_shows_the_policy_that_figure2_kept(study: Path, trains: list[int], drawn: Drawn) -> None:
    settings: dict[str, Any] = {"seeds": (1, 0), "alphas": (0.5,), "steps": TINY, "quick": True, "say": quiet}
    picture = paper.run_figure1(study.with_name("figure1"), **settings)
    ((figure, path),) = drawn
    assert path == picture == study.parent / "figure1" / "figure1.png" and trains == []
    final = studies.read_lines(study / "runs.jsonl")[1]["final"]
    axes = figure.axes[0]
    assert f"P(crash) = {final['P(crash)']:.3g}" in axes.get_xlabel()
    heat = np.asarray(axes.get_images()[0].get_array())
    assert heat.sum() == pytest.approx(final["steps"], rel=1e-4)


def test_figure1_trains_what_figure2_lacks(study: Path, trains: list[int], drawn: Drawn) -> None:
    shutil.rmtree(study)
    paper.run_figure1(study.with_name("figure1"), seeds=range(5), alphas=(0.5,), steps=TINY, quick=True, say=quiet)
    assert trains == [0]
    assert len(studies.read_lines(study / "runs.jsonl")) == 1 and len(drawn) == 1
    (study / "policies" / "alpha-0.5-rcpo-seed-0.safetensors").unlink()
    with pytest.raises(UsageError, match="there is no policy"):
        paper.run_figure1(study.with_name("figure1"), alphas=(0.5,), draw_only=True, say=quiet)
    with pytest.raises(UsageError, match="no run of rcpo with alpha"):
        paper.run_figure1(study.with_name("figure1"), draw_only=True, say=quiet)


def test_the_summary_by_hand(study: Path) -> None:
    (line,) = studies.read_lines(study / "runs.jsonl")[:1]
    lines = []
    for seed, (crash, steps, verified) in enumerate([(0.4, 30.0, True), (0.5, 28.0, True), (0.6, 20.0, False)]):
        lines.append(line | {"seed": seed, "final": {"P(crash)": crash, "steps": steps, "verified": verified}})
    (study / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (row,) = run_tiny(study, draw_only=True)
    assert row["seeds"] == [0, 1, 2]
    assert row["P(crash)"]["value"] == pytest.approx(0.5) and row["steps"]["value"] == pytest.approx(26.0)
    assert (row["steps"]["low"], row["steps"]["high"]) == (20.0, 30.0)  # all three draws alike: probability 1/27
    assert row["share_within_limit"] == row["share_verified"] == pytest.approx(2 / 3)
    assert row["optimum_steps"] == pytest.approx(19.88, abs=0.01)
    assert "67%" in paper.summary_text([row])


@pytest.mark.slow
def test_theory_curves_are_those_of_one_uninterrupted_run() -> None:
    environment = make_finite("fork")
    config = replace(presets.preset("theory", "fork"), steps=512.0 * 21, seed=3)
    points = theory.theory_points(environment, config, points=5)
    assert [point["iteration"] for point in points] == [1, 2, 5, 10, 21]
    assert points[-1]["steps"] == 512 * 21
    plan, _ = make_plan(config, parse_all(config.constraints, ["crash"]), environment)
    state, _ = iterate(plan, environment, begin(plan, environment), 21)
    value = exact_value(environment, single(state.agent.network, False))
    assert value is not None
    assert points[-1]["multiplier"] == pytest.approx(float(state.multipliers.value[0]), rel=1e-5)
    assert points[-1]["P(crash)"] == pytest.approx(value.values["crash"], rel=1e-4)
    assert points[-1]["reward"] == pytest.approx(value.reward, rel=1e-4)


def test_the_theory_study_goes_on_where_it_stopped(tmp_path: Path, drawn: Drawn) -> None:
    paper.run_theory(tmp_path, seeds=[0], steps=512.0 * 9, say=quiet)
    first = (tmp_path / "runs.jsonl").read_text()
    paper.run_theory(tmp_path, seeds=range(2), steps=512.0 * 9, say=quiet)
    whole = (tmp_path / "runs.jsonl").read_text()
    assert whole.startswith(first)
    assert [line["seed"] for line in studies.read_lines(tmp_path / "runs.jsonl")] == [0, 1]
    figure, path = drawn[-1]
    assert path == tmp_path / "theory.png"
    for axes, best in zip(figure.axes, (1.0, 0.05, -0.35), strict=True):  # the fork's solution by hand
        lines = {line.get_gid(): line for line in axes.get_lines()}
        assert lines.keys() == {"seed 0", "seed 1", "optimum"}
        np.testing.assert_allclose(np.array(lines["optimum"].get_ydata()), best, rtol=1e-6)
        assert not np.array_equal(lines["seed 0"].get_ydata(), lines["seed 1"].get_ydata())


def test_a_setting_that_is_new_does_not_make_old_runs_strange() -> None:
    assert studies.first_difference({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 2, "new": 3}}) is None
    assert studies.first_difference({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}}) == "b.c was 2, is 3"


def test_numbers_are_rounded_and_stay_json() -> None:
    kept = studies.rounded({"a": 1 / 3, "b": [float("nan"), float("inf"), 7], "c": (True, None, "x")})
    assert kept == {"a": 0.3333333, "b": [None, None, 7], "c": [True, None, "x"]}


@pytest.mark.parametrize(
    ("study", "alphas", "methods"),
    [("figure2", (0.01, 0.5), ("rcpo", "primal-dual")), ("alpha-0.1", (0.1,), ("rcpo",))],
)
def test_committed_results(study: str, alphas: tuple[float, ...], methods: tuple[str, ...]) -> None:
    folder = RESULTS / study
    lines = studies.read_lines(folder / "runs.jsonl")
    keys = [(line["alpha"], line["method"], line["seed"]) for line in lines]
    assert len(keys) == len(set(keys)) and set(keys) == set(product(alphas, methods, range(10)))
    for line in lines:
        check_line(line)
        check_policy(line, folder)
    groups = paper.groups_of(lines)
    rows = paper.summary(groups, paper.optima_of(groups))
    for row, committed in zip(rows, json.loads((folder / "summary.json").read_text()), strict=True):
        assert row.keys() == committed.keys()
        for key, value in row.items():
            assert committed[key] == (pytest.approx(value, rel=1e-4) if isinstance(value, dict | float) else value)
    assert (folder / "figure2.png").exists() and (RESULTS / "figure1" / "figure1.png").exists()


@pytest.mark.parametrize(
    ("study", "alpha", "most"), [("figure2", 0.01, 1.3), ("alpha-0.1", 0.1, 1.1), ("figure2", 0.5, None)]
)
def test_what_is_claimed_of_the_mars_rover(study: str, alpha: float, most: float | None) -> None:
    """Within the limit, exactly, on nine seeds of ten; and not much slower than the best policy there is."""
    lines = [line for line in studies.read_lines(RESULTS / study / "runs.jsonl")
             if (line["alpha"], line["method"]) == (alpha, "rcpo")]  # fmt: skip
    kept = [line for line in lines if line["final"]["P(crash)"] <= alpha]
    assert len(lines) == 10 and len(kept) >= 9
    best = paper.optima_of(paper.groups_of(lines))[alpha].steps
    for line in kept:
        if most is None:
            assert line["final"]["steps_given_goal"] <= 34.0
        else:
            assert line["final"]["steps"] <= most * best


def test_committed_theory() -> None:
    lines = studies.read_lines(RESULTS / "theory" / "runs.jsonl")
    assert len(lines) >= 5
    assert sorted(line["seed"] for line in lines) == list(range(len(lines)))
    assert (RESULTS / "theory" / "theory.png").exists()
    # The fork's solution by hand: multiplier 1, P(crash) 0.05, reward -0.35.
    last = np.array([[line["points"][-1][key] for key in ("multiplier", "P(crash)", "reward")] for line in lines])
    np.testing.assert_allclose(last.mean(axis=0), [1.0, 0.05, -0.35], atol=0.05)
