"""N copies of any MuJoCo model, stepped together by MuJoCo's own thread pool.

A robot is one small class (see `robots.py`, and examples/own_robot.py for one of your own): the model, and what its
copies see, earn and pay, as numpy formulas over all copies at once. Everything else is here.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

import mujoco
import numpy as np
from jaxtyping import Bool, Float, Int, Num
from mujoco.batch import Batch, SimulationError

from rcpo.envs.base import Box, Column, EnvSpec, HostCopies, HostEnvironment
from rcpo.envs.settings import RobotSettings
from rcpo.errors import UsageError
from rcpo.types import EnvStep

Rows = Num[np.ndarray, "N ..."]

MOTOR_COLUMNS = (
    Column("torque", "share of maximum", "mean over motors of |applied force| / largest force"),
    Column("energy", "share of maximum", "mean over motors of (applied force / largest force) squared"),
    Column("action_change", "share of range", "mean over motors of |action - previous action| / range"),
)
"""The cost columns that every robot has."""
DIVERGED = [
    kind.value
    for kind in (mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)
]
"""MuJoCo's warnings of a simulation that diverged; it puts such a one back to its start by itself."""


class Outcome(NamedTuple):
    """What one step was worth to each copy."""

    reward: Float[np.ndarray, " N"]
    terminated: Bool[np.ndarray, " N"]
    costs: dict[str, Float[np.ndarray, " N"]]
    """The robot's own columns."""


class Views(NamedTuple):
    """What a robot's formulas read: live arrays over all copies. `batch.qpos`, `batch.xpos`, ... are as in MjData."""

    batch: Batch
    contact_force: Float[np.ndarray, "N B 6"]
    """`cfrc_ext` where the robot asks for it, zero at the start of an episode as in Gymnasium."""


class Robot(ABC):
    """A task on a MuJoCo model. Methods work on all N copies at once and write nothing."""

    name: str
    xml: Path
    frame_skip: int
    """Physics steps for one action."""
    max_steps: int = 1000
    columns: tuple[Column, ...] = ()
    """Cost columns beside those that every robot has."""
    contact_forces: bool = False
    """Whether `contact_force` is wanted."""

    @abstractmethod
    def start(
        self, generator: np.random.Generator, qpos: Float[np.ndarray, " Q"], qvel: Float[np.ndarray, " V"]
    ) -> tuple[Float[np.ndarray, " Q"], Float[np.ndarray, " V"]]:
        """Where one copy begins an episode, given where the model rests."""

    @abstractmethod
    def position(self, views: Views) -> Float[np.ndarray, "N P"]:
        """Where the copies are, a copy of it: read before and after each step, for velocities."""

    @abstractmethod
    def observe(self, views: Views) -> Float[np.ndarray, "N D"]:
        """What the agent sees."""

    @abstractmethod
    def outcome(
        self,
        views: Views,
        action: Float[np.ndarray, "N A"],
        before: Float[np.ndarray, "N P"],
        after: Float[np.ndarray, "N P"],
        seconds: float,
    ) -> Outcome:
        """What the step was worth that led from one position to the other in so many seconds."""


@final
@dataclass(frozen=True)
class MujocoEnvironment(HostEnvironment):
    """A robot as an environment to learn in."""

    robot: Robot
    settings: RobotSettings = field(default_factory=RobotSettings)

    @cached_property
    def spec(self) -> EnvSpec:
        model = read_model(self.robot)
        low, high = np.asarray(model.actuator_ctrlrange, dtype=np.float64).T
        with self.open(1, 1) as copies:
            seen = copies.reset(0).shape[1:]
        return EnvSpec(
            name=self.robot.name,
            columns=(*MOTOR_COLUMNS, *self.robot.columns),
            actions=Box(tuple(low.tolist()), tuple(high.tolist())),
            observation_shape=seen,
            max_steps=self.settings.max_steps or self.robot.max_steps,
        )

    def open(self, copies: int, threads: int = 0) -> "MujocoCopies":
        return MujocoCopies(self.robot, self.settings, copies, threads)


