"""What a user got wrong, said in one sentence."""

import difflib
from collections.abc import Iterable
from typing import final


@final
class UsageError(Exception):
    """A mistake in what the user asked for. The command line prints its sentence and exits with code 2."""


@final
class Stopped(Exception):
    """A run was asked to stop, and has. The command line prints the sentence and exits with the code."""

    def __init__(self, sentence: str, code: int):
        super().__init__(sentence)
        self.code = code


@final
class EnvironmentFault(Exception):
    """An environment raised or hung in the middle of its work. The command line treats it like a mistake of use."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the choice closest to `word`, or the list of choices when none is close."""
    choices = sorted(choices)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; choose one of: {', '.join(choices)}"
