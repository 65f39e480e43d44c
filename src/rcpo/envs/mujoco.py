"""N copies of any MuJoCo model, stepped together by MuJoCo's own thread pool.

A robot is one small class (see `robots.py`, and examples/own_robot.py for one of your own). Everything else is here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import mujoco
import numpy as np
from jaxtyping import Bool, Float, Int, Num
from mujoco.batch import Batch, SimulationError

from rcpo.envs.base import Box, EnvSpec, HostCopies, HostEnvironment, NetworkFactory
from rcpo.envs.robot import (
    MOTOR_COLUMNS,
    Outcome,
    Robot,
    Views,
    check_columns,
    check_shapes,
    largest_force,
    read_model,
)
from rcpo.envs.settings import RobotSettings
from rcpo.errors import UsageError
from rcpo.threads import cores
from rcpo.types import EnvStep

__all__ = ["MOTOR_COLUMNS", "MujocoCopies", "MujocoEnvironment", "Outcome", "Robot", "Views"]

DIVERGED = [
    kind.value
    for kind in (
        mujoco.mjtWarning.mjWARN_BADQPOS,
        mujoco.mjtWarning.mjWARN_BADQVEL,
        mujoco.mjtWarning.mjWARN_BADQACC,
        mujoco.mjtWarning.mjWARN_BADCTRL,
    )
]
"""MuJoCo's warnings of a simulation that diverged: it puts such a one back to its start by itself, and takes an action
that is no number for none."""


@final
@dataclass(frozen=True)
class MujocoEnvironment(HostEnvironment):
    """A robot as an environment to learn in."""

    side_by_side = True

    robot: Robot
    settings: RobotSettings = field(default_factory=RobotSettings)
    network: NetworkFactory | None = None

    @cached_property
    def spec(self) -> EnvSpec:
        model = read_model(self.robot)
        low, high = np.asarray(model.actuator_ctrlrange, dtype=np.float64).T
        with self.open(1) as copies:
            seen = copies.reset(0).shape[1:]
        return EnvSpec(
            name=self.robot.name,
            columns=(*MOTOR_COLUMNS, *self.robot.columns),
            actions=Box(tuple(low.tolist()), tuple(high.tolist())),
            observation_shape=seen,
            max_steps=self.settings.max_steps or self.robot.max_steps,
        )

    def open(self, copies: int, parts: int = 1) -> "MujocoCopies":
        threads = self.settings.threads or cores()
        return MujocoCopies(self.robot, self.settings, copies, max(1, threads // parts))


@final
class MujocoCopies(HostCopies):
    """N live copies of a robot."""

    def __init__(self, robot: Robot, settings: RobotSettings, copies: int, threads: int):
        if copies < 1:
            raise UsageError(f"got {copies} copies of {robot.name}; give at least 1")
        model = read_model(robot)
        self._robot, self._settings, self._model = robot, settings, model
        # Contact forces are worked out from what a step leaves in MjData, which only a persistent batch keeps per copy.
        self._batch = Batch(model, copies, threads, persistent=robot.contact_forces)
        self._data = mujoco.MjData(model) if robot.contact_forces else None
        self._seconds = model.opt.timestep * robot.frame_skip
        self._max_steps = settings.max_steps or robot.max_steps
        self._force = self._batch.bind("actuator_force")
        self._ctrl = self._batch.ctrl
        self._warnings = self._batch.warning[:, min(DIVERGED) : max(DIVERGED) + 1, 1]
        self._per_force, self._per_motor = 1.0 / largest_force(model), np.full(model.nu, 1.0 / model.nu)
        self._low, self._high = model.actuator_ctrlrange.T.copy()
        self._views = Views(self._batch, self._batch.qpos, self._batch.qvel, np.zeros((copies, model.nbody, 6)))
        self._rest = (np.asarray(model.qpos0).copy(), np.zeros(model.nv))
        self._generators = [np.random.default_rng(0) for _ in range(copies)]
        self._elapsed = np.zeros(copies, np.int64)
        self._previous = np.zeros((copies, model.nu))
        self._fresh = np.ones(copies, bool)
        self._diverged = self._divergences()
        self.faults = 0
        self._batch.reset()
        # A field is bound when it is first read and filled by the calls after that: let the robot read all of its own.
        with np.errstate(all="ignore"):
            self._obs, self._before = self._look()
            check_shapes(robot, copies, 2, {"observe": self._obs, "position": self._before})
            outcome = robot.outcome(self._views, self._previous, self._before, self._before, self._seconds)
        check_columns(robot, outcome)
        check_shapes(robot, copies, 1, {"reward": outcome.reward, "terminated": outcome.terminated} | outcome.costs)

    @property
    def batch(self) -> Batch:
        """The simulations themselves, to look at or to draw."""
        return self._batch

    @property
    def count(self) -> int:
        return len(self._generators)

    def reset(self, seed: int | tuple[int, ...], spread: bool = False) -> Float[np.ndarray, "N D"]:
        copies = self.count
        *streams, own = np.random.SeedSequence(seed).spawn(copies + 1)
        self._generators = [np.random.default_rng(stream) for stream in streams]
        self.faults = 0
        self._restart(np.arange(copies))
        if spread:
            self._elapsed[:] = np.random.default_rng(own).integers(self._max_steps, size=copies)
        self._obs, self._before = self._look()
        return self._obs

    def step(self, action: Num[np.ndarray, "N A"]) -> EnvStep:
        batch, robot = self._batch, self._robot
        self._ctrl[:] = action
        diverged = self._diverged
        try:
            batch.step(nstep=robot.frame_skip)
            failed = np.zeros(len(action), bool)
        except SimulationError as error:
            failed = np.isin(np.arange(len(action)), error.ids)
        if self._data is not None:
            self._read_contact_forces(self._data)
        self._elapsed += 1
        with np.errstate(all="ignore"):  # a copy that broke down may overflow: it is found right below
            next_obs, after = self._look()
            outcome = robot.outcome(self._views, action, self._before, after, self._seconds)
            reward = outcome.reward * self._settings.reward_scale
            costs = self._costs(action, outcome)
        self._diverged = self._divergences()
        faulty = failed | (self._diverged > diverged)
        # One sum is quickly looked at; of squares, because in a plain one two huge numbers could cancel out.
        if not sum(np.vdot(part, part) for part in (next_obs, reward, costs)) <= mujoco.mjMAXVAL**2:
            faulty |= ~(sound(next_obs).all(axis=1) & sound(reward) & sound(costs).all(axis=1))
        terminated, truncated = outcome.terminated, self._elapsed >= self._max_steps
        if faulty.any():
            # What a broken copy shows means nothing: the last sound observation stands for it, and it pays nothing.
            self.faults += int(faulty.sum())
            next_obs[faulty] = self._obs[faulty]
            reward = np.where(faulty, 0.0, reward)
            costs[faulty] = 0.0
            terminated, truncated = terminated & ~faulty, truncated | faulty
        self._fresh[:] = False
        self._before, self._obs = after, next_obs
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            self._restart(ended)
            obs, position = self._look()
            self._before[ended] = position[ended]
            self._obs = next_obs.copy()
            self._obs[ended] = obs[ended]
        return EnvStep(self._obs, next_obs, reward, costs, terminated, truncated, faulty)

    def simulate(self, action: Num[np.ndarray, "N A"]) -> None:
        self._ctrl[:] = action
        self._batch.step(nstep=self._robot.frame_skip)

    def _look(self) -> tuple[np.ndarray, np.ndarray]:
        """What the copies see and where they are, kept apart from the arrays that the next step writes over."""
        return np.array(self._robot.observe(self._views)), np.array(self._robot.position(self._views))

    def _read_contact_forces(self, data: mujoco.MjData) -> None:
        """As Gymnasium has them: from the last stage of the integrator, where a sensor would show the first."""
        for i, force in enumerate(self._views.contact_force):
            self._batch.get_data(i, data)
            mujoco.mj_rnePostConstraint(self._model, data)
            force[:] = data.cfrc_ext

    def _divergences(self) -> Int[np.ndarray, " N"]:
        """How often MuJoCo has found each copy diverged so far (it keeps what each warning was, and how often)."""
        return self._warnings.sum(axis=1)

    def _costs(self, action: Num[np.ndarray, "N A"], outcome: Outcome) -> Float[np.ndarray, "N C"]:
        applied = np.minimum(np.maximum(action, self._low), self._high) / (self._high - self._low)
        share = np.abs(self._force) * self._per_force
        change = np.abs(applied - self._previous)
        change[self._fresh] = 0.0
        self._previous = applied
        costs = np.empty((len(action), len(MOTOR_COLUMNS) + len(self._robot.columns)))
        costs[:, 0], costs[:, 1] = share @ self._per_motor, np.square(share) @ self._per_motor
        costs[:, 2] = change @ self._per_motor
        for k, column in enumerate(self._robot.columns, len(MOTOR_COLUMNS)):
            costs[:, k] = outcome.costs[column.name]
        return costs

    def _restart(self, ids: Int[np.ndarray, " E"]) -> None:
        """Begin a new episode in the copies `ids`."""
        batch, start = self._batch, self._robot.start
        batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        qpos, qvel = self._views.qpos, self._views.qvel
        for i in ids:
            qpos[i], qvel[i] = start(self._generators[i], *(rest.copy() for rest in self._rest))
        batch.forward(ids)
        self._views.contact_force[ids] = 0.0
        self._elapsed[ids] = 0
        self._fresh[ids] = True
        self._diverged = self._divergences()  # a reset counts anew

    def save(self) -> dict[str, np.ndarray]:
        return {
            "state": self._batch.state.copy(),
            "elapsed": self._elapsed.copy(),
            "previous": self._previous.copy(),
            "fresh": self._fresh.copy(),
            "before": self._before.copy(),
            "observation": self._obs.copy(),
            "generators": np.stack([pack_generator(generator) for generator in self._generators]),
            "faults": np.array(self.faults),
        }

    def restore(self, saved: Mapping[str, np.ndarray]) -> Float[np.ndarray, "N D"]:
        got, expected = saved["state"].shape, self._batch.state.shape
        if got != expected:
            raise UsageError(f"got a state of shape {got} for {self._robot.name}, expected {expected}: as many copies "
                             "and numbers as when it was saved")  # fmt: skip
        self._batch.state[:] = saved["state"]
        self._elapsed[:] = saved["elapsed"]
        self._previous = saved["previous"].copy()
        self._fresh[:] = saved["fresh"]
        self._before, self._obs = saved["before"].copy(), saved["observation"].copy()
        for generator, packed in zip(self._generators, saved["generators"], strict=True):
            unpack_generator(generator, packed)
        self.faults = int(saved["faults"])
        return self._obs


def sound(numbers: Float[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    """Which numbers are numbers, and no larger than MuJoCo allows a state to be (1e10)."""
    return np.abs(numbers) <= mujoco.mjMAXVAL


def pack_generator(generator: np.random.Generator) -> np.ndarray:
    """The state of a PCG64 generator as six words of 64 bits."""
    state: Any = generator.bit_generator.state
    low = 2**64 - 1
    number, step = state["state"]["state"], state["state"]["inc"]
    words = [number >> 64, number & low, step >> 64, step & low, state["has_uint32"], state["uinteger"]]
    return np.array(words, dtype=np.uint64)


def unpack_generator(generator: np.random.Generator, packed: np.ndarray) -> None:
    """Put a PCG64 generator where `pack_generator` found it."""
    words = [int(word) for word in packed]
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": words[0] << 64 | words[1], "inc": words[2] << 64 | words[3]},
        "has_uint32": words[4],
        "uinteger": words[5],
    }
