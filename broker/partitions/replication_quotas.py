"""The replication quotas of this broker, as its settings and those of the topics say (KIP-73).

A side without a throttled partition has no quota, and costs a fetch nothing but the look at it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.partitions.replication.quota import ReplicationQuota
from tidelog.config.replication_quota import throttled_here

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.metadata.image import Image
    from tidelog.config import BrokerConfig, TopicConfig

    _Throttled = dict[str, frozenset[int] | None]

_LEADER = "leader.replication.throttled.replicas"
_FOLLOWER = "follower.replication.throttled.replicas"


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
        """Takes the settings of an image, of the broker and of a topic by its name."""
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
