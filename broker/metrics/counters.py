"""The broker's counters, as plain numbers.

`http/metrics/families/` declares the metrics of these counters, and metrics that are read from the logs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from tidelog.broker.metrics.compaction_counters import CompactionCounters
from tidelog.broker.metrics.loop_lag import LoopLag
from tidelog.broker.metrics.scrub_figures import ScrubFigures
from tidelog.protocol.records.layout import NEWEST_MAGIC

if TYPE_CHECKING:
    from tidelog.protocol.errors import ErrorCode
    from tidelog.storage.log.partition import Appended

# Upper bounds of the request time buckets, in seconds.
BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)

OTHER: Final = "(other)"  # the label for all values beyond the number that a metric may have
MOST_CLIENTS: Final = 200  # names and versions of client software that are counted apart
MOST_NAME_CHARACTERS: Final = 64


class _TopicCounts:
    """The counters of one topic."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "down_converted",
        "duplicates",
        "fetched",
        "messages_in",
        "produce_converted",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.duplicates = 0
        self.produce_converted = 0
        self.down_converted = 0
        # Bytes for consumers by the newest format that their version carries, two for each: as
        # stored, and converted.
        self.fetched = [0] * (2 * (NEWEST_MAGIC + 1))


class _TransactionCounts:
    """The counters of the coordinator of transactions."""

    __slots__ = ("aborted", "committed", "expired_ids", "refused", "timed_out")

    def __init__(self) -> None:
        self.committed = 0
        self.aborted = 0  # those that timed out as well
        self.timed_out = 0
        self.expired_ids = 0
        self.refused: defaultdict[tuple[str, ErrorCode], int] = defaultdict(int)  # by API


class Metrics:
    """The broker's counters."""

    def __init__(self) -> None:
        self.bad_requests = 0
        self.excessive_requests = 0
        self.unexpected_errors = 0
        self.disconnects_mid_request = 0
        self.tls_handshakes_failed = 0
        self.broker_requests_refused: defaultdict[str, int] = defaultdict(int)  # by why
        self.connections_made = 0
        self.connections_refused = 0
        self.connections_delayed = 0
        self.connections_silent = 0  # closed to make room
        self.http_connections_refused = 0
        self.segments_deleted = 0
        self.commits = 0
        self.compaction = CompactionCounters()
        self.scrub = ScrubFigures()
        self.transactions = _TransactionCounts()
        self.loop_lag = LoopLag()
        self.topics: defaultdict[str, _TopicCounts] = defaultdict(_TopicCounts)
        self.requests: defaultdict[tuple[int, int], int] = defaultdict(int)
        self.times: defaultdict[int, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS_S) + 1))
        self.times_sum_s: defaultdict[int, float] = defaultdict(float)
        self.failed_produces: defaultdict[ErrorCode, int] = defaultdict(int)
        self.failed_fetches: defaultdict[ErrorCode, int] = defaultdict(int)
        self.clients: defaultdict[tuple[str, str], int] = defaultdict(int)

    def request_done(self, api_key: int, version: int, seconds: float) -> None:
        """Counts a request that was answered, or needed no answer, and its time in seconds."""
        self.requests[api_key, version] += 1
        self.times[api_key][bisect_left(BUCKETS_S, seconds)] += 1
        self.times_sum_s[api_key] += seconds

    def appended(self, topic: str, appended: Appended) -> None:
        """Counts an append to a topic: its records, its bytes, and whether it was a duplicate."""
        counts = self.topics[topic]
        if appended.duplicate:
            counts.duplicates += 1
            return
        counts.messages_in += appended.count
        counts.bytes_in += appended.size
        if appended.converted:
            counts.produce_converted += appended.count

    def drop_topic(self, topic: str) -> None:
        """Drops the counters of a deleted topic."""
        self.topics.pop(topic, None)

    def consumed(self, topic: str, size_bytes: int, newest_magic: int, *, as_stored: bool) -> None:
        """Counts bytes for a consumer, by the newest message format that its Fetch version can carry."""
        counts = self.topics[topic]
        counts.bytes_out += size_bytes
        counts.fetched[2 * newest_magic + (not as_stored)] += size_bytes

    def down_converted(self, topic: str, records: int) -> None:
        """Counts records converted to an older format for a fetch."""
        self.topics[topic].down_converted += records

    def produce_failed(self, code: ErrorCode) -> None:
        """Counts an append that was refused."""
        self.failed_produces[code] += 1

    def fetch_failed(self, code: ErrorCode) -> None:
        """Counts a read that was refused."""
        self.failed_fetches[code] += 1

    def client_seen(self, name: str, version: str) -> None:
        """Counts a client's software.

        Clients choose the names: long ones are cut, and beyond `MOST_CLIENTS` all count as `OTHER`.
        """
        key = (name[:MOST_NAME_CHARACTERS], version[:MOST_NAME_CHARACTERS])
        if key not in self.clients and len(self.clients) >= MOST_CLIENTS:
            key = (OTHER, OTHER)
        self.clients[key] += 1
