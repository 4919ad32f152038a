"""Threads of the pools read what the event loop changes, and may be interrupted at every bytecode.

No thread is raced: what the loop would do in another thread is done by the reading thread itself, before
each bytecode of the product, and whenever Python collects garbage, as it does inside some calls. So a
test fails in every run or in none. What the loop changes is private, and is changed here as it changes it.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.asking import create, produce, records_for
from tests.broker.inside import Inside
from tidelog import broker, config, protocol, storage
from tidelog.broker.coordinators.ownership import Phase, _Partition
from tidelog.broker.http.metrics.exposition import metrics_text
from tidelog.broker.metrics.compaction_counters import Uncleanable
from tidelog.protocol.errors import ErrorCode
from tidelog.storage.log.producers.producer_state import Producer, Producers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    Entry = tuple[dict[Any, Any], Any, Any]

_PRODUCT = tuple(f"{Path(room.__path__[0])}/" for room in (broker, storage, config, protocol))
_FREE_TUPLES = 2_000  # which Python keeps of each size, and whose use is no reason to collect


class Others:
    """Adds entries to dictionaries, and removes them again, turn by turn."""

    def __init__(self, *entries: Entry) -> None:
        self._entries = entries
        self.turns = 0

    def take_turn(self) -> None:
        self.turns += 1
        for dictionary, key, value in self._entries:
            if self.turns % 2:
                dictionary[key] = value
            else:
                dictionary.pop(key, None)


@contextlib.contextmanager
def interrupted(others: Others) -> Iterator[None]:
    """Lets others take a turn at every bytecode of the product, and when garbage is collected."""

    def at_call(frame: FrameType, _event: str, _what: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(_PRODUCT):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return at_bytecode

    def at_bytecode(_frame: FrameType, event: str, _what: object) -> Callable[..., Any]:
        if event == "opcode":
            others.take_turn()
        return at_bytecode

    def at_collection(phase: str, _what: object) -> None:
        if phase == "start":
            others.take_turn()

    before, thresholds = sys.gettrace(), gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.callbacks.append(at_collection)
    used = [(each, each) for each in range(2 * _FREE_TUPLES)]
    gc.set_threshold(50)
    sys.settrace(at_call)
    try:
        yield
    finally:
        sys.settrace(before)
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(at_collection)
        gc.unfreeze()
        del used
    assert others.turns > 100, "nobody was interrupted"


@pytest.mark.slow
def test_logs_come_and_go_during_a_checkpoint(tmp_path: Path) -> None:
    with Inside(tmp_path) as inside, inside.connect() as connection:
        create(connection, "t", 200)
        store = inside.node.store
        table, (directory,) = store._table, store._directories
        partition = store.partition("t", 199)
        assert partition is not None
        key = ("t", 199)
        others = Others(
            (table.opened, key, partition),
            (table.index._directories, key, directory),
            (directory.recovery_points, key, 0),
            (directory.high_watermarks, key, 0),
            (directory.log_start_offsets, key, 0),
            (directory.cleaned_offsets, key, 0),
            (directory.longest_delays_ms, key, 0),
        )
        with interrupted(others):
            store.checkpoint()
        with interrupted(others):
            store.longest_delays_ms()
            store.full_directories()
            store.restore_reserves(forgets_full=True)
        with interrupted(others):
            store.read_leader_epochs(store.names())
        table.opened[key], table.index._directories[key] = partition, directory


def test_everything_counted_grows_during_a_scrape(tmp_path: Path) -> None:
    import prometheus_client

    with Inside(tmp_path) as inside, inside.connect() as connection:
        create(connection, "t", 3)
        produce(connection, "t", records_for(9, "a"))
        node = inside.node
        metrics, groups, ids = node.metrics, node.coordinator, node.transactions
        for index in range(50, 60):
            metrics.requests[0, index] = metrics.clients["name", str(index)] = 1
            metrics.failed_produces[ErrorCode(index)] = 1
            metrics.transactions.refused["AddOffsetsToTxn", ErrorCode(index)] = 1
            groups.runtime.ownership._partitions[index] = _ready(index)
            ids.runtime.ownership._partitions[index] = _ready(index)
        anomalies = node.time_watch.topics["t"]
        anomalies.expired_on_arrival["retention.ms"] = 1
        others = Others(
            (metrics.topics, "other", metrics.topics["t"]),
            (metrics.requests, (0, 99), 1),
            (metrics.times, 1, metrics.times[0]),
            (metrics.clients, ("name", "99"), 1),
            (metrics.failed_produces, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1),
            (metrics.failed_fetches, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1),
            (metrics.transactions.refused, ("EndTxn", ErrorCode.INVALID_TXN_STATE), 1),
            (metrics.compaction.uncleanable, ("t", 0), Uncleanable(None, "", "")),
            (node.time_watch.topics, "other", anomalies),
            (anomalies.expired_on_arrival, "retention.bytes", 1),
            (groups.runtime.ownership._partitions, 99, _ready(99)),
            (ids.runtime.ownership._partitions, 99, _ready(99)),
        )
        metrics.times_sum_s[1] = 0.0
        with interrupted(others):
            metrics_text(node, prometheus_client.CollectorRegistry())


def test_producers_come_and_go_while_they_are_listed() -> None:
    producers = Producers(expiration_ms=1)
    for producer_id in range(20):
        producers.put(Producer(producer_id, 0))
    with interrupted(Others((producers._known, 99, Producer(99, 0)))):
        for _ in range(10):
            assert len(list(producers)) >= 20
            assert not producers.open_transactions()


def _ready(index: int) -> _Partition:
    return _Partition(index, Phase.READY)
