"""Update rules: each turns a rollout into a better agent."""
