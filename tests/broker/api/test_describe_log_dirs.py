"""DescribeLogDirs: what each log weighs, in which directory, opened or not."""

from __future__ import annotations

import os

import pytest

from tests.broker.asking import all_versions, create, new_topic, produce, records_for


def weigh(connection, topics=None, version=4):
    answer = connection.ask(
        "DescribeLogDirs",
        version,
        topics=topics
        and [{"topic": name, "partitions": indexes} for name, indexes in topics.items()],
    )
    assert answer.get("error_code", 0) == 0
    return answer["results"]


def sizes(results):
    return {
        (topic["name"], partition["partition_index"]): partition["partition_size"]
        for result in results
        for topic in result["topics"]
        for partition in topic["partitions"]
    }


def on_disk(broker, topic, index):
    return sum(path.stat().st_size for path in (broker.log_dir / f"{topic}-{index}").glob("*.log"))


@pytest.mark.parametrize("version", all_versions("DescribeLogDirs"))
def test_every_version(broker, connection, version):
    topic = new_topic(connection, partitions=2)
    assert produce(connection, topic, records_for(9, "some", "records"))["error_code"] == 0
    (result,) = weigh(connection, {topic: [0, 1, 7], "nowhere": [0]}, version)
    assert (result["error_code"], result["log_dir"]) == (0, str(broker.log_dir))
    size = on_disk(broker, topic, 0)
    assert size > 60
    assert sizes([result]) == {(topic, 0): size, (topic, 1): 0}
    if version >= 4:
        volume = os.statvfs(broker.log_dir)
        assert result["total_bytes"] == volume.f_frsize * volume.f_blocks
        assert 0 <= result["usable_bytes"] <= result["total_bytes"]


def test_what_is_no_partition_weighs_nothing(start):
    broker = start()
    with broker.connect() as connection:
        create(connection, "t")
        for name in ("gone-0.0123456789abcdef0123456789abcdef-delete", "other-0", "lost+found"):
            (broker.log_dir / name).mkdir()
            (broker.log_dir / name / "00000000000000000000.log").write_bytes(b"x" * 99)
        assert sizes(weigh(connection)) == {("t", 0): 0}
        assert sizes(weigh(connection, {"t": []})) == {}
