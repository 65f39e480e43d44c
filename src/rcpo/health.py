"""How the dual did: what a run's records say about its multipliers, and what one can do about it.

Pure functions of the records in `metrics.jsonl`, so that a run on its way can be looked at as well as a finished one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from rcpo.config import MultiplierConfig
from rcpo.constraints import labels

SWING, MANY_SWINGS, WIDE_SWING = 0.25, 4, 0.5
"""A multiplier swings where it turns by a quarter of its mean; often and widely, and the gains are too large."""
LATE, OFTEN, PINNED, FAR, RARELY = 0.25, 0.5, 0.05, 0.5, 0.5
"""Shares from which on something is worth a word: the last quarter of a run, half of its steps, ..."""
ROUNDING = 1e-6
"""Multipliers are kept in single precision."""


@runtime_checkable
class Bounded(Protocol):
    """What is bounded: a Constraint, or what a report reads back of one."""

    @property
    def quantity(self) -> str: ...
    @property
    def bound(self) -> str: ...
    @property
    def limit(self) -> float: ...
    def excess(self, value: Any) -> Any: ...


@final
@dataclass(frozen=True)
class Health:
    """How the multiplier of one constraint did. Shares are of environment steps."""

    constraint: str
    measured: float
    """The share of the run in whose records episodes finished."""
    beyond: float | None
    """The share of what was measured that lies beyond the limit; None where nothing was."""
    beyond_late: float | None
    """The same in the last quarter of the run."""
    reached: int | None
    """After how many steps the limit was kept for the first time; None where it never was."""
    overshoot: float | None
    """How far the value went beyond the limit after that; 0 where it stayed inside."""
    overshoot_relative: float | None
    """The same in units of the limit (of 1 where that is 0)."""
    swings: int
    """How often the multiplier went from one turning point to the next."""
    swing: float
    """How far it went then, as a share of its mean: the median over the swings."""
    pinned: float
    """The share of the run with the multiplier at its maximum."""
    moved: bool
    """Whether the multiplier ever left its first place."""

    def __str__(self) -> str:
        if self.beyond is None:
            return f"{self.constraint}: no episode finished, nothing was measured"
        parts = [f"beyond the limit in {_percent(self.beyond)} of the steps"]
        if self.reached is None:
            parts.append("never within it")
        elif self.overshoot is not None:
            after = f"by up to {self.overshoot:.3g} ({_percent(self.overshoot_relative or 0.0)} of the limit)"
            parts.append(f"within it from step {self.reached:,} on, and {after if self.overshoot else 'never'} beyond "
                         "it again")  # fmt: skip
        parts.append(f"the multiplier swung {self.swings} times" if self.swings else "the multiplier did not swing")
        return f"{self.constraint}: {', '.join(parts)}"


def examine(
    records: Sequence[Mapping[str, Any]], constraints: Sequence[Bounded], rules: Sequence[MultiplierConfig]
) -> tuple[Health, ...]:
    """The health of every constraint's multiplier, each under its own rule."""
    named = zip(constraints, labels(constraints), rules, strict=True)
    return tuple(_examine(records, constraint, label, rule) for constraint, label, rule in named)


def _examine(records: Sequence[Mapping[str, Any]], constraint: Bounded, label: str, config: MultiplierConfig) -> Health:
    steps = column(records, "steps")
    covered = np.diff(steps, prepend=0.0)
    value = column(records, f"constraint/{label}/value")
    multiplier = column(records, f"constraint/{label}/multiplier")
    excess = np.asarray(constraint.excess(value), dtype=np.float64)
    seen = np.isfinite(excess)
    first = int(np.argmax(excess <= 0.0)) if (excess <= 0.0).any() else None
    late = steps > (1.0 - LATE) * steps[-1] if len(steps) else seen
    overshoot = None if first is None else max(0.0, float(np.nanmax(excess[first:])))
    sizes = swings(multiplier[np.isfinite(multiplier)])
    adapts = config.rule != "fixed"
    return Health(
        constraint=str(constraint),
        measured=_share(seen, covered) or 0.0,
        beyond=_share(excess > 0.0, np.where(seen, covered, 0.0)),
        beyond_late=_share(excess > 0.0, np.where(seen & late, covered, 0.0)),
        reached=None if first is None else int(steps[first]),
        overshoot=overshoot,
        overshoot_relative=None if overshoot is None else overshoot / (abs(constraint.limit) or 1.0),
        swings=len(sizes),
        swing=float(np.median(sizes) / np.nanmean(multiplier)) if len(sizes) else 0.0,
        pinned=(_share(multiplier >= (1.0 - ROUNDING) * config.maximum, covered) or 0.0) if adapts else 0.0,
        moved=bool(adapts and (np.abs(multiplier - config.initial) > ROUNDING * (1.0 + config.initial)).any()),
    )


