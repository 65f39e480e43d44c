"""The exact solver against closed forms, brute force over deterministic policies, and slow dense loops."""

from itertools import combinations, product

import jaxtyping
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import csr_array

from rcpo.errors import UsageError
from rcpo.exact import Bound, ExactValue, FiniteCMDP, Optimum, evaluate, mixture, solve

SEEDS = st.integers(0, 2**32 - 1)


def make(transitions, reward, columns=None, initial=None, outcomes=None) -> FiniteCMDP:
    """A CMDP from a dense [S, A, S] array."""
    transitions, reward = np.asarray(transitions, dtype=float), np.asarray(reward, dtype=float)
    n_states, n_actions = reward.shape
    if initial is None:
        initial = np.eye(n_states)[0]
    tables = [
        {name: np.asarray(table, dtype=float) for name, table in (given or {}).items()} for given in (columns, outcomes)
    ]
    flat = csr_array(transitions.reshape(n_states * n_actions, n_states))
    return FiniteCMDP(flat, reward, tables[0], np.asarray(initial, dtype=float), tables[1])


def dense(cmdp: FiniteCMDP) -> np.ndarray:
    return cmdp.transitions.toarray().reshape(*cmdp.reward.shape, -1)


def random_cmdp(seed: int, n_states: int = 3, n_actions: int = 2, least_ending: float = 0.02) -> FiniteCMDP:
    """Every step ends the episode with some probability, so that every policy terminates; the last is never reached."""
    rng = np.random.default_rng(seed)
    ending = rng.uniform(least_ending, 0.5, (n_states, n_actions, 1))
    transitions = rng.dirichlet(np.full(n_states, 0.5), (n_states, n_actions)) * (1 - ending)
    transitions[:-1, :, -1] = 0.0
    initial = np.append(rng.dirichlet(np.ones(n_states - 1)), 0.0)
    left = 1.0 - transitions.sum(axis=2)
    goal = left * rng.uniform(0, 1, left.shape)
    columns = {"crash": 0.9 * (left - goal), "torque": rng.uniform(0, 1, left.shape)}
    reward = rng.normal(size=left.shape)
    return make(transitions, reward, columns, initial, {"goal": goal, "crash": 0.9 * (left - goal)})


def random_policy(seed: int, cmdp: FiniteCMDP) -> np.ndarray:
    return np.random.default_rng(seed + 1).dirichlet(np.full(cmdp.reward.shape[1], 0.5), cmdp.reward.shape[0])


def deterministic_policies(cmdp: FiniteCMDP) -> list[np.ndarray]:
    n_states, n_actions = cmdp.reward.shape
    return [np.eye(n_actions)[list(choice)] for choice in product(range(n_actions), repeat=n_states)]


def occupancy(cmdp: FiniteCMDP, policy: np.ndarray, discount: float) -> np.ndarray:
    """x(s, a) by a dense solve."""
    moves = np.einsum("sa,sat->st", policy, dense(cmdp))
    visits = np.linalg.solve(np.eye(len(moves)) - discount * moves.T, cmdp.initial)
    return visits[:, None] * policy


def vertices(cmdp: FiniteCMDP, names: list[str], discount: float) -> tuple[np.ndarray, np.ndarray]:
    """Reward [D] and columns [D, K] of every deterministic policy: what any policy reaches is their convex hull."""
    visits = [occupancy(cmdp, policy, discount) for policy in deterministic_policies(cmdp)]
    costs = [[(x * cmdp.columns[name]).sum() for name in names] for x in visits]
    return np.array([(x * cmdp.reward).sum() for x in visits]), np.array(costs)


def best_of_pairs(rewards: np.ndarray, costs: np.ndarray, limit: float) -> float:
    """The largest reward of a mixture of two deterministic policies with cost <= limit; -inf when there is none."""
    best = max(rewards[costs <= limit], default=-np.inf)
    for i, j in combinations(range(len(rewards)), 2):
        if (costs[i] - limit) * (costs[j] - limit) < 0:
            weight = (limit - costs[j]) / (costs[i] - costs[j])
            best = max(best, weight * rewards[i] + (1 - weight) * rewards[j])
    return best


def check_policy(cmdp: FiniteCMDP, optimum: Optimum, bounds: list[Bound], discount: float = 1.0) -> None:
    """The policy is one, is worth what is claimed (by a dense solve), and keeps the bounds."""
    np.testing.assert_allclose(optimum.policy.sum(axis=1), 1.0)
    assert np.all(optimum.policy >= 0)
    visits = occupancy(cmdp, optimum.policy, discount)
    assert optimum.reward == pytest.approx((visits * cmdp.reward).sum(), abs=1e-9)
    for bound, value in zip(bounds, optimum.values, strict=True):
        assert value == pytest.approx((visits * cmdp.columns[bound.column]).sum(), abs=1e-9)
        assert value >= bound.limit - 1e-8 if bound.at_least else value <= bound.limit + 1e-8


# The optimum


def risky_or_safe(fast_crash: float = 0.1, slow: float = 1.0) -> FiniteCMDP:
    """One state. Fast: reward -1, crashes with 0.1. Slow: reward -1 - slow, never crashes. Both end the episode."""
    return make([[[0.0], [0.0]]], [[-1.0, -1.0 - slow]], {"crash": [[fast_crash, 0.0]]})


