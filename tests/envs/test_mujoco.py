"""The engine under the robots: threads, random streams, saving, faults, cuts, and robots that are refused."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import mujoco
import numpy as np
import pytest

from rcpo import envs, host
from rcpo.constraints import parse_all
from rcpo.envs.base import Column
from rcpo.envs.mujoco import (
    MujocoCopies,
    MujocoEnvironment,
    Outcome,
    Robot,
    Views,
    largest_force,
    pack_generator,
    read_model,
    sound,
    unpack_generator,
)
from rcpo.envs.settings import RobotSettings
from rcpo.errors import UsageError
from rcpo.types import EnvStep

ARM = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body>
      <joint name="shoulder" type="hinge" axis="0 1 0" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.03" mass="1"/>
    </body>
  </worldbody>
  <actuator>{actuator}</actuator>
</mujoco>
"""
MOTOR = '<motor name="muscle" joint="shoulder" gear="3" ctrlrange="-1 1"/>'


class Arm(Robot):
    """A pendulum with a motor: nothing that it earns or shows depends on the action itself."""

    name, frame_skip, max_steps = "Arm", 2, 30
    columns = (Column("height", "m", "how high its end is above its lowest point"),)

    def __init__(self, xml: Path | str):
        self.xml = xml

    def start(
        self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        qpos += generator.uniform(-0.1, 0.1, size=qpos.shape)  # its own to write into
        return qpos, qvel

    def position(self, views: Views) -> np.ndarray:
        return views.batch.qpos  # the live array itself: the engine must not be misled by that

    def observe(self, views: Views) -> np.ndarray:
        return views.batch.qvel

    def outcome(self, views: Views, action: Any, before: Any, after: Any, seconds: float) -> Outcome:
        reward = (after - before)[:, 0] / seconds
        return Outcome(reward, np.zeros(len(reward), bool), {"height": 0.5 - 0.5 * np.cos(after[:, 0])})


@pytest.fixture
def write_model(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "model.xml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def arm(write_model: Callable[[str], Path]) -> Arm:
    return Arm(write_model(ARM.format(actuator=MOTOR)))


def opened(name: str, copies: int, threads: int = 1, **settings: Any) -> MujocoCopies:
    environment = envs.make(name, RobotSettings(threads=threads, **settings))
    assert isinstance(environment, MujocoEnvironment)
    return environment.open(copies)


def actions_for(copies: MujocoCopies, steps: int, seed: int = 0) -> np.ndarray:
    size = (steps, copies.batch.nsim, copies.batch.model.nu)
    limit = copies.batch.model.actuator_ctrlrange[:, 1]
    return (np.random.default_rng(seed).normal(0.0, 0.8, size) * limit).astype(np.float32)


def drive(copies: MujocoCopies, actions: Sequence[np.ndarray] | np.ndarray) -> EnvStep:
    """The steps that follow, kept and stacked."""
    kept = [jax.tree.map(np.array, copies.step(action)) for action in actions]
    return jax.tree.map(lambda *parts: np.stack(parts), *kept)


def bits(step: EnvStep, copies: slice | list[int] = slice(None)) -> list[bytes]:
    return [leaf[:, copies].tobytes() for leaf in jax.tree.leaves(step)]


@pytest.mark.parametrize("name", ["Hopper-v5", "Ant-v5"])
def test_the_same_bits_whatever_the_number_of_threads(name: str) -> None:
    seen = []
    for threads in (1, 2, 3):
        copies = opened(name, 5, threads)
        assert copies.batch.nthread == threads
        first = copies.reset(7)
        seen.append([first.tobytes(), *bits(drive(copies, actions_for(copies, 60)))])
    assert seen[0] == seen[1] == seen[2]


def test_the_number_of_threads_is_a_setting(arm: Arm) -> None:
    for threads in (1, 2, 3):
        assert MujocoEnvironment(arm, RobotSettings(threads=threads)).open(4).batch.nthread == threads
    assert MujocoEnvironment(arm).open(4).batch.nthread >= 1


def test_the_same_seed_gives_the_same_bits_and_every_copy_its_own() -> None:
    def play(seed: int) -> tuple[np.ndarray, list[bytes]]:
        copies = opened("Hopper-v5", 4)
        first = copies.reset(seed).copy()
        return first, bits(drive(copies, actions_for(copies, 80)))

    (first, steps), again, other = play(3), play(3), play(4)
    np.testing.assert_array_equal(first, again[0])
    assert steps == again[1]
    assert not np.any(first == other[0])
    assert len({row.tobytes() for row in first}) == 4
    # Four copies of a batch are the first four of a larger one: nobody's stream depends on who else is there.
    np.testing.assert_array_equal(opened("Hopper-v5", 6).reset(3)[:4], first)


def test_a_reset_begins_anew_whatever_happened_before() -> None:
    copies = opened("Ant-v5", 3)
    first, actions = copies.reset(5).copy(), actions_for(copies, 30)
    before = bits(drive(copies, actions))
    copies.batch.qpos[1] = np.nan
    copies.step(actions[0])
    assert copies.faults == 1
    np.testing.assert_array_equal(copies.reset(5), first)
    assert copies.faults == 0
    assert bits(drive(copies, actions)) == before


@pytest.mark.parametrize("name", ["Hopper-v5", "HalfCheetah-v5", "Ant-v5"])
def test_what_is_saved_goes_on_to_the_bit(name: str, tmp_path: Path) -> None:
    settings = {"max_steps": 25}
    copies = opened(name, 4, **settings)
    copies.reset(3, spread=True)
    actions = actions_for(copies, 120)
    drive(copies, actions[:60])
    copies.batch.qvel[2] = np.nan
    drive(copies, actions[60:61])
    saved = copies.save()
    assert all(type(part) is np.ndarray and part.dtype != object for part in saved.values())
    np.savez(tmp_path / "saved.npz", **saved)  # type: ignore[arg-type]
    seen = np.array(copies._obs)
    after = drive(copies, actions[61:])
    assert (after.terminated | after.truncated).sum() >= 8, "random starts are drawn on the way"
    kept = dict(np.load(tmp_path / "saved.npz", allow_pickle=False))
    for key, part in kept.items():
        np.testing.assert_array_equal(saved[key], part, err_msg="what was saved changed on the way")
    fresh = opened(name, 4, threads=2, **settings)
    for other in (fresh, copies):
        np.testing.assert_array_equal(other.restore(kept), seen)
        assert other.faults == 1
        assert bits(drive(other, actions[61:])) == bits(after)
        assert other.faults == 1


@pytest.mark.parametrize("other", [("Hopper-v5", 3), ("Hopper-v5", 1), ("Ant-v5", 2)])
def test_what_does_not_fit_is_not_restored(other: tuple[str, int]) -> None:
    saved = opened("Hopper-v5", 2).save()
    with pytest.raises(UsageError) as refused:
        opened(*other).restore(saved)
    assert str(saved["state"].shape) in str(refused.value)
    assert other[0] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_random_stream_is_packed_whole() -> None:
    generator = np.random.default_rng(9)
    # Half of a word is left over from this, and is drawn next.
    generator.integers(10, size=3, dtype=np.uint32)
    packed = pack_generator(generator)
    assert packed.dtype == np.uint64
    other = np.random.default_rng(1)
    unpack_generator(other, packed)

    def draws(one: np.random.Generator) -> list[Any]:
        return [one.integers(2**31, dtype=np.uint32), one.random(), one.standard_normal(5).tolist(), one.bytes(7)]

    assert draws(generator) == draws(other)


def test_spread_cuts_the_first_episodes_at_different_steps() -> None:
    copies = opened("HalfCheetah-v5", 32, max_steps=40)
    first = copies.reset(3).copy()
    together = drive(copies, actions_for(copies, 80))
    assert np.flatnonzero(together.truncated.all(axis=1)).tolist() == [39, 79]
    assert together.truncated.sum() == 64
    np.testing.assert_array_equal(copies.reset(3, spread=True), first)
    spread = drive(copies, actions_for(copies, 80))
    cuts = [np.flatnonzero(spread.truncated[:, n]).tolist() for n in range(32)]
    begun = [steps[0] for steps in cuts]
    assert all(steps == list(range(steps[0], 80, 40)) for steps in cuts), "after the first, episodes are whole"
    assert min(begun) < 8 and max(begun) > 31 and len(set(begun)) > 15
    assert not spread.faulty.any()


def break_state(field: str, value: float) -> Callable[[MujocoCopies, np.ndarray, int], None]:
    def do(copies: MujocoCopies, action: np.ndarray, copy: int) -> None:
        getattr(copies.batch, field)[copy] = value

    return do


def break_action(copies: MujocoCopies, action: np.ndarray, copy: int) -> None:
    action[copy] = np.nan


BREAKS = {
    "qpos is no number": break_state("qpos", np.nan),
    "qpos is infinite": break_state("qpos", np.inf),
    "qvel is huge": break_state("qvel", 1e30),
    "qvel is huge to the last digit": break_state("qvel", 1e300),
    "the action is no number": break_action,
}


@pytest.mark.parametrize("kind", BREAKS)
@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Hopper-v5", "Ant-v5", "Humanoid-v5"])
@pytest.mark.filterwarnings("error")
def test_a_copy_that_breaks_down_is_marked_and_begins_again(name: str, kind: str) -> None:
    broken, at = 1, 9
    copies = opened(name, 3, max_steps=16)
    begun = copies.reset(3).copy()
    actions = actions_for(copies, 30) * 0.1
    sound_run = drive(copies, actions)
    np.testing.assert_array_equal(copies.reset(3), begun)
    before = drive(copies, actions[:at])
    spoilt = actions[at].copy()
    BREAKS[kind](copies, spoilt, broken)
    fault = drive(copies, [spoilt])
    after = drive(copies, actions[at + 1 :])
    run = jax.tree.map(lambda *parts: np.concatenate(parts), before, fault, after)

    assert not sound_run.faulty.any()
    assert np.argwhere(run.faulty).tolist() == [[at, broken]]
    assert copies.faults == 1
    assert run.truncated[at, broken] and not run.terminated[at, broken]
    assert run.reward[at, broken] == 0.0
    assert not run.costs[at, broken].any()
    np.testing.assert_array_equal(run.next_obs[at, broken], run.obs[at - 1, broken], err_msg="the last sound view")
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run))
    others = [n for n in range(3) if n != broken]
    assert bits(run, others) == bits(sound_run, others)
    # The new episode starts as one does, with what the copy's own stream draws next, and lasts as long as one does.
    other = opened(name, 3, max_steps=16)
    other.reset(3)
    other._restart(np.array([broken]))
    np.testing.assert_array_equal(run.obs[at, broken], other._robot.observe(other._views)[broken])
    assert not run.truncated[at + 1 : at + 16, broken].any()
    assert run.truncated[at + 16, broken] or run.terminated[at + 1 : at + 17, broken].any()
    action_change = envs.make(name).spec.column_names.index("action_change")
    assert run.costs[at + 1, broken, action_change] == 0.0


