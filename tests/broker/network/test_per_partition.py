"""One partition's failure is its own: the helper that all handlers answer their partitions with."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from tidelog.broker.metrics.counters import Metrics
from tidelog.broker.network.answers import CloseConnection
from tidelog.broker.network.per_partition import (
    few_partitions,
    per_partition,
    per_partition_async,
)
from tidelog.broker.network.scheduler import at_once
from tidelog.broker.pools import Abandoned
from tidelog.protocol.errors import ErrorCode, UnknownTopicOrPartition
from tidelog.storage.would_block import WouldBlock


def node():
    return SimpleNamespace(metrics=Metrics())


def serving(raises):
    """A `serve` that raises what is planned for a partition, and answers the others."""

    def serve(wanted):
        if wanted in raises:
            raise raises[wanted]
        return wanted, 0

    return serve


def failed(wanted, error):
    return wanted, int(error.code)


def in_turn(node, api, wanted, serve, failed):
    async def wait_and_serve(each):
        await asyncio.sleep(0)
        return serve(each)

    return asyncio.run(per_partition_async(node, api, wanted, wait_and_serve, failed))


def in_slices(*arguments):
    return at_once(per_partition(*arguments))


@pytest.mark.parametrize("answer", [few_partitions, in_slices, in_turn])
class TestAll:
    def test_each_is_answered_in_its_place(self, answer):
        here = node()
        serve = serving({1: UnknownTopicOrPartition("gone")})
        answers = answer(here, "fetch", range(3), serve, failed)
        assert answers == [(0, 0), (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (2, 0)]
        assert here.metrics.unexpected_errors == 0

    def test_what_nobody_foresaw_is_minus_1_with_a_traceback_and_counted(self, answer, caplog):
        here = node()
        answers = answer(here, "fetch", range(2), serving({0: KeyError("lost")}), failed)
        assert answers == [(0, ErrorCode.UNKNOWN_SERVER_ERROR), (1, 0)]
        assert here.metrics.unexpected_errors == 1
        assert "unexpected error, a bug of tidelog" in caplog.text
        assert "KeyError: 'lost'" in caplog.text

    def test_a_connection_that_has_to_go_goes(self, answer):
        with pytest.raises(CloseConnection):
            answer(node(), "produce", range(2), serving({0: CloseConnection("acks=0")}), failed)


@pytest.mark.parametrize("answer", [few_partitions, in_slices])
@pytest.mark.parametrize("passing", [Abandoned, WouldBlock])
def test_what_says_nothing_about_one_partition_ends_the_loop(answer, passing):
    here = node()
    with pytest.raises(passing):
        answer(here, "fetch", [1], serving({1: passing()}), failed)
    assert here.metrics.unexpected_errors == 0
