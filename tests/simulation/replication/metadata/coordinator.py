"""The coordinator as brokers see it: the product's store in memory, with every fault.

A request may be lost, its answer may be lost, and it may be applied long after its sender has given
up. Changes come late, and old ones are compacted away. Without quorum nothing is answered and no
lease ends; afterwards every lease has its whole time again, as with etcd. All leases may also end
at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.replication.network.network import COORDINATOR
from tidelog.broker.metadata.memory import MemoryState
from tidelog.broker.metadata.store import CompactedError, LeaseEndedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.replication.network.network import Network
    from tests.simulation.replication.timeline import Timeline
    from tidelog.broker.metadata.store import Change

CHECK_MS = 500  # how often leases are looked at
UNKNOWN = "unknown"
LEASE_ENDED = "lease ended"


class Pushed(NamedTuple):
    """Changes after a revision, in order and whole."""

    after: int
    changes: list[Change]


class Coordinator:
    """A store, and what is wrong with it."""

    def __init__(self, timeline: Timeline, network: Network) -> None:
        pick = timeline.random
        self.timeline = timeline
        self.network = network
        self.store = MemoryState(
            kept_revisions=pick.choice([3, 30, 1_000]),
            now_ms=self._lease_time,
            on_change=self._changed,
        )
        self.on_change: Callable[[], None] = lambda: None
        self.watchers: dict[int, Callable[[Pushed], None]] = {}
        self.pushed: dict[int, int] = {}
        self.lag_ms = pick.choice([5, 50, 500])
        self.usually_forgets = pick.choice([0.0, 0.0, 0.1, 0.4])
        self.forgets_answers = self.usually_forgets
        self.quorum_lost_since: int | None = None
        self._lost_ms = 0
        self._applied: dict[int, bool] = {}
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._requests = 0
        timeline.every(CHECK_MS, self._end_leases)

    # --- what brokers ask -------------------------------------------------------------------------

    def ask(
        self,
        broker: int,
        call: Callable[[MemoryState], Any],
        reply: Callable[[Any], None],
        timeout_ms: int,
    ) -> None:
        """Makes a call on the store; `reply` gets its result, or UNKNOWN after the timeout."""
        self._requests += 1
        request = self._requests
        is_open = [True]

        def answer(result: Any) -> None:
            if is_open.pop() if is_open else False:
                reply(result)

        self.network.send(broker, COORDINATOR, self._serve, request, broker, call, answer)
        self.timeline.after(timeout_ms, answer, UNKNOWN)

    def _serve(
        self,
        request: int,
        broker: int,
        call: Callable[[MemoryState], Any],
        answer: Callable[[Any], None],
    ) -> None:
        if self.quorum_lost_since is not None:
            if self.timeline.random.random() < 0.5:
                self._held.append((self._serve, (request, broker, call, answer)))
            return
        if self._applied.setdefault(request, False):
            return  # one connection delivers a request once
        self._applied[request] = True
        try:
            result = call(self.store)
        except LeaseEndedError:
            result = LEASE_ENDED
        if self.timeline.random.random() >= self.forgets_answers:
            self.network.send(COORDINATOR, broker, answer, result)

    # --- what brokers hear ------------------------------------------------------------------------

    def watch(self, broker: int, hear: Callable[[Pushed], None]) -> None:
        """Pushes all changes from now on."""
        self.watchers[broker] = hear
        self.pushed[broker] = self.store.revision

    def changes(self, after: int) -> Pushed | None:
        """Returns the changes after a revision; None if they are compacted."""
        try:
            return Pushed(after, self.store.changes(after))
        except CompactedError:
            return None

    def _changed(self) -> None:
        self.on_change()
        for broker in self.watchers:
            self.timeline.after(self.timeline.random.randint(0, self.lag_ms), self._push, broker)

    def _push(self, broker: int) -> None:
        if self.quorum_lost_since is not None or broker not in self.watchers:
            return
        after = self.pushed[broker]
        if after >= self.store.revision:
            return
        pushed = self.changes(after)
        self.pushed[broker] = self.store.revision
        if pushed is not None:
            self.network.send(COORDINATOR, broker, self.watchers[broker], pushed)

    # --- faults -----------------------------------------------------------------------------------

    def _lease_time(self) -> int:
        if self.quorum_lost_since is not None:
            return self.quorum_lost_since - self._lost_ms
        return self.timeline.now_ms - self._lost_ms

    def _end_leases(self) -> None:
        if self.quorum_lost_since is None:
            self.store.end_leases()

    def lose_quorum(self) -> None:
        """Answers nothing from now on, and ends no lease."""
        if self.quorum_lost_since is None:
            self.quorum_lost_since = self.timeline.now_ms

    def find_quorum(self) -> None:
        """Goes on; requests that were held are applied now, and leases begin anew."""
        if self.quorum_lost_since is None:
            return
        self._lost_ms += self.timeline.now_ms - self.quorum_lost_since
        self.quorum_lost_since = None
        for lease in self.leases():
            self.store.keep_alive(lease)
        held, self._held = self._held, []
        for call, args in held:
            self.timeline.after(self.timeline.random.randint(0, 50), call, *args)
        self._push_all()

    def end_all_leases(self) -> None:
        """Ends every lease at once, as a coordinator does whose own clock was stuck."""
        for lease in self.leases():
            self.store.revoke(lease)

    def leases(self) -> list[int]:
        """Returns the leases that have not ended."""
        return sorted(self.store._leases)

    def _push_all(self) -> None:
        for broker in self.watchers:
            self.timeline.after(self.lag_ms, self._push, broker)
