"""A first look at an environment: a few random steps, by which its mistakes are found before training begins."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import gymnasium
import numpy as np

from rcpo.envs import sources, spaces
from rcpo.envs.settings import GymSettings
from rcpo.envs.sources import one_line
from rcpo.envs.stepping import final_of, number
from rcpo.errors import UsageError

STEPS: Final = 256
"""Random steps: most of what `info` may say has been said by then."""
DEFAULT_MAX_STEPS: Final = 1000


@final
@dataclass(frozen=True)
class Seen:
    """What a look showed."""

    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    sight: spaces.Sight
    max_steps: int
    info_keys: tuple[str, ...]
    """The keys of `info` that hold numbers, nested ones written with dots; and `cost` where `step` returns it."""
    six: bool
    """Whether `step` returns six values, the cost among them."""
    frames_per_second: float
    """At which it is to be shown; 0 where it does not say."""


def look(source: sources.Source, settings: GymSettings) -> Seen:
    """Make one copy, take random steps in it, and refuse it with a sentence where something is not as it should be."""
    environment = source.make()
    sources.check_environment(environment, source.name)
    name, actions = source.name, environment.action_space
    try:
        spaces.check_actions(actions, name)
        sight = spaces.sight(environment.observation_space, settings.images, name)
        actions.seed(0)
        keys, six = _steps(environment, name, sight)
        return Seen(
            environment.observation_space,
            actions,
            sight,
            max_steps(environment, settings),
            tuple(keys),
            six,
            frames_per_second(environment),
        )
    finally:
        with contextlib.suppress(Exception):
            environment.close()


def max_steps(environment: Any, settings: GymSettings) -> int:
    """After how many steps an episode is cut: as set, as registered, as a TimeLimit around it says, or 1,000."""
    if settings.max_steps:
        return settings.max_steps
    registered = getattr(getattr(environment, "spec", None), "max_episode_steps", None)
    inner = environment
    while registered is None and inner is not None:
        registered = getattr(inner, "_max_episode_steps", None)
        inner = inner.__dict__.get("env") if hasattr(inner, "__dict__") else None
    return int(registered or DEFAULT_MAX_STEPS)


def frames_per_second(environment: Any) -> float:
    """What its metadata say of that; 0 where they do not."""
    said = getattr(environment, "metadata", None)
    rate = said.get("render_fps") if isinstance(said, Mapping) else None
    return float(rate) if isinstance(rate, int | float) and 0.0 < rate < float("inf") else 0.0


def _steps(environment: Any, name: str, sight: spaces.Sight) -> tuple[dict[str, None], bool]:
    row = np.zeros(sight.shape, sight.kind)
    keys: dict[str, None] = {}
    six, over = False, True
    for t in range(STEPS):
        if over:
            _write(row, _begin(environment, name, seed=0 if t == 0 else None), environment, sight, name)
        try:
            outcome = environment.step(environment.action_space.sample())
        except Exception as error:
            raise UsageError(f"{name} cannot take a step: {type(error).__name__}: {one_line(error)}") from error
        observation, cost, over, info = _check_outcome(outcome, name)
        if cost is not None:
            six = True
            keys["cost"] = None
        if over and "final_info" in info:
            observation, info = final_of(observation, info)
        keys |= dict.fromkeys(key for key, _ in numbers(info))
        _write(row, observation, environment, sight, name)
    return keys, six


def _begin(environment: Any, name: str, seed: int | None) -> Any:
    try:
        begun = environment.reset(seed=seed)
    except TypeError as error:
        raise UsageError(f"{name} cannot begin an episode: {one_line(error)}; expected "
                         "reset(self, *, seed=None, options=None)") from error  # fmt: skip
    except Exception as error:
        raise UsageError(f"{name} cannot begin an episode: {type(error).__name__}: {one_line(error)}") from error
    if not isinstance(begun, tuple) or len(begun) != 2 or not isinstance(begun[1], Mapping):
        raise UsageError(f"the reset of {name} gives {_short(begun)}; expected a pair: observation, info")
    return begun[0]


def _check_outcome(outcome: Any, name: str) -> tuple[Any, float | None, bool, Mapping[str, Any]]:
    expected = "observation, reward, terminated, truncated, info (or with a cost after the reward)"
    if not isinstance(outcome, tuple) or len(outcome) not in (5, 6):
        got = f"{len(outcome)} values" if isinstance(outcome, tuple) else _short(outcome)
        raise UsageError(f"the step of {name} gives {got}; expected {expected}")
    observation, reward, *cost, terminated, truncated, info = outcome
    for what, value in (("reward", reward), *(("cost", c) for c in cost)):
        try:
            number(value)
        except TypeError:
            raise UsageError(f"the {what} of {name} is no number: got {_short(value)}") from None
    for what, value in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_ | int | np.integer):
            raise UsageError(f"the {what} that {name} gives is {_short(value)}; expected True or False")
    if not isinstance(info, Mapping):
        raise UsageError(f"the info of {name} is {_short(info)}; expected a dict")
    return observation, number(cost[0]) if cost else None, bool(terminated or truncated), info


def _write(row: np.ndarray, observation: Any, environment: Any, sight: spaces.Sight, name: str) -> None:
    """Refuse an observation that its own space does not fit: one that is too small would be spread out silently."""
    space = environment.observation_space
    try:
        fits = not isinstance(space, gymnasium.spaces.Box) or np.shape(observation) == space.shape
        if fits:
            with np.errstate(all="ignore"):
                sight.write(row, observation)
    except Exception:
        fits = False
    if not fits:
        raise UsageError(f"{name} shows {_short(observation)}, which does not fit its observation_space "
                         f"{spaces.described(space)}")  # fmt: skip


def numbers(info: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The entries of `info` that are numbers, nested ones with dots in their names."""
    for key, value in info.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{key}.")
            continue
        try:
            yield f"{prefix}{key}", number(value)
        except (TypeError, ValueError):
            continue


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