def read_model(robot: Robot) -> mujoco.MjModel:
    """The robot's model, refused where it has nothing to act with."""
    if not robot.xml.is_file():
        raise UsageError(f"the robot {robot.name!r} has no model: {str(robot.xml)!r} is no file")
    with warnings.catch_warnings():
        # Gymnasium's models use attributes that MuJoCo has begun to call deprecated.
        warnings.simplefilter("ignore")
        mujoco.set_mju_user_warning(_heed)
        try:
            model = mujoco.MjModel.from_xml_path(str(robot.xml))
        except ValueError as error:
            raise UsageError(f"MuJoCo cannot read {str(robot.xml)!r}: {error}") from None
    if model.nu == 0:
        raise UsageError(f"the model {str(robot.xml)!r} has no actuators; nothing could be learned")
    if not model.actuator_ctrllimited.all():
        raise UsageError(f"an actuator in {str(robot.xml)!r} has no ctrlrange; give every actuator one")
    return model


def _heed(message: str) -> None:
    """MuJoCo's warnings are counted per copy by `MujocoCopies`; by default it also writes a file where one works."""


def largest_force(model: mujoco.MjModel) -> Float[np.ndarray, " A"]:
    """The largest force of every actuator: its force range, or for a plain motor its gain times its control range."""
    by_control = np.abs(model.actuator_gainprm[:, 0]) * np.abs(model.actuator_ctrlrange).max(axis=1)
    by_force = np.abs(model.actuator_forcerange).max(axis=1)
    limited = model.actuator_forcelimited.astype(bool)
    plain = (model.actuator_gaintype == mujoco.mjtGain.mjGAIN_FIXED) & (
        model.actuator_biastype == mujoco.mjtBias.mjBIAS_NONE
    )
    if not (limited | plain).all():
        raise UsageError("an actuator is no plain motor and has no forcerange, so its largest force is unknown; "
                         "give it a forcerange")  # fmt: skip
    return np.where(limited, by_force, by_control)


