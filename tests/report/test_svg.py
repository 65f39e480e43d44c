"""The drawings against what they draw: places, ticks, stretches, and no point of weight lost."""

import html
import json
import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rcpo.report.svg import BUCKETS, HEIGHT, WIDTH, Chart, Curve, Scale, bars, draw, gauge, line_path, number, scale_of

from rcpo.report.svg import short, stretches, thinned  # isort: skip

STEPS = np.arange(1.0, 11.0)


def elements(text: str) -> ElementTree.Element:
    """The drawing as XML, which also proves that every tag is closed."""
    return ElementTree.fromstring(text.replace("&ge;", "≥").replace("&le;", "≤"))


def path_of(drawing: ElementTree.Element, kind: str) -> str:
    (found,) = [path.get("d", "") for path in drawing.iter("path") if kind in path.get("class", "").split()]
    return found


def test_a_straight_scale_and_a_bent_one() -> None:
    assert Scale(-1.0, 3.0).at(0.0) == 0.25
    bent = Scale(0.0, 100.0, 0.5)
    assert bent.at(0.0) == 0.0 and bent.at(100.0) == 1.0
    # Far out it is logarithmic: each factor of ten takes the same room.
    one, ten, hundred = (bent.at(value) for value in (10.0, 31.6228, 100.0))
    assert ten - one == pytest.approx(hundred - ten, rel=1e-3)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_round_and_on_the_axis(low: float, reach: float) -> None:
    scale = Scale(low, low + reach)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 10
    assert all(-1e-6 <= scale.at(tick) <= 1.0 + 1e-6 for tick in ticks)
    unit = ticks[1] - ticks[0]
    assert round(unit / 10 ** math.floor(math.log10(unit) + 1e-9)) in (1, 2, 5, 10)


def test_a_small_limit_bends_the_axis_and_is_a_tick_away_from_zero() -> None:
    scale = scale_of(np.array([0.0, 1.0, 0.02]), 0.01)
    assert scale.bend > 0.0
    assert {0.0, 0.01, 1.0} <= set(scale.ticks())
    assert scale.at(0.01) > 0.15
    assert scale_of(np.array([0.0, 0.3]), 0.25).bend == 0.0
    assert scale_of(np.array([]), None) == Scale(0.0, 1.0)
    assert scale_of(np.array([2.0, 2.0]), None).low < 2.0 < scale_of(np.array([2.0, 2.0]), None).high


def test_a_line_goes_through_its_points_and_leaves_gaps() -> None:
    across, up = Scale(0.0, 10.0), Scale(0.0, 1.0)
    y = np.array([0.0, 1.0, np.nan, 0.5])
    assert line_path(np.array([0.0, 5.0, 7.0, 10.0]), y, across, up) == "M0.0 300.0h0L500.0 0.0M1000.0 150.0h0"


def test_stretches_by_hand() -> None:
    where = np.array([False, True, True, False, True, False, False, False, False, True])
    assert stretches(STEPS, where, 10.0) == ((1.0, 3.0), (4.0, 5.0), (9.0, 10.0))
    assert stretches(STEPS, ~where, 10.0) == ((0.0, 1.0), (3.0, 4.0), (5.0, 9.0))
    many = np.arange(1.0, 100_001.0)
    assert stretches(many, np.arange(100_000) % 2 == 0, 1e5) == ((0.0, 99_999.0),)  # gaps that nobody could see


def test_thinning_keeps_every_peak_of_a_long_curve() -> None:
    generator = np.random.default_rng(0)
    y = generator.normal(size=15_000)
    y[[77, 9_001]] = 50.0, -50.0
    y[2_000:2_300] = np.nan
    curve = thinned(Curve("a", np.arange(15_000.0), y, band=(y - 1, y + 1), invalid=y > 0))
    assert len(curve.x) <= 3 * BUCKETS + 1
    assert np.nanmax(curve.y) == 50.0 and np.nanmin(curve.y) == -50.0
    assert curve.x[0] == 0.0 and curve.x[-1] == 14_999.0 and (np.diff(curve.x) > 0).all()
    assert curve.band is not None and np.array_equal(curve.band[0], curve.y - 1, equal_nan=True)
    short_one = Curve("b", STEPS, STEPS)
    assert thinned(short_one) is short_one


