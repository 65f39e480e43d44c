"""The paper's Mars Rover (section 5.1 and appendix B) in JAX."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from rcpo.envs import cmdps
from rcpo.envs.base import Column, EnvSpec, JaxEnvironment
from rcpo.envs.grid import MOVES, GridMap, read_map
from rcpo.envs.settings import MarsRoverSettings
from rcpo.exact import FiniteCMDP
from rcpo.types import Transition

COLUMNS = (
    Column("crash", "1 per event", "1 on the step that drives into a rock, which ends the episode"),
    Column("goal", "1 per event", "1 on the step that reaches the goal, which ends the episode"),
)


@final
class MarsRover(JaxEnvironment):
    """Drive from the top left to the top right; the shorter the path, the more rocks beside it.

    A move goes where it was sent with probability 1 - slip, and in a random one of the four directions otherwise.
    The state is the cell's number.
    """

    next_state: Int[Array, "S 4"]
    goal: Bool[Array, " S"]
    rock: Bool[Array, " S"]
    open_states: Int[Array, " O"]
    observations: Float[Array, "S 1 H W"]
    start: int = eqx.field(static=True)
    settings: MarsRoverSettings = eqx.field(static=True)

    @classmethod
    def build(cls, settings: MarsRoverSettings) -> "MarsRover":
        grid = read_map(settings.map)
        return cls(
            next_state=jnp.asarray(grid.next_state),
            goal=jnp.asarray(grid.goal),
            rock=jnp.asarray(grid.rock),
            open_states=jnp.flatnonzero(~grid.terminal).astype(jnp.int32),
            observations=jnp.asarray(grid.observations()),
            start=grid.start,
            settings=settings,
        )

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(
            name="mars-rover",
            columns=COLUMNS,
            actions=len(MOVES),
            observation_shape=tuple(self.observations.shape[1:]),
            max_steps=self.settings.max_steps,
            success="goal",
        )

    def grid(self) -> GridMap:
        return read_map(self.settings.map)

    def reset(
        self, key: PRNGKeyArray, batch: int, exploring: Float[Array, ""] | float
    ) -> tuple[Int[Array, " N"], Bool[Array, " N"]]:
        draw = jax.random.uniform(key, (2, batch))
        from_start = draw[0] >= exploring
        anywhere = self.open_states[(draw[1] * len(self.open_states)).astype(jnp.int32)]
        return jnp.where(from_start, self.start, anywhere), from_start

    def step(self, key: PRNGKeyArray, state: Int[Array, " N"], action: Int[Array, " N"]) -> Transition:
        # One number decides both whether the rover slips and, if so, where to.
        draw = jax.random.uniform(key, state.shape)
        slip = self.settings.slip
        slipped_to = (draw / max(slip, 1e-12) * len(MOVES)).astype(jnp.int32)
        move = jnp.where(draw < slip, jnp.minimum(slipped_to, len(MOVES) - 1), action)
        following = self.next_state[state, move]
        crash, goal = self.rock[following], self.goal[following]
        return Transition(
            state=following,
            reward=self.settings.step_reward + self.settings.goal_reward * goal,
            costs=jnp.stack([crash, goal], axis=-1).astype(jnp.float32),
            terminated=crash | goal,
        )

    def observe(self, state: Int[Array, " N"]) -> Int[Array, " N"]:
        return state

    def states(self) -> Float[Array, "S 1 H W"]:
        return self.observations

    def cmdp(self) -> FiniteCMDP:
        return cmdps.mars_rover(self.settings)
