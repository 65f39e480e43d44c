"""What a robot is: a MuJoCo model, and what its copies see, earn and pay, as numpy formulas over all copies at once."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import mujoco
import numpy as np
from jaxtyping import Bool, Float
from mujoco.batch import Batch

from rcpo.envs.base import Column
from rcpo.errors import UsageError

MOTOR_COLUMNS = (
    Column("torque", "share of maximum", "mean over motors of |applied force| / largest force"),
    Column("energy", "share of maximum", "mean over motors of (applied force / largest force) squared"),
    Column("action_change", "share of range", "mean over motors of |action - previous action| / range"),
)
"""The cost columns that every robot has."""


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
