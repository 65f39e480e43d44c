"""Any finite CMDP as an environment to learn in: probes with known answers, and the fork of the theory preset."""

from typing import Self, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from rcpo.envs.base import Column, EnvSpec, JaxEnvironment
from rcpo.errors import UsageError
from rcpo.exact import FiniteCMDP
from rcpo.types import Transition


@final
class FiniteEnvironment(JaxEnvironment):
    """Samples a `FiniteCMDP`. An episode ends in one of its outcomes, which pays 1 in the column of that name.

    The other columns pay what the tables say. What is seen is the state's number, so a policy is a table.
    """

    cumulative: Float[Array, "S A B"]
    """Cumulative chances of going to each state, then of ending in each outcome: B = S + number of outcomes."""
    reward: Float[Array, "S A"]
    paid: Float[Array, "S A C"]
    initial: Float[Array, " S"]
    tables: FiniteCMDP = eqx.field(static=True)
    name: str = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)

    @classmethod
    def build(cls, tables: FiniteCMDP, name: str = "finite", max_steps: int = 100) -> Self:
        states, actions = tables.reward.shape
        ends = np.stack([*tables.outcomes.values()], axis=-1) if tables.outcomes else np.zeros((states, actions, 0))
        goes_on = tables.transitions.toarray().reshape(states, actions, states)
        chances = np.concatenate([goes_on, ends], axis=-1)
        if not np.allclose(chances.sum(axis=-1), 1.0):
            raise UsageError(f"{name}: transitions and outcomes add up to {chances.sum(axis=-1).min():g} somewhere, not 1; "
                             "name every way in which an episode can end as an outcome")  # fmt: skip
        paid = [np.zeros_like(table) if key in tables.outcomes else table for key, table in tables.columns.items()]
        return cls(
            cumulative=jnp.asarray(np.cumsum(chances, axis=-1), jnp.float32),
            reward=jnp.asarray(tables.reward, jnp.float32),
            paid=jnp.asarray(np.stack(paid, axis=-1), jnp.float32),
            initial=jnp.asarray(tables.initial, jnp.float32),
            tables=tables,
            name=name,
            max_steps=max_steps,
        )

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(
            name=self.name,
            columns=tuple(
                Column(key, "1 per event" if key in self.tables.outcomes else "per step", f"the column `{key}`")
                for key in self.tables.columns
            ),
            actions=self.reward.shape[1],
            observation_shape=(),
            max_steps=self.max_steps,
            success="goal" if "goal" in self.tables.columns else None,
        )

    def reset(
        self, key: PRNGKeyArray, batch: int, exploring: Float[Array, ""] | float
    ) -> tuple[Int[Array, " N"], Bool[Array, " N"]]:
        start_key, anywhere_key, draw_key = jax.random.split(key, 3)
        begin = jax.random.categorical(start_key, jnp.log(self.initial), shape=(batch,))
        anywhere = jax.random.randint(anywhere_key, (batch,), 0, len(self.initial))
        from_start = jax.random.uniform(draw_key, (batch,)) >= exploring
        return jnp.where(from_start, begin, anywhere).astype(jnp.int32), from_start

    def step(self, key: PRNGKeyArray, state: Int[Array, " N"], action: Int[Array, " N"]) -> Transition:
        states = len(self.initial)
        draw = jax.random.uniform(key, state.shape)
        # Rounding may leave the last cumulative chance just under 1.
        branch = jnp.minimum((draw[:, None] >= self.cumulative[state, action]).sum(-1), self.cumulative.shape[-1] - 1)
        terminated = branch >= states
        outcome = jnp.where(terminated, branch - states, -1)
        names = list(self.tables.outcomes)
        events = [outcome == names.index(key) if key in names else jnp.zeros(state.shape, bool)
                  for key in self.tables.columns]  # fmt: skip
        return Transition(
            state=jnp.where(terminated, state, branch).astype(jnp.int32),
            reward=self.reward[state, action],
            costs=self.paid[state, action] + jnp.stack(events, axis=-1),
            terminated=terminated,
        )

    def observe(self, state: Int[Array, " N"]) -> Int[Array, " N"]:
        return state

    def states(self) -> Int[Array, " S"]:
        return jnp.arange(len(self.initial))

    def cmdp(self) -> FiniteCMDP:
        return self.tables


def fork() -> FiniteCMDP:
    """A fork in the road, small enough to solve by hand; every step costs 0.1.

    From the fork, a bridge is crossed at a run (1 step, crash 0.3) or at a walk (2 steps on average, crash 0.1), or a
    detour of 3 more steps never crashes. So P(crash) and steps are (0.3, 2), (0.1, 3) or (0, 4): with P(crash) <= 0.05
    the best is to walk and to take the detour half of the time each, 3.5 steps, and the multiplier is 0.1 / 0.1 = 1.
    """
    fork, bridge, detour, meadow, hill = range(5)
    actions = 2
    moves = np.zeros((5, actions, 5))
    crash, goal = np.zeros((5, actions)), np.zeros((5, actions))
    moves[fork, 0, bridge] = moves[fork, 1, detour] = 1.0
    crash[bridge], goal[bridge] = (0.3, 0.05), (0.7, 0.45)
    moves[bridge, 1, bridge] = 0.5
    moves[detour, :, meadow] = moves[meadow, :, hill] = 1.0
    goal[hill] = 1.0
    return FiniteCMDP(
        transitions=scipy.sparse.csr_array(moves.reshape(-1, 5)),
        reward=np.full((5, actions), -0.1),
        columns={"crash": crash, "goal": goal},
        initial=np.eye(5)[fork],
        outcomes={"crash": crash, "goal": goal},
    )
