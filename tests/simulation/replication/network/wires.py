"""Connections between virtual loops: streams that keep their order, come late, stop and break.

A cut link keeps what is on its way until it is healed. A process that dies breaks its connections; of
a machine that loses power nobody hears before it is there again. Once in a while a connection
breaks for no reason.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from tests.simulation.replication.brokers.loop import VirtualLoop, arrive

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.replication.brokers.process import Process
    from tests.simulation.replication.life import Life
    from tests.simulation.replication.network.network import Network

SPLIT = 0.1  # of what is written arrives in two parts
_AGAIN_MS = 500  # until something is sent again that nobody has answered
_END = b""
_RESET = None


class Wires:
    """All connections of a world, and who listens where."""

    def __init__(self, world: Life, network: Network) -> None:
        self.timeline = world.timeline
        self.network = network
        self.listeners: dict[tuple[str, int], tuple[VirtualLoop, Callable[[], Any]]] = {}
        self.hosts: dict[str, int] = {}  # the nodes by their names
        self.is_on: Callable[[int], bool] = lambda node: True  # whether a node's machine has power
        self.ends: list[Transport] = []
        self.count = 0  # of ends there ever were

    def listen(self, loop: VirtualLoop, host: str, port: int, accept: Callable[[], Any]) -> None:
        """Accepts connections; `accept` makes a protocol for each."""
        self.listeners[host, port] = loop, accept

    def delay_ms(self, source: int, target: int) -> int:
        """Returns how long a segment takes."""
        pick, network = self.timeline.random, self.network
        delay_ms = pick.randint(*network.latency_ms) + network.slow.get((source, target), 0)
        if pick.random() < network.weather.slow:
            delay_ms += pick.randint(10, 1_000)
        return delay_ms

    def is_cut(self, source: int, target: int) -> bool:
        """Returns whether nothing goes this way now."""
        return bool(self.network.is_cut.get((source, target)))

    # --- connecting -------------------------------------------------------------------------------

    async def connect(
        self, loop: VirtualLoop, make: Callable[[], Any], host: str, port: int
    ) -> tuple[Transport, Any]:
        """Opens a connection. Raises ConnectionRefusedError; without an answer it waits."""
        answer: asyncio.Future[tuple[Transport, Any]] = loop.create_future()
        source, target = loop.process.node, self.hosts[host]
        self.timeline.after(
            self.delay_ms(source, target), self._asked, loop, make, (host, port), target, answer
        )
        return await answer

    def _asked(self, loop, make, address, target, answer) -> None:
        source = loop.process.node
        if self.is_cut(source, target) or not self.is_on(target):
            return
        listening, accept = self.listeners.get(address, (None, None))
        delay_ms = self.delay_ms(target, source)
        if listening is None or listening.process.is_dead:
            self.timeline.after(delay_ms, self._refused, loop, target, answer)
            return
        theirs = Transport(self, listening, target, source)
        theirs.protocol = accept()
        mine = Transport(self, loop, source, target)
        mine.peer, theirs.peer = theirs, mine
        self.ends = [each for each in self.ends if not each.is_lost or not each.peer.is_lost]
        self.ends += [mine, theirs]
        arrive(listening, theirs.begin)
        self.timeline.after(delay_ms, self._accepted, loop, make, mine, answer)

    def _refused(self, loop, target, answer) -> None:
        if not self.is_cut(target, loop.process.node):
            arrive(loop, _refuse, answer)

    def _accepted(self, loop, make, mine, answer) -> None:
        if self.is_cut(mine.target, mine.source):
            mine.abort()
            return
        arrive(loop, _open, make, mine, answer)

    # --- faults -----------------------------------------------------------------------------------

    def died(self, process: Process) -> None:
        """A process has died, and its system breaks its connections."""
        for end in self.ends:
            if end.loop.process is process and not end.is_lost:
                end.is_lost = True
                end.send(_RESET)

    def heal(self) -> None:
        """Lets everything go on that was kept by a cut."""
        for end in self.ends:
            end.plan_all()


def _refuse(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(ConnectionRefusedError("connection refused"))


def _open(make: Callable[[], Any], mine: Transport, answer: asyncio.Future[Any]) -> None:
    if answer.done():
        mine.abort()
        return
    mine.protocol = make()
    mine.begin()
    answer.set_result((mine, mine.protocol))


class Transport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, wires: Wires, loop: VirtualLoop, source: int, target: int) -> None:
        wires.count += 1
        super().__init__({"peername": (f"node-{target}", wires.count)})
        self._wires = wires
        self.loop = loop
        self.source, self.target = source, target
        self.protocol: Any = None
        self.peer: Transport
        self.is_lost = False
        self._is_closing = False
        self._may_read = True
        self._sent: deque[bytes | None] = deque()  # what is on its way to the peer
        self._received: deque[bytes | None] = deque()  # what its protocol does not read yet

    def begin(self) -> None:
        """Lets its protocol begin."""
        if not self.is_lost:
            self.protocol.connection_made(self)

    # --- sending ----------------------------------------------------------------------------------

    def write(self, data) -> None:
        if self.is_lost or self._is_closing or not data or self.loop.process.is_dead:
            return
        data, pick = bytes(data), self._wires.timeline.random
        cut = pick.randint(1, len(data)) if pick.random() < SPLIT else len(data)
        self.send(data[:cut])
        if cut < len(data):
            self.send(data[cut:])

    def writelines(self, list_of_data) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        self.send(_END)

    def send(self, what: bytes | None) -> None:
        """Sends bytes, the end of the stream, or the news that it is broken."""
        self._sent.append(what)
        self._plan()

    def _plan(self) -> None:
        wires = self._wires
        wires.timeline.after(wires.delay_ms(self.source, self.target), self._pump)

    def plan_all(self) -> None:
        """Sends again what a cut has kept."""
        for _ in self._sent:
            self._plan()

    def _pump(self) -> None:
        if not self._sent or self._wires.is_cut(self.source, self.target):
            return
        what, wires = self._sent.popleft(), self._wires
        if what and wires.timeline.random.random() < wires.network.weather.loss:
            what = _RESET
            self.break_off()
        if self.peer.loop.process.is_dead and what is not _RESET:
            if wires.is_on(self.target):
                self.break_off()  # there is a machine, and it knows nothing of this
            else:
                self._sent.appendleft(what)
                wires.timeline.after(_AGAIN_MS, self._pump)
            return
        arrive(self.peer.loop, self.peer.receive, what)

    def break_off(self) -> None:
        """Hears that the connection is broken, some time later."""
        wires = self._wires
        wires.timeline.after(
            wires.delay_ms(self.target, self.source), arrive, self.loop, self.receive, _RESET
        )

    # --- receiving --------------------------------------------------------------------------------

    def receive(self, what: bytes | None) -> None:
        """Takes what has arrived."""
        if self.is_lost or self.protocol is None:
            return
        if what is _RESET:
            self._lose(ConnectionResetError("connection reset"))
        elif not self._may_read:
            self._received.append(what)
        elif what == _END:
            if not self.protocol.eof_received():
                self.close()
        elif isinstance(self.protocol, asyncio.BufferedProtocol):
            self._fill(what)
        else:
            self.protocol.data_received(what)

    def _fill(self, data: bytes) -> None:
        while data and not self.is_lost:
            if not self._may_read:
                self._received.append(data)
                return
            room = self.protocol.get_buffer(len(data))
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self.protocol.buffer_updated(count)

    def pause_reading(self) -> None:
        self._may_read = False

    def resume_reading(self) -> None:
        self._may_read = True
        if self._received:
            received, self._received = self._received, deque()
            for what in received:
                self.loop.call_soon(self.receive, what)

    # --- the end ----------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._is_closing or self.is_lost

    def close(self) -> None:
        if not self._is_closing and not self.is_lost:
            self._is_closing = True
            self.send(_END)
            self.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        if not self.is_lost:
            self._is_closing = True
            self.send(_RESET)
            self.loop.call_soon(self._lose, None)

    def _lose(self, error: Exception | None) -> None:
        if not self.is_lost:
            self.is_lost = True
            if self.protocol is not None:
                self.protocol.connection_lost(error)

    def get_write_buffer_size(self) -> int:
        return 0
