"""Any finite CMDP as an environment to learn in."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
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
    def build(cls, tables: FiniteCMDP, name: str = "finite", max_steps: int = 100) -> "FiniteEnvironment":
        states, actions = tables.reward.shape
        ends = np.stack([*tables.outcomes.values()], axis=-1) if tables.outcomes else np.zeros((states, actions, 0))
        goes_on = tables.transitions.toarray().reshape(states, actions, states)
        chances = np.concatenate([goes_on, ends], axis=-1)
        if not np.allclose(chances.sum(axis=-1), 1.0):
            least = chances.sum(axis=-1).min()
            raise UsageError(f"{name}: transitions and outcomes add up to {least:g} somewhere, not to 1; "
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
