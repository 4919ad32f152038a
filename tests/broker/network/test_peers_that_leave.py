"""A peer that leaves between the end of a wait and what comes after it: nobody goes on waiting for it.

The moments between are too short for a socket, so these tests call what the connection calls of its own.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.broker.asking import create, fetch_fields, new_name
from tests.broker.inside import Inside
from tests.broker.network.test_connection import LONG_MS
from tests.broker.raw import request
from tests.broker.subject import eventually
from tidelog.broker.network.answers import Pending
from tidelog.broker.network.connection_state import RequestKind
from tidelog.broker.network.dispatch import dispatch
from tidelog.broker.network.stream.served import Served


@pytest.fixture
def broker(tmp_path):
    with Inside(tmp_path) as broker:
        yield broker


def test_a_fetch_that_would_wait_again_is_given_up(broker):
    node, loop, topic = broker.node, broker._loop, new_name()
    data = request("Fetch", 11, **fetch_fields(topic, max_wait_ms=LONG_MS, min_bytes=1))
    with broker.connect() as asking:
        create(asking, topic)
        (connection,) = node.connections

        def leave():
            happened = loop.create_future()
            later = Pending(happened, lambda: dispatch(node, connection, data))
            connection._requests.finish_later(data, later)
            connection.abort()
            happened.set_result(None)  # what is called for it comes after the loss

        async def is_done():
            """Whether nothing is under way, as the loop sees it between two steps."""
            return not connection.is_busy and not len(node.purgatory)

        loop.call_soon_threadsafe(leave)
        eventually(lambda: not len(node.connections))
        eventually(
            lambda: asyncio.run_coroutine_threadsafe(is_done(), loop).result(),
            what="the fetch to be given up",
        )


def test_who_closes_while_its_answers_wait_to_be_read_still_gets_them(broker):
    """Requests that were served ahead of their turn count no bytes, but their answers do wait."""
    with broker.connect() as asking:
        create(asking, new_name())
        (connection,) = broker.node.connections

        async def stays():
            connection._frames.waiting.append(Served.of(b"\0\0", lambda _: [b"an answer"]))
            assert connection._frames.waiting_bytes == 0
            return connection.eof_received()

        assert asyncio.run_coroutine_threadsafe(stays(), broker._loop).result(10)


async def given_to(coroutine):
    return await coroutine


def test_what_a_fetch_waits_for_ends_though_its_peer_leaves_before_it_begins(broker):
    with broker.connect() as asking:
        create(asking, new_name())
        (connection,) = broker.node.connections
        ended = []

        async def waiting():
            try:
                await asyncio.Future()
            finally:
                ended.append(True)

        def leave():
            task = broker._loop.create_task(given_to(waiting()))
            connection._requests._wait_for(RequestKind.LOOKUP, Pending(task, task.result))
            connection.connection_lost(None)

        broker._loop.call_soon_threadsafe(leave)
        eventually(lambda: ended, what="the coroutine inside to end")
