"""What consumers were served by message format: as stored without a copy, or converted."""

from __future__ import annotations

import pytest

from tests.broker.asking import fetch, new_topic, produce, records_for

FETCHED = "tidelog_fetch_bytes_total"


def served(broker, topic):
    """The bytes by format and way that were counted for a topic; what was not served is left out."""
    return {
        (int(labels["format"]), labels["served"]): size
        for labels, size in broker.samples(FETCHED)
        if labels["topic"] == topic and size
    }


@pytest.mark.parametrize(
    ("release", "converted"), [("0.9.0", set()), ("0.10.2", {0}), ("3.0", {0, 1})]
)
def test_bytes_are_counted_by_what_the_version_carries(broker, connection, release, converted):
    topic = new_topic(connection, **{"message.format.version": release})
    produce(connection, topic, records_for(3, "a", "b"), version=3)
    for version, magic in ((1, 0), (3, 1), (11, 2)):
        before = served(broker, topic)
        records = fetch(connection, topic, 0, version=version)["records"]
        way = "converted" if magic in converted else "as_stored"
        counted = served(broker, topic)
        place = (magic, way)
        assert counted == before | {place: before.get(place, 0) + len(records)}
    name = "kafka_server_brokertopicmetrics_fetchmessageconversions_total"
    assert broker.metric(name, topic=topic) == 2 * len(converted)
    total = broker.metric("kafka_server_brokertopicmetrics_bytesout_total", topic=topic)
    assert total == sum(served(broker, topic).values())