def test_an_action_that_is_no_number_is_a_fault_even_where_nothing_depends_on_it(arm: Arm) -> None:
    copies = MujocoEnvironment(arm).open(2)
    copies.reset(0)
    for t in range(3):  # also on the first step of an episode
        step = copies.step(np.array([[0.5], [np.nan]]))
        assert np.asarray(step.faulty).tolist() == [False, True]
        assert copies.faults == t + 1
    assert np.asarray(copies.step(np.full((2, 1), 0.5)).faulty).tolist() == [False, False]


def test_an_infinite_action_is_the_largest_one(arm: Arm) -> None:
    """It is clipped, as every action is."""
    seen = []
    for largest in (1.0, np.inf):
        copies = MujocoEnvironment(arm).open(1)
        copies.reset(0)
        seen.append(bits(drive(copies, np.full((5, 1, 1), largest))))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("spoil", ["observe", "reward", "cost"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e39])
def test_a_formula_that_gives_no_number_is_a_fault(arm: Arm, spoil: str, value: float) -> None:
    """Also a number that the learner's single precision cannot hold."""

    class Spoilt(Arm):
        now = False

        def observe(self, views: Views) -> np.ndarray:
            obs = views.batch.qvel.copy()
            obs[1] = value if self.now and spoil == "observe" else obs[1]
            return obs

        def outcome(self, *given: Any) -> Outcome:
            reward, terminated, costs = Arm.outcome(self, *given)
            for what, array in (("reward", reward), ("cost", costs["height"])):
                array[1] = value if self.now and spoil == what else array[1]
            terminated[1] = self.now
            return Outcome(reward, terminated, costs)

    robot = Spoilt(arm.xml)
    copies = MujocoEnvironment(robot).open(3)
    copies.reset(0)
    copies.step(np.zeros((3, 1)))
    robot.now = True
    step = jax.tree.map(np.array, copies.step(np.ones((3, 1))))
    assert step.faulty.tolist() == step.truncated.tolist() == [False, True, False]
    assert not step.terminated.any(), "what the robot says of it means nothing either"
    assert all(np.isfinite(step.next_obs).all(axis=1)) and step.reward[1] == 0.0 and not step.costs[1].any()


