"""What workers have in common: one transactional id, whose incarnations follow one another."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

from tests.nemesis.history import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.nemesis.history import History
    from tests.nemesis.transactions.raw import How, Interruption

ABORTS = 0.2  # of the transactions are aborted by their own client
PATIENCE_S = 120


class Copying:
    """What a copier reads, and where it writes: partition by partition."""

    def __init__(self, group: str, topic: str, into: str, partitions: int) -> None:
        self.group = group
        self.places = [Place(topic, partition) for partition in range(partitions)]
        self.into = into


class Worker:
    """Appends to places, or copies; it is interrupted when it comes to a step."""

    steps: Sequence[str]
    hows: Sequence[How]

    def __init__(
        self,
        name: str,
        history: History,
        bootstrap: str,
        places: Sequence[Place],
        copying: Copying | None,
    ) -> None:
        self.name = name
        self.history = history
        self.bootstrap, self.places, self.copying = bootstrap, places, copying
        self.committed = 0
        self.interruption: Interruption | None = None
        self.struck = 0  # how many interruptions have come about
        self.random = random.Random(name)
        self.is_over = threading.Event()
        self.incarnations = 0

    def start(self) -> None:
        """Starts an incarnation."""
        raise NotImplementedError

    def finish(self, *, abandon: bool = False) -> None:
        """Ends after the transaction that is under way, in order unless that is abandoned."""
        raise NotImplementedError

    @property
    def is_one(self) -> bool:
        """Whether only one incarnation lives: a zombie has met its end."""
        raise NotImplementedError

    def interrupt(self, due: Interruption) -> None:
        """Interrupts it at the next step of that name."""
        self.interruption = due

    def interruption_at(self, step: str) -> How | None:
        """Returns how it is interrupted at a step, if it is; once."""
        due = self.interruption
        if due is None or due.step != step:
            return None
        self.interruption = None
        self.struck += 1
        return due.how
