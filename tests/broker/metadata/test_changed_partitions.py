"""Which topics and partitions an image says something else of than an earlier one."""

from uuid import UUID

import pytest

from tidelog.broker.metadata import records
from tidelog.broker.metadata.image import changed_partitions, changed_topics
from tidelog.broker.metadata.image_builder import ImageBuilder
from tidelog.broker.metadata.memory import MemoryState
from tidelog.broker.metadata.records import PartitionRecord, TopicRecord
from tidelog.broker.metadata.store import Delete

ID = UUID(int=1)
THREE = PartitionRecord((1, 2, 3), (1, 2, 3), 1, 0)


class Keys:
    def __init__(self):
        self.store = MemoryState(now_ms=lambda: 0, kept_revisions=100)
        self.put(records.put_cluster("c"), records.put_producer_ids(0))
        self.put(records.put_broker_configs({}))
        self.topic(3)
        snapshot = self.store.read()
        self._builder = ImageBuilder(snapshot.revision, snapshot.pairs)

    def put(self, *operations):
        assert self.store.transact((), operations) is not None

    def topic(self, partitions, topic_id=ID, **configs):
        self.put(records.put_topic(TopicRecord("t", topic_id, partitions, configs)))
        for index in range(partitions):
            self.put(records.put_partition(topic_id, index, THREE))

    @property
    def image(self):
        if self.store.revision == self._builder.image.revision:
            return self._builder.image
        return self._builder.apply(self.store.changes(self._builder.image.revision))


def no_leader(keys):
    keys.put(records.put_partition(ID, 1, THREE._replace(leader=2)))


def another_topic(keys):
    keys.put(records.put_topic(TopicRecord("other", UUID(int=2), 1, {})))
    keys.put(records.put_partition(UUID(int=2), 0, THREE))


def a_fourth(keys):
    keys.put(records.put_topic(TopicRecord("t", ID, 4, {})))
    keys.put(records.put_partition(ID, 3, THREE))


def settings(keys):
    keys.put(records.put_topic(TopicRecord("t", ID, 3, {"min.insync.replicas": "2"})))


def settings_of_brokers(keys):
    keys.put(records.put_broker_configs({"min.insync.replicas": "2"}))


def created_anew(keys):
    keys.put(Delete(records.topic_key("t")))
    for index in range(3):
        keys.put(Delete(records.partition_key(ID, index)))
    keys.topic(3, UUID(int=3))


@pytest.mark.parametrize(
    ("change", "partitions", "topics"),
    [
        (lambda _: None, [], []),
        (another_topic, [], ["other"]),
        (no_leader, [1], ["t"]),
        (a_fourth, [3], ["t"]),
        (settings, [0, 1, 2], ["t"]),
        (settings_of_brokers, [0, 1, 2], []),
        (created_anew, [0, 1, 2], ["t"]),
    ],
)
def test_what_has_changed(change, partitions, topics):
    keys = Keys()
    before = keys.image
    change(keys)
    image = keys.image
    topic = image.topics["t"]
    assert list(changed_partitions(image, topic, before)) == partitions
    assert list(changed_partitions(image, topic, None)) == list(range(topic.partitions))
    assert [topic.name for topic in changed_topics(image, before)] == topics


def test_all_topics_have_changed_where_there_is_no_earlier_image():
    keys = Keys()
    another_topic(keys)
    assert [topic.name for topic in changed_topics(keys.image, None)] == ["t", "other"]