def column(records: Sequence[Mapping[str, Any]], key: str) -> Float[np.ndarray, " P"]:
    """A number of each record; nan where there is none."""
    numbers = [record.get(key) for record in records]
    return np.array([np.nan if number is None else number for number in numbers], dtype=np.float64)


def _share(where: Bool[np.ndarray, " P"], weight: Float[np.ndarray, " P"]) -> float | None:
    """The share of the weight that lies where something holds; None where nothing weighs anything."""
    total = float(weight.sum())
    return float(weight[where].sum()) / total if total > 0.0 else None


def swings(multiplier: Float[np.ndarray, " P"]) -> Float[np.ndarray, " S"]:
    """How far the multiplier goes from each of its turning points to the next.

    It has turned when it has come back from its furthest by a quarter of its mean: smaller moves are noise.
    """
    least = SWING * float(multiplier.mean()) if len(multiplier) else 0.0
    if least <= 0.0:
        return np.zeros(0)
    turns: list[float] = []
    lowest = highest = multiplier[0]
    direction = 0
    for now in multiplier:
        lowest, highest = min(lowest, now), max(highest, now)
        if direction >= 0 and highest - now >= least:
            turns += [highest] if direction else []
            direction, lowest = -1, now
        elif direction <= 0 and now - lowest >= least:
            turns += [lowest] if direction else []
            direction, highest = 1, now
    return np.abs(np.diff(turns))


def advice(health: Sequence[Health], rules: Sequence[MultiplierConfig]) -> list[str]:
    """What one can do about it, in plain words; nothing where all is well or a multiplier was to stay."""
    pairs = zip(health, rules, strict=True)
    return [sentence for one, rule in pairs if rule.rule != "fixed" for sentence in _advice(one, rule)]


def _advice(one: Health, config: MultiplierConfig) -> list[str]:
    if one.beyond is None:
        still = "" if one.moved else ", so its multiplier never moved"
        return [f"no episode finished in the whole run{still} ('{one.constraint}'): train for longer than an episode "
                "lasts, or shorten the episodes"]  # fmt: skip
    said, damped = [], config.rule == "pi"
    if one.measured < RARELY and config.measure == "episodes":
        said.append(f"in {_percent(1.0 - one.measured)} of the run no episode finished, and '{one.constraint}' was not "
                    "measured: use more --learner.environments, or fewer --evaluation.points")  # fmt: skip
    if one.pinned >= PINNED:
        return [*said, f"the multiplier of '{one.constraint}' stood at its maximum {config.maximum:g} for "
                f"{_percent(one.pinned)} of the run: perhaps no policy keeps this limit, or raise "
                "--multipliers.maximum"]  # fmt: skip
    if one.beyond_late is not None and one.beyond_late >= OFTEN:
        said.append(f"in the last quarter of the run '{one.constraint}' was still broken in "
                    f"{_percent(one.beyond_late)} of the steps: train longer, or raise "
                    "--multipliers.step-size.initial so that the multiplier gets there sooner")  # fmt: skip
    elif one.overshoot_relative is not None and one.overshoot_relative >= FAR:
        said.append(f"after '{one.constraint}' was first kept, it was broken again by up to "
                    f"{_percent(one.overshoot_relative)} of the limit: a proportional term damps this "
                    f"({'more --multipliers.proportional' if damped else '--multipliers.rule pi'})")  # fmt: skip
    if one.swings >= MANY_SWINGS and one.swing >= WIDE_SWING:
        said.append(f"the multiplier of '{one.constraint}' swung {one.swings} times by about {_percent(one.swing)} of "
                    "its mean: lower --multipliers.step-size.initial, or "
                    f"{'--multipliers.proportional' if damped else 'use --multipliers.rule pi'}")  # fmt: skip
    return said


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")
