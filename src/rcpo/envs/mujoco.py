"""N copies of any MuJoCo model, stepped together by MuJoCo's own thread pool.

A robot is one small class (see `robots.py`, and examples/own_robot.py for one of your own): the model, and what its
copies see, earn and pay, as numpy formulas over all copies at once. Everything else is here.
"""

import os
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
    for kind in (
        mujoco.mjtWarning.mjWARN_BADQPOS,
        mujoco.mjtWarning.mjWARN_BADQVEL,
        mujoco.mjtWarning.mjWARN_BADQACC,
        mujoco.mjtWarning.mjWARN_BADCTRL,
    )
]
"""MuJoCo's warnings of a simulation that diverged: it puts such a one back to its start by itself, and takes an action
that is no number for none."""


class Outcome(NamedTuple):
    """What one step was worth to each copy."""

    reward: Float[np.ndarray, " N"]
    terminated: Bool[np.ndarray, " N"]
    costs: dict[str, Float[np.ndarray, " N"]]
    """The robot's own columns."""


class Views(NamedTuple):
    """What a robot's formulas read: live arrays over all copies. `batch.qpos`, `batch.xpos`, ... are as in MjData."""

    batch: Batch
    qpos: Float[np.ndarray, "N Q"]
    qvel: Float[np.ndarray, "N V"]
    """`batch.qpos` and `batch.qvel`, found once instead of in every step."""
    contact_force: Float[np.ndarray, "N B 6"]
    """`cfrc_ext` where the robot asks for it, zero at the start of an episode as in Gymnasium."""


class Robot(ABC):
    """A task on a MuJoCo model. Methods work on all N copies at once and write nothing into what they read."""

    name: str
    xml: Path | str
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
        """Where one copy begins an episode, given where the model rests (`qpos0`, and no velocity)."""

    @abstractmethod
    def position(self, views: Views) -> Float[np.ndarray, "N P"]:
        """Where the copies are: read before and after each step, for velocities."""

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

    side_by_side = True

    robot: Robot
    settings: RobotSettings = field(default_factory=RobotSettings)

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
        threads = self.settings.threads or os.cpu_count() or 1
        return MujocoCopies(self.robot, self.settings, copies, max(1, threads // parts))


def read_model(robot: Robot) -> mujoco.MjModel:
    """The robot's model, refused where it has nothing to act with."""
    if not Path(robot.xml).is_file():
        raise UsageError(f"the robot {robot.name!r} has no model: {str(robot.xml)!r} is no file")
    if robot.frame_skip < 1:
        raise UsageError(f"got {robot.frame_skip} physics steps for an action of {robot.name}; give at least 1")
    with warnings.catch_warnings():
        # Gymnasium's models use attributes that MuJoCo has begun to call deprecated.
        warnings.simplefilter("ignore")
        mujoco.set_mju_user_warning(_heed)
        try:
            model = mujoco.MjModel.from_xml_path(str(robot.xml))
        except ValueError as error:
            raise UsageError(f"MuJoCo cannot read {str(robot.xml)!r}: {' '.join(str(error).split())}") from None
    if model.nu == 0:
        raise UsageError(f"the model {str(robot.xml)!r} has no actuators; nothing could be learned")
    if not model.actuator_ctrllimited.all():
        raise UsageError(f"an actuator in {str(robot.xml)!r} has no ctrlrange; give every actuator one")
    return model


def _heed(message: str) -> None:
    """MuJoCo's warnings are counted per copy by `MujocoCopies`; by default it also writes a file where one works."""


def largest_force(model: mujoco.MjModel) -> Float[np.ndarray, " A"]:
    """The largest force of every actuator: what its control range allows a plain motor, and what its force range does.

    A plain motor's force is its gain times its control, or times what that becomes when it is smoothed.
    """
    smoothed = (mujoco.mjtDyn.mjDYN_NONE, mujoco.mjtDyn.mjDYN_FILTER, mujoco.mjtDyn.mjDYN_FILTEREXACT)
    plain = (
        (model.actuator_gaintype == mujoco.mjtGain.mjGAIN_FIXED)
        & (model.actuator_biastype == mujoco.mjtBias.mjBIAS_NONE)
        & np.isin(model.actuator_dyntype, [kind.value for kind in smoothed])
    )
    by_control = np.abs(model.actuator_gainprm[:, 0]) * np.abs(model.actuator_ctrlrange).max(axis=1)
    by_force = np.abs(model.actuator_forcerange).max(axis=1)
    limited = model.actuator_forcelimited.astype(bool)
    largest = np.minimum(np.where(plain, by_control, np.inf), np.where(limited, by_force, np.inf))
    for i, force in enumerate(largest):
        name = model.actuator(i).name or f"number {i + 1}"
        if force == np.inf:
            raise UsageError(f"the actuator {name!r} is no plain motor and has no forcerange, so its largest force is "
                             "unknown; give it a forcerange")  # fmt: skip
        if force == 0.0:
            raise UsageError(f"the actuator {name!r} can give no force; give it a gain or leave it out")
    return largest


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


def check_columns(robot: Robot, outcome: Outcome) -> None:
    """Refuse a robot that does not pay what it says."""
    names = [column.name for column in (*MOTOR_COLUMNS, *robot.columns)]
    if len(set(names)) < len(names):
        raise UsageError(f"the robot {robot.name!r} has two cost columns of one name: {', '.join(names)}")
    own = names[len(MOTOR_COLUMNS) :]
    if sorted(outcome.costs) != sorted(own):
        raise UsageError(f"got the costs {sorted(outcome.costs)} from the robot {robot.name!r}, "
                         f"expected {sorted(own)}: one for each of its own columns")  # fmt: skip


def check_shapes(robot: Robot, copies: int, axes: int, parts: Mapping[str, np.ndarray]) -> None:
    """Refuse a robot whose formulas are not over all copies at once."""
    for what, array in parts.items():
        if np.ndim(array) != axes or len(array) != copies:
            raise UsageError(f"got {what} of shape {np.shape(array)} from the robot {robot.name!r}, "
                             f"expected {axes} axes and {copies} copies along the first")  # fmt: skip


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
