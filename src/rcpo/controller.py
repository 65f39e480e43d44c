"""The multipliers of somebody else's learner: they follow the episodes that its environments report."""

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from rcpo import ascent
from rcpo.config import MultiplierConfig
from rcpo.constraints import Constraint, labels, parse
from rcpo.errors import UsageError, nearest
from rcpo.schedules import Schedule

_SETTINGS: Final = tuple(field.name for field in dataclasses.fields(MultiplierConfig))
RULES: Final = ("fixed", "integral", "pi")
_STATE: Final = ("multiplier", "integral", "first")


@final
class Multipliers:
    """One multiplier for each constraint, shared by however many environments feel it.

    `constraints` are texts or `Constraint`s, or one of them. Every finished episode is recorded; each
    `episodes_per_update` of them move the multipliers once, by the rule that `rcpo.train` uses (the paper's integral
    rule unless the settings say otherwise). Settings are the fields of `MultiplierConfig`, as words or as such a
    record.
    """

    def __init__(
        self,
        constraints: Any,
        config: Any = None,
        *,
        episodes_per_update: int = 10,
        updates: int | None = None,
        centred_penalty: bool = True,
        divide_by_multiplier: bool = False,
        **settings: Any,
    ):
        """`updates` is how many there will be, which only a ramp or a linear step size has to know.

        With `centred_penalty` a step pays lambda (c - limit) for mean(column), not lambda c: the exact Lagrangian where
        episodes may end early. With `divide_by_multiplier` the penalised reward is divided by 1 + lambda.
        """
        self.constraints = _read(constraints)
        self.config = _rule(config, settings)
        self.episodes_per_update, self.iterations = episodes_per_update, updates
        self.centred_penalty, self.divide_by_multiplier = centred_penalty, divide_by_multiplier
        self._rules = ascent.rules(self.config, self.constraints)
        self._check()
        self.names = labels(self.constraints)
        self._limit = np.array([constraint.limit for constraint in self.constraints], float)
        self._sign = np.array([constraint.sign for constraint in self.constraints], float)
        count = len(self.constraints)
        self._multiplier = self._integral = ascent.each(self._rules, lambda rule: rule.initial)
        self._first, self._sums = np.zeros(count), [0.0] * count
        self._episodes = 0
        self.updates = 0
        self._publish()

    def _check(self) -> None:
        if self.episodes_per_update < 1:
            raise UsageError(f"got {self.episodes_per_update} for episodes_per_update; give at least 1")
        if self.iterations is not None and self.iterations < 1:
            raise UsageError(f"got {self.iterations} updates; give at least 1, or leave it out")
        if self.iterations is None and (self.config.ramp > 0.0 or self.config.step_size.kind == "linear"):
            raise UsageError("a ramp and a linear step size end with the run; say with updates=... how many updates "
                             "of the multipliers there will be")  # fmt: skip
        if self.config.measure != "episodes":
            raise UsageError(f"got measure={self.config.measure!r}; around another learner's environment multipliers "
                             "are measured on episodes")  # fmt: skip
        for constraint, rule in zip(self.constraints, self._rules, strict=True):
            rare = min(constraint.limit, 1.0 - constraint.limit) if constraint.is_probability else 0.0
            # Of n episodes in which it happens twice, the relative violation is 2 / (n limit) - 1.
            unclipped = rare * (1.0 + rule.clip) / 2.0
            if rule.relative and 0.0 < unclipped * self.episodes_per_update < 1.0:
                raise UsageError(
                    f"a relative violation is clipped, which over {self.episodes_per_update} episodes biases "
                    f"'{constraint}'; give episodes_per_update={math.ceil(1.0 / unclipped)} or more, or relative=False"
                )

    @property
    def value(self) -> dict[str, float]:
        """Each multiplier, by what its constraint bounds."""
        return dict(self.shown)

    def record(self, values: Sequence[float]) -> None:
        """One finished episode, by its value under each constraint."""
        if not all(map(math.isfinite, values)):
            raise UsageError(f"an episode's values are {dict(zip(self.names, values, strict=True))}; "
                             "a value must be a finite number")  # fmt: skip
        self._sums = [total + value for total, value in zip(self._sums, values, strict=True)]
        self._episodes += 1
        if self._episodes >= self.episodes_per_update:
            self._update()

    def _update(self) -> None:
        """The slow timescale, on J_C - alpha (the paper's Eq. 8)."""
        value = np.array(self._sums, float) / self._episodes
        self._sums, self._episodes = [0.0] * len(value), 0
        if self.updates == 0:
            self._first = value
        violation = self._sign * (value - self._aim(known=True))
        steps = np.full(len(value), float(self.updates))
        self._integral, self._multiplier = ascent.climb(
            self._rules, self._integral, steps, violation, self._limit, self.iterations or 1
        )
        self.updates += 1
        self._publish()

    def _aim(self, known: bool) -> np.ndarray:
        done = np.float64(self.updates)
        return ascent.aim(self._rules, self._limit, self._sign, self._first, known, done, self.iterations or 1)

    def _publish(self) -> None:
        """r_hat = scale r + rebate - weights . penalty: what a step needs, worked out once per update.

        Plain numbers, for a step of a small environment takes no longer than a few operations on arrays.
        """
        self.scale = 1.0 / (1.0 + float(self._multiplier.sum())) if self.divide_by_multiplier else 1.0
        weights = self.scale * self._multiplier
        self.weights: list[float] = weights.tolist()
        spared = zip(self.constraints, self._aim(known=self.updates > 0), strict=True)
        free = np.array([float(c.functional.allowance(aim)) for c, aim in spared])
        self.rebate = float((weights * self._sign) @ free) if self.centred_penalty else 0.0
        self.shown = dict(zip(self.names, self._multiplier.tolist(), strict=True))

    def penalise(self, reward: Any, penalty: Any) -> Any:
        """The penalised reward [...] of rewards [...] and penalties [..., K], with the multipliers as they are now."""
        return self.scale * reward + self.rebate - penalty @ np.asarray(self.weights)

    def state_dict(self) -> dict[str, Any]:
        """All that the multipliers go on from, ready for JSON."""
        sums = np.array(self._sums, float)
        arrays = {"multiplier": self._multiplier, "integral": self._integral, "first": self._first, "sums": sums}
        return {
            "constraints": [constraint.bound for constraint in self.constraints],
            "updates": self.updates,
            "episodes": self._episodes,
            **{name: array.tolist() for name, array in arrays.items()},
        }

    def load_state_dict(self, state: Any) -> None:
        """Go on from what `state_dict` gave."""
        found = state.get("constraints") if isinstance(state, dict) else None
        bounds = [constraint.bound for constraint in self.constraints]
        if found != bounds:
            raise UsageError(f"the saved multipliers belong to the constraints {found}, these are {bounds}")
        try:
            arrays = {name: np.asarray(state[name], float) for name in (*_STATE, "sums")}
            updates, episodes = int(state["updates"]), int(state["episodes"])
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"the saved multipliers are damaged ({error!r}); save them again") from None
        sound = all(array.shape == self._limit.shape and np.isfinite(array).all() for array in arrays.values())
        maximum = ascent.each(self._rules, lambda rule: rule.maximum)
        inside = all(((arrays[n] >= 0.0) & (arrays[n] <= maximum)).all() for n in _STATE[:2] if sound)
        if not sound or not inside or updates < 0 or episodes < 0:
            raise UsageError(f"the saved multipliers {state['multiplier']} are not {len(self._limit)} numbers in "
                             f"[0, lambda_max = {maximum.tolist()}]")  # fmt: skip
        self._multiplier, self._integral = arrays["multiplier"], arrays["integral"]
        self._first, self._sums = arrays["first"], arrays["sums"].tolist()
        self.updates, self._episodes = updates, episodes
        self._publish()

    def save(self, path: str | Path) -> None:
        """Write them to a JSON file."""
        unfinished = Path(f"{path}.part")
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps(self.state_dict(), indent=2) + "\n")
        unfinished.replace(path)

    def load(self, path: str | Path) -> None:
        """Read them back."""
        try:
            state = json.loads(Path(path).read_text())
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read the multipliers in {str(path)!r}: {error}") from None
        self.load_state_dict(state)