def test_a_chart_has_its_limit_its_shade_and_its_values() -> None:
    curve = Curve("fresh <b>", STEPS, STEPS / 20.0)
    drawing = elements(draw(Chart("P(crash) <script>", (curve,), 0.25, shaded=((5.0, 10.0),))))
    assert path_of(drawing, "shade") == f"M500.0 0V{HEIGHT}H1000.0V0Z"
    limit = float(re.findall(r"M0 ([\d.]+)H", path_of(drawing, "limit"))[0])
    points = np.array(re.findall(r"[ML]([\d.]+) ([\d.]+)", path_of(drawing, "bold")), dtype=float)
    assert points[:, 0] == pytest.approx(WIDTH * STEPS / 10.0)
    assert (points[:, 1] > limit + 0.1).tolist() == (STEPS / 20.0 < 0.25).tolist()  # lower on the page is less
    values = json.loads(drawing.get("data-values", ""))
    assert values["lines"][0]["y"] == pytest.approx((STEPS / 20.0).tolist())
    assert "<script>" not in draw(Chart("<script>", (curve,))) and "fresh <b>" not in draw(Chart("a", (curve,)))


def test_numbers_that_are_none_are_null_in_the_page() -> None:
    y = np.array([math.nan, math.inf, -math.inf, 1.0])
    drawing = elements(draw(Chart("a", (Curve("b", np.arange(4.0), y),))))
    assert json.loads(html.unescape(drawing.get("data-values", "")))["lines"][0]["y"] == [None, None, None, 1.0]
    assert "nan" not in draw(Chart("a", (Curve("b", np.arange(4.0), y, band=(y, y)),))).lower()


def test_broken_parts_of_a_line_are_drawn_apart() -> None:
    invalid = STEPS <= 4.0
    drawing = elements(draw(Chart("a", (Curve("b", STEPS, STEPS, invalid=invalid),))))
    assert path_of(drawing, "broken").count("L") == 9
    assert path_of(drawing, "bold").count("L") == 5


def test_bars_are_shares_of_all_episodes() -> None:
    drawing = elements(bars("reward", [1, 0, 3], (0.0, 3.0), [("mean", "mean", 2.0), ("limit", "limit", math.nan)]))
    tops = [float(top) for top in re.findall(r"V([\d.]+)H", path_of(drawing, "bars"))]
    heights = [HEIGHT - top for top in tops]
    assert len(heights) == 2 and heights[1] / heights[0] == pytest.approx(3.0, rel=1e-2)
    assert elements(bars("reward", [7], (2.0, 2.0), [])) is not None
    assert elements(bars("reward", [0], (0.0, 0.0), [])) is not None


def test_a_gauge_shades_the_side_that_is_not_allowed() -> None:
    def places(at_least: bool) -> tuple[float, float, float]:
        drawing = elements(gauge(0.3, 0.2, 0.4, 0.5, at_least))
        (shade,) = drawing.iter("rect")
        limit = float(re.findall(r"M([\d.]+) ", path_of(drawing, "limit"))[0])
        return float(shade.get("x", "")), float(shade.get("width", "")), limit

    x, width, limit = places(at_least=False)
    assert x == pytest.approx(limit) and x + width == pytest.approx(1000.0)
    x, width, limit = places(at_least=True)
    assert x == 0.0 and width == pytest.approx(limit)
    assert elements(gauge(math.nan, -math.inf, math.inf, 0.5, False)) is not None


def test_numbers_for_people() -> None:
    assert number(-0.25) == "\N{MINUS SIGN}0.25" and number(math.nan) == "\N{EN DASH}"
    assert [short(value) for value in (0.0, 500.0, 250_000.0, 4e7, 1e9)] == ["0", "500", "250k", "40M", "1G"]
