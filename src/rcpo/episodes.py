"""What running episodes add up to, and what they were worth when they end: the same for both ways of collecting."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from rcpo.constraints import Constraint
from rcpo.errors import UsageError
from rcpo.functionals import BUILT_IN
from rcpo.types import Episodes, Tally


def open_tally(constraints: tuple[Constraint, ...], columns: int, from_start: Bool[Array, " N"]) -> Tally:
    """Episodes without steps."""
    nothing = jnp.zeros(from_start.shape)
    return Tally(
        from_start=from_start,
        functionals=tuple(constraint.functional.start(nothing) for constraint in constraints),
        columns=jnp.zeros((*from_start.shape, columns)),
        reward=nothing,
        length=jnp.zeros(from_start.shape, jnp.int32),
    )


def add_up(
    constraints: tuple[Constraint, ...],
    names: Sequence[str],
    tally: Tally,
    reward: Float[Array, " N"],
    costs: Float[Array, "N C"],
) -> tuple[Tally, Float[Array, "N K"]]:
    """The episodes after one more step, before any is closed; and the step's penalty under each constraint."""
    totals, penalties = [], []
    for constraint, before in zip(constraints, tally.functionals, strict=True):
        cost = constraint.paid(costs[:, names.index(constraint.column)])
        after = constraint.functional.step(before, cost, tally.length)
        totals.append(after)
        penalties.append(constraint.sign * constraint.functional.penalty(before, after, cost))
    added = Tally(
        from_start=tally.from_start,
        functionals=tuple(totals),
        columns=tally.columns + costs,
        reward=tally.reward + reward,
        length=tally.length + 1,
    )
    return added, jnp.stack(penalties, axis=-1) if penalties else jnp.zeros((len(tally.length), 0))


def close(
    constraints: tuple[Constraint, ...], tally: Tally, sound: Bool[Array, " N"], truncated: Bool[Array, " N"]
) -> Episodes:
    """What the episodes were worth that end here; `sound` are those that ended and speak for the policy."""
    values = [c.functional.value(t, tally.length) for c, t in zip(constraints, tally.functionals, strict=True)]
    return Episodes(
        counted=sound & tally.from_start,
        value=jnp.stack(values, axis=-1) if values else jnp.zeros((len(tally.length), 0)),
        columns=tally.columns,
        reward=tally.reward,
        length=tally.length,
        truncated=truncated,
    )


def where_ended(ended: Bool[Array, " N"], fresh: PyTree, running: PyTree) -> PyTree:
    """`fresh` in the environments whose episode ended, `running` in the others."""

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(ended.reshape(ended.shape + (1,) * (new.ndim - ended.ndim)), new, old)

    return jax.tree.map(choose, fresh, running)


def check(constraints: tuple[Constraint, ...]) -> None:
    """Follow functionals of the user's own through a step as training will: what cannot be compiled is refused here."""
    for constraint in constraints:
        if type(constraint.functional) in BUILT_IN.values():
            continue
        try:
            jax.eval_shape(lambda constraint=constraint: _two_steps(constraint))
        except Exception as error:
            said = (str(error).splitlines() or [""])[0].rstrip(".")
            name = constraint.functional_name
            raise UsageError(f"the functional {name} cannot be compiled: {type(error).__name__}: {said}; "
                             "use arithmetic and rcpo.where, and keep the accumulator's type") from error  # fmt: skip


def _two_steps(constraint: Constraint) -> PyTree:
    alone, nothing, never = (constraint,), jnp.zeros((2, 2)), jnp.zeros(2, bool)
    fresh = open_tally(alone, 1, ~never)

    def step(tally: Tally, cost: Float[Array, " N"]) -> tuple[Tally, PyTree]:
        running, penalty = add_up(alone, (constraint.column,), tally, cost, cost[:, None])
        return where_ended(never, fresh, running), (penalty, close(alone, running, never, never))

    return jax.lax.scan(step, fresh, nothing)
