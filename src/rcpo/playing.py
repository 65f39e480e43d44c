"""One episode of a run's policy, step by step: where the environment stood, what had been earned and paid so far."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rcpo.actor import Actor
from rcpo.constraints import Constraint
from rcpo.costs import add_costs, all_columns
from rcpo.envs.base import HostCopies
from rcpo.envs.gym import GymEnvironment
from rcpo.envs.gymnasium_rover import MarsRoverEnv
from rcpo.envs.mars_rover import MarsRover
from rcpo.envs.mujoco import MujocoCopies, MujocoEnvironment
from rcpo.episodes import add_up, close, open_tally
from rcpo.errors import UsageError
from rcpo.types import AnyArray, Tally

if TYPE_CHECKING:
    from rcpo.run import Run


@final
@dataclass(frozen=True, eq=False)
class Played:
    """T steps, and the state before the first: so T + 1 entries everywhere."""

    states: tuple[Any, ...]
    """What a picture is drawn of: positions of a robot, the number of the rover's cell; or the picture itself."""
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
    if isinstance(environment, GymEnvironment):
        return _play_gym(run, environment, seed, deterministic)
    raise UsageError(f"there is no picture of {environment.spec.name}; the Mars Rover, MuJoCo's robots and Gymnasium's "
                     "environments have one")  # fmt: skip


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
            obs, ended = _step(copies, actor, account, obs)
            # Where the episode ended the copy stands at a new start already: the last picture is drawn once more.
            states.append(states[-1] if ended else batch.qpos[0].copy())
    return account.played(states, seconds)


def _play_gym(run: "Run", environment: GymEnvironment, seed: int, deterministic: bool) -> Played:
    actor, pictures = run.actor(seed, deterministic), list[Any]()
    account, ended, rate = Account(run.constraints, environment.spec.column_names), False, environment.frames_per_second
    with environment.film(pictures) as copies:
        obs: AnyArray = copies.reset(seed)
        while not ended:
            obs, ended = _step(copies, actor, account, obs)
    # Where the episode ended the copy began a new one, and drew that too.
    return account.played(pictures[:-1], 1.0 / rate if rate else 0.0)


def _step(copies: HostCopies, actor: Actor, account: "Account", obs: AnyArray) -> tuple[AnyArray, bool]:
    """One step of the only copy: what it shows then, and whether the episode is over."""
    before = np.array(obs, np.uint8 if obs.dtype == np.uint8 else np.float32)  # a copy: the next step writes over it
    action = actor.rows(before)
    step = copies.step(action)
    account.add(before, action, step.next_obs, step.reward, step.costs)
    return step.obs, bool(step.terminated[0] or step.truncated[0])


def _play_rover(run: "Run", environment: MarsRover, seed: int, deterministic: bool) -> Played:
    actor, world = run.actor(seed, deterministic), rover(environment)
    names = environment.spec.column_names
    obs, _ = world.reset(seed=seed)
    account, states, ended = Account(run.constraints, names), [world.state], False
    while not ended and len(states) <= environment.spec.max_steps:
        action = actor.act(obs)
        obs, reward, ended, _, info = world.step(action)
        states.append(world.state)
        before, after, chosen = (jnp.array([number]) for number in (states[-2], states[-1], action))
        account.add(before, chosen, after, np.array([reward]), jnp.array([[info[name] for name in names]]))
    return account.played(states, 0.0)


def rover(environment: MarsRover) -> MarsRoverEnv:
    """The same rover for Gymnasium, which can be drawn."""
    own = environment.settings
    return MarsRoverEnv(own.map, own.slip, own.step_reward, own.goal_reward, render_mode="rgb_array")


@final
class Account:
    """Adds up an episode, and keeps what it was worth after every step."""

    def __init__(self, constraints: tuple[Constraint, ...], names: tuple[str, ...]):
        self._constraints, self._given, self._names = constraints, names, all_columns(names, constraints)
        self._tally = open_tally(constraints, len(self._names), jnp.ones(1, bool))
        self._reward, self._value = [0.0], [np.zeros(len(constraints))]

    def add(self, obs: AnyArray, action: AnyArray, next_obs: AnyArray, reward: AnyArray, costs: AnyArray) -> None:
        """One more step."""
        costs = add_costs(self._constraints, self._given, obs, action, next_obs, costs)
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
