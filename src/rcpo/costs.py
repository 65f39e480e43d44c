"""Costs that a function of the user's works out: columns beside those of the environment, made where a step is made."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rcpo.constraints import Constraint, Cost, function_name
from rcpo.errors import UsageError

TRACED: Final = "this environment is written in JAX: use jax.numpy, and no `if` on what is in an array"
ON_HOST: Final = (
    "it is called as cost(obs, action, next_obs, info) with arrays of many steps, the step their first axis"
)


def functions(constraints: Sequence[Constraint]) -> dict[str, Cost]:
    """The functions that constraints are put on, by the names of the columns that they make."""
    return {constraint.column: constraint.cost for constraint in constraints if constraint.cost is not None}


def all_columns(names: Sequence[str], constraints: Sequence[Constraint]) -> tuple[str, ...]:
    """The environment's columns, then those that functions make."""
    return (*names, *functions(constraints))


def add_costs(
    constraints: Sequence[Constraint], names: Sequence[str], obs: Any, action: Any, next_obs: Any, costs: Any
) -> Any:
    """The costs [B, C] with a column more for each function; B steps at once, numpy's arrays or JAX's."""
    made = functions(constraints)
    if not made:
        return costs
    space = costs.__array_namespace__()
    info = {name: costs[:, c] for c, name in enumerate(names)}
    columns = [evaluate(cost, obs, action, next_obs, info, space)[:, None] for cost in made.values()]
    return space.concatenate([costs, *columns], axis=1).astype(costs.dtype)


def evaluate(cost: Cost, obs: Any, action: Any, next_obs: Any, info: Mapping[str, Any], space: Any) -> Any:
    """What one function says of B steps."""
    name = function_name(cost)
    try:
        values = space.asarray(cost(obs, action, next_obs, info))
    except Exception as error:
        hint = TRACED if space.__name__.startswith("jax") else ON_HOST
        said = (str(error).splitlines() or [""])[0].rstrip(".")
        raise UsageError(f"the cost function {name} failed: {type(error).__name__}: {said}; {hint}") from error
    if values.shape != (len(obs),):
        raise UsageError(f"the cost function {name} gave the shape {values.shape} for {len(obs)} steps; "
                         f"give one number for each, shape ({len(obs)},)")  # fmt: skip
    return values
