"""Pools: each kind of work has its own threads, nothing uses asyncio's, and work nobody wants ends."""

from __future__ import annotations

import ast
import asyncio
import threading
from pathlib import Path

import pytest

from tidelog.broker.pools import ON_LOOP, Abandoned, NoDefaultPool, Permit, Pool, Pools

BROKER = Path(__file__).resolve().parents[2] / "broker"
# Who may make threads: the pools themselves, and SQLite's one thread, which nothing else uses.
MAKERS = {"pools.py", "metadata/sqlite/store.py"}


@pytest.fixture
def pool():
    pool = Pool("test", 1)
    yield pool
    pool.stop()


# --- nothing in broker/ uses asyncio's default pool, or makes a pool of its own ---


def misuses(tree):
    """Lines that use asyncio's default pool, and lines that make a pool."""
    for node in ast.walk(tree):
        name = getattr(node, "attr", getattr(node, "id", None))
        if name == "to_thread":
            yield node.lineno, "to_thread"
        if name == "ThreadPoolExecutor":
            yield node.lineno, "ThreadPoolExecutor"
        called = getattr(getattr(node, "func", None), "attr", None)
        if called == "run_in_executor":
            yield node.lineno, "run_in_executor"


def test_broker_code_uses_named_pools():
    found = [
        f"{path.relative_to(BROKER)}:{line} {what}"
        for path in BROKER.rglob("*.py")
        if str(path.relative_to(BROKER)) not in MAKERS
        for line, what in misuses(ast.parse(path.read_text()))
    ]
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "asyncio.to_thread(work)",
        "to_thread(work)",
        "loop.run_in_executor(None, work)",
        "loop.run_in_executor(node.pool, work)",
        "ThreadPoolExecutor(1)",
        "futures.ThreadPoolExecutor()",
    ],
)
def test_a_misuse_is_found(source):
    assert list(misuses(ast.parse(source)))


async def test_the_default_pool_refuses_work():
    asyncio.get_running_loop().set_default_executor(NoDefaultPool())
    with pytest.raises(RuntimeError, match=r"broker/pools\.py"):
        await asyncio.to_thread(int)


# --- permits ---


def test_on_the_loop_nothing_may_block_and_nothing_is_abandoned():
    assert not ON_LOOP.may_block
    ON_LOOP.check()


async def test_a_permit_is_withdrawn_when_the_caller_is_cancelled(pool):
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work(permit):
        permit.check()
        begun.set()
        assert go_on.wait(60)
        try:
            permit.check()
        except Abandoned:
            ended.set()
            raise

    task = asyncio.ensure_future(pool.run_for_request(work))
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 60)


async def test_work_that_waits_for_a_thread_never_begins_when_its_caller_is_cancelled(pool):
    go_on, begun = threading.Event(), []

    first = pool.submit(go_on.wait, 60)
    second = asyncio.ensure_future(pool.run_for_request(begun.append))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    go_on.set()
    await first
    await pool.run(int)  # what was queued behind `second` is done
    assert not begun


async def test_a_pool_that_gives_up_withdraws_its_permits_and_drops_what_waits(pool):
    begun, go_on, never = threading.Event(), threading.Event(), []

    def work(permit):
        begun.set()
        assert go_on.wait(60)
        permit.check()

    under_way = asyncio.ensure_future(pool.run_for_request(work))
    waiting = asyncio.ensure_future(pool.run(never.append, 1))
    await asyncio.to_thread(begun.wait, 60)
    pool.give_up()
    go_on.set()
    outcomes = await asyncio.gather(under_way, waiting, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in outcomes)
    with pytest.raises(RuntimeError):
        pool.submit(int)
    assert not never


async def test_work_run_to_its_end_is_waited_for_by_a_cancelled_caller(pool):
    begun, go_on, done = threading.Event(), threading.Event(), []

    def work():
        begun.set()
        assert go_on.wait(60)
        done.append(True)

    task = asyncio.ensure_future(pool.run_to_end(work))
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [True]


# --- stopping ---


async def test_a_stop_finishes_what_changes_logs_and_gives_up_what_reads(tmp_path):
    pools = Pools([tmp_path])
    go_on, finished, read = threading.Event(), [], []

    busy = [
        pool.submit(go_on.wait, 60)
        for pool, threads in ((pools.appends, 2), (pools.reads, 6))
        for _ in range(threads)
    ]
    append = pools.appends.submit(finished.append, 1)
    reading = pools.reads.submit(read.append, 1)
    threading.Timer(0.05, go_on.set).start()
    pools.stop()
    await asyncio.gather(*busy, append)
    assert reading.cancelled() or isinstance(
        (await asyncio.gather(reading, return_exceptions=True))[0], asyncio.CancelledError
    )
    assert (finished, read) == ([1], [])


def test_a_permit_without_a_pool_can_be_withdrawn():
    permit = Permit()
    permit.withdraw()
    with pytest.raises(Abandoned):
        permit.check()
