"""What all clients of a run have in common: a thread, and an end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.nemesis.history import Failed

if TYPE_CHECKING:
    from tests.nemesis.history import History

_ABANDONED_S = 1


class Client:
    """A client in a thread of its own; what it raises is a problem."""

    patience_s: float = 60  # for its end

    def __init__(self, name: str, history: History) -> None:
        self.name = name
        self.history = history
        self.is_over = threading.Event()
        self.is_abandoned = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def finish(self, *, abandon: bool = False) -> None:
        """Ends, after what is under way unless that is abandoned."""
        self.is_abandoned = abandon
        self.is_over.set()
        if self._thread.ident is None:
            return
        self._thread.join(_ABANDONED_S if abandon else self.patience_s)
        if self._thread.is_alive() and not abandon:
            self.history.add(Failed(self.name, "it does not end"))

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.history.add(Failed(self.name, repr(error)))

    def work(self) -> None:
        """Works until `is_over`."""
        raise NotImplementedError
