"""Pictures of a run's policy at work: videos, animated GIFs and film strips, without a display.

Robots are drawn by MuJoCo in a process of its own, through EGL or OSMesa, whichever works here.
"""

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

from rcpo.envs.mars_rover import MarsRover
from rcpo.envs.mujoco import MujocoEnvironment
from rcpo.errors import EnvironmentFault, UsageError
from rcpo.export import need
from rcpo.files import write_atomically
from rcpo.playing import Played, play, rover

if TYPE_CHECKING:
    from rcpo.run import Run

Picture = UInt8[np.ndarray, "_ _ 3"]
BACKENDS: Final = ("egl", "osmesa")
WIDTH, HEIGHT, LINE = 480, 360, 18
PROBE_SECONDS = 60.0
"""Drawing that takes longer than this for one small picture hangs."""
FRAMES_PER_SECOND, GIF_FRAMES = 30.0, 150
"""The most that a video shows; and into how many frames an episode goes at most in a GIF, which holds them all."""
INK, PAPER, KEPT, BROKEN = (34, 38, 46), (250, 250, 250), (0, 130, 90), (200, 50, 30)
NEEDS_FFMPEG: Final = "an .mp4, unlike a .gif or a .png,"
WORKER: Final = Path(__file__).with_name("render_worker.py")
TINY: Final = '<mujoco><worldbody><geom size="1"/></worldbody></mujoco>'


@cache
def backend() -> str | None:
    """What draws MuJoCo's models here without a display; None where nothing does. Tried in processes of their own."""
    asked = os.environ.get("MUJOCO_GL")
    with tempfile.TemporaryDirectory() as folder:
        model, positions = Path(folder, "tiny.xml"), Path(folder, "positions.npy")
        model.write_text(TINY)
        np.save(positions, np.zeros((1, 0)))
        for name in [asked] if asked else BACKENDS:
            command = _command(model, positions, 16, 16)
            try:
                answer = subprocess.run(
                    command, env=_environ(name), capture_output=True, timeout=PROBE_SECONDS, check=False
                )
            except subprocess.TimeoutExpired:
                continue
            if answer.returncode == 0 and len(answer.stdout) == 16 * 16 * 3:
                return name
    return None


def _command(model: Path | str, positions: Path, width: int, height: int) -> list[str]:
    # -P: or the folder of this file comes first where modules are looked for, and hides Python's own `types`.
    return [sys.executable, "-P", str(WORKER), str(model), str(positions), str(width), str(height)]


def _environ(name: str) -> dict[str, str]:
    return {**os.environ, "MUJOCO_GL": name}


def pictures(run: "Run", states: Sequence[Any]) -> Iterator[Picture]:
    """One picture of each state."""
    if isinstance(run.environment, MujocoEnvironment):
        yield from _robot_pictures(run.environment, np.stack(states))
    elif isinstance(run.environment, MarsRover):
        world = rover(run.environment)
        for state in states:
            world.state = int(state)
            drawn = world.render()
            assert drawn is not None
            yield drawn
    else:
        yield from states


def _robot_pictures(environment: MujocoEnvironment, qpos: np.ndarray) -> Iterator[Picture]:
    name = backend()
    if name is None:
        asked = os.environ.get("MUJOCO_GL")
        tried = f"MUJOCO_GL={asked} does" if asked else "neither EGL nor OSMesa works"
        raise UsageError(f"a robot cannot be drawn here: {tried}{' not work' if asked else ''}; install a driver "
                         "for one of them (Mesa's libegl1 or libosmesa6), or draw on another machine")  # fmt: skip
    size = WIDTH * HEIGHT * 3
    with tempfile.TemporaryDirectory() as folder:
        positions, errors = Path(folder, "positions.npy"), Path(folder, "errors")
        np.save(positions, qpos)
        with errors.open("wb") as said:
            command = _command(environment.robot.xml, positions, WIDTH, HEIGHT)
            worker = subprocess.Popen(command, env=_environ(name), stdout=subprocess.PIPE, stderr=said)
        assert worker.stdout is not None
        try:
            for i in range(len(qpos)):
                data = worker.stdout.read(size)
                if len(data) < size:
                    last = (errors.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
                    raise UsageError(f"drawing stopped after {i} of {len(qpos)} pictures ({name}): {last}")
                yield np.frombuffer(data, np.uint8).reshape(HEIGHT, WIDTH, 3)
        finally:
            worker.stdout.close()
            worker.kill()
            worker.wait()


def labelled(run: "Run", played: Played, index: int, picture: Picture) -> Picture:
    """The picture with what was earned and paid so far below it: green where the limit is kept, red where it is not."""
    height, width = picture.shape[:2]
    lines = [(f"step {index}   reward {played.reward[index]:.4g}", INK)]
    for k, constraint in enumerate(run.constraints):
        value = float(played.value[index, k])
        sign, colour = (">=" if constraint.at_least else "<="), (KEPT if constraint.excess(value) <= 0 else BROKEN)
        lines.append((f"{constraint.quantity} {value:.4g} {sign} {constraint.limit:g}", colour))
    rows = height + LINE * len(lines) + 8
    sheet = Image.new("RGB", (width + width % 2, rows + rows % 2), PAPER)  # H.264 wants even sides
    sheet.paste(Image.fromarray(picture), (0, 0))
    draw = ImageDraw.Draw(sheet)
    for i, (text, colour) in enumerate(lines):
        draw.text((8, height + 3 + LINE * i), text, fill=colour, font=ImageFont.load_default(14))
    return np.asarray(sheet)


def frames(run: "Run", played: Played, indices: Sequence[int]) -> Iterator[Picture]:
    """Labelled pictures of some moments of an episode."""
    drawn = pictures(run, [played.states[i] for i in indices])
    for index, picture in zip(indices, drawn, strict=True):
        yield labelled(run, played, index, picture)


def record(
    run: "Run", path: str | Path, episodes: int = 1, seed: int = 0, deterministic: bool = False
) -> tuple[Played, ...]:
    """Play episodes and write them as a video (.mp4), an animation (.gif) or a film strip (.png)."""
    path = Path(path)
    if path.suffix not in WRITERS:
        raise UsageError(f"got {path.name!r}; give a file that ends in {', '.join(WRITERS)}")
    if episodes < 1:
        raise UsageError(f"got {episodes} episodes; give at least 1")
    if path.suffix == ".mp4":
        need("imageio_ffmpeg", "video", NEEDS_FFMPEG)  # before anything is played
    played = tuple(play(run, seed + i, deterministic) for i in range(episodes))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[path.suffix](run, played, path)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror or error}; give another path") from None
    return played