def test_one_state_closed_form():
    # With probability p of fast: reward -2 + p, crash p / 10. Limit 0.04: p = 0.4, and a slack of 1 is worth 10.
    optimum = solve(risky_or_safe(), [Bound("crash", 0.04)])
    assert optimum.feasible
    assert optimum.reward == pytest.approx(-1.6)
    assert optimum.steps == pytest.approx(1.0)
    assert optimum.values == pytest.approx((0.04,))
    assert optimum.multipliers == pytest.approx((10.0,))
    np.testing.assert_allclose(optimum.policy, [[0.4, 0.6]], atol=1e-8)


def test_geometric_episode_closed_form():
    # Action 0 pays 1 and goes on with 0.9 (10 steps on average); action 1 pays 0 and ends. Both wear out 1 a step.
    # With probability p of action 0: n = 1 / (1 - 0.9 p) steps, reward p n. Limit 4 steps: p = 5/6, reward 10/3.
    cmdp = make([[[0.9], [0.0]]], [[1.0, 0.0]], {"wear": [[1.0, 1.0]]})
    optimum = solve(cmdp, [Bound("wear", 4.0)])
    assert optimum.reward == pytest.approx(10 / 3)
    assert optimum.steps == pytest.approx(4.0)
    assert optimum.multipliers == pytest.approx((10 / 9,))  # reward = (limit - 1) / 0.9
    np.testing.assert_allclose(optimum.policy, [[5 / 6, 1 / 6]], atol=1e-8)
    # Discounted by 1/2, action 0 for ever pays 1 / (1 - 0.45), wears 1 / (1 - 0.45).
    free = solve(cmdp, [], discount=0.5)
    assert free.reward == pytest.approx(1 / 0.55)
    assert free.steps == pytest.approx(10.0)  # a fact of the episode, not discounted
    assert solve(cmdp, [Bound("wear", 1.5)], discount=0.5).reward == pytest.approx(0.5 / 0.45)


def test_slack_bound_has_multiplier_zero():
    optimum = solve(risky_or_safe(), [Bound("crash", 0.5)])
    assert optimum.reward == pytest.approx(-1.0)
    assert optimum.values == pytest.approx((0.1,))
    assert optimum.multipliers == (0.0,)


def test_at_least_bound():
    # Reward prefers slow here (slow = -1 makes it pay 0); at least 0.03 crash forces 30 % of fast, at 10 a unit.
    optimum = solve(risky_or_safe(slow=-1.0), [Bound("crash", 0.03, at_least=True)])
    assert optimum.reward == pytest.approx(-0.3)
    assert optimum.values == pytest.approx((0.03,))
    assert optimum.multipliers == pytest.approx((10.0,))
    assert solve(risky_or_safe(), [Bound("crash", 0.03, at_least=True)]).multipliers == (0.0,)


@settings(max_examples=60)
@given(seed=SEEDS, discount=st.sampled_from([1.0, 0.9, 0.3]), share=st.floats(-0.2, 1.2), at_least=st.booleans())
def test_one_bound_is_the_best_mixture_of_two_deterministic_policies(seed, discount, share, at_least):
    cmdp = random_cmdp(seed)
    rewards, costs = vertices(cmdp, ["torque"], discount)
    low, high = costs.min(), costs.max()
    limit = low + share * (high - low)
    if abs(limit - (high if at_least else low)) < 1e-6 * (high - low):
        return  # feasible within rounding only
    sign = -1 if at_least else 1
    bounds = [Bound("torque", limit, at_least)]
    optimum = solve(cmdp, bounds, discount)
    truth = best_of_pairs(rewards, sign * costs[:, 0], sign * limit)
    assert optimum.feasible == np.isfinite(truth)
    if not optimum.feasible:
        assert np.isnan(optimum.reward) and "cannot be met" in optimum.message
        return
    assert optimum.reward == pytest.approx(truth, abs=1e-7)
    check_policy(cmdp, optimum, bounds, discount)
    # Strong duality: at the right multiplier the best deterministic policy of the Lagrangian is worth the optimum.
    (multiplier,) = optimum.multipliers
    assert max(rewards - multiplier * sign * (costs[:, 0] - limit)) == pytest.approx(truth, abs=1e-6)
    assert multiplier * (optimum.values[0] - limit) == pytest.approx(0.0, abs=1e-6)