def _read(constraints: Any) -> tuple[Constraint, ...]:
    if isinstance(constraints, str | Constraint):
        constraints = [constraints]
    if not isinstance(constraints, Iterable):
        raise UsageError(f'got {constraints!r} as constraints; give a list such as ["P(crash) <= 0.01"]')
    read = tuple(parse(given) if isinstance(given, str) else given for given in constraints)
    for given in read:
        if not isinstance(given, Constraint):
            raise UsageError(f'got {given!r} as a constraint; give a text such as "P(crash) <= 0.01"')
    if len({given.bound for given in read}) != len(read):
        raise UsageError("the same constraint was given twice; give each once")
    return read


def _rule(config: Any, settings: dict[str, Any]) -> MultiplierConfig:
    if not isinstance(config, MultiplierConfig | None):
        raise UsageError(f"got {config!r} as the multipliers' rule; give a MultiplierConfig, or its fields as words")
    for name in settings:
        if name not in _SETTINGS:
            raise UsageError(f"unknown setting {name!r} of the multipliers{nearest(name, _SETTINGS)}")
    rule, step_size = settings.get("rule", "integral"), settings.get("step_size")
    if rule not in RULES:
        raise UsageError(f"unknown rule {rule!r} of the multipliers{nearest(str(rule), RULES)}")
    if isinstance(step_size, int | float):
        settings["step_size"] = Schedule(float(step_size))
    return dataclasses.replace(config or MultiplierConfig(), **settings)


def shared(constraints: Any, settings: dict[str, Any]) -> Multipliers:
    """The multipliers that a wrapper was given, or new ones."""
    if not isinstance(constraints, Multipliers):
        return Multipliers(constraints, **settings)
    if settings:
        raise UsageError(f"got {next(iter(settings))!r} beside Multipliers; say it where the Multipliers are made")
    return constraints
