"""The commands that take a policy away: `export` and `play`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import final

from tyro.conf import Positional

from rcpo.commands import read
from rcpo.errors import UsageError


@final
@dataclass(frozen=True)
class Export:
    """The policy as an ONNX file: normaliser and action range inside, the constraint card in its metadata."""

    run: Positional[Path]
    """The run's folder."""
    file: Positional[Path]
    """The file to write, such as policy.onnx."""
    component: int | None = None
    """Of a mixture, this network alone; without it, all of them, chosen by a second input."""
    environment: str | None = None
    """Of a run on an environment from a file or a module: that one (my_env.py:MyEnv), for its code to be run."""
    json: bool = False
    """Print one JSON document on standard output."""


def export(words: list[str]) -> int:
    """Write the policy as ONNX."""
    command = read(Export, words, "export")
    from rcpo import export as exporting
    from rcpo.folder import load

    run = load(command.run, command.environment)
    done = exporting.export(run, command.file, command.component)
    if command.json:
        document = {"file": str(done.path), "difference": done.difference, "card": done.card}
        print(json.dumps(document))
        return 0
    print(f"{done.path}: {run.environment_name}, {run.handover.outcome}; on {exporting.CHECKED} observations "
          f"it differs from the run's policy by {done.difference:.2g} at most")  # fmt: skip
    if run.policy.components > 1 and command.component is None:
        weights = ", ".join(f"{weight:.3g}" for weight in done.card["weights"])
        print(f"a mixture: for each episode draw the input `component` with the weights {weights}")
    elif run.policy.components > 1:
        print("note: this is one network of a mixture; the verdict is about the mixture, not about it alone")
    return 0


@final
@dataclass(frozen=True)
class Play:
    """Play episodes and draw them, without a display: a video, an animation or a film strip."""

    run: Positional[Path]
    """The run's folder."""
    video: Path | None = None
    """The file to write: .mp4, .gif or .png (a film strip); without one, play.mp4 in the run's folder."""
    episodes: int = 1
    """How many episodes."""
    gif: bool = False
    """Write an animated GIF instead of an mp4: it needs no ffmpeg."""
    seed: int = 0
    """The seed of the first episode; each further one has the next."""
    deterministic: bool = False
    """Take the likeliest action instead of drawing one."""
    environment: str | None = None
    """Of a run on an environment from a file or a module: that one (my_env.py:MyEnv), for its code to be run."""
    json: bool = False
    """Print one JSON document on standard output."""


def play(words: list[str]) -> int:
    """Play, draw, and say what the episodes were worth."""
    command = read(Play, words, "play")
    if command.seed < 0:
        raise UsageError(f"got the seed {command.seed}; give one that is not negative")
    from rcpo.folder import load

    run = load(command.run, command.environment)
    path = command.video or command.run / "play.mp4"
    path = path.with_suffix(".gif") if command.gif else path
    from rcpo.video import record

    played = record(run, path, command.episodes, command.seed, command.deterministic)
    worth = [
        {
            "steps": one.steps,
            "reward": float(one.reward[-1]),
            "constraints": [
                {"constraint": str(c), "value": float(value)}
                for c, value in zip(run.constraints, one.value[-1], strict=True)
            ],
        }
        for one in played
    ]
    if command.json:
        print(json.dumps({"video": str(path), "episodes": worth}))
        return 0
    for one in played:
        values = zip(run.constraints, one.value[-1], strict=True)
        parts = [f"{one.steps} steps", f"reward {one.reward[-1]:.4g}", *(f"{c.quantity} {v:.4g}" for c, v in values)]
        print(", ".join(parts))
    print(f"written to {path}")
    return 0