@settings(max_examples=30)
@given(seed=SEEDS, discount=st.sampled_from([1.0, 0.8]), shares=st.tuples(st.floats(0.1, 1.1), st.floats(0.1, 1.1)))
def test_two_bounds_against_all_mixtures_of_deterministic_policies(seed, discount, shares):
    cmdp = random_cmdp(seed)
    names = ["torque", "crash"]
    rewards, costs = vertices(cmdp, names, discount)
    limits = costs.min(axis=0) + np.array(shares) * np.ptp(costs, axis=0)
    truth = linprog(-rewards, A_ub=costs.T, b_ub=limits, A_eq=np.ones((1, len(rewards))), b_eq=[1.0])
    bounds = [Bound(name, limit) for name, limit in zip(names, limits.tolist(), strict=True)]
    optimum = solve(cmdp, bounds, discount)
    assert optimum.feasible == (truth.status == 0)
    if optimum.feasible:
        assert optimum.reward == pytest.approx(-truth.fun, abs=1e-6)
        check_policy(cmdp, optimum, bounds, discount)
        for bound, value, multiplier in zip(bounds, optimum.values, optimum.multipliers, strict=True):
            assert multiplier >= 0
            assert multiplier * (bound.limit - value) == pytest.approx(0.0, abs=1e-6)
    else:
        assert "conflict" in optimum.message


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_multipliers_are_the_slopes_of_the_best_reward(discount):
    cmdp = random_cmdp(15, n_states=6, n_actions=3)
    uniform = evaluate(cmdp, np.full((6, 3), 1 / 3), None, discount).values
    bounds = [
        Bound("torque", uniform["torque"]),
        Bound("crash", uniform["crash"], at_least=True),
        Bound("torque", 50.0),
    ]
    optimum = solve(cmdp, bounds, discount)
    assert optimum.multipliers[0] > 0.01 and optimum.multipliers[1] > 0.01  # both active: else nothing is tested
    assert optimum.multipliers[2] == 0.0
    for k, bound in enumerate(bounds[:2]):
        rewards = []
        for slack in (1e-5, -1e-5):
            limit = bound.limit - slack if bound.at_least else bound.limit + slack
            moved = [*bounds[:k], Bound(bound.column, limit, bound.at_least), *bounds[k + 1 :]]
            rewards.append(solve(cmdp, moved, discount).reward)
        assert (rewards[0] - rewards[1]) / 2e-5 == pytest.approx(optimum.multipliers[k], rel=1e-3)


def test_larger_random_problem_is_optimal_by_value_iteration():
    cmdp = random_cmdp(3, n_states=150, n_actions=4)
    free = solve(cmdp, [])
    limit = 0.9 * evaluate(cmdp, free.policy, None).values["torque"]
    optimum = solve(cmdp, [Bound("torque", limit)])
    value = evaluate(cmdp, optimum.policy, None)
    assert optimum.values[0] == pytest.approx(limit, abs=1e-9)
    assert (value.reward, value.steps) == pytest.approx((optimum.reward, optimum.steps), abs=1e-9)
    assert value.outcomes == pytest.approx(optimum.outcomes)
    # The multiplier's Lagrangian, maximised by plain value iteration, proves that no policy does better.
    penalised = cmdp.reward - optimum.multipliers[0] * cmdp.columns["torque"]
    best = np.zeros(150)
    for _ in range(3000):
        best = (penalised + (cmdp.transitions @ best).reshape(penalised.shape)).max(axis=1)
    assert cmdp.initial @ best + optimum.multipliers[0] * limit == pytest.approx(optimum.reward, abs=1e-7)
    np.testing.assert_array_equal(optimum.policy[-1], 0.25)  # never visited


@pytest.mark.parametrize("at_least", [False, True])
def test_rare_states_do_not_spoil_the_bound(at_least):
    # A corridor, left at every step but with 3e-3: state 4 is visited more rarely than the linear program's tolerance.
    # There action 0 crashes with 1/2 for nothing, elsewhere for a reward of 1. The policy must be right there too.
    n, on = 8, 3e-3
    transitions = np.zeros((n, 2, n))
    transitions[np.arange(n - 1), :, np.arange(1, n)] = on
    crash = np.tile([0.5, 0.0], (n, 1))
    reward = np.where(np.arange(n)[:, None] < 4, [0.0, -1.0], 0.0)
    cmdp = make(transitions, reward, {"crash": crash, "safe": 0.5 - crash})
    steps = sum(on**k for k in range(n))
    bound = Bound("safe", 0.5 * steps - 1e-4, at_least=True) if at_least else Bound("crash", 1e-4)
    value = evaluate(cmdp, solve(cmdp, [bound]).policy, None)
    assert value.values["crash"] == pytest.approx(1e-4, abs=1e-12)


def test_slippery_grid_of_the_size_of_the_paper_s_keeps_its_bound():
    # Every cell is reached by slipping, most so rarely that the linear program does not see it.
    side, slip = 28, 0.05
    rng = np.random.default_rng(0)
    cell = np.arange(side * side).reshape(side, side)
    rock = rng.random(cell.shape) < 0.04
    rock[0, 0] = rock[0, -1] = False
    framed = np.pad(cell, 1, mode="edge")  # a move into the wall stays
    leads = np.stack([framed[:-2, 1:-1], framed[1:-1, 2:], framed[2:, 1:-1], framed[1:-1, :-2]], axis=-1).reshape(-1, 4)
    moves = np.zeros((cell.size, 4, cell.size))
    for action, direction in product(range(4), range(4)):
        moves[cell.ravel(), action, leads[:, direction]] += slip / 4 + (1 - slip) * (action == direction)
    crash, goal = moves[:, :, rock.ravel()].sum(axis=2), moves[:, :, side - 1].copy()
    moves[:, :, rock.ravel()] = moves[:, :, side - 1] = 0.0
    columns = {"crash": crash}
    cmdp = make(moves, np.full((cell.size, 4), -0.01), columns, outcomes={"goal": goal, "crash": crash})
    safest = evaluate(cmdp, solve(make(moves, -crash, columns), []).policy, None)
    limit = safest.values["crash"] + 0.01
    optimum = solve(cmdp, [Bound("crash", limit)])
    assert optimum.multipliers[0] > 1.0 and safest.reward < optimum.reward
    assert optimum.values[0] == pytest.approx(limit, abs=1e-10)
    assert optimum.outcomes["goal"] == pytest.approx(1 - limit, abs=1e-10)
    assert optimum.steps == pytest.approx(-100 * optimum.reward)


