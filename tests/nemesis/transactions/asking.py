"""Raw requests to whoever answers for them: the coordinator of an id or group, the leader of a partition.

Each worker has a `Brokers` of its own, with one connection to each broker. Requests are encoded by the
oracle tests' wire client, so nothing of the broker's own code is on both ends.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.broker.asking import fetch_fields
from tests.broker.coordinators.transactions.requests import visible
from tests.oracle import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.nemesis.history import Place

GROUP, TRANSACTION = 0, 1
COMMITTED = 1
_ANSWER_S = 6.0
_AGAIN_S = 0.05
LATEST = -1
# Errors that pass: the broker is about to know better.
PASSING = frozenset({3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 51, 56, 74, 75, 76, 88, 100})
_FINDS, _LISTS = 2, 9


class Unknown(Exception):
    """A request has no answer, so nobody knows whether it was served."""


class OverTime(Exception):
    """A request was not served as long as a client is patient."""


class Brokers:
    """The brokers of a cluster as one client knows them."""

    def __init__(self, bootstrap: str, is_over: Callable[[], bool]) -> None:
        """`is_over` says that nobody waits for answers any more."""
        self._bootstrap = bootstrap.split(",")
        self.is_over = is_over
        self._connections: dict[str, wire.Connection] = {}
        self._known: dict[tuple[int, str] | Place, str] = {}

    def close(self) -> None:
        """Closes all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, address: str) -> wire.Connection:
        """Returns the connection to a broker."""
        if address not in self._connections:
            self._connections[address] = wire.Connection(address, _ANSWER_S)
        return self._connections[address]

    def ask(self, address: str, api: str, version: int, **fields: Any) -> Any:
        """Sends a request and returns the answer; raises Unknown if there is none."""
        try:
            answer = self.connection(address).ask(api, version, **fields)
        except (OSError, wire.WireError) as error:
            self.connection(address).close()
            raise Unknown(f"{api}: {error!r}") from None
        if answer is None:
            raise Unknown(f"{api}: the broker has closed the connection")
        return answer

    def address(self, what: tuple[int, str] | Place) -> str:
        """Returns who answers for a partition, or for a key of a type; raises OverTime."""
        return self.again(lambda: self._address(what), f"who answers for {what}")

    def forget(self, what: tuple[int, str] | Place) -> None:
        """Asks again next time."""
        self._known.pop(what, None)

    def again(self, attempt: Callable[[], Any], what: str, within_s: float = 90) -> Any:
        """Tries until an attempt returns something; raises OverTime."""
        deadline_s = time.monotonic() + within_s
        while True:
            try:
                result = attempt()
            except Unknown:
                result = None
            if result is not None:
                return result
            if self.is_over() or time.monotonic() > deadline_s:
                raise OverTime(what)
            time.sleep(_AGAIN_S)

    def _address(self, what: tuple[int, str] | Place) -> str | None:
        if what not in self._known:
            for address in self._bootstrap:
                try:
                    found = self._asked(address, what)
                except Unknown:
                    continue
                if found is not None:
                    self._known[what] = found
                    break
        return self._known.get(what)

    def _asked(self, address: str, what: tuple[int, str] | Place) -> str | None:
        if isinstance(what[0], int):
            answer = self.ask(address, "FindCoordinator", _FINDS, key=what[1], key_type=what[0])
            return None if answer["error_code"] else f"{answer['host']}:{answer['port']}"
        answer = self.ask(address, "Metadata", _LISTS, topics=[{"name": what[0]}])
        brokers = {each["node_id"]: each for each in answer["brokers"]}
        for each in answer["topics"][0]["partitions"]:
            leader = brokers.get(each["leader_id"])
            if each["partition_index"] == what[1] and leader is not None:
                return f"{leader['host']}:{leader['port']}"
        return None

    # --- reading ----------------------------------------------------------------------------------

    def committed(self, place: Place, offset: int) -> tuple[list[tuple[int, bytes]], int]:
        """Returns the committed records from an offset on, and the offset behind what was read."""
        return self.again(lambda: self._committed(place, offset), f"a fetch of {place}")

    def _committed(self, place: Place, offset: int) -> tuple[list[tuple[int, bytes]], int] | None:
        asked = fetch_fields(
            place.topic, offset, partition=place.partition, isolation_level=COMMITTED
        )
        try:
            answer = self.ask(self.address(place), "Fetch", 11, **asked)
        except Unknown:
            self.forget(place)
            raise
        (found,) = answer["responses"][0]["partitions"]
        if found["error_code"]:
            self.forget(place)
            return None
        return visible(found, offset)

    def ends(self, place: Place) -> tuple[int, int]:
        """Returns the last stable offset and the high watermark."""
        return self.end(place, COMMITTED), self.end(place, 0)

    def end(self, place: Place, isolation: int) -> int:
        """Returns the end that readers of an isolation level see."""
        return self.again(lambda: self._end(place, isolation), f"the end of {place}")

    def _end(self, place: Place, isolation: int) -> int | None:
        partition = {"partition_index": place.partition, "timestamp": LATEST}
        asked = {"name": place.topic, "partitions": [{**partition, "current_leader_epoch": -1}]}
        answer = self.ask(
            self.address(place),
            "ListOffsets",
            5,
            replica_id=-1,
            isolation_level=isolation,
            topics=[asked],
        )
        (found,) = answer["topics"][0]["partitions"]
        if found["error_code"]:
            self.forget(place)
            return None
        return int(found["offset"])

    def told(self, group: str, place: Place, *, is_stable: bool = True) -> int:
        """Returns the committed offset of a group, once it is stable; -1 if there is none."""
        what = f"the offset of {group} in {place}"
        return self.again(lambda: self._told(group, place, is_stable), what)

    def _told(self, group: str, place: Place, is_stable: bool) -> int | None:
        asked = {"name": place.topic, "partition_indexes": [place.partition]}
        answer = self.ask(
            self.address((GROUP, group)),
            "OffsetFetch",
            7,
            group_id=group,
            topics=[asked],
            require_stable=is_stable,
        )
        if answer["error_code"]:
            self.forget((GROUP, group))
            return None
        (found,) = answer["topics"][0]["partitions"]
        return None if found["error_code"] else int(found["committed_offset"])
