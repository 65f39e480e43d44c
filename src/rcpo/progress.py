"""How far a run has come: all that it goes on from."""

from dataclasses import dataclass
from typing import final

import jax

from rcpo.handover import Candidate
from rcpo.loggers import Record
from rcpo.types import TrainState


@final
@dataclass(frozen=True)
class Progress:
    """A run between two of its points."""

    state: TrainState
    evaluation_key: jax.Array
    """What the next evaluation draws from."""
    records: tuple[Record, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    seconds: float = 0.0
    """How long the run has taken so far."""

    @property
    def iteration(self) -> int:
        return int(self.state.iteration)

    @property
    def faults(self) -> int:
        """How many episodes ended so far because a copy broke down."""
        return self.records[-1]["faults"] if self.records else 0
