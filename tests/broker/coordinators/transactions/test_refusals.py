"""Refused requests of transactions are logged: who asked, for which id, why. Repeated ones are counted."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from tests.broker.asking import new_topic
from tests.broker.coordinators.transactions.requests import NONE, Transactional
from tests.broker.subject import eventually
from tidelog.broker.coordinators.transactions.refusals import Refusals
from tidelog.broker.logging.repeats import SHOWN, SPAN_S
from tidelog.broker.metrics.counters import Metrics
from tidelog.protocol.errors import ConcurrentTransactions, ErrorCode, ProducerFenced

END_TXN = 26


@pytest.mark.slow
def test_each_refusal_says_who_was_refused_and_why(start):
    broker = start()
    with broker.connect() as connection:
        topic = new_topic(connection, partitions=1)
        first = Transactional(connection, "of-" + topic)
        assert first.init() == NONE
        second = Transactional(connection, first.id)
        assert second.init() == NONE

        assert first.end(commit=True) == 90
        (line,) = eventually(lambda: broker.lines("EndTxn: PRODUCER_FENCED"))
        for part in ("transactional request refused", first.id, "client_id", "epoch 0 is not 1"):
            assert part in line
        assert first.add(topic, 0) == [90]
        assert eventually(lambda: broker.lines("AddPartitionsToTxn: PRODUCER_FENCED", first.id))
        assert second.add(topic, 0, 9) == [55, 3]
        assert second.add_group("g") == NONE
        assert first.add_group("g") == 90
        assert eventually(lambda: broker.lines("AddOffsetsToTxn: PRODUCER_FENCED", first.id))
        assert first.commit_offsets("g", topic, {0: 1}) == [47]
        assert eventually(lambda: broker.lines("TxnOffsetCommit: INVALID_PRODUCER_EPOCH"))
        assert first.init(timeout_ms=0) == 50
        assert eventually(lambda: broker.lines("InitProducerId: INVALID_TRANSACTION_TIMEOUT"))
        assert first.send(topic, "late") == 47
        assert eventually(lambda: broker.lines("Produce: INVALID_PRODUCER_EPOCH", first.id))
        # That a topic is not there yet passes by itself.
        assert not broker.lines("AddPartitionsToTxn: UNKNOWN_TOPIC_OR_PARTITION")

        for _ in range(2 * SHOWN):
            assert first.end(commit=True) == 90
        name = "tidelog_transactional_requests_refused_total"
        refused = 2 * SHOWN + 1
        assert broker.metric(name, request="EndTxn", error="PRODUCER_FENCED") == refused
        assert len(broker.lines("EndTxn: PRODUCER_FENCED")) == SHOWN


class TestFolding:
    """With a clock that the test moves."""

    def refusals(self):
        self.clock = SimpleNamespace(now_s=5.0)
        self.clock.monotonic_s = lambda: self.clock.now_s
        self.metrics = Metrics()
        return Refusals(self.clock, self.metrics)

    def context(self, client_id="c"):
        header = SimpleNamespace(api_key=END_TXN, client_id=client_id)
        connection = SimpleNamespace(peer="192.0.2.1:5")
        return SimpleNamespace(
            header=header, connection=connection, session=SimpleNamespace(host="192.0.2.1")
        )

    def test_other_ids_of_the_same_host_fill_no_log_either(self, caplog):
        refusals = self.refusals()
        for number in range(1_000):
            refusals.note(self.context(), f"id-{number}", ProducerFenced("old"))
        assert len(caplog.records) == SHOWN
        self.clock.now_s += SPAN_S
        refusals.log_repeated()
        last = caplog.records[-1]
        assert (last.getMessage(), last.more) == (
            "transactional requests refused: EndTxn: PRODUCER_FENCED",
            1_000 - SHOWN,
        )
        assert self.metrics.transactions.refused["EndTxn", ErrorCode.PRODUCER_FENCED] == 1_000

    def test_what_passes_by_itself_is_not_logged_and_long_names_are_cut(self, caplog):
        refusals = self.refusals()
        with caplog.at_level(logging.INFO):
            refusals.note(self.context(), "id", ConcurrentTransactions())
            refusals.note(self.context(), None, ProducerFenced("plain"))
        assert caplog.records == []
        refusals.note(self.context("c" * 30_000), "i" * 30_000, ProducerFenced("old"))
        (line,) = caplog.records
        assert (len(line.client_id), len(line.transactional_id)) == (200, 200)
