"""Metrics of transactions with a manual clock: exact ages, counts, and the distance of what is stable."""

from __future__ import annotations

from tests.broker.asking import batch_of, create, produce
from tests.broker.coordinators.transactions.requests import NONE, Transactional
from tests.broker.subject import eventually

START_MS = 1_700_000_000_000
DAY_S = 86_400
LAG_RECORDS = "kafka_cluster_partition_laststableoffsetlag"
LAG_SECONDS = "tidelog_last_stable_offset_lag_seconds"
LATE = "kafka_server_replicamanager_partitionswithlatetransactionscount"


def test_a_transaction_from_its_beginning_to_the_expiry_of_its_id(start):
    broker = start(
        {
            "clock": "manual",
            "control.listener": "127.0.0.1:0",
            "transaction.state.log.num.partitions": 1,
        }
    )

    def ids(state):
        return broker.metric("tidelog_transactional_ids", state=state)

    def ended(outcome):
        return broker.metric("tidelog_transactions_ended_total", outcome=outcome)

    def oldest_s():
        return broker.metric("tidelog_transaction_oldest_seconds")

    broker.clock.set(START_MS)
    with broker.connect() as connection:
        create(connection, "t")
        producer = Transactional(connection, "id")
        assert producer.init(timeout_ms=900_000) == NONE
        assert (ids("Empty"), ids("Ongoing"), oldest_s()) == (1, 0, 0)
        assert LAG_RECORDS + "{" not in broker.page("/metrics")
        assert producer.add("t", 0) == [NONE]
        broker.clock.step("2s")
        assert producer.send("t", "one") == NONE
        broker.clock.step("3s")
        assert produce(connection, "t", batch_of("plain"))["error_code"] == NONE
        assert (ids("Ongoing"), oldest_s()) == (1, 5)
        assert broker.metric(LAG_RECORDS, topic="t", partition="0") == 2
        assert broker.metric(LAG_SECONDS, topic="t", partition="0") == 3
        assert producer.end(commit=True) == NONE
        assert (ids("CompleteCommit"), oldest_s(), ended("committed")) == (1, 0, 1)
        assert f'{LAG_RECORDS}{{partition="0",topic="t"}}' not in broker.page("/metrics")

        assert producer.add("t", 0) == [NONE]
        assert producer.send("t", "two") == NONE
        assert producer.end(commit=False) == NONE
        assert (ended("aborted"), ended("timed out"), broker.metric(LATE)) == (1, 0, 0)

        assert producer.add("t", 0) == [NONE]
        assert producer.send("t", "three") == NONE
        broker.clock.step("901s")
        eventually(lambda: producer.state == "CompleteAbort")
        assert (ended("committed"), ended("aborted"), ended("timed out")) == (1, 2, 1)
        broker.clock.step(f"{8 * DAY_S}s")
        eventually(lambda: producer.described()["error_code"] == 105)
        assert broker.metric("tidelog_transactional_ids_expired_total") == 1
        assert ids("CompleteAbort") == 0
