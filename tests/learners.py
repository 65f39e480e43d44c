"""Settings that small worlds are learned with in a few seconds."""

from rcpo.config import LearnerConfig, PPOConfig
from rcpo.schedules import Schedule

QUICK = LearnerConfig(
    algorithm="ppo",
    environments=64,
    rollout_steps=4,
    actor_step_size=Schedule(1e-2),
    critic_step_size=Schedule(1e-2),
    optimiser="adam",
    ppo=PPOConfig(epochs=2, minibatches=2, hidden=(8,), initial_std=0.2),
)
"""For the probes on the host."""

ANNEALED = LearnerConfig(
    environments=256,
    rollout_steps=1,
    optimiser="sgd",
    gradient_clip=0.0,
    discount=1.0,
    actor_step_size=Schedule(4.0, "power", offset=100.0, exponent=0.7),
    critic_step_size=Schedule(1.0),
    entropy=Schedule(0.3, "power", offset=100.0, exponent=0.6),
    exploring=Schedule(0.0),
)
"""For tables, where it ends at the linear program's multipliers."""