def test_an_error_that_mujoco_raises_in_one_copy_is_a_fault(arm: Arm, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = MujocoEnvironment(arm).open(3)
    copies.reset(0)
    real = copies.batch.step

    def failing(nstep: int) -> None:
        real(ids=[0, 1], nstep=nstep)
        raise mujoco.batch.SimulationError(np.array([2]), "no memory left")

    monkeypatch.setattr(copies.batch, "step", failing)
    step = copies.step(np.ones((3, 1)))
    assert np.asarray(step.faulty).tolist() == [False, False, True]
    monkeypatch.undo()
    assert not np.asarray(copies.step(np.ones((3, 1))).faulty).any()


def test_a_broken_episode_does_not_count_and_all_that_is_collected_is_finite() -> None:
    environment = envs.make("Hopper-v5", RobotSettings(max_steps=12))
    assert isinstance(environment, MujocoEnvironment)
    spec, copies = environment.spec, environment.open(3)
    constraints = parse_all(["mean(torque) <= 0.5", "P(fall) <= 0.1"], spec.column_names)
    worker = host.begin((copies,), spec, constraints, seed=4, spread=False)
    noise = np.random.default_rng(0).normal(0.0, 0.05, size=(30, 3, 3)).astype(np.float32)
    elapsed = iter(range(30))

    def act(obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        assert np.isfinite(obs).all()
        t = next(elapsed)
        if t == 5:
            copies.batch.qpos[1] = np.nan
        if t == 7:
            copies.batch.qvel[2] = 1e30
        return noise

    worker, rollout = host.collect((copies,), spec, constraints, act, noise, worker)
    steps = jax.tree.map(np.asarray, rollout)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((steps, jax.tree.map(np.asarray, worker))))
    assert np.argwhere(steps.truncated).tolist() == [[5, 1], [7, 2], [11, 0], [17, 1], [19, 2], [23, 0], [29, 1]]
    assert np.argwhere(steps.episode.counted).tolist() == [[11, 0], [17, 1], [19, 2], [23, 0], [29, 1]]
    assert np.all(steps.episode.length[steps.episode.counted] == 12)
    assert copies.faults == 2
    assert rollout.reward[5, 1] == rollout.reward[7, 2] == 0.0


@pytest.mark.parametrize("threads", [1, 2])
def test_a_simulation_that_diverges_by_itself_leaves_no_log(
    threads: int, write_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spring so stiff that no time step of this length can follow it."""
    stiff = ARM.replace('damping="0.1"', 'stiffness="1e9"').format(actuator=MOTOR)
    robot = Arm(write_model(stiff.replace('timestep="0.01"', 'timestep="0.01" integrator="RK4"')))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    copies = MujocoEnvironment(robot, RobotSettings(threads=threads)).open(4)
    copies.reset(0)
    run = drive(copies, np.ones((20, 4, 1)))
    assert copies.faults == run.faulty.sum() >= 4
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run))
    assert list(work.iterdir()) == []


def test_live_arrays_do_not_mislead(arm: Arm) -> None:
    """The arm shows MuJoCo's own arrays; beside it a simulation by hand."""
    copies = MujocoEnvironment(arm).open(2)
    before = copies.reset(3).copy()
    model = read_model(arm)
    data = mujoco.MjData(model)
    generator = np.random.default_rng(np.random.SeedSequence(3).spawn(3)[0])
    data.qpos[:] = generator.uniform(-0.1, 0.1, size=1)
    assert before[0] == data.qvel == 0.0
    for t in range(75):
        action = np.sin(0.1 * t)
        angle, data.ctrl[:] = data.qpos[0], action
        mujoco.mj_step(model, data, nstep=2)
        step = copies.step(np.full((2, 1), action))
        assert step.reward[0] == (data.qpos[0] - angle) / 0.02
        assert step.next_obs[0] == data.qvel[0]
        height = 0.5 - 0.5 * np.cos(data.qpos[0])
        np.testing.assert_allclose(step.costs[0], [abs(action), action**2, step.costs[0, 2], height], rtol=1e-9)
        assert bool(step.truncated[0]) == (t % 30 == 29)
        if step.truncated[0]:
            mujoco.mj_resetData(model, data)
            data.qpos[:] = generator.uniform(-0.1, 0.1, size=1)
            assert step.obs[0] == 0.0
        else:
            assert step.obs[0] == step.next_obs[0]


ACTUATORS = {
    "a motor, whose gear is the joint's matter": ('<motor joint="shoulder" gear="200" ctrlrange="-1 1"/>', 1.0),
    "a motor with a lopsided range": ('<motor joint="shoulder" gear="5" ctrlrange="-2 1"/>', 2.0),
    "a gain": ('<general joint="shoulder" gainprm="50" ctrlrange="-0.4 0.4"/>', 20.0),
    "a gain that pulls": ('<general joint="shoulder" gainprm="-50" ctrlrange="-0.4 0.4"/>', 20.0),
    "a motor that the force range stops short": (
        '<motor joint="shoulder" ctrlrange="-3 3" forcerange="-2 2"/>',
        2.0,
    ),
    "a motor that never gets to its force range": (
        '<motor joint="shoulder" ctrlrange="-3 3" forcerange="-100 100"/>',
        3.0,
    ),
    "a smoothed motor": (
        '<general joint="shoulder" gainprm="4" dyntype="filter" dynprm="0.02" ctrlrange="-1 1"/>',
        4.0,
    ),
    "a position": ('<position joint="shoulder" kp="400" ctrlrange="-1 1" forcerange="-5 3"/>', 5.0),
    "a velocity": ('<velocity joint="shoulder" kv="400" ctrlrange="-8 8" forcerange="-7 7"/>', 7.0),
}


@pytest.mark.parametrize("kind", ACTUATORS)
def test_the_largest_force_of_an_actuator(kind: str, write_model: Callable[[str], Path]) -> None:
    """Beside what simulations find: no action gives more, and some action gives as much."""
    actuator, expected = ACTUATORS[kind]
    robot = Arm(write_model(ARM.format(actuator=actuator)))
    model = read_model(robot)
    assert largest_force(model).tolist() == [expected]
    data, found = mujoco.MjData(model), 0.0
    for t in range(400):
        data.ctrl[:] = model.actuator_ctrlrange[0, (t // 40) % 2]
        mujoco.mj_step(model, data)
        found = max(found, abs(float(data.actuator_force[0])))
    assert found == pytest.approx(expected, rel=1e-6)
    copies = MujocoEnvironment(robot).open(1)
    copies.reset(0)
    ends = [np.full((1, 1), model.actuator_ctrlrange[0, (t // 20) % 2]) for t in range(200)]
    assert drive(copies, ends).costs[:, 0, 0].max() == pytest.approx(1.0, rel=1e-6)


REFUSED = {
    "no actuators": ("", ["no actuators"]),
    "no ctrlrange": ('<motor joint="shoulder"/>', ["ctrlrange"]),
    "one of two without": (MOTOR + '<motor joint="shoulder"/>', ["ctrlrange"]),
    "a position without forcerange": (
        '<position name="servo" joint="shoulder" ctrlrange="-1 1"/>',
        ["'servo'", "no plain motor", "forcerange"],
    ),
    "an integrator without forcerange": (
        MOTOR + '<intvelocity joint="shoulder" ctrlrange="-1 1" actrange="-1 1"/>',
        ["'number 2'", "forcerange"],
    ),
    "no gain": ('<general name="idle" joint="shoulder" gainprm="0" ctrlrange="-1 1"/>', ["'idle'", "no force"]),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_model_that_cannot_serve_is_refused_in_one_sentence(kind: str, write_model: Callable[[str], Path]) -> None:
    actuator, words = REFUSED[kind]
    check_refused(lambda: MujocoEnvironment(Arm(write_model(ARM.format(actuator=actuator)))).open(1), words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<mujoco><worldbody>", ["cannot read", "model.xml"]),
        ("what is this", ["cannot read", "model.xml"]),
        ("<mujoco><worldbody><body><joint/></body></worldbody></mujoco>", ["cannot read", "model.xml"]),
        (ARM.format(actuator='<motor joint="knee" ctrlrange="-1 1"/>'), ["cannot read", "knee"]),
        (
            ARM.format(actuator='<motor joint="shoulder" ctrllimited="true" ctrlrange="1 -1"/>'),
            ["cannot read", "range"],
        ),
    ],
)
def test_a_file_that_is_no_model_is_refused_in_one_sentence(
    text: str, words: list[str], write_model: Callable[[str], Path]
) -> None:
    check_refused(lambda: MujocoEnvironment(Arm(write_model(text))).open(1), words)


def check_refused(do: Callable[[], object], words: Sequence[str]) -> None:
    with pytest.raises(UsageError) as refused:
        do()
    assert "\n" not in str(refused.value)
    for word in words:
        assert word in str(refused.value)


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.xml", tmp_path, str(tmp_path / "missing.xml")):
        check_refused(lambda path=path: MujocoEnvironment(Arm(path)).open(1), ["'Arm'", str(path), "no file"])  # type: ignore[misc]


def test_a_path_may_be_text(arm: Arm) -> None:
    assert MujocoEnvironment(Arm(str(arm.xml))).spec.observation_shape == (1,)


def test_bad_numbers_are_refused_in_one_sentence(arm: Arm) -> None:
    environment = MujocoEnvironment(arm)
    check_refused(lambda: environment.open(0), ["0 copies", "Arm", "at least 1"])
    check_refused(lambda: environment.open(-2), ["-2 copies"])
    check_refused(lambda: RobotSettings(max_steps=-1), ["-1 steps", "at least 1"])
    check_refused(lambda: RobotSettings(threads=-3), ["-3 threads"])
    for scale in (0.0, -1.0, float("inf"), float("nan")):
        check_refused(lambda scale=scale: RobotSettings(reward_scale=scale), [f"{scale:g}", "finite", "above 0"])  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"frame_skip": 0}, ["0 physics steps", "at least 1"]),
        ({"columns": ()}, ["['height']", "[]"]),
        ({"columns": (Column("depth", "m", ""),)}, ["['height']", "['depth']"]),
        ({"columns": (*Arm.columns, *Arm.columns)}, ["two cost columns", "height, height"]),
        ({"columns": (Column("torque", "", ""),)}, ["two cost columns", "torque"]),
        ({"observe": lambda views: views.batch.qvel[:, 0]}, ["observe", "(3,)", "2 axes"]),
        ({"observe": lambda views: views.batch.qvel[:1]}, ["observe", "(1, 1)", "3 copies"]),
        ({"position": lambda views: 0.0}, ["position", "()", "2 axes"]),
    ],
)
def test_a_robot_whose_formulas_do_not_fit_is_refused(arm: Arm, changes: dict[str, Any], words: list[str]) -> None:
    for name, value in changes.items():
        setattr(arm, name, value)
    check_refused(lambda: MujocoEnvironment(arm).open(3), ["Arm", *words])


def test_what_is_known_of_a_robot(arm: Arm) -> None:
    spec = MujocoEnvironment(arm, RobotSettings(max_steps=8)).spec
    assert (spec.name, spec.max_steps, spec.outputs, spec.observation_shape) == ("Arm", 8, 1, (1,))
    assert spec.column_names == ("torque", "energy", "action_change", "height")
    assert MujocoEnvironment(arm).spec.max_steps == 30


@pytest.mark.filterwarnings("error")
def test_two_huge_numbers_do_not_cancel_out(arm: Arm) -> None:
    class Wide(Arm):
        huge = 0.0

        def observe(self, views: Views) -> np.ndarray:
            moving = views.qvel != 0.0  # not yet at the start of an episode
            return np.where(moving, self.huge, 0.0) * np.array([[0.0, 0.0], [1e8, -1e8]])

    robot = Wide(arm.xml)
    copies = MujocoEnvironment(robot).open(2)
    copies.reset(0)
    for robot.huge, broken in ((1e1, False), (1e3, True), (1e31, True), (1e302, True)):
        step = jax.tree.map(np.array, copies.step(np.zeros((2, 1))))
        assert step.faulty.tolist() == [False, broken]


def test_sound_numbers() -> None:
    numbers = np.array([0.0, -1e10, 1e10, 1.1e10, -1e39, np.inf, -np.inf, np.nan])
    assert sound(numbers).tolist() == [True, True, True, False, False, False, False, False]
