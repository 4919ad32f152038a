"""Reading committed data over the wire: Fetch and ListOffsets with isolation level 1."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.broker.asking import all_versions, create, fetch, list_offset, named
from tests.broker.inside import Inside
from tests.oracle import recordset
from tests.storage.log.transactions.model import shown
from tidelog.protocol.records.batch import Record, build

COMMITTED = 1
VERSIONS = [version for version in all_versions("Fetch") if version >= 4]
LATEST = -1


class Led(Inside):
    """A broker, and appends of transactions to a topic of it."""

    @property
    def partition(self):
        return self.node.partitions.leader("t", 0)

    def _appended(self, append):
        def work():
            appended = append(self.partition)
            self.node.purgatory.appended(self.partition, appended)
            return appended.base_offset

        return self.call(work)

    def send(self, pid, *times, sequence=0):
        data = build(
            [Record(i, at, b"k", b"%d" % pid) for i, at in enumerate(times)],
            producer_id=pid,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )

        def append(partition):
            guard = partition.verification(pid, 0, sequence)
            return partition.append(data, now_ms=self.now, produce_version=9, guard=guard)

        return self._appended(append)

    def plain(self, *times, codec=0):
        records = [Record(i, at, b"k", b"v") for i, at in enumerate(times)]
        data = build(records, compression=codec)
        return self._appended(
            lambda partition: partition.append(data, now_ms=self.now, produce_version=9)
        )

    def end(self, pid, *, commit):
        return self._appended(
            lambda partition: partition.append_marker(
                pid, 0, is_commit=commit, coordinator_epoch=0, now_ms=self.now
            )
        )

    @property
    def now(self):
        return self.node.clock.now_ms()


@pytest.fixture
def led(tmp_path):
    with Led(tmp_path) as inside:
        with inside.connect() as connection:
            create(connection, "t")
        yield inside


@pytest.fixture
def connection(led):
    with led.connect() as connection:
        yield connection


@pytest.fixture
def mixed(led):
    """Two aborted transactions around one that is committed, and one that is open."""
    led.plain(10)  # 0
    led.send(1, 20, 21)  # 1, 2
    led.send(2, 30)  # 3
    assert led.end(1, commit=False) == 4
    led.send(1, 40, sequence=2)  # 5
    assert led.end(2, commit=True) == 6
    assert led.end(1, commit=False) == 7
    led.plain(50)  # 8
    led.send(3, 60)  # 9
    led.plain(70)  # 10
    return led


def aborted_of(answer):
    found = answer["aborted_transactions"]
    return found and [(each["producer_id"], each["first_offset"]) for each in found]


def offsets(answer):
    batches, _ = recordset.parse(answer["records"] or b"")
    return [record["offset"] for batch in batches for record in batch["records"]]


class TestFetch:
    def test_records_up_to_the_last_stable_offset_and_what_is_aborted(self, mixed, connection):
        for version in VERSIONS:
            topic = named(connection, "t", version)
            got = fetch(connection, topic, 0, version=version, isolation_level=COMMITTED)
            assert (got["high_watermark"], got["last_stable_offset"]) == (11, 9)
            assert offsets(got) == list(range(9))
            assert aborted_of(got) == [(1, 1), (1, 5)]
            assert shown(got["records"], aborted_of(got), 0) == [0, 3, 8]

    def test_all_data_comes_with_no_list(self, mixed, connection):
        for version in VERSIONS:
            topic = named(connection, "t", version)
            got = fetch(connection, topic, 0, version=version)
            assert offsets(got) == list(range(11))
            assert aborted_of(got) is None

    def test_the_list_begins_with_the_offset(self, mixed, connection):
        for offset, wanted in [
            (1, [(1, 1), (1, 5)]),
            (4, [(1, 1), (1, 5)]),  # the marker of the first is still to come
            (5, [(1, 5)]),
            (7, [(1, 5)]),
            (8, []),
            (9, []),
        ]:
            got = fetch(connection, "t", offset, isolation_level=COMMITTED)
            assert aborted_of(got) == wanted
            assert shown(got["records"] or b"", wanted, offset) == [
                o for o in (0, 3, 8) if o >= offset
            ]

    def test_the_list_ends_with_the_records(self, mixed, connection):
        got = fetch(connection, "t", 0, isolation_level=COMMITTED, partition_max_bytes=100)
        assert (offsets(got), aborted_of(got)) == ([0], [])
        got = fetch(connection, "t", 3, isolation_level=COMMITTED, partition_max_bytes=1)
        assert (offsets(got), aborted_of(got)) == ([3], [(1, 1)])

    def test_markers_do_not_go_to_old_clients(self, mixed, connection):
        for version in range(4):
            got = fetch(connection, "t", 0, version=version)
            batches, _ = recordset.parse(got["records"])
            assert [batch["offset"] for batch in batches] == [0, 1, 2, 3, 5, 8, 9, 10]

    @pytest.mark.parametrize("version", [4, 9])
    def test_markers_stay_where_zstd_is_replaced(self, mixed, connection, version):
        mixed.plain(80, 81, codec=4)
        mixed.end(3, commit=False)
        got = fetch(connection, "t", 8, version=version, isolation_level=COMMITTED)
        assert offsets(got) == [8, 9, 10, 11, 12, 13]
        batches, _ = recordset.parse(got["records"])
        assert [(b["producer_id"], b["attributes"]) for b in batches if b["producer_id"] >= 0] == [
            (3, 0x10),
            (3, 0x30),
        ]
        assert aborted_of(got) == [(3, 9)]

    def test_a_new_start_shows_the_same(self, mixed, connection):
        mixed.call(lambda: setattr(mixed.partition.state, "producers", None))
        got = fetch(connection, "t", 0, isolation_level=COMMITTED)
        assert (got["last_stable_offset"], aborted_of(got)) == (9, [(1, 1), (1, 5)])


class TestWaiting:
    def test_a_marker_wakes_with_the_bytes_of_its_transaction(self, led, connection):
        led.send(1, 20, 21)
        size = led.partition.size
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(
                fetch,
                connection,
                "t",
                0,
                isolation_level=COMMITTED,
                max_wait_ms=60_000,
                min_bytes=size + 1,
            )
            self.wait_for_waits(led, 1)
            led.plain(30)  # more bytes than it waits for, but hidden
            led.send(2, *range(50))
            self.wait_for_waits(led, 1)
            assert not waiting.done()
            led.end(1, commit=False)
            got = waiting.result(60)
        assert (offsets(got), aborted_of(got)) == ([0, 1, 2], [(1, 0)])

    @staticmethod
    def wait_for_waits(led, count):
        deadline = time.monotonic() + 60
        while led.call(lambda: len(led.node.purgatory)) != count:
            assert time.monotonic() < deadline, "no fetch waits"
            time.sleep(0.01)


class TestListOffsets:
    def ask(self, connection, timestamp, isolation_level=COMMITTED):
        got = list_offset(connection, "t", timestamp, isolation_level=isolation_level)
        return got["error_code"], got["offset"], got["timestamp"]

    def test_the_end_is_the_last_stable_offset(self, mixed, connection):
        assert self.ask(connection, LATEST) == (0, 9, -1)
        assert self.ask(connection, LATEST, 0) == (0, 11, -1)

    def test_a_time_finds_nothing_behind_it(self, mixed, connection):
        for at, found in [(45, (8, 50)), (50, (8, 50)), (55, (-1, -1))]:
            assert self.ask(connection, at) == (0, *found)

    def test_no_lookup_finds_a_marker(self, mixed, connection):
        """Their time is the broker's; the largest time of data is 70."""
        assert self.ask(connection, 71, 0) == (0, -1, -1)
        assert self.ask(connection, -3, 0) == (0, 10, 70)