@settings(max_examples=60)
@given(seed=SEEDS, share=st.floats(-0.1, 1.1))
def test_where_some_policies_never_end_only_the_others_count(seed, share):
    # Four states, two actions: each leads to one state or the end, some by a coin. Every step costs.
    rng = np.random.default_rng(seed)
    transitions = np.zeros((4, 2, 4))
    for state, action in product(range(4), range(2)):
        for _ in range(2):
            target = rng.integers(6)
            if target < 4:
                transitions[state, action, target] += 0.5
    cmdp = make(transitions, -rng.uniform(0.1, 1.0, (4, 2)), {"torque": rng.uniform(0, 1, (4, 2))})
    ends, rewards, costs = [], [], []
    for policy in deterministic_policies(cmdp):
        power, total = np.einsum("sa,sat->st", policy, transitions), np.eye(4)
        for _ in range(14):  # total = the sum of the first 2, 4, 8, ... powers; the inverse may not exist
            power, total = power @ power, total + power @ total
        ends.append(bool((cmdp.initial @ power).sum() < 0.01))
        value = evaluate(cmdp, policy, None)
        assert value.terminates == ends[-1]
        if ends[-1]:
            visits = cmdp.initial @ total
            rewards.append((visits[:, None] * policy * cmdp.reward).sum())
            costs.append((visits[:, None] * policy * cmdp.columns["torque"]).sum())
            assert value.reward == pytest.approx(rewards[-1])
    if not any(ends):
        assert "no policy is sure to end" in solve(cmdp, []).message
        return
    assert solve(cmdp, []).reward == pytest.approx(max(rewards))
    limit = min(costs) + share * (max(costs) - min(costs))
    if abs(limit - min(costs)) > 1e-6:
        optimum = solve(cmdp, [Bound("torque", limit)])
        truth = best_of_pairs(np.array(rewards), np.array(costs), limit)
        assert optimum.feasible == np.isfinite(truth)
        assert not optimum.feasible or optimum.reward == pytest.approx(truth, abs=1e-7)


# No optimum


def test_infeasible_alone_says_what_can_be_reached():
    cmdp = make([[[0.0], [0.0]]], [[0.0, 1.0]], {"crash": [[0.25, 0.5]], "goal": [[0.125, 0.0]]})
    optimum = solve(cmdp, [Bound("crash", 0.1, name="P(crash) <= 0.1")])
    assert not optimum.feasible
    assert np.isnan(optimum.reward) and np.isnan(optimum.steps) and np.isnan(optimum.values[0])
    whom = "any policy that ends its episodes"
    assert optimum.message == f"P(crash) <= 0.1 cannot be met: the least that {whom} reaches is 0.25"
    optimum = solve(cmdp, [Bound("goal", 0.2, at_least=True), Bound("crash", 0.3)], discount=0.9)
    assert optimum.message == (
        "goal >= 0.2 cannot be met: the most that any policy reaches is 0.125; "
        "crash <= 0.3 alone can be met: the least that any policy reaches is 0.25"
    )


def test_reachable_value_in_the_message_works_as_a_limit():
    cmdp = make([[[0.0], [0.0]]], [[0.0, 1.0]], {"crash": [[1 / 3, 2 / 3]]})
    least = solve(cmdp, [Bound("crash", 0.1)]).message.split()[-1]
    most = solve(cmdp, [Bound("crash", 0.9, at_least=True)]).message.split()[-1]
    assert (least, most) == ("0.33334", "0.66666")
    assert solve(cmdp, [Bound("crash", float(least))]).feasible
    assert solve(cmdp, [Bound("crash", float(most), at_least=True)]).feasible


def test_reachable_value_is_not_spoilt_by_rounding():
    # Three steps of 0.1 sum to 0.30000000000000004 in doubles: 0.3 is what is said, in both directions.
    transitions = np.zeros((3, 2, 3))
    transitions[0, :, 1] = transitions[1, :, 2] = 1.0
    cmdp = make(transitions, np.zeros((3, 2)), {"wear": np.full((3, 2), 0.1)})
    assert solve(cmdp, [Bound("wear", 0.1)]).message.endswith("reaches is 0.3")
    assert solve(cmdp, [Bound("wear", 0.5, at_least=True)]).message.endswith("reaches is 0.3")
    assert solve(cmdp, [Bound("wear", 0.3)]).feasible
    nothing = make([[[0.0], [0.0]]], [[0.0, 1.0]], {"goal": [[0.0, 0.0]]})
    assert solve(nothing, [Bound("goal", 0.5, at_least=True)]).message.endswith("reaches is 0")


