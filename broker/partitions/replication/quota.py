"""Replication quotas (KIP-73): how fast replicas that are not in sync are copied.

`ByteRate` is Kafka's windowed rate (`SampledStat`, `SimpleRate`), and `ReplicationQuota` is one side of
a broker: what it sends as a leader, or fetches as a follower. `ReplicationQuotas` has both sides, by the
settings of the broker and of topics; a side without a throttled partition has no quota, and costs a fetch
nothing. Bytes are counted after they have moved, so a quota is exceeded by what one fetch brings, and then
nothing moves until the rate is below it again. Times are monotonic, in ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.quotas.samples import Samples
from tidelog.config.replication_quota import throttled_here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.broker.metadata.image import Image
    from tidelog.config import BrokerConfig, TopicConfig

    _Throttled = dict[str, frozenset[int] | None]

_LEADER = "leader.replication.throttled.replicas"
_FOLLOWER = "follower.replication.throttled.replicas"

UNLIMITED = 2**63 - 1
"""The quota in bytes per second that limits nothing, which is Kafka's default."""


class ByteRate:
    """Bytes per second over the last `windows` windows of `window_ms` each.

    While fewer windows have passed, the bytes are divided by the time since the first of them, and by
    one window at least.
    """

    __slots__ = ("_samples", "_window_ms")

    def __init__(self, window_ms: int, windows: int) -> None:
        self._window_ms = window_ms
        self._samples = Samples(window_ms, windows)

    def record(self, size: int, now_ms: int) -> None:
        """Counts bytes that have moved."""
        self._samples.record(size, now_ms)

    def per_second(self, now_ms: int) -> float:
        """Returns the rate in bytes per second."""
        size, elapsed_ms = self._measured(now_ms)
        return size * 1000 / elapsed_ms

    def wait_ms(self, limit: int, now_ms: int) -> int:
        """Returns for how long the rate stays above a limit, at most; 0 if it is not above it."""
        size, elapsed_ms = self._measured(now_ms)
        if size * 1000 <= limit * elapsed_ms:
            return 0
        if limit <= 0:
            return self._samples.span_ms
        return min(-(-size * 1000 // limit) - elapsed_ms, self._samples.span_ms)

    def _measured(self, now_ms: int) -> tuple[int, int]:
        """Returns the bytes that count, and the ms in which they have come."""
        size, elapsed_ms = self._samples.measured(now_ms)
        return int(size), max(elapsed_ms, self._window_ms)


class ReplicationQuota:
    """What one side of a broker may copy in a second, and for which partitions that holds.

    `limit` is in bytes per second. `throttled` has the partitions by topic; None means all of a topic.
    """

    __slots__ = ("_rate", "limit", "throttled")

    def __init__(self, window_ms: int, windows: int) -> None:
        self._rate = ByteRate(window_ms, windows)
        self.limit = UNLIMITED
        self.throttled: Mapping[str, frozenset[int] | None] = {}

    def is_throttled(self, topic: str, index: int) -> bool:
        """Returns whether the bytes of a partition count, in sync or not."""
        throttled = self.throttled  # the loop may replace it, and this may run in a thread
        if topic not in throttled:
            return False
        partitions = throttled[topic]
        return partitions is None or index in partitions

    def record(self, size: int, now_ms: int) -> None:
        """Counts bytes of throttled partitions that have moved."""
        self._rate.record(size, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        """Returns whether no more of a throttled partition may move now, unless it is in sync."""
        return self._rate.wait_ms(self.limit, now_ms) > 0

    def wait_ms(self, now_ms: int) -> int:
        """Returns for how long the quota stays exceeded at most; 0 if it is not."""
        return self._rate.wait_ms(self.limit, now_ms)

    def per_second(self, now_ms: int) -> float:
        """Returns the rate of throttled partitions in bytes per second."""
        return self._rate.per_second(now_ms)


class ReplicationQuotas:
    """The quotas of what this broker sends as a leader, and of what it fetches as a follower."""

    __slots__ = ("_me", "_sides", "follower", "leader")

    def __init__(self, me: int, config: BrokerConfig) -> None:
        window_ms = config.replication.replication_quota_window_size_seconds * 1000
        windows = config.replication.replication_quota_window_num
        self._me = me
        self._sides = ReplicationQuota(window_ms, windows), ReplicationQuota(window_ms, windows)
        self.leader: ReplicationQuota | None = None
        self.follower: ReplicationQuota | None = None

    def apply(
        self, image: Image, config: BrokerConfig, config_of: Callable[[str], TopicConfig]
    ) -> None:
        """Applies the settings of an image, of the broker and of a topic by its name."""
        leader, follower = self._sides
        leader.limit = config.replication.leader_replication_throttled_rate
        follower.limit = config.replication.follower_replication_throttled_rate
        lists: tuple[_Throttled, _Throttled] = {}, {}
        for topic in image.topics.values():
            if _LEADER in topic.configs or _FOLLOWER in topic.configs:
                self._add(topic.name, config_of(topic.name), *lists)
        leader.throttled, follower.throttled = lists
        self.leader = leader if leader.throttled else None
        self.follower = follower if follower.throttled else None

    def _add(
        self, topic: str, config: TopicConfig, of_leader: _Throttled, of_follower: _Throttled
    ) -> None:
        """Adds the partitions of a topic that are throttled here."""
        for listed, found in (
            (config.leader_replication_throttled_replicas, of_leader),
            (config.follower_replication_throttled_replicas, of_follower),
        ):
            partitions = throttled_here(listed, self._me)
            if partitions is None or partitions:
                found[topic] = partitions
