"""How all pictures look. matplotlib draws straight into files here: no display, no global state of its own is used."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import matplotlib
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

CURVE_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#56b4e9", "#7a5c00")
"""Colours that people with any kind of colour blindness can tell apart (after Okabe and Ito)."""
MARKERS: Final = ("o", "s", "^", "D", "v", "P")
START, GOAL, ROCK, WALLS = "#d7191c", "#f58518", "#f7d038", "#3a3f4b"
"""The rover red, the goal orange, rocks yellow: as in the paper's Figure 1."""
INK, FAINT, OTHER = "#22262e", "#6b7280", "#e83e8c"
HEAT: Final = LinearSegmentedColormap.from_list("visits", ["#ffffff", "#cfe3f2", "#7fb6dc", "#2f7fb8", "#0b4a82"])
ALPHA, LAMBDA, MINUS = "\N{GREEK SMALL LETTER ALPHA}", "\N{GREEK SMALL LETTER LAMDA}", "\N{MINUS SIGN}"
DOTS_PER_INCH: Final = 160
STYLE: Final[Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 13,
    "axes.labelsize": 11,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e5e7eb",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "text.color": INK,
    "xtick.color": "#4b5563",
    "ytick.color": "#4b5563",
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
}

Arguments = ParamSpec("Arguments")
Drawn = TypeVar("Drawn")


def styled(draw: Callable[Arguments, Drawn]) -> Callable[Arguments, Drawn]:
    """Draw in our style, whatever the user's own is."""

    @wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Drawn:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(STYLE)
            return draw(*args, **kwargs)

    return drawn


@styled
def save(figure: Figure, path: Path) -> None:
    """Write the picture; its format is the path's suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS_PER_INCH, facecolor="white")
