"""One episode of a run's policy, step by step: where the environment stood, what had been earned and paid so far."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rcpo.constraints import Constraint
from rcpo.envs.gymnasium_rover import MarsRoverEnv
from rcpo.envs.mars_rover import MarsRover
from rcpo.envs.mujoco import MujocoCopies, MujocoEnvironment
from rcpo.episodes import add_up, close, open_tally
from rcpo.errors import UsageError
from rcpo.host import in_range
from rcpo.types import AnyArray, Tally

if TYPE_CHECKING:
    from rcpo.run import Run


@final
@dataclass(frozen=True, eq=False)
class Played:
    """T steps, and the state before the first: so T + 1 entries everywhere."""

    states: tuple[Any, ...]
    """What a picture is drawn of: positions of a robot, the number of the rover's cell."""
    reward: Float[np.ndarray, " T1"]
    """Earned so far."""
    value: Float[np.ndarray, "T1 K"]
    """What the episode would be worth under each constraint, had it ended here."""
    seconds: float
    """How long a step lasts; 0 where there is no such thing."""

    @property
    def steps(self) -> int:
        return len(self.states) - 1


def play(run: "Run", seed: int = 0, deterministic: bool = False) -> Played:
    """A whole episode, as training and verification play it."""
    environment = run.environment
    if isinstance(environment, MujocoEnvironment):
        return _play_robot(run, environment, seed, deterministic)
    if isinstance(environment, MarsRover):
        return _play_rover(run, environment, seed, deterministic)
    raise UsageError(f"there is no picture of {environment.spec.name}; the Mars Rover and MuJoCo's robots have one")


def _play_robot(run: "Run", environment: MujocoEnvironment, seed: int, deterministic: bool) -> Played:
    actor, robot = run.actor(seed, deterministic), environment.robot
    with environment.open(1) as copies:
        assert isinstance(copies, MujocoCopies)
        obs: AnyArray = copies.reset(seed)
        batch = copies.batch
        seconds = float(batch.model.opt.timestep) * robot.frame_skip
        account = Account(run.constraints, environment.spec.column_names)
        states, ended = [batch.qpos[0].copy()], False
        while not ended:
            step = copies.step(in_range(environment.spec.actions, actor.act(obs)))
            ended = bool(step.terminated[0] or step.truncated[0])
            # Where the episode ended the copy stands at a new start already: the last picture is drawn once more.
            states.append(states[-1] if ended else batch.qpos[0].copy())
            account.add(step.reward, step.costs)
            obs = step.obs
    return account.played(states, seconds)


def _play_rover(run: "Run", environment: MarsRover, seed: int, deterministic: bool) -> Played:
    actor, world = run.actor(seed, deterministic), rover(environment)
    names = environment.spec.column_names
    obs, _ = world.reset(seed=seed)
    account, states, ended = Account(run.constraints, names), [world.state], False
    while not ended and len(states) <= environment.spec.max_steps:
        obs, reward, ended, _, info = world.step(actor.act(obs))
        states.append(world.state)
        account.add(np.array([reward]), np.array([[info[name] for name in names]]))
    return account.played(states, 0.0)


def rover(environment: MarsRover) -> MarsRoverEnv:
    """The same rover for Gymnasium, which can be drawn."""
    own = environment.settings
    return MarsRoverEnv(own.map, own.slip, own.step_reward, own.goal_reward, render_mode="rgb_array")


@final
class Account:
    """Adds up an episode, and keeps what it was worth after every step."""

    def __init__(self, constraints: tuple[Constraint, ...], names: tuple[str, ...]):
        self._constraints, self._names = constraints, names
        self._tally = open_tally(constraints, len(names), jnp.ones(1, bool))
        self._reward, self._value = [0.0], [np.zeros(len(constraints))]

    def add(self, reward: AnyArray, costs: AnyArray) -> None:
        """One more step."""
        earned, paid = np.asarray(reward, np.float32), np.asarray(costs, np.float32)
        self._tally, value = _add(self._constraints, self._names, self._tally, earned, paid)
        self._reward.append(self._reward[-1] + float(reward[0]))
        self._value.append(np.asarray(value, dtype=np.float64))

    def played(self, states: list[Any], seconds: float) -> Played:
        return Played(tuple(states), np.array(self._reward), np.stack(self._value), seconds)


@partial(jax.jit, static_argnames=("constraints", "names"))
def _add(
    constraints: tuple[Constraint, ...], names: tuple[str, ...], tally: Tally, reward: Array, costs: Array
) -> tuple[Tally, Float[Array, " K"]]:
    """The episode after one more step, and what it would be worth had it ended there."""
    tally, _ = add_up(constraints, names, tally, reward, costs)
    yes = jnp.ones(1, bool)
    return tally, close(constraints, tally, yes, yes).value[0]
