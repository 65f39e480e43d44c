"""The paper's six robots: Gymnasium's v5 definitions, bit for bit, over all copies at once.

The models are read from the installed Gymnasium. Each class is what its counterpart in Gymnasium does with its default
settings, written for N copies; sums run over the last axis, so that they add up in the same order.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, final

import gymnasium
import numpy as np
from jaxtyping import Bool, Float

from rcpo.envs.base import Column
from rcpo.envs.mujoco import Outcome, Robot, Views

ASSETS: Final = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
SPEED: Final = Column("speed", "m/s", "velocity along x")
PLANAR_SPEED: Final = Column("speed", "m/s", "velocity in the plane, whatever its direction")
FALL: Final = Column("fall", "1 per event", "1 on the step that ends the episode because the robot is not healthy")

Generator = np.random.Generator
Place = Float[np.ndarray, " Q"]
Motion = Float[np.ndarray, " V"]


def uniform(generator: Generator, scale: float, size: int) -> Float[np.ndarray, " size"]:
    return generator.uniform(low=-scale, high=scale, size=size)


def planar(velocity: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, " N"]:
    return np.sqrt(np.square(velocity).sum(axis=1))


def never(reward: Float[np.ndarray, " N"]) -> Bool[np.ndarray, " N"]:
    return np.zeros(reward.shape, bool)


@final
class HalfCheetah(Robot):
    name, xml, frame_skip, columns = "HalfCheetah-v5", ASSETS / "half_cheetah.xml", 5, (SPEED,)

    def start(self, generator: Generator, qpos: Place, qvel: Motion) -> tuple[Place, Motion]:
        return qpos + uniform(generator, 0.1, len(qpos)), qvel + 0.1 * generator.standard_normal(len(qvel))

    def position(self, views: Views) -> np.ndarray:
        return views.qpos[:, :1]

    def observe(self, views: Views) -> np.ndarray:
        return np.concatenate((views.qpos[:, 1:], views.qvel), axis=1)

    def outcome(
        self, views: Views, action: np.ndarray, before: np.ndarray, after: np.ndarray, seconds: float
    ) -> Outcome:
        velocity = ((after - before) / seconds)[:, 0]
        reward = velocity - 0.1 * np.square(action).sum(axis=1)
        return Outcome(reward, never(reward), {"speed": velocity})


@final
class Swimmer(Robot):
    name, xml, frame_skip, columns = "Swimmer-v5", ASSETS / "swimmer.xml", 4, (SPEED,)

    def start(self, generator: Generator, qpos: Place, qvel: Motion) -> tuple[Place, Motion]:
        return qpos + uniform(generator, 0.1, len(qpos)), qvel + uniform(generator, 0.1, len(qvel))

    def position(self, views: Views) -> np.ndarray:
        return views.qpos[:, :2]

    def observe(self, views: Views) -> np.ndarray:
        return np.concatenate((views.qpos[:, 2:], views.qvel), axis=1)

    def outcome(
        self, views: Views, action: np.ndarray, before: np.ndarray, after: np.ndarray, seconds: float
    ) -> Outcome:
        velocity = (after - before) / seconds
        reward = velocity[:, 0] - 1e-4 * np.square(action).sum(axis=1)
        return Outcome(reward, never(reward), {"speed": velocity[:, 0]})


@final
class Hopper(Robot):
    name, xml, frame_skip, columns = "Hopper-v5", ASSETS / "hopper.xml", 4, (SPEED, FALL)

    def start(self, generator: Generator, qpos: Place, qvel: Motion) -> tuple[Place, Motion]:
        return qpos + uniform(generator, 5e-3, len(qpos)), qvel + uniform(generator, 5e-3, len(qvel))

    def position(self, views: Views) -> np.ndarray:
        return views.qpos[:, :1]

    def observe(self, views: Views) -> np.ndarray:
        return np.concatenate((views.qpos[:, 1:], np.clip(views.qvel, -10, 10)), axis=1)

    def outcome(
        self, views: Views, action: np.ndarray, before: np.ndarray, after: np.ndarray, seconds: float
    ) -> Outcome:
        qpos, qvel = views.qpos, views.qvel
        height, angle = qpos[:, 1], qpos[:, 2]
        within = (np.abs(qpos[:, 2:]) < 100.0).all(axis=1) & (np.abs(qvel) < 100.0).all(axis=1)
        healthy = within & (height > 0.7) & (np.abs(angle) < 0.2)
        velocity = ((after - before) / seconds)[:, 0]
        reward = velocity + healthy * 1.0 - 1e-3 * np.square(action).sum(axis=1)
        return Outcome(reward, ~healthy, {"speed": velocity, "fall": 1.0 * ~healthy})


@final
class Walker2d(Robot):
    name, xml, frame_skip, columns = "Walker2d-v5", ASSETS / "walker2d_v5.xml", 4, (SPEED, FALL)

    def start(self, generator: Generator, qpos: Place, qvel: Motion) -> tuple[Place, Motion]:
        return qpos + uniform(generator, 5e-3, len(qpos)), qvel + uniform(generator, 5e-3, len(qvel))

    def position(self, views: Views) -> np.ndarray:
        return views.qpos[:, :1]

    def observe(self, views: Views) -> np.ndarray:
        return np.concatenate((views.qpos[:, 1:], np.clip(views.qvel, -10, 10)), axis=1)

    def outcome(
        self, views: Views, action: np.ndarray, before: np.ndarray, after: np.ndarray, seconds: float
    ) -> Outcome:
        height, angle = views.qpos[:, 1], views.qpos[:, 2]
        healthy = (height > 0.8) & (height < 2.0) & (np.abs(angle) < 1.0)
        velocity = ((after - before) / seconds)[:, 0]
        reward = velocity + healthy * 1.0 - 1e-3 * np.square(action).sum(axis=1)
        return Outcome(reward, ~healthy, {"speed": velocity, "fall": 1.0 * ~healthy})


@final
class Ant(Robot):
    name, xml, frame_skip, columns = "Ant-v5", ASSETS / "ant.xml", 5, (PLANAR_SPEED, FALL)
    contact_forces = True

    def start(self, generator: Generator, qpos: Place, qvel: Motion) -> tuple[Place, Motion]:
        return qpos + uniform(generator, 0.1, len(qpos)), qvel + 0.1 * generator.standard_normal(len(qvel))

    def position(self, views: Views) -> np.ndarray:
        return views.batch.xpos[:, 1, :2]  # the torso's

    def observe(self, views: Views) -> np.ndarray:
        qpos, qvel = views.qpos, views.qvel
        contact = np.clip(views.contact_force[:, 1:], -1.0, 1.0).reshape(len(qpos), -1)
        return np.concatenate((qpos[:, 2:], qvel, contact), axis=1)

    def outcome(
        self, views: Views, action: np.ndarray, before: np.ndarray, after: np.ndarray, seconds: float
    ) -> Outcome:
        qpos, qvel = views.qpos, views.qvel
        finite = np.isfinite(qpos).all(axis=1) & np.isfinite(qvel).all(axis=1)
        healthy = finite & (qpos[:, 2] >= 0.2) & (qpos[:, 2] <= 1.0)
        velocity = (after - before) / seconds
        contact = np.clip(views.contact_force, -1.0, 1.0).reshape(len(qpos), -1)
        costs = 0.5 * np.square(action).sum(axis=1) + 5e-4 * np.square(contact).sum(axis=1)
        reward = velocity[:, 0] + healthy * 1.0 - costs
        return Outcome(reward, ~healthy, {"speed": planar(velocity), "fall": 1.0 * ~healthy})


@final
class Humanoid(Robot):
    name, xml, frame_skip, columns = "Humanoid-v5", ASSETS / "humanoid.xml", 5, (PLANAR_SPEED, FALL)
    contact_forces = True

    def start(self, generator: Generator, qpos: Place, qvel: Motion) -> tuple[Place, Motion]:
        return qpos + uniform(generator, 1e-2, len(qpos)), qvel + uniform(generator, 1e-2, len(qvel))

    def position(self, views: Views) -> np.ndarray:
        mass = views.batch.model.body_mass  # the centre of mass; bodies are added up one after the other
        weighted = sum(mass[body] * views.batch.xipos[:, body] for body in range(len(mass)))
        return (weighted / mass.sum())[:, :2]

    def observe(self, views: Views) -> np.ndarray:
        batch = views.batch
        copies = len(views.qpos)
        parts = (
            views.qpos[:, 2:],
            views.qvel,
            batch.cinert[:, 1:].reshape(copies, -1),
            batch.cvel[:, 1:].reshape(copies, -1),
            batch.qfrc_actuator[:, 6:],
            views.contact_force[:, 1:].reshape(copies, -1),
        )
        return np.concatenate(parts, axis=1)

    def outcome(
        self, views: Views, action: np.ndarray, before: np.ndarray, after: np.ndarray, seconds: float
    ) -> Outcome:
        batch = views.batch
        height = views.qpos[:, 2]
        healthy = (height > 1.0) & (height < 2.0)
        velocity = (after - before) / seconds
        contact = 5e-7 * np.square(views.contact_force.reshape(len(height), -1)).sum(axis=1)
        costs = 0.1 * np.square(batch.ctrl).sum(axis=1) + np.minimum(contact, 10.0)
        reward = 1.25 * velocity[:, 0] + healthy * 5.0 - costs
        return Outcome(reward, ~healthy, {"speed": planar(velocity), "fall": 1.0 * ~healthy})


ROBOTS: Final[dict[str, Callable[[], Robot]]] = {
    robot.name: robot for robot in (Swimmer, Walker2d, Hopper, Humanoid, HalfCheetah, Ant)
}
