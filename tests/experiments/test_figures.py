from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.quiver import Quiver

from rcpo.constraints import parse
from rcpo.envs import make_finite
from rcpo.envs.grid import parse_map
from rcpo.envs.mars_rover import MarsRover
from rcpo.errors import UsageError
from rcpo.experiments import figures, style
from rcpo.experiments.maps import MapPanel, draw_map
from rcpo.experiments.stats import interquartile_mean
from rcpo.loggers import Record
from rcpo.policy import single

MAP = """
S..#
.W..
...G
"""


def artist(axes: Axes, gid: str) -> Any:
    (found,) = axes.findobj(lambda one: one.get_gid() == gid)
    return found


def is_dashed(line: Line2D) -> bool:
    return line.get_linestyle() == "--"


def width_of_png(path: Path) -> int:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(data) > 5000
    return int.from_bytes(data[16:20], "big")


def shown_text(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


def test_draw_map_shows_cells_visits_moves_and_paths() -> None:
    grid = parse_map(MAP, "test")
    states = {(int(y), int(x)): state for state, (y, x) in enumerate(grid.positions)}
    visits = np.zeros((len(grid.positions), 4))
    visits[states[0, 0], [1, 2]] = 0.7, 0.3
    visits[states[1, 0], 2] = 0.3
    visits[states[0, 1], 3] = 1e-6
    path, other = [states[0, 0], states[1, 0], states[2, 0]], [states[0, 0], states[0, 1]]
    axes = Figure().subplots()
    heat = draw_map(axes, grid, visits, (path, other)).get_array()
    assert heat is not None
    expected = np.zeros((3, 4))
    expected[0, 0], expected[1, 0], expected[0, 1] = 1.0, 0.3, 1e-6
    np.testing.assert_allclose(np.asarray(heat), expected)
    arrows = artist(axes, "arrows")
    assert isinstance(arrows, Quiver)
    # Right at the start (the likelier move), down below it; the cell that is hardly ever visited has no arrow.
    np.testing.assert_array_equal(np.stack([arrows.X, arrows.Y, arrows.U, arrows.V], 1), [[0, 0, 1, 0], [0, 1, 0, 1]])
    np.testing.assert_array_equal(artist(axes, "path/0").get_xydata(), [(0, 0), (0, 1), (0, 2)])
    np.testing.assert_array_equal(artist(axes, "path/1").get_xydata(), [(0, 0), (1, 0)])
    colours = [to_rgb(patch.get_facecolor()) for patch in axes.patches]
    landmarks = {style.START: (0, 0), style.GOAL: (3, 2), style.ROCK: (3, 0), style.WALLS: (1, 1)}
    for name, cell in landmarks.items():
        boxes = [patch.get_window_extent() for patch, colour in zip(axes.patches, colours, strict=True)
                 if colour == to_rgb(name)]  # fmt: skip
        centres = [axes.transData.inverted().transform(((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)) for box in boxes]
        np.testing.assert_allclose(centres, [cell], atol=1e-6)
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # row 0 is at the top


class OneLayer(eqx.Module):
    """A small network for the rover's observations."""

    weight: Float[Array, "pixels 4"]

    def __call__(self, observation: Float[Array, "B 1 H W"]) -> tuple[Float[Array, "B 4"], Float[Array, " B"]]:
        return observation.reshape(len(observation), -1) @ self.weight, jnp.zeros(len(observation))


def test_map_picture_draws_one_runs_policy(tmp_path: Path) -> None:
    environment = make_finite("mars-rover")
    pixels = int(np.prod(environment.spec.observation_shape))
    network = OneLayer(jax.random.normal(jax.random.key(0), (pixels, 4)))
    figures.map_picture(environment, single(network, False), tmp_path / "deep" / "map.png", "P(crash) <= 0.01")
    assert width_of_png(tmp_path / "deep" / "map.png") > 800


def test_map_picture_needs_a_map(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fork, which has no map"):
        figures.map_picture(make_finite("fork"), single({"logits": jnp.zeros((5, 2))}, False), tmp_path / "map.png", "")
    assert not list(tmp_path.iterdir())


def test_map_panel_ranks_the_components_and_mixes_their_visits() -> None:
    environment = make_finite("mars-rover")
    assert isinstance(environment, MarsRover)
    states = len(environment.grid().positions)
    right, down, never = (np.tile(np.eye(4)[move], (states, 1)) for move in (1, 2, 0))
    probabilities, weights = np.stack([right, down, never]), np.array([0.25, 0.75, 0.0])
    panel = figures.map_panel(environment, probabilities, weights, "title")
    positions = panel.grid.positions
    assert len(panel.paths) == 2
    assert set(positions[list(panel.paths[0])][:, 1]) == {1}  # the weightiest goes straight down
    assert set(positions[list(panel.paths[1])][:, 0]) == {1}
    begins = panel.visits[panel.grid.start]
    assert begins[2] == pytest.approx(3 * begins[1], rel=0.02)  # but for slips that lead back
    figure = figures.figure1([panel, panel])
    assert "mixture's other network" in shown_text(figure)


def comparison(limit: float = 0.1, optimum: float | None = -30.0) -> figures.Comparison:
    generator = np.random.default_rng(0)
    curves = [
        figures.Curves(
            label=label,
            steps=np.arange(1.0, 13.0) * 1e5,
            reward=-40.0 + generator.normal(size=(5, 12)),
            value=generator.uniform(0.0, 2.0 * limit, (5, 12)),
        )
        for label in ("RCPO", "primal-dual")
    ]
    return figures.Comparison("limit", limit, optimum, tuple(curves))


@pytest.mark.parametrize("limit", [0.01, 0.5])
def test_figure2_marks_what_is_above_the_limit(limit: float, tmp_path: Path) -> None:
    shown = comparison(limit)
    figure = figures.figure2([shown, comparison()])
    top, bottom = figure.axes[0], figure.axes[2]
    np.testing.assert_array_equal(artist(bottom, "limit").get_ydata(), [limit, limit])
    assert is_dashed(artist(bottom, "limit"))
    np.testing.assert_array_equal(artist(top, "optimum").get_ydata(), [-30.0, -30.0])
    for curves in shown.curves:
        value, reward = interquartile_mean(curves.value), interquartile_mean(curves.reward)
        above = value > limit
        assert 0 < above.sum() < len(above)
        for axes, height in ((top, reward), (bottom, value)):
            np.testing.assert_array_equal(artist(axes, curves.label).get_xydata(), np.stack([curves.steps, height], 1))
            invalid, valid = (artist(axes, f"{curves.label}/{kind}") for kind in ("invalid", "valid"))
            np.testing.assert_array_equal(invalid.get_xydata(), np.stack([curves.steps, height], 1)[above])
            np.testing.assert_array_equal(np.isnan(valid.get_ydata()), above)
            assert invalid.get_markerfacecolor() == "white" != valid.get_markerfacecolor()
    text = shown_text(figure)
    assert "5 seeds" in text and "average steps per episode" in text and "primal-dual" in text
    figures.save(figure, tmp_path / "figure.png")
    assert width_of_png(tmp_path / "figure.png") >= 1200


def test_figure2_without_a_feasible_optimum_has_no_line_for_it() -> None:
    figure = figures.figure2([comparison(optimum=None)])
    assert not figure.findobj(lambda one: one.get_gid() == "optimum")


def records(values: Sequence[float], column: str = "P(crash)") -> list[Record]:
    return [
        {
            "steps": 1000 * (point + 1),
            "sampled/steps": 50.0 - point,
            f"sampled/{column}/value": value,
            f"sampled/{column}/low": 0.9 * value,
            f"sampled/{column}/high": 1.1 * value,
            f"constraint/{column}/multiplier": 0.5 * point,
        }
        for point, value in enumerate(values)
    ]


def test_curves_of_one_run() -> None:
    values = [0.5, 0.02, 0.01, 0.005, 0.0]
    figure = figures.curves_figure(records(values), [parse("P(crash) <= 0.01")])
    reward, bounded, multiplier = figure.axes
    np.testing.assert_array_equal(artist(reward, "reward").get_ydata(), [-50.0, -49.0, -48.0, -47.0, -46.0])
    # At the limit is within it; the reward of an invalid point is marked too.
    np.testing.assert_array_equal(artist(bounded, "P(crash)/invalid").get_ydata(), [0.5, 0.02])
    np.testing.assert_array_equal(artist(reward, "reward/invalid").get_ydata(), [-50.0, -49.0])
    assert list(artist(bounded, "limit").get_ydata()) == [0.01, 0.01]
    assert is_dashed(artist(bounded, "limit"))
    np.testing.assert_array_equal(artist(multiplier, "multiplier").get_ydata(), [0.0, 0.5, 1.0, 1.5, 2.0])
    assert multiplier.get_ylim()[0] == 0.0 and multiplier.get_ylim()[1] > 2.0


def test_curves_under_a_lower_bound_are_invalid_below_it() -> None:
    figure = figures.curves_figure(records([0.5, 0.95], "sum(goal)"), [parse("sum(goal) >= 0.9")])
    np.testing.assert_array_equal(artist(figure.axes[1], "sum(goal)/invalid").get_ydata(), [0.5])


def test_curves_without_constraints_are_all_valid(tmp_path: Path) -> None:
    figure = figures.curves_figure(records([0.5, 0.1]), [])
    (reward,) = figure.axes
    assert len(artist(reward, "reward/invalid").get_ydata()) == 0
    figures.curves_picture(records([0.5, 0.1]), [], tmp_path / "curves.png")
    assert width_of_png(tmp_path / "curves.png") > 800


def test_curves_leave_a_gap_where_a_number_is_missing() -> None:
    gapped = records([0.5, 0.1, 0.05])
    gapped[1]["sampled/steps"] = None
    figure = figures.curves_figure(gapped, [parse("P(crash) <= 0.2")])
    np.testing.assert_array_equal(artist(figure.axes[0], "reward").get_ydata(), [-50.0, np.nan, -48.0])


def test_theory_shows_every_seed_and_where_it_should_go() -> None:
    points = np.array([1.0, 10.0, 100.0])
    curves = [figures.TheoryCurve(seed, points, points + seed, -points, points / 200) for seed in range(3)]
    figure = figures.theory(curves, figures.TheoryOptimum(multiplier=1.0, reward=-0.35, value=0.05))
    for axes, target, shape in zip(figure.axes, (1.0, 0.05, -0.35), (points + 2, points / 200, -points), strict=True):
        np.testing.assert_array_equal(artist(axes, "optimum").get_ydata(), [target, target])
        np.testing.assert_array_equal(artist(axes, "seed 2").get_ydata(), shape)
        assert is_dashed(artist(axes, "optimum"))


def test_pictures_are_drawn_in_our_style_and_leave_the_users_alone() -> None:
    with matplotlib.rc_context({"font.size": 31.0, "axes.facecolor": "black"}):
        figure = figures.figure2([comparison()])
        assert matplotlib.rcParams["font.size"] == 31.0
    assert to_rgb(figure.axes[0].get_facecolor()) == (1.0, 1.0, 1.0)


def test_map_panels_side_by_side_share_one_legend() -> None:
    grid = parse_map(MAP, "test")
    panel = MapPanel(grid, np.zeros((len(grid.positions), 4)), ((grid.start,),), "a", "b")
    figure = figures.maps_figure([panel, panel])
    assert len(figure.legends) == 1
    assert "mixture's other network" not in shown_text(figure)


def test_no_legend_is_cut_off() -> None:
    grid = parse_map(MAP, "test")
    panel = MapPanel(grid, np.zeros((len(grid.positions), 4)), ((grid.start,), (grid.start,)), "a", "b")
    for figure in (
        figures.maps_figure([panel]),
        figures.maps_figure([panel, panel]),
        figures.figure2([comparison()] * 2),
    ):
        figure.draw_without_rendering()
        (legend,) = figure.legends
        inside, whole = legend.get_window_extent(), figure.bbox
        assert whole.x0 <= inside.x0 and inside.x1 <= whole.x1 and whole.y0 <= inside.y0 and inside.y1 <= whole.y1
