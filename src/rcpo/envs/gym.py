"""Any Gymnasium environment, as N copies for training: by id, from a file, from a factory, or copied from an object."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, final

import numpy as np
from gymnasium import spaces as gymnasium_spaces
from jaxtyping import Num

from rcpo.envs import probe, sources, spaces
from rcpo.envs.base import Box, Choices, Column, EnvSpec, HostCopies, HostEnvironment, NetworkFactory
from rcpo.envs.settings import GymSettings
from rcpo.envs.stepping import Arrays, Cost, Stepper, Task, arrays, layout
from rcpo.envs.workers import Workers
from rcpo.errors import UsageError
from rcpo.threads import cores
from rcpo.types import EnvStep

__all__ = ["GymCopies", "GymEnvironment"]

MOST_COMPONENTS: Final = 32
"""Up to so many numbers seen, each is a cost column: `obs_0`, `obs_1`, ..."""


@final
@dataclass(frozen=True)
class GymEnvironment(HostEnvironment):
    """A Gymnasium environment to learn in.

    `origin` is an id (`"CartPole-v1"`, `"my_package:MyEnv-v0"`), a class in a file
    (`"my_env.py:MyEnv"`), a class or function that makes an environment, or an environment: that one is never stepped,
    every copy is a deep copy of it (where it cannot be copied, a new one made by its `spec`).
    """

    preset = "gym"

    origin: Any
    settings: GymSettings = field(default_factory=GymSettings)
    costs: Mapping[str, Any] = field(default_factory=dict)
    """Cost columns that `info` does not have: `cost(obs, action, next_obs, info)`, on all copies at once."""
    network: NetworkFactory | None = None

    @cached_property
    def source(self) -> sources.Source:
        made = sources.source(self.origin, self.settings.keyword_arguments, self.settings.max_steps)
        return sources.Source(f"{made.name} (own costs)", made.make) if self.costs else made

    @cached_property
    def _seen(self) -> probe.Seen:
        return probe.look(self.source, self.settings)

    @cached_property
    def spec(self) -> EnvSpec:
        seen = self._seen
        return EnvSpec(
            name=self.source.name,
            columns=tuple(column for column, _ in self._columns),
            actions=actions(seen.action_space),
            observation_shape=seen.sight.shape,
            max_steps=seen.max_steps,
            pixels=seen.sight.pixels,
        )

    @cached_property
    def _columns(self) -> tuple[tuple[Column, str | int | Cost], ...]:
        """Every cost column and where it is read: a key of `info`, a component of what is seen, a function."""
        seen = self._seen
        found: dict[str, tuple[Column, str | int | Cost]] = {}
        if not seen.sight.pixels and seen.sight.shape[0] <= MOST_COMPONENTS:
            for i in range(seen.sight.shape[0]):
                name = f"obs_{i}"
                found[name] = Column(name, "as observed", f"number {i} of what the step leads to"), i
        for name in (*seen.info_keys, *self.settings.columns):
            where = "the cost that step returns" if name == "cost" and seen.six else f"info[{name!r}]"
            found[name] = Column(name, "as given", f"{where}; 0 where it is missing"), name
        for name, function in self.costs.items():
            if not callable(function):
                raise UsageError(f"got {function!r} for the cost {name!r}; give a function "
                                 "cost(obs, action, next_obs, info)")  # fmt: skip
            found[name] = Column(name, "as given", "a function of obs, action, next_obs and info"), function
        return tuple(found.values())

    @cached_property
    def task(self) -> Task:
        """What the copies have to know."""
        origins = list(enumerate(origin for _, origin in self._columns))
        return Task(
            source=self.source,
            images=self.settings.images,
            max_steps=self._seen.max_steps,
            reward_scale=self.settings.reward_scale,
            from_info=tuple((k, origin) for k, origin in origins if isinstance(origin, str)),
            from_obs=tuple((k, origin) for k, origin in origins if isinstance(origin, int)),
            from_call=tuple((k, origin) for k, origin in origins if callable(origin)),
        )

    def open(self, copies: int, parts: int = 1) -> "GymCopies":
        if copies < 1:
            raise UsageError(f"got {copies} copies of {self.source.name}; give at least 1")
        return GymCopies(self, copies, max(1, (self.settings.workers or cores()) // parts))

    def film(self, pictures: list[Any]) -> "GymCopies":
        """One live copy in this process, which adds a picture to the list after every reset and every step."""
        made = sources.filmed(self.origin, self.settings.keyword_arguments, self.settings.max_steps, pictures)
        return GymCopies(self, 1, 1, replace(self.task, source=made))

    def as_seen(self, observation: Any) -> Any:
        return spaces.as_seen(self._seen.observation_space, self._seen.sight, observation)

    def as_taken(self, action: np.ndarray) -> np.ndarray:
        return np.asarray(spaces.actor(self._seen.action_space)(action))

    @property
    def frames_per_second(self) -> float:
        """At which it is to be shown; 0 where it does not say."""
        return self._seen.frames_per_second


def actions(space: Any) -> int | Choices | Box:
    """The actions of a space as a policy gives them."""
    if isinstance(space, gymnasium_spaces.Discrete):
        return int(space.n)
    if isinstance(space, gymnasium_spaces.Box):
        return Box(*(tuple(float(x) for x in bound.reshape(-1)) for bound in (space.low, space.high)))
    return Choices(spaces.options(space))


@final
class GymCopies(HostCopies):
    """N live copies of a Gymnasium environment. What is inside them is theirs: they cannot be saved."""

    resumable = False

    def __init__(self, environment: GymEnvironment, copies: int, workers: int, here: Task | None = None):
        """`here` is another task than the environment's, for copies in this process."""
        settings, spec, task = environment.settings, environment.spec, here or environment.task
        elsewhere = settings.vectorization == "async" and here is None
        workers = min(workers, copies) if elsewhere else 1
        seen = environment._seen
        shape = layout(copies, workers, spaces.action_row(seen.action_space), (seen.sight.shape, seen.sight.kind),
                       len(spec.columns))  # fmt: skip
        self._max_steps, self._copies = spec.max_steps, copies
        if elsewhere:
            self._engine: Stepper | Workers = Workers(task, shape, copies, workers, settings.timeout)
            self._arrays: Arrays = self._engine.arrays
        else:
            self._arrays = arrays(shape)
            self._engine = Stepper(task, self._arrays)

    @property
    def count(self) -> int:
        return self._copies

    @property
    def faults(self) -> int:  # type: ignore[override]
        return self._engine.faults

    def reset(self, seed: int | tuple[int, ...], spread: bool = False) -> np.ndarray:
        *streams, own = np.random.SeedSequence(seed).spawn(self.count + 1)
        self._engine.reset([int(stream.generate_state(1)[0]) for stream in streams])
        if spread:
            self._arrays.elapsed[:] = np.random.default_rng(own).integers(self._max_steps, size=self.count)
        return self._arrays.obs

    def step(self, action: Num[np.ndarray, "N ..."]) -> EnvStep:
        a = self._arrays
        a.action[...] = action
        self._engine.step()
        return EnvStep(a.obs, a.next_obs, a.reward, a.costs, a.terminated, a.truncated, a.faulty)

    def save(self) -> dict[str, np.ndarray]:
        raise UsageError("a Gymnasium environment cannot be saved in the middle of an episode; begin anew with reset")

    def restore(self, saved: Mapping[str, np.ndarray]) -> np.ndarray:
        raise UsageError(
            "a Gymnasium environment cannot be restored to the middle of an episode; begin anew with reset"
        )

    def close(self) -> None:
        self._engine.close()
