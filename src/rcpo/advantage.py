"""Advantages and returns: pure functions of time-major arrays [T, N], right about terminations and truncations."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def penalise(
    reward: Float[Array, "T N"], penalty: Float[Array, "T N K"], multiplier: Float[Array, " K"]
) -> Float[Array, "T N"]:
    """The penalised reward r_hat = r - sum_k lambda_k c_k (the paper's Eq. 10)."""
    return reward - penalty @ multiplier


def generalised_advantage(
    reward: Float[Array, "T N"],
    value: Float[Array, "T N"],
    next_value: Float[Array, "T N"],
    terminated: Bool[Array, "T N"],
    truncated: Bool[Array, "T N"],
    discount: float,
    gae_decay: float,
) -> Float[Array, "T N"]:
    """A_t = delta_t + gamma tau A_{t+1}, with delta_t = r_t + gamma V(s_{t+1}) - V(s_t) (Schulman et al. 2016, Eq. 16).

    A terminated episode has nothing to come: V(s_{t+1}) = 0. A truncated one has, so it still bootstraps; after either
    the sum starts anew. With tau = 1 the advantage is the n-step return to the rollout's end minus V (the paper's
    Algorithm 2). `next_value` belongs to what the step really produced, not to the state after a reset.
    """
    delta = reward + discount * next_value * ~terminated - value
    carry_on = discount * gae_decay * ~(terminated | truncated)

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, carry_on = now
        advantage = delta + carry_on * later
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, carry_on), reverse=True, unroll=4)[1]


def monte_carlo_return(
    reward: Float[Array, "T N"], running: Bool[Array, "T N"], discount: float
) -> Float[Array, "T N"]:
    """G_t = sum_{k >= t} gamma^(k - t) r_k over the steps of one episode, which are those where `running`."""

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, running = now
        total = running * (reward + discount * later)
        return total, total

    return jax.lax.scan(back, jnp.zeros_like(reward[0]), (reward, running), reverse=True)[1]