def test_bounds_that_conflict():
    cmdp = make([[[0.0], [0.0]]], [[0.0, 1.0]], {"crash": [[0.1, 0.5]], "miss": [[0.5, 0.1]]})
    bounds = [Bound("crash", 0.2), Bound("miss", 0.2)]
    assert all(solve(cmdp, [bound]).feasible for bound in bounds)
    optimum = solve(cmdp, bounds)
    assert not optimum.feasible
    assert "conflict" in optimum.message and "crash <= 0.2 alone can be met" in optimum.message


def paying_loop(reward: float) -> FiniteCMDP:
    """State 0 ends (action 0) or goes to state 1, which stays there (action 0) or goes back."""
    transitions = np.zeros((2, 2, 2))
    transitions[0, 1, 1] = transitions[1, 0, 1] = transitions[1, 1, 0] = 1.0
    return make(transitions, [[0.0, 0.0], [reward, 0.0]], {"crash": [[1.0, 0.0], [0.0, 0.0]], "wear": np.eye(2)})


def test_unbounded_reward_is_said():
    optimum = solve(paying_loop(0.1), [])
    assert not optimum.feasible and optimum.reward == np.inf
    assert "no upper limit" in optimum.message
    assert solve(paying_loop(0.1), [], discount=0.5).reward == pytest.approx(0.1 * (0.5 + 0.25 + 0.125) / 0.875)
    infeasible_too = solve(paying_loop(0.1), [Bound("crash", 0.5)])
    assert not infeasible_too.feasible and "cannot be met" in infeasible_too.message
    costly = solve(paying_loop(-0.1), [])
    assert costly.reward == pytest.approx(0.0)
    np.testing.assert_array_equal(costly.policy, [[1.0, 0.0], [0.5, 0.5]])  # state 1 is not visited


def test_best_reward_that_no_policy_reaches():
    # To go to state 1 costs 1, to stay there is free: 3 steps of wear are had with probability p for p, for any p > 0.
    transitions = np.zeros((2, 2, 2))
    transitions[0, 1, 1] = transitions[1, 0, 1] = 1.0
    cmdp = make(transitions, [[0.0, -1.0], [0.0, 0.0]], {"wear": [[0.0, 0.0], [1.0, 0.0]]})
    optimum = solve(cmdp, [Bound("wear", 3.0, at_least=True)])
    assert not optimum.feasible
    assert "only as a limit" in optimum.message


def test_no_policy_terminates():
    cmdp = make([[[1.0], [1.0]]], [[-1.0, -1.0]], {"crash": [[0.0, 0.1]]})
    optimum = solve(cmdp, [Bound("crash", 1.0)])
    assert not optimum.feasible
    assert "no policy is sure to end" in optimum.message and "discount" in optimum.message
    assert solve(cmdp, [], discount=0.9).reward == pytest.approx(-10.0)
    # Nor when the only action ends the episode with 1/2, and else leads to where it never ends.
    assert "no policy is sure to end" in solve(make([[[0.0, 0.5]], [[0.0, 1.0]]], -np.ones((2, 1))), []).message


def test_only_policies_that_end_count_without_discount():
    # From state 0: end at -5, or fall for nothing into state 1, which is never left; state 1 alone would be free.
    transitions = np.zeros((2, 2, 2))
    transitions[0, 1, 1] = 0.5
    transitions[1, :, 1] = 1.0
    cmdp = make(transitions, [[-5.0, 0.0], [0.0, 1.0]], {"wear": [[0.0, 0.0], [1.0, 1.0]]})
    optimum = solve(cmdp, [])
    assert optimum.reward == pytest.approx(-5.0)
    np.testing.assert_array_equal(optimum.policy, [[1.0, 0.0], [0.5, 0.5]])
    assert not solve(cmdp, [Bound("wear", 0.1, at_least=True)]).feasible


# The value of a policy


def gamblers_ruin(n: int, up: float) -> FiniteCMDP:
    """States 1 .. n-1 as 0 .. n-2, one action; 0 is ruin and n is the goal."""
    transitions = np.zeros((n - 1, 1, n - 1))
    states = np.arange(n - 2)
    transitions[states, 0, states + 1], transitions[states + 1, 0, states] = up, 1 - up
    goal, ruin = np.zeros((2, n - 1, 1))
    goal[-1], ruin[0] = up, 1 - up
    return make(transitions, np.full((n - 1, 1), -1.0), {"crash": ruin}, np.eye(n - 1)[2], {"goal": goal, "ruin": ruin})


def test_fair_gamblers_ruin():
    # From i of n: goal with i / n, i (n - i) steps, (n^2 - i^2) / 3 given the goal.
    n, i = 10, 3
    value = evaluate(gamblers_ruin(n, 0.5), np.ones((n - 1, 1)), None)
    assert value.outcomes == pytest.approx({"goal": i / n, "ruin": 1 - i / n})
    assert value.values == pytest.approx({"crash": 1 - i / n})
    assert (value.steps, value.reward) == pytest.approx((i * (n - i), -i * (n - i)))
    assert value.steps_given == pytest.approx({"goal": (n**2 - i**2) / 3, "ruin": (n**2 - (n - i) ** 2) / 3})
    assert value.terminates and value.truncated == 0.0


