"""The commands. Each is a dataclass whose fields are its options; what is heavy is imported when a command runs."""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

from rcpo import __version__
from rcpo.errors import EnvironmentFault, Stopped, UsageError, nearest

COMMANDS: Final = {
    "train": "train a policy that keeps a promise",
    "resume": "go on with a run exactly where it stopped",
    "evaluate": "fresh episodes of a run's policy: reward, every constraint with its interval, the verdict",
    "report": "one HTML page about a run, or about several side by side",
    "watch": "the same page while a run goes on, on this machine alone",
    "solve": "the exact optimum of a finite environment under constraints",
    "envs": "the environments, their cost columns and spaces",
    "bench": "speed on this machine: environment alone, learner alone, end to end",
    "export": "the policy as an ONNX file, with its constraint card",
    "play": "episodes of a run's policy as a video, an animation or a film strip",
    "paper": "the paper's experiments: figure1, figure2, theory",
}
HOMES: Final = {
    "report": "commands_report",
    "watch": "commands_report",
    "solve": "commands_look",
    "envs": "commands_look",
    "bench": "commands_look",
    "export": "commands_export",
    "play": "commands_export",
    "paper": "commands_look",
}
"""The module that holds a command, where it is not `commands`."""
OVERVIEW: Final = """usage: rcpo COMMAND [OPTIONS]

Reinforcement learning that keeps a promise: reward constrained policy optimisation.

{commands}

rcpo COMMAND --help lists a command's options. Try:
  rcpo train mars-rover --constraint "P(crash) <= 0.01"
"""
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; a mistake of the user's is one sentence and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except (UsageError, EnvironmentFault) as error:
        print(f"rcpo: {error}", file=sys.stderr)
        code = 2
    except Stopped as stopped:
        print(f"rcpo: {stopped}", file=sys.stderr)
        code = stopped.code
    except KeyboardInterrupt:
        print("rcpo: stopped", file=sys.stderr)
        code = INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain once more while closing it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        width = max(map(len, COMMANDS))
        print(
            OVERVIEW.format(commands="\n".join(f"  {name:{width}}  {text}" for name, text in COMMANDS.items())), end=""
        )
        return 0
    if words[0] in ("-V", "--version"):
        print(f"rcpo {__version__}")
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        raise UsageError(f"unknown command {name!r}{nearest(name, COMMANDS)}")
    commands = importlib.import_module(f"rcpo.{HOMES.get(name, 'commands')}")
    run: Callable[[list[str]], int] = getattr(commands, name)
    return run(rest)