@final
class MujocoCopies(HostCopies):
    """N live copies of a robot."""

    def __init__(self, robot: Robot, settings: RobotSettings, copies: int, threads: int):
        if copies < 1:
            raise UsageError(f"got {copies} copies of {robot.name}; give at least 1")
        if threads < 0:
            raise UsageError(f"got {threads} threads; give a number that is not negative (0: one per core)")
        model = read_model(robot)
        self._robot, self._settings, self._model = robot, settings, model
        # Contact forces are worked out from what a step leaves in MjData, which only a persistent batch keeps per copy.
        self._batch = Batch(model, copies, threads, persistent=robot.contact_forces)
        self._data = mujoco.MjData(model) if robot.contact_forces else None
        self._seconds = model.opt.timestep * robot.frame_skip
        self._max_steps = settings.max_steps or robot.max_steps
        self._force = self._batch.bind("actuator_force")
        self._largest_force = largest_force(model)
        low, high = model.actuator_ctrlrange.T
        self._low, self._high = low, high
        self._views = Views(self._batch, np.zeros((copies, model.nbody, 6)))
        self._rest = (np.asarray(model.qpos0).copy(), np.zeros(model.nv))
        self._generators = [np.random.default_rng(0) for _ in range(copies)]
        self._elapsed = np.zeros(copies, np.int64)
        self._previous_action = np.zeros((copies, model.nu))
        self._fresh = np.ones(copies, bool)
        self.faults = 0
        self._batch.reset()
        # A field is bound when it is first read and filled by the calls after that: let the robot read all of its own.
        self._obs, self._before = robot.observe(self._views), robot.position(self._views)
        robot.outcome(self._views, self._previous_action, self._before, self._before, self._seconds)

    @property
    def batch(self) -> Batch:
        """The simulations themselves, to look at or to draw."""
        return self._batch

    def reset(self, seed: int, spread: bool = False) -> Float[np.ndarray, "N D"]:
        copies = len(self._generators)
        *streams, own = np.random.SeedSequence(seed).spawn(copies + 1)
        self._generators = [np.random.default_rng(stream) for stream in streams]
        self.faults = 0
        self._restart(np.arange(copies))
        if spread:
            self._elapsed[:] = np.random.default_rng(own).integers(self._max_steps, size=copies)
        self._before = self._robot.position(self._views)
        self._obs = self._robot.observe(self._views)
        return self._obs

    def step(self, action: Num[np.ndarray, "N A"]) -> EnvStep:
        batch, robot = self._batch, self._robot
        batch.ctrl[:] = action
        diverged = self._divergences()
        try:
            batch.step(nstep=robot.frame_skip)
            failed = np.zeros(len(action), bool)
        except SimulationError as error:
            failed = np.isin(np.arange(len(action)), error.ids)
        if self._data is not None:
            self._read_contact_forces(self._data)
        self._elapsed += 1
        after = robot.position(self._views)
        outcome = robot.outcome(self._views, action, self._before, after, self._seconds)
        next_obs = robot.observe(self._views)
        reward = outcome.reward * self._settings.reward_scale
        costs = self._costs(action, outcome)
        faulty = failed | (self._divergences() > diverged)
        faulty |= ~(np.isfinite(next_obs).all(axis=1) & np.isfinite(reward) & np.isfinite(costs).all(axis=1))
        terminated, truncated = outcome.terminated, self._elapsed >= self._max_steps
        if faulty.any():
            # What a broken copy shows means nothing: the last sound observation stands for it, and it pays nothing.
            self.faults += int(faulty.sum())
            next_obs[faulty] = self._obs[faulty]
            reward = np.where(faulty, 0.0, reward)
            costs[faulty] = 0.0
            terminated, truncated = terminated & ~faulty, truncated | faulty
        self._previous_action[:] = action
        self._fresh[:] = False
        self._before, self._obs = after, next_obs
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            self._restart(ended)
            self._before[ended] = robot.position(self._views)[ended]
            self._obs = next_obs.copy()
            self._obs[ended] = robot.observe(self._views)[ended]
        return EnvStep(self._obs, next_obs, reward, costs, terminated, truncated, faulty)

    def simulate(self, action: Num[np.ndarray, "N A"]) -> None:
        self._batch.ctrl[:] = action
        self._batch.step(nstep=self._robot.frame_skip)

    def _read_contact_forces(self, data: mujoco.MjData) -> None:
        """As Gymnasium has them: from the last stage of the integrator, where a sensor would show the first."""
        for i, force in enumerate(self._views.contact_force):
            self._batch.get_data(i, data)
            mujoco.mj_rnePostConstraint(self._model, data)
            force[:] = data.cfrc_ext

    def _divergences(self) -> Int[np.ndarray, " N"]:
        """How often MuJoCo has found each copy diverged so far (it keeps what each warning was, and how often)."""
        return self._batch.warning[:, DIVERGED, 1].sum(axis=1)

    def _costs(self, action: Num[np.ndarray, "N A"], outcome: Outcome) -> Float[np.ndarray, "N C"]:
        share = np.abs(self._force) / self._largest_force
        change = np.abs(np.clip(action, self._low, self._high) - np.clip(self._previous_action, self._low, self._high))
        change /= self._high - self._low
        own = (outcome.costs[column.name] for column in self._robot.columns)
        return np.stack(
            [share.mean(axis=1), np.square(share).mean(axis=1), np.where(self._fresh, 0.0, change.mean(axis=1)), *own],
            axis=1,
        )

    def _restart(self, ids: Int[np.ndarray, " E"]) -> None:
        """Begin a new episode in the copies `ids`."""
        batch, start = self._batch, self._robot.start
        batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        qpos, qvel = batch.qpos, batch.qvel
        for i in ids:
            qpos[i], qvel[i] = start(self._generators[i], *self._rest)
        batch.forward(ids)
        self._views.contact_force[ids] = 0.0
        self._elapsed[ids] = 0
        self._fresh[ids] = True

    def save(self) -> dict[str, np.ndarray]:
        return {
            "state": self._batch.state.copy(),
            "elapsed": self._elapsed.copy(),
            "previous_action": self._previous_action.copy(),
            "fresh": self._fresh.copy(),
            "before": self._before.copy(),
            "observation": self._obs.copy(),
            "generators": np.stack([pack_generator(generator) for generator in self._generators]),
            "faults": np.array(self.faults),
        }

    def restore(self, saved: Mapping[str, np.ndarray]) -> Float[np.ndarray, "N D"]:
        if saved["state"].shape != self._batch.state.shape:
            got, expected = saved["state"].shape, self._batch.state.shape
            raise UsageError(f"got the state of {got[0]} copies with {got[1]} numbers each, "
                             f"expected {expected[0]} with {expected[1]}")  # fmt: skip
        self._batch.state[:] = saved["state"]
        self._elapsed[:] = saved["elapsed"]
        self._previous_action[:] = saved["previous_action"]
        self._fresh[:] = saved["fresh"]
        self._before, self._obs = saved["before"].copy(), saved["observation"].copy()
        for generator, packed in zip(self._generators, saved["generators"], strict=True):
            unpack_generator(generator, packed)
        self.faults = int(saved["faults"])
        return self._obs


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