@pytest.mark.parametrize("up", [0.3, 0.7])
def test_unfair_gamblers_ruin(up):
    n, i, odds = 8, 3, (1 - up) / up
    value = evaluate(gamblers_ruin(n, up), np.ones((n - 1, 1)), None)
    goal = (1 - odds**i) / (1 - odds**n)
    assert value.outcomes["goal"] == pytest.approx(goal)
    assert value.steps == pytest.approx((n * goal - i) / (2 * up - 1))


def slow_value(cmdp: FiniteCMDP, policy: np.ndarray, cap: int, discount: float) -> ExactValue:
    """Episodes cut at `cap`, one dense step after the other on states joined by one absorbing state per outcome."""
    n, names = len(cmdp.initial), list(cmdp.outcomes)
    chain = np.eye(n + len(names) + 1)
    chain[:n] = 0.0
    for state, action in product(range(n), range(policy.shape[1])):
        chain[state, :n] += policy[state, action] * dense(cmdp)[state, action]
        for k, name in enumerate(names):
            chain[state, n + k] += policy[state, action] * cmdp.outcomes[name][state, action]
    chain[:n, -1] += 1.0 - chain[:n].sum(axis=1)  # ended without a name
    here = np.concatenate([cmdp.initial, np.zeros(len(names) + 1)])
    reward, steps, values, moments = 0.0, 0.0, dict.fromkeys(cmdp.columns, 0.0), np.zeros(len(names))
    for step in range(cap):
        at = here[:n, None] * policy
        steps += at.sum()
        reward += discount**step * (at * cmdp.reward).sum()
        for name, table in cmdp.columns.items():
            values[name] += discount**step * (at * table).sum()
        after = here @ chain
        moments += (step + 1) * (after - here)[n:-1]
        here = after
    ended = here[n:-1]
    return ExactValue(
        reward=reward,
        steps=steps,
        values=values,
        outcomes=dict(zip(names, ended.tolist(), strict=True)),
        truncated=here[:n].sum(),
        steps_given=dict(zip(names, (moments / ended).tolist(), strict=True)),
        terminates=True,
    )


def assert_same(value: ExactValue, truth: ExactValue, rel: float = 1e-9) -> None:
    assert (value.reward, value.steps) == pytest.approx((truth.reward, truth.steps), rel=rel)
    assert value.truncated == pytest.approx(truth.truncated, rel=rel, abs=1e-12)
    for field in ("values", "outcomes", "steps_given"):
        assert getattr(value, field) == pytest.approx(getattr(truth, field), rel=rel)
    assert value.terminates == truth.terminates


@settings(max_examples=40)
@given(seed=SEEDS, cap=st.integers(1, 30), discount=st.sampled_from([1.0, 0.9]))
def test_capped_value_against_a_slow_loop(seed, cap, discount):
    cmdp = random_cmdp(seed, n_states=5, n_actions=3)
    policy = random_policy(seed, cmdp)
    assert_same(evaluate(cmdp, policy, cap, discount), slow_value(cmdp, policy, cap, discount))


@settings(max_examples=40)
@given(seed=SEEDS, discount=st.sampled_from([1.0, 0.9]))
def test_no_cap_is_a_very_large_cap(seed, discount):
    cmdp = random_cmdp(seed, n_states=5, n_actions=3)
    policy = random_policy(seed, cmdp)
    assert_same(evaluate(cmdp, policy, None, discount), evaluate(cmdp, policy, 5000, discount), rel=1e-8)


def test_an_episode_that_ends_in_its_last_step_is_not_truncated():
    # Two steps for sure: state 0, state 1, goal.
    transitions = np.zeros((2, 1, 2))
    transitions[0, 0, 1] = 1.0
    cmdp = make(transitions, [[-1.0], [-1.0]], outcomes={"goal": [[0.0], [1.0]]})
    policy = np.ones((2, 1))
    two, one = evaluate(cmdp, policy, 2), evaluate(cmdp, policy, 1)
    assert (two.truncated, two.outcomes["goal"], two.steps, two.steps_given["goal"]) == (0.0, 1.0, 2.0, 2.0)
    assert (one.truncated, one.outcomes["goal"], one.steps) == (1.0, 0.0, 1.0)
    assert np.isnan(one.steps_given["goal"])


