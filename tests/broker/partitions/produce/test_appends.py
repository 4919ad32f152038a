"""The order of appends: nobody overtakes one that is in a thread, whatever becomes of it."""

import asyncio
import threading
import types
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from tidelog.broker.clock import ManualClock
from tidelog.broker.network.memory.share import Share
from tidelog.broker.partitions.produce.appends import Appends, is_heavy
from tidelog.broker.partitions.purgatory import Purgatory
from tidelog.broker.pools import Pool
from tidelog.protocol.errors import CorruptMessage, MessageTooLarge, NotLeaderOrFollower
from tidelog.storage.log.high_watermark import AT_ONCE
from tidelog.storage.would_block import NeedsMemory, WouldBlock

GZIP, LZ4 = 1, 3
MIB = 1 << 20


def record_set(size, magic=2, codec=0):
    data = bytearray(size)
    if size < 23:
        return bytes(data)
    data[16] = magic
    data[22 if magic == 2 else 17] = codec
    return bytes(data)


class Written(NamedTuple):
    last_offset: int
    now_ms: int
    produce_version: int
    duplicate = False
    size = 1


def topic_with(magic=2, compression=None, missing=()):
    """What of a topic's settings says how heavy an append is."""
    return SimpleNamespace(
        target_magic=magic, compression=compression, message_timestamp_missing_values=missing
    )


class Log:
    """Stands for a partition: notes the order of appends, and holds the first until told."""

    has_flush_rules = False
    is_read = True
    high_watermark = 1 << 62
    state = SimpleNamespace(policy=AT_ONCE, ends=(0, high_watermark, 0))

    def __init__(self, held=0):
        self.config = topic_with()
        self.order = []
        self.threads = []
        self.release = threading.Event()
        self.held = held

    def append(self, records, *, now_ms, produce_version, **_):
        if len(records) == self.held:
            assert self.release.wait(60)
        self.order.append(len(records))
        self.threads.append(threading.current_thread())
        if len(records) == 99_999:
            raise OSError("disk full")
        return Written(len(records), now_ms, produce_version)


def appends_in(pool, told=None, now_ms=0, memory=None):
    """Appends without syncs, because no log here asks for any; `told` gets those that are readable."""
    told = [] if told is None else told
    waiting = Purgatory(lambda log, appended: told.append((log, appended)))
    memory = memory or Share(1 << 30)
    watch = SimpleNamespace(has_left=False)
    return Appends(ManualClock(now_ms), watch, pool, pool, None, waiting, {}, memory)


@pytest.fixture
def pool():
    pool = Pool("append", 2)
    yield pool
    pool.stop()


@pytest.mark.parametrize(
    ("records", "target", "heavy"),
    [
        (record_set(100), 2, False),
        (record_set(1_000_000), 2, False),
        (record_set(1_000_000, magic=1), 2, True),
        (record_set(20_000, codec=GZIP), 2, True),
        (record_set(20_000, codec=LZ4), 2, False),
        (record_set(300_000, codec=LZ4), 2, True),
        (b"", 2, False),
        (b"\x00" * 20, 0, False),
    ],
)
def test_what_is_heavy(records, target, heavy):
    assert is_heavy(records, topic_with(target)) is heavy


def test_times_to_be_replaced_make_large_appends_heavy():
    assert is_heavy(record_set(70_000), topic_with(missing=(0,)))
    assert not is_heavy(record_set(60_000), topic_with(missing=(0,)))


def test_a_topic_that_compresses_makes_large_appends_heavy():
    assert is_heavy(record_set(20_000), topic_with(compression=GZIP))
    assert not is_heavy(record_set(20_000), topic_with(compression=LZ4))


async def test_what_would_block_goes_to_a_thread(pool):
    class Bomb(Log):
        def append(self, records, *, may_block=True, **more):
            if not may_block:
                raise WouldBlock
            return super().append(records, **more)

    log = Bomb()
    appended = await appends_in(pool).append(log, record_set(100, codec=GZIP), 9)
    assert appended[0] == 100
    assert log.threads != [threading.current_thread()]


