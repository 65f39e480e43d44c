"""Gymnasium's spaces as plain arrays: what is seen in one row or one picture, what is done as the space has it.

Light, without JAX: the worker processes import this.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from gymnasium import Space, spaces
from gymnasium.spaces.utils import flatdim, flatten

from rcpo.errors import UsageError

SMALLEST_PICTURE: Final = 5
"""The shorter side of the smallest picture that a convolutional network is given."""


@final
@dataclass(frozen=True)
class Sight:
    """How an observation is written into an array."""

    shape: tuple[int, ...]
    pixels: bool
    """A picture of bytes, height x width x channels."""
    write: Callable[[np.ndarray, Any], None]
    """Writes one observation into its place."""

    @property
    def kind(self) -> type[np.generic]:
        return np.uint8 if self.pixels else np.float32


def sight(space: Space, images: bool, name: str) -> Sight:
    """What is seen of a space: a picture as it is, all else in one row, in the order of `gymnasium.spaces.flatten`."""
    if images and is_picture(space):
        shape = tuple(space.shape or ())
        if channels_first(shape):
            return Sight((*shape[1:], shape[0]), True, _write_channels_first)
        return Sight(shape, True, _write_as_it_is)
    if isinstance(space, spaces.Box):
        size = int(np.prod(space.shape))
        return Sight((size,), False, _write_as_it_is if len(space.shape) == 1 else _write_in_a_row)
    if isinstance(space, spaces.Discrete):
        return Sight((int(space.n),), False, _OneHot(int(space.start)))
    try:
        size = flatdim(space)
    except (NotImplementedError, ValueError):
        size = 0
    if not size:
        raise UsageError(f"cannot see what {name} shows: {described(space)} cannot be written in one row of numbers; "
                         "wrap it in gymnasium.wrappers.FilterObservation or TransformObservation")  # fmt: skip
    return Sight((size,), False, _Flat(space))


def as_seen(space: Space, sight: Sight, observation: Any) -> Any:
    """What a space holds, as policies see it: one observation, or (of a Box) also a batch. All else as it is."""
    if not isinstance(space, spaces.Box):
        if not space.contains(observation):
            return observation
        row = np.zeros(sight.shape, sight.kind)
        sight.write(row, observation)
        return row
    array = np.asarray(observation)
    leading = array.ndim - len(space.shape)
    if space.shape == sight.shape or leading < 0 or array.shape[leading:] != space.shape:
        return array
    return np.moveaxis(array, -3, -1) if sight.pixels else array.reshape(*array.shape[:leading], *sight.shape)


def is_picture(space: Space) -> bool:
    """uint8, three axes, and large enough for a convolution."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) != 3:
        return False
    sides = space.shape[1:] if channels_first(space.shape) else space.shape[:2]
    return min(sides) >= SMALLEST_PICTURE


def channels_first(shape: tuple[int, ...]) -> bool:
    """The channels are the last axis, unless the first one is shorter."""
    return shape[0] < shape[2]


def described(space: Space) -> str:
    """A space in few words, for messages."""
    text = str(space)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _write_as_it_is(row: np.ndarray, observation: Any) -> None:
    row[...] = observation


def _write_in_a_row(row: np.ndarray, observation: Any) -> None:
    row[...] = np.reshape(observation, -1)


def _write_channels_first(row: np.ndarray, observation: Any) -> None:
    row[...] = np.moveaxis(observation, 0, -1)


@final
@dataclass(frozen=True)
class _OneHot:
    start: int

    def __call__(self, row: np.ndarray, observation: Any) -> None:
        row[...] = 0.0
        row[int(observation) - self.start] = 1.0


@final
@dataclass(frozen=True)
class _Flat:
    space: Space

    def __call__(self, row: np.ndarray, observation: Any) -> None:
        row[...] = flatten(self.space, observation)


def check_actions(space: Space, name: str) -> None:
    """Refuse actions that no policy here can give."""
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return
    if not isinstance(space, spaces.Box):
        raise UsageError(f"cannot act in {name}: its actions are {described(space)}; expected Box, Discrete, "
                         "MultiDiscrete or MultiBinary, so wrap it in gymnasium.wrappers.TransformAction")  # fmt: skip
    if not np.issubdtype(space.dtype, np.floating):
        raise UsageError(f"cannot act in {name}: its actions are a Box of {space.dtype}; whole numbers are chosen, "
                         "not drawn from a range: declare them as MultiDiscrete")  # fmt: skip
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise UsageError(f"cannot act in {name}: its actions have no bounds ({described(space)}); give every action "
                         "a finite low and high, for example with gymnasium.wrappers.RescaleAction")  # fmt: skip
    if not (space.low < space.high).all():
        raise UsageError(f"cannot act in {name}: an action's low is not below its high ({described(space)})")


def options(space: spaces.MultiDiscrete | spaces.MultiBinary) -> tuple[int, ...]:
    """How many options each of several choices has."""
    if isinstance(space, spaces.MultiBinary):
        return (2,) * int(np.prod(space.shape))
    return tuple(int(n) for n in space.nvec.reshape(-1))


def action_row(space: Space) -> tuple[tuple[int, ...], type[np.generic]]:
    """The shape and kind of one action as a policy gives it."""
    if isinstance(space, spaces.Discrete):
        return (), np.int32
    if isinstance(space, spaces.Box):
        return (int(np.prod(space.shape)),), np.float32
    assert isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary)
    return (len(options(space)),), np.int32


def actor(space: Space) -> Callable[[np.ndarray], Iterable[Any]]:
    """From a policy's actions, one row a copy, to each copy's action as its space has it."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return lambda action: action.astype(np.int64) + start
    kind, shape = space.dtype, tuple(space.shape or ())
    first = np.asarray(space.start if isinstance(space, spaces.MultiDiscrete) else 0, kind)
    if isinstance(space, spaces.Box):
        return lambda action: action.reshape(len(action), *shape).astype(kind)
    return lambda action: action.reshape(len(action), *shape).astype(kind) + first
