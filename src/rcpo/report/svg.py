"""Small drawings for a page: curves, bars and a gauge, as SVG that stretches to any width.

The drawing is stretched, its words are not: axis labels are HTML at percentages, and lines keep their width. So one
page reads well on a wide screen and on a phone. Colours are the page's own (`page.css`), light and dark.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Literal, final

import numpy as np
from jaxtyping import Bool, Float

WIDTH, HEIGHT = 1000, 300
BUCKETS: Final = 130
"""A longer curve is drawn by the first, the lowest and the highest point of each of so many stretches."""
COLOURS: Final = 6
CROWDED: Final = 0.12
"""Ticks closer than this share of the axis are left out."""
STRETCH: Final = 10.0
"""An axis is stretched around a limit that its largest value is so many times away from."""


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """One line, and perhaps the band around it."""

    label: str
    x: Float[np.ndarray, " P"]
    y: Float[np.ndarray, " P"]
    look: int = 0
    """The number of its colour."""
    kind: Literal["bold", "faint", "dotted"] = "bold"
    band: tuple[Float[np.ndarray, " P"], Float[np.ndarray, " P"]] | None = None
    invalid: Bool[np.ndarray, " P"] | None = None
    """Where the line is thin and dashed, because a limit is broken there."""


@final
@dataclass(frozen=True, eq=False)
class Chart:
    """Curves over environment steps."""

    title: str
    curves: tuple[Curve, ...]
    limit: float | None = None
    at_least: bool = False
    shaded: tuple[tuple[float, float], ...] = ()
    """Stretches of steps in which a limit was broken."""
    from_zero: bool = False
    """Whether the axis of values begins at 0."""


@final
@dataclass(frozen=True)
class Scale:
    """Numbers on an axis. With a `bend` it is straight up to about there and logarithmic further out."""

    low: float
    high: float
    bend: float = 0.0

    def place(self, values: Float[np.ndarray, " V"]) -> Float[np.ndarray, " V"]:
        """0 at the low end, 1 at the high end."""
        low, high = self._bent(np.array([self.low, self.high]))
        return (self._bent(values) - low) / (high - low)

    def at(self, value: float) -> float:
        """The place of one number."""
        return float(self.place(np.array([value]))[0])

    def _bent(self, values: Float[np.ndarray, " V"]) -> Float[np.ndarray, " V"]:
        return np.arcsinh(values / self.bend) if self.bend else values

    def ticks(self, wanted: int = 4) -> list[float]:
        """Round numbers on the axis; on a bent one 0 and the powers of ten."""
        if self.bend:
            powers = range(math.floor(math.log10(self.bend)), math.ceil(math.log10(max(self.high, self.bend))) + 1)
            return self._uncrowded([0.0, *(10.0**power for power in reversed(powers))])
        rough = (self.high - self.low) / wanted
        unit = 10.0 ** math.floor(math.log10(rough))
        step = max(unit * factor for factor in (1, 2, 5, 10) if unit * factor <= 1.4 * rough)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [step * i for i in range(first, last + 1)]

    def _uncrowded(self, ticks: Sequence[float]) -> list[float]:
        kept: list[float] = []
        for tick in ticks:
            place = self.at(tick)
            if -1e-9 <= place <= 1.0 + 1e-9 and all(abs(place - self.at(one)) > CROWDED for one in kept):
                kept.append(tick)
        return kept


def scale_of(values: Float[np.ndarray, " V"], limit: float | None) -> Scale:
    """An axis for these values and the limit, with a little room; stretched around a small limit."""
    every = values[np.isfinite(values)]
    every = np.append(every, limit) if limit is not None else every
    every = every[np.abs(every) < 1e300]
    if not len(every):
        return Scale(0.0, 1.0)
    low, high = float(every.min()), float(every.max())
    if limit is not None and 0.0 < STRETCH * limit < high and low >= 0.0:
        return Scale(0.0, 1.15 * high, limit / 2.0)
    room = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    # What is never negative does not get an axis that is.
    return Scale(max(low - room, 0.0) if low >= 0.0 else low - room, high + room)


def draw(chart: Chart) -> str:
    """The chart as HTML."""
    curves = [thinned(curve) for curve in chart.curves]
    across = Scale(0.0, max((float(np.max(curve.x)) for curve in curves if len(curve.x)), default=1.0) or 1.0)
    numbers = [part for curve in curves for part in (curve.y, *(curve.band or ()))]
    up = scale_of(np.concatenate([*numbers, np.zeros(int(chart.from_zero))]), chart.limit)
    parts = [_shade(chart.shaded, across)]
    parts += [_area(curve, across, up) for curve in curves if curve.band is not None]
    if chart.limit is not None:
        parts.append(_level(chart.limit, up, "limit"))
    parts += [_line(curve, across, up) for curve in curves]
    keys = [_key(curve) for curve in curves if curve.label]
    if chart.limit is not None:
        sign = "&ge;" if chart.at_least else "&le;"
        keys.append(f'<span class="key"><i class="limit"></i>limit {sign} {number(chart.limit)}</span>')
    if chart.shaded:
        keys.append('<span class="key"><i class="shade"></i>limit broken</span>')
    return plot(chart.title, "".join(parts), across, up, keys, _readout(curves, across))


def plot(title: str, inside: str, across: Scale, up: Scale, keys: Sequence[str], readout: str = "") -> str:
    """The frame of a drawing: title and keys, axes with their words, and what is inside."""
    rows = [(1.0 - up.at(tick), number(tick)) for tick in up.ticks()]
    columns = [(across.at(tick), short(tick)) for tick in across.ticks(5)]
    grid = "".join(f"M0 {HEIGHT * place:.1f}H{WIDTH}" for place, _ in rows)
    left = "".join(f'<span style="top:{100 * place:.2f}%">{text}</span>' for place, text in rows)
    below = "".join(f'<span style="left:{100 * place:.2f}%">{text}</span>' for place, text in columns)
    return (
        f'<figure class="chart"{readout}><figcaption><b>{escape(title)}</b>{"".join(keys)}<output></output>'
        "</figcaption>"
        f'<div class="plot"><div class="left">{left}</div><div class="canvas"><svg viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'preserveAspectRatio="none" role="img" aria-label="{escape(title)}"><path class="grid" d="{grid}"/>'
        f'{inside}</svg><i class="cursor"></i></div><div class="below">{below}</div></div></figure>\n'
    )


def bars(title: str, counts: Sequence[int], ends: tuple[float, float], marks: Sequence[tuple[str, str, float]]) -> str:
    """A histogram in shares of all episodes, with vertical marks (class, words, value)."""
    inner = [value for _, _, value in marks if math.isfinite(value)]
    low, high = min([ends[0], *inner]), max([ends[1], *inner])
    room = 0.02 * (high - low) or 0.5 * abs(high) or 0.5
    across = Scale(low - room, high + room)
    share = np.asarray(counts, dtype=np.float64) / max(sum(counts), 1)
    up = Scale(0.0, 1.08 * float(share.max()) or 1.0)
    # Episodes that are all alike make one bar, as wide as there is room.
    edges = (
        np.linspace(*ends, len(counts) + 1) if ends[1] > ends[0] else np.array([ends[0] - room / 2, ends[1] + room / 2])
    )
    x, y = WIDTH * across.place(edges), HEIGHT * (1.0 - up.place(share))
    path = "".join(
        f"M{a:.1f} {HEIGHT}V{top:.1f}H{b:.1f}V{HEIGHT}Z" for a, b, top, n in zip(x, x[1:], y, counts, strict=False) if n
    )
    lines = "".join(
        f'<path class="{kind}" d="M{WIDTH * across.at(value):.1f} 0V{HEIGHT}"/>'
        for kind, _, value in marks
        if math.isfinite(value)
    )
    keys = [f'<span class="key"><i class="{kind}"></i>{escape(words)}</span>' for kind, words, _ in marks]
    return plot(title, f'<path class="bars" d="{path}"/>{lines}', across, up, keys)


def gauge(value: float, low: float, high: float, limit: float, at_least: bool) -> str:
    """An interval beside its limit; the side that is not allowed is shaded."""
    ends = [end for end in (value, low, high, limit) if math.isfinite(end)]
    room = 0.6 * (max(ends) - min(ends)) or 0.5 * abs(limit) or 1.0
    across = Scale(min(ends) - room, max(ends) + room)

    def at(end: float) -> float:
        return 1000.0 * min(max(across.at(end), 0.0), 1.0)

    forbidden = (0.0, at(limit)) if at_least else (at(limit), 1000.0)
    dot = f'<path class="dot" d="M{at(value):.1f} 20h0"/>' if math.isfinite(value) else ""
    return (
        '<svg class="gauge" viewBox="0 0 1000 40" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="shade" x="{forbidden[0]:.1f}" width="{forbidden[1] - forbidden[0]:.1f}" height="40"/>'
        f'<path class="limit" d="M{at(limit):.1f} 0V40"/>'
        f'<path class="reach" d="M{at(low):.1f} 20H{at(high):.1f}"/>{dot}</svg>'
    )


def thinned(curve: Curve) -> Curve:
    """The same curve with few points: of each stretch the first, the lowest and the highest."""
    count = len(curve.x)
    if count <= 3 * BUCKETS:
        return curve
    chosen = set()
    for bucket in np.array_split(np.arange(count), BUCKETS):
        chosen.add(int(bucket[0]))
        finite = bucket[np.isfinite(curve.y[bucket])]
        if len(finite):
            chosen |= {int(finite[np.argmin(curve.y[finite])]), int(finite[np.argmax(curve.y[finite])])}
    few = np.array(sorted(chosen | {count - 1}))
    band = None if curve.band is None else (curve.band[0][few], curve.band[1][few])
    invalid = None if curve.invalid is None else curve.invalid[few]
    return Curve(curve.label, curve.x[few], curve.y[few], curve.look, curve.kind, band, invalid)


def stretches(x: Float[np.ndarray, " P"], where: Bool[np.ndarray, " P"], end: float) -> tuple[tuple[float, float], ...]:
    """The stretches of x in which something holds. A point speaks for the way from its forerunner to itself.

    Gaps too small to be seen are closed.
    """
    found: list[tuple[float, float]] = []
    for i in np.flatnonzero(where):
        begin = float(x[i - 1]) if i else 0.0
        if found and begin - found[-1][1] <= end / WIDTH:
            found[-1] = (found[-1][0], float(x[i]))
        else:
            found.append((begin, float(x[i])))
    return tuple(found)


def line_path(x: Float[np.ndarray, " P"], y: Float[np.ndarray, " P"], across: Scale, up: Scale) -> str:
    """The `d` of a line with a gap where a number is missing; a point between two gaps is a dot."""
    places = zip(WIDTH * across.place(x), HEIGHT * (1.0 - np.clip(up.place(y), -1.0, 2.0)), strict=True)
    parts, drawing = [], False
    for a, b in places:
        if math.isfinite(a) and math.isfinite(b):
            parts.append(f"{'L' if drawing else 'M'}{a:.1f} {b:.1f}" + ("" if drawing else "h0"))
            drawing = True
        else:
            drawing = False
    return "".join(parts)


def _line(curve: Curve, across: Scale, up: Scale) -> str:
    colour = f"c{curve.look % COLOURS}"
    if curve.invalid is None or not curve.invalid.any():
        return f'<path class="line {curve.kind} {colour}" d="{line_path(curve.x, curve.y, across, up)}"/>'
    valid = np.where(curve.invalid, np.nan, curve.y)
    return (
        f'<path class="line broken {colour}" d="{line_path(curve.x, curve.y, across, up)}"/>'
        f'<path class="line {curve.kind} {colour}" d="{line_path(curve.x, valid, across, up)}"/>'
    )


def _area(curve: Curve, across: Scale, up: Scale) -> str:
    assert curve.band is not None
    low, high = curve.band
    there = np.isfinite(low) & np.isfinite(high)
    x = np.concatenate((curve.x[there], curve.x[there][::-1]))
    y = np.concatenate((low[there], high[there][::-1]))
    return f'<path class="band c{curve.look % COLOURS}" d="{line_path(x, y, across, up)}Z"/>' if len(x) else ""


def _level(value: float, up: Scale, kind: str) -> str:
    return f'<path class="{kind}" d="M0 {HEIGHT * (1.0 - up.at(value)):.1f}H{WIDTH}"/>'


def _shade(shaded: Sequence[tuple[float, float]], across: Scale) -> str:
    path = "".join(
        "M{:.1f} 0V{h}H{:.1f}V0Z".format(*(WIDTH * across.place(np.array(stretch))), h=HEIGHT) for stretch in shaded
    )
    return f'<path class="shade" d="{path}"/>' if path else ""


def _key(curve: Curve) -> str:
    return f'<span class="key"><i class="{curve.kind} c{curve.look % COLOURS}"></i>{escape(curve.label)}</span>'


def _readout(curves: Sequence[Curve], across: Scale) -> str:
    """What the page's script shows under the pointer."""

    def plain(values: Float[np.ndarray, " P"], digits: int = 4) -> list[float | None]:
        return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]

    lines = [
        {"label": curve.label, "x": plain(curve.x, 9), "y": plain(curve.y)} for curve in curves if curve.kind == "bold"
    ]
    document = {"ends": [across.low, across.high], "lines": lines}
    return f' data-values="{escape(json.dumps(document, separators=(",", ":")))}"'


def number(value: float) -> str:
    """A value with few digits, with a real minus sign."""
    return f"{value:.4g}".replace("-", "\N{MINUS SIGN}") if math.isfinite(value) else "\N{EN DASH}"


def short(value: float) -> str:
    """A number of steps: 40M, 250k."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{number(value / size)}{unit}"
    return number(value)