@pytest.mark.parametrize("codec", [0, GZIP])
def test_what_is_broken_is_refused_at_once(pool, codec):
    class Broken(Log):
        def append(self, records, **more):
            raise CorruptMessage("the checksum does not match")

    with pytest.raises(CorruptMessage):
        appends_in(pool).append(Broken(), record_set(100, codec=codec), 9)


def test_a_light_append_is_done_at_once(pool):
    log = Log()
    told = []
    appends = appends_in(pool, told, now_ms=7)
    assert appends.append(log, record_set(100), 9) == (100, 7, 9)
    assert log.threads == [threading.current_thread()]
    assert told == [(log, (100, 7, 9))]


async def test_nobody_overtakes(pool):
    log = Log(held=300_000)
    other = Log()
    appends = appends_in(pool)
    tasks = [appends.append(log, record_set(size, codec=LZ4), 9) for size in (300_000, 100, 200)]
    await asyncio.sleep(0)
    assert appends.append(other, record_set(50), 9)[0] == 50  # another log is not held up
    log.release.set()
    answers = await asyncio.gather(*tasks)
    assert [size for size, _, _ in answers] == [300_000, 100, 200]
    assert log.order == [300_000, 100, 200]
    assert appends.append(log, record_set(10), 9)[0] == 10  # the queue is gone: at once again


async def test_a_failed_append_lets_the_next_go(pool):
    log, appends = Log(held=300_000), appends_in(pool)
    tasks = [appends.append(log, record_set(size, codec=LZ4), 9) for size in (300_000, 99_999, 5)]
    await asyncio.sleep(0)
    log.release.set()
    first, second, third = await asyncio.gather(*tasks, return_exceptions=True)
    assert first[0] == 300_000
    assert isinstance(second, OSError)
    assert third[0] == 5


async def test_a_request_that_went_away_keeps_its_place_while_in_the_thread(pool):
    log = Log(held=300_000)
    told = []
    appends = appends_in(pool, told)
    gone = appends.append(log, record_set(300_000, codec=LZ4), 9)
    queued = appends.append(log, record_set(6), 9)
    dropped = appends.append(log, record_set(7), 9)
    last = appends.append(log, record_set(8), 9)
    for _ in range(3):
        await asyncio.sleep(0)
    gone.cancel()
    dropped.cancel()
    await asyncio.sleep(0)
    assert log.order == []
    log.release.set()
    answers = await asyncio.gather(queued, last)
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert [size for size, _, _ in answers] == [6, 8]
    assert log.order == [300_000, 6, 8]
    # Who waits for data hears of it although its producer is gone.
    assert [appended[0] for _, appended in told] == log.order


@types.coroutine
def noting(coroutine, steps):
    """Runs a coroutine, and notes whatever it waits for."""
    for step in coroutine.__await__():
        steps.append(step)
        yield step


async def test_a_request_that_went_away_lets_nobody_wait_busily_for_its_append(pool):
    log, steps = Log(held=300_000), []
    appends = appends_in(pool)
    appends.append(log, record_set(300_000, codec=LZ4), 9).cancel()
    finished = asyncio.ensure_future(noting(appends.finished(log), steps))
    for _ in range(10):
        await asyncio.sleep(0)
    log.release.set()
    await finished
    assert len(steps) == 1
    assert log.order == [300_000]
    assert not appends.is_busy(log)


async def test_what_waits_for_its_turn_when_the_broker_stops_is_refused(pool):
    log, failed = Log(held=300_000), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    appends = appends_in(pool)
    first, *others = [
        appends.append(log, record_set(size, codec=LZ4), 9) for size in (300_000, 100, 200)
    ]
    await asyncio.sleep(0)
    log.release.set()
    pool.stop()  # the append in the thread ends, and the loop hears of it afterwards
    async with asyncio.timeout(60):
        assert (await first)[0] == 300_000
        for each in others:
            with pytest.raises(NotLeaderOrFollower, match="the broker stops"):
                await each
        await appends.finished(log)
    assert log.order == [300_000]
    assert not failed