def test_policy_that_may_go_on_for_ever():
    # State 0: goal 1/4, to the endless pair of states 1, 2 with 1/4, back to itself 1/2. State 3 is not reached.
    transitions = np.zeros((4, 2, 4))
    transitions[0, 0, :2] = 0.5, 0.25
    transitions[1, 0, 2] = transitions[2, 0, 1] = transitions[3, 0, 3] = 1.0
    torque, crash = np.zeros((2, 4, 2))
    torque[1:3], crash[0] = 1.0, 0.1
    goal = np.zeros((4, 2))
    goal[0, 0] = 0.25
    cmdp = make(transitions, np.full((4, 2), -1.0), {"torque": torque, "crash": crash}, outcomes={"goal": goal})
    policy = np.tile([1.0, 0.0], (4, 1))
    value = evaluate(cmdp, policy, None)
    assert not value.terminates
    assert (value.steps, value.reward, value.values["torque"]) == (np.inf, -np.inf, np.inf)
    assert value.values["crash"] == pytest.approx(0.2)  # what the endless states do not add to is still exact
    assert value.outcomes["goal"] == pytest.approx(0.5)
    assert value.steps_given["goal"] == pytest.approx(2.0)
    discounted = evaluate(cmdp, policy, None, discount=0.5)
    # State 0 is visited 1 / (1 - 1/4) times; each visit leads to the pair with 1/8, worth 2 there.
    assert discounted.reward == pytest.approx(-(4 / 3) * (1 + 0.125 * 2))
    assert not discounted.terminates and discounted.steps == np.inf
    ends = evaluate(cmdp, np.tile([0.5, 0.5], (4, 1)), None)
    assert ends.terminates and np.isfinite(ends.reward)


def test_probabilities_that_sum_to_one_but_for_rounding_end_nothing():
    cmdp = make([[[1.0 - 2**-53]]], [[-1.0]])  # as 0.1 + 0.2 + 0.7 may sum to
    value = evaluate(cmdp, np.ones((1, 1)), None)
    assert not value.terminates and value.steps == np.inf
    assert not solve(cmdp, []).feasible


def test_policy_that_never_ends_with_rewards_of_both_signs():
    transitions = np.zeros((2, 1, 2))
    transitions[0, 0, 1] = transitions[1, 0, 0] = 1.0
    value = evaluate(make(transitions, [[1.0], [-1.0]]), np.ones((2, 1)), None)
    assert not value.terminates and value.steps == np.inf and np.isnan(value.reward)
    assert evaluate(make(transitions, [[1.0], [-1.0]]), np.ones((2, 1)), 7).reward == 1.0


@pytest.mark.parametrize("rare", [1e-5, 1e-12, 1e-30, 1e-100])
def test_hardly_ever_ending_episodes_are_exact(rare):
    # Two states that change places; from the second, action 1 ends the episode, by a crash 3 times out of 4.
    transitions = np.zeros((2, 2, 2))
    transitions[0, :, 1] = transitions[1, 0, 0] = 1.0
    outcomes = {"goal": [[0.0, 0.0], [0.0, 0.25]], "crash": [[0.0, 0.0], [0.0, 0.75]]}
    cmdp = make(transitions, np.full((2, 2), -1.0), {"crash": outcomes["crash"]}, outcomes=outcomes)
    value = evaluate(cmdp, np.array([[1.0, 0.0], [1.0 - rare, rare]]), None)
    assert value.terminates
    assert value.steps == pytest.approx(2 / rare, rel=1e-9)
    assert value.values["crash"] == pytest.approx(0.75, rel=1e-9)
    assert value.steps_given == pytest.approx({"goal": 2 / rare, "crash": 2 / rare}, rel=1e-9)


def test_walk_against_the_wind_is_exact_where_plain_linear_algebra_is_not():
    # Gambler's ruin with a wall instead of ruin and odds 99 against: about 99^20 steps, 1 - P is singular in doubles.
    n, up = 20, 0.01
    cmdp = gamblers_ruin(n + 1, up)
    transitions = dense(cmdp)
    transitions[0, 0, 0] = 1 - up
    cmdp = make(transitions, cmdp.reward, initial=np.eye(n)[0], outcomes={"goal": cmdp.outcomes["goal"]})
    value = evaluate(cmdp, np.ones((n, 1)), None)
    # Steps from k to k + 1: h(k) = (1 + (1 - up) h(k - 1)) / up.
    steps, climb = 0.0, 0.0
    for k in range(n):
        climb = (1 + (1 - up) * climb) / up if k else 1 / up
        steps += climb
    assert steps > 1e39
    assert value.steps == pytest.approx(steps, rel=1e-9)
    assert value.outcomes["goal"] == pytest.approx(1.0, rel=1e-9)


def test_single_precision_policy_loses_no_probability():
    cmdp = gamblers_ruin(10, 0.5)
    cmdp = make(np.repeat(dense(cmdp), 3, axis=1), np.repeat(cmdp.reward, 3, axis=1), initial=cmdp.initial)
    policy = np.random.default_rng(0).dirichlet(np.ones(3), 9).astype(np.float32)
    assert evaluate(cmdp, policy, None).steps == pytest.approx(21.0, rel=1e-12)


# Mixtures


def test_mixture_is_the_mean_over_a_drawn_policy():
    cmdp = random_cmdp(5, n_states=4)
    first, second = (evaluate(cmdp, random_policy(seed, cmdp), 6) for seed in (1, 2))
    mixed = mixture([first, second], [0.25, 0.75])
    assert mixed.reward == pytest.approx(0.25 * first.reward + 0.75 * second.reward)
    assert mixed.truncated == pytest.approx(0.25 * first.truncated + 0.75 * second.truncated)
    # The truth for steps given an outcome: two copies of the CMDP side by side, the start drawn by the weights.
    moves, n = dense(cmdp), 4
    joined = np.zeros((2 * n, 2, 2 * n))
    joined[:n, :, :n], joined[n:, :, n:] = moves, moves
    twice = make(
        joined,
        np.tile(cmdp.reward, (2, 1)),
        {name: np.tile(table, (2, 1)) for name, table in cmdp.columns.items()},
        np.concatenate([0.25 * cmdp.initial, 0.75 * cmdp.initial]),
        {name: np.tile(table, (2, 1)) for name, table in cmdp.outcomes.items()},
    )
    assert_same(mixed, evaluate(twice, np.concatenate([random_policy(1, cmdp), random_policy(2, cmdp)]), 6))