def _pace(played: Played, most: float) -> tuple[int, float]:
    """Every how many steps a frame is drawn, and how many frames a second then show it as fast as it was."""
    if played.seconds == 0.0:
        return 1, min(10.0, most)
    every = max(1, round(1.0 / (most * played.seconds)))
    return every, 1.0 / (every * played.seconds)


def _write_mp4(run: "Run", episodes: Sequence[Played], path: Path) -> None:
    every, rate = _pace(episodes[0], FRAMES_PER_SECOND)
    shown = (frames(run, played, range(0, played.steps + 1, every)) for played in episodes)
    _encode(chain.from_iterable(shown), rate, path)


def _encode(shown: Iterator[Picture], rate: float, path: Path) -> None:
    """Through the ffmpeg that comes inside imageio-ffmpeg."""
    ffmpeg = need("imageio_ffmpeg", "video", NEEDS_FFMPEG).get_ffmpeg_exe()
    first = next(shown)
    height, width = first.shape[:2]
    unfinished = path.with_name(path.name + ".part")
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{rate:g}", "-i", "-"]
    target = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", str(unfinished)]
    with tempfile.TemporaryFile() as said:
        command = [ffmpeg, "-y", "-loglevel", "error", *source, *target]
        encoder = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=said)
        assert encoder.stdin is not None
        try:
            for picture in chain([first], shown):
                encoder.stdin.write(np.ascontiguousarray(picture).tobytes())
            encoder.stdin.close()
            if encoder.wait():
                said.seek(0)
                raise OSError(said.read().decode(errors="replace").strip().splitlines()[-1])
            unfinished.replace(path)
        finally:
            encoder.kill()
            encoder.wait()
            unfinished.unlink(missing_ok=True)


def _write_gif(run: "Run", episodes: Sequence[Played], path: Path) -> None:
    images: list[Image.Image] = []
    rate = 10.0
    for played in episodes:
        every, rate = _pace(played, 15.0)
        more = -(-(played.steps // every + 1) // GIF_FRAMES)  # a long episode is shown in larger steps, and faster
        chosen = range(0, played.steps + 1, every * more)
        images += [Image.fromarray(picture).quantize(64) for picture in frames(run, played, chosen)]
    buffer = io.BytesIO()
    images[0].save(buffer, "GIF", save_all=True, append_images=images[1:], duration=round(1000 / rate), loop=0)
    write_atomically(path, buffer.getvalue())


def _write_strip(run: "Run", episodes: Sequence[Played], path: Path) -> None:
    write_atomically(path, strip(run, episodes[0], 8))


WRITERS: Final = {".mp4": _write_mp4, ".gif": _write_gif, ".png": _write_strip}


def strip(run: "Run", played: Played, count: int) -> bytes:
    """Moments of an episode, evenly spread, in rows of at most four, as a PNG."""
    chosen = sorted({round(i) for i in np.linspace(0, played.steps, count)})
    drawn = list(frames(run, played, chosen))
    columns = -(-len(drawn) // -(-len(drawn) // 4))
    blank = np.full_like(drawn[0], PAPER)
    drawn += [blank] * (-len(drawn) % columns)
    rows = [np.concatenate(drawn[i : i + columns], axis=1) for i in range(0, len(drawn), columns)]
    return _png(np.concatenate(rows, axis=0))


def _png(picture: np.ndarray) -> bytes:
    """In 256 colours: a third of the bytes, and nobody sees which."""
    buffer = io.BytesIO()
    Image.fromarray(picture).quantize(256).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def film_strip(run: "Run", frames: int = 6, seed: int = 0) -> bytes | None:
    """A film strip of one episode as a PNG; None where this environment has no picture, or nothing draws it here."""
    try:
        return strip(run, play(run, seed), frames)
    except (UsageError, EnvironmentFault):
        return None