async def test_an_append_that_needs_a_thread_is_refused_when_the_broker_has_stopped(pool):
    log, appends = Log(), appends_in(pool)
    pool.stop()
    with pytest.raises(NotLeaderOrFollower, match="the broker stops"):
        await appends.append(log, record_set(300_000, codec=LZ4), 9)
    assert log.order == []
    assert not appends.is_busy(log)


class Unpacks(Log):
    """A log whose records unpack to a size that nobody knows before."""

    def __init__(self, size, topic_limit=1 << 40):
        super().__init__()
        self.size = size
        self.topic_limit = topic_limit
        self.limits = []
        self.reserved = []

    def append(self, records, *, may_block=True, unpack_limit=None, **more):
        if not may_block:
            raise WouldBlock
        self.limits.append(unpack_limit)
        if self.size > unpack_limit:
            raise NeedsMemory(f"it unpacks to {self.size} bytes")
        return super().append(records, **more)


class Watched(Share):
    """Memory that says when somebody waits for it."""

    def __init__(self, limit):
        super().__init__(limit)
        self.came = asyncio.Event()

    def wait(self, *arguments, **more):
        self.came.set()
        return super().wait(*arguments, **more)


class TestMemory:
    """Records that unpack to much wait until others have given their memory back."""

    async def test_more_is_reserved_step_by_step_and_given_back(self, pool):
        memory, log = Share(64 * MIB), Unpacks(4 * MIB)
        assert (await appends_in(pool, memory=memory).append(log, record_set(100), 9))[0] == 100
        assert log.limits == [4 * MIB]
        log.size, log.limits = 16 * MIB, []
        await appends_in(pool, memory=memory).append(log, record_set(100), 9)
        assert log.limits == [4 * MIB, 4 * MIB, 16 * MIB]
        assert memory.reserved_bytes == 0

    async def test_what_can_never_fit_is_refused_and_the_next_goes_on(self, pool):
        memory, log = Share(16 * MIB), Unpacks(5 * MIB)
        appends = appends_in(pool, memory=memory)
        refused = appends.append(log, record_set(100), 9)
        with pytest.raises(MessageTooLarge, match=r"memory\.limit\.bytes leaves no room"):
            await refused
        assert (memory.reserved_bytes, memory.refused) == (0, 1)
        log.size = 1
        assert (await appends.append(log, record_set(200), 9))[0] == 200

    async def test_they_wait_for_memory_that_others_have(self, pool):
        memory, log, small = Watched(64 * MIB), Unpacks(8 * MIB), Unpacks(1)
        appends = appends_in(pool, memory=memory)
        assert memory.take(64 * MIB)
        large = [appends.append(log, record_set(size), 9) for size in (100, 200)]
        await memory.came.wait()
        assert (await appends.append(small, record_set(300), 9))[0] == 300
        assert log.order == []
        memory.release(64 * MIB)
        assert [(await each)[0] for each in large] == [100, 200]
        assert log.order == [100, 200]
        assert memory.reserved_bytes == memory.waiting == 0

    async def test_one_that_is_cancelled_while_it_waits_holds_up_nobody(self, pool):
        memory, log = Watched(64 * MIB), Unpacks(8 * MIB)
        appends = appends_in(pool, memory=memory)
        assert memory.take(64 * MIB)
        first = appends.append(log, record_set(100), 9)
        second = appends.append(log, record_set(200), 9)
        await memory.came.wait()
        first.cancel()
        memory.release(64 * MIB)
        assert (await second)[0] == 200
        assert log.order == [200]
        assert memory.reserved_bytes == memory.waiting == 0

    async def test_a_broker_that_stops_refuses_those_that_wait(self):
        pool, memory, log = Pool("append", 1), Watched(64 * MIB), Unpacks(8 * MIB)
        appends = appends_in(pool, memory=memory)
        assert memory.take(64 * MIB)
        waiting = appends.append(log, record_set(100), 9)
        await memory.came.wait()
        pool.stop()
        memory.release(64 * MIB)
        with pytest.raises(NotLeaderOrFollower):
            await waiting
        assert memory.reserved_bytes == 0