def test_mixture_of_the_two_deterministic_policies_is_the_optimum():
    fast, slow = (evaluate(risky_or_safe(), np.array([choice]), None) for choice in ([1.0, 0.0], [0.0, 1.0]))
    optimum = solve(risky_or_safe(), [Bound("crash", 0.04)])
    mixed = mixture([fast, slow], [0.4, 0.6])
    assert (mixed.reward, mixed.values["crash"]) == pytest.approx((optimum.reward, 0.04))


def test_mixture_with_impossible_outcomes_and_endless_policies():
    value = ExactValue(-1.0, 3.0, {"crash": 0.0}, {"goal": 1.0}, 0.0, {"goal": 3.0}, True)
    lost = ExactValue(-np.inf, np.inf, {"crash": 0.0}, {"goal": 0.0}, 0.0, {"goal": np.nan}, False)
    assert mixture([value, lost], [1.0, 0.0]) == value
    half = mixture([value, lost], [0.5, 0.5])
    assert (half.steps, half.reward, half.terminates) == (np.inf, -np.inf, False)
    assert (half.outcomes["goal"], half.steps_given["goal"]) == (0.5, 3.0)
    assert np.isnan(mixture([lost], [1.0]).steps_given["goal"])


# What a user can get wrong


@pytest.fixture
def unchecked(monkeypatch):
    """As users run the package: the tests check shapes before the package can."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reward": [[np.nan, 0.0]]}, "reward holds nan"),
        ({"transitions": [[[-0.1], [0.0]]]}, "transitions holds -0.1"),
        ({"transitions": [[[1.1], [0.0]]]}, "state 0, action 0 sum to 1.3"),
        ({"transitions": [[[0.9], [0.0]]]}, "state 0, action 0 sum to 1.1"),
        ({"initial": [0.5]}, "sum to 0.5"),
        ({"initial": [0.5, 0.5]}, "initial has shape"),
        ({"columns": {"crash": [[0.1]]}}, "column 'crash' has shape"),
        ({"columns": {"crash": [[0.1, -0.2]]}}, "column 'crash' holds -0.2"),
        ({"outcomes": {"goal": [[0.2, np.inf]]}}, "outcome 'goal' holds inf"),
        ({"reward": [[0.0, 0.0]] * 2, "initial": [1.0, 0.0]}, "transitions has shape"),
    ],
)
def test_wrong_tables_are_named(change, words, unchecked):
    right = {"transitions": [[[0.5], [0.0]]], "reward": [[1.0, 2.0]], "outcomes": {"goal": [[0.2, 0.1]]}}
    make(**right)
    wrong = {**right, **change}
    moves = np.asarray(wrong["transitions"], dtype=float)
    with pytest.raises(UsageError, match=words):
        FiniteCMDP(
            csr_array(moves.reshape(-1, moves.shape[-1])),
            np.asarray(wrong["reward"], dtype=float),
            {name: np.asarray(table, dtype=float) for name, table in wrong.get("columns", {}).items()},
            np.asarray(wrong.get("initial", [1.0]), dtype=float),
            {name: np.asarray(table, dtype=float) for name, table in wrong["outcomes"].items()},
        )


def test_single_precision_transitions_are_refused():
    with pytest.raises(UsageError, match="csr_array of float32; give"):
        FiniteCMDP(csr_array(np.zeros((2, 1), dtype=np.float32)), np.zeros((1, 2)), {}, np.ones(1))


def test_wrong_questions_are_answered():
    cmdp = risky_or_safe()
    right = np.array([[0.5, 0.5]])
    with pytest.raises(UsageError, match="did you mean 'crash'"):
        solve(cmdp, [Bound("crsh", 0.1)])
    with pytest.raises(UsageError, match="limit of 'crash <= nan' is nan"):
        solve(cmdp, [Bound("crash", float("nan"))])
    with pytest.raises(UsageError, match=r"discount is 1\.5"):
        solve(cmdp, [], discount=1.5)
    with pytest.raises(UsageError, match="cap is 0"):
        evaluate(cmdp, right, 0)
    with pytest.raises(UsageError, match=r"policy has shape \(1, 3\)"):
        evaluate(cmdp, np.full((1, 3), 1 / 3), None)
    for wrong in ([0.5, 0.4], [1.5, -0.5], [np.nan, 1.0]):
        with pytest.raises(UsageError, match="policy in state 0"):
            evaluate(cmdp, np.array([wrong]), None)
    with pytest.raises(UsageError, match="weights are"):
        mixture([evaluate(cmdp, right, None)], [0.5])
