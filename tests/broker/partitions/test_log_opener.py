"""Partitions that requests open: each is opened once, and no failure outlives its cause."""

from tidelog.broker.partitions.log_opener import LogOpener
from tidelog.broker.pools import Pool
from tidelog.protocol.errors import KafkaStorageError


async def test_a_partition_named_twice_is_opened_once_and_its_failure_is_forgotten():
    opened, broken = [], {("t", 1)}

    def open_log(topic, index):
        if (topic, index) in broken:
            raise KafkaStorageError("no descriptor is left")
        opened.append((topic, index))

    class Store:
        def is_closed(self, topic, index):
            return (topic, index) not in opened

    pool = Pool("test", 1)
    opener = LogOpener(Store(), open_log, pool)
    failures = await opener.open([("t", 0), ("t", 0), ("t", 1)])
    assert list(failures) == [("t", 1)]
    assert opened == [("t", 0)]
    broken.clear()
    assert await opener.open([("t", 1)]) == {}
    assert opened == [("t", 0), ("t", 1)]
    pool.stop()
