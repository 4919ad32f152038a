"""What is counted, declared once, read by one collector.

The broker adds to plain ints; nothing of the Prometheus library is touched until /metrics is asked for.
Names are Kafka's own where dashboards expect them (as the JMX exporter writes them), `tidelog_` for ours.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from protocol.message import known_apis
from protocol.records import kernels
from storage import timestamps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.node import Node
    from protocol.errors import ErrorCode
    from storage.partition import Appended

# Upper bounds of the request time buckets, in seconds.
_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)


class _TopicCounts:
    """Counters of one topic."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "down_converted",
        "duplicates",
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


class Metrics:
    """The broker's counters."""

    def __init__(self) -> None:
        self.bad_requests = 0
        self.unexpected_errors = 0
        self.disconnects_mid_request = 0
        self.connections_made = 0
        self.connections_refused = 0
        self.segments_deleted = 0
        self.commits = 0
        self.topics: defaultdict[str, _TopicCounts] = defaultdict(_TopicCounts)
        self.requests: defaultdict[tuple[int, int], int] = defaultdict(int)
        self.times: defaultdict[int, list[int]] = defaultdict(lambda: [0] * (len(_BUCKETS_S) + 1))
        self.times_sum_s: defaultdict[int, float] = defaultdict(float)
        self.failed_produces: defaultdict[ErrorCode, int] = defaultdict(int)
        self.failed_fetches: defaultdict[ErrorCode, int] = defaultdict(int)
        self.clients: defaultdict[tuple[str, str], int] = defaultdict(int)

    def request_done(self, api_key: int, version: int, seconds: float) -> None:
        """A request was answered (or needed no answer)."""
        self.requests[api_key, version] += 1
        self.times[api_key][bisect_left(_BUCKETS_S, seconds)] += 1
        self.times_sum_s[api_key] += seconds

    def appended(self, topic: str, appended: Appended) -> None:
        """Records were written to a topic."""
        counts = self.topics[topic]
        if appended.duplicate:
            counts.duplicates += 1
            return
        counts.messages_in += appended.count
        counts.bytes_in += appended.size
        if appended.converted:
            counts.produce_converted += appended.count

    def bytes_out(self, topic: str, size_bytes: int) -> None:
        """Records were served from a topic."""
        self.topics[topic].bytes_out += size_bytes

    def down_converted(self, topic: str, records: int) -> None:
        """Records were converted to an older format for a fetch."""
        self.topics[topic].down_converted += records

    def produce_failed(self, code: ErrorCode) -> None:
        """A partition's append was refused."""
        self.failed_produces[code] += 1

    def fetch_failed(self, code: ErrorCode) -> None:
        """A partition's read was refused."""
        self.failed_fetches[code] += 1

    def client_seen(self, name: str, version: str) -> None:
        """A client named its software (bounded: the names are the clients' to choose)."""
        if (name, version) in self.clients or len(self.clients) < 1000:
            self.clients[name, version] += 1


# name -> (sentence, attribute of Metrics)
_COUNTERS = {
    "tidelog_bad_requests": ("Requests that closed their connection", "bad_requests"),
    "tidelog_unexpected_errors": ("Errors nobody foresaw", "unexpected_errors"),
    "tidelog_disconnects_mid_request": ("Peers gone in mid-request", "disconnects_mid_request"),
    "tidelog_connections_made": ("Connections accepted", "connections_made"),
    "tidelog_segments_deleted": ("Segments deleted by retention", "segments_deleted"),
    "tidelog_commits": ("Syncs of a log that acknowledgements or flush.ms asked for", "commits"),
    "tidelog_connections_refused": ("Connections over max.connections", "connections_refused"),
}
# name -> (sentence, attribute of _TopicCounts)
_TOPIC_COUNTERS = {
    "kafka_server_brokertopicmetrics_messagesin": ("Records appended", "messages_in"),
    "kafka_server_brokertopicmetrics_bytesin": ("Bytes appended", "bytes_in"),
    "kafka_server_brokertopicmetrics_bytesout": ("Bytes served", "bytes_out"),
    "kafka_server_brokertopicmetrics_producemessageconversions": (
        "Records converted to the topic's format on produce",
        "produce_converted",
    ),
    "kafka_server_brokertopicmetrics_fetchmessageconversions": (
        "Records converted to an older format on fetch",
        "down_converted",
    ),
    "tidelog_duplicate_batches": ("Batches answered as the first time", "duplicates"),
}
# name -> (sentence, attribute of Partition)
_PARTITION_GAUGES = {
    "kafka_log_log_logendoffset": ("Log end offset", "log_end_offset"),
    "kafka_log_log_logstartoffset": ("Log start offset", "log_start_offset"),
    "kafka_log_log_size": ("Bytes of the log", "size"),
    "tidelog_last_append_time_ms": ("Last append time, ms", "last_append_time"),
    "tidelog_append_times_unknown_bytes": (
        "Bytes of segments in which nobody knows when some batch was appended",
        "unknown_append_bytes",
    ),
}


class Collector:
    """Reads a node's ints when Prometheus asks; the only user of the Prometheus library."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[Any]:
        """Every metric family of the broker."""
        from prometheus_client import core  # noqa: PLC0415 - not before /metrics is asked for

        yield from self._counters(core)
        yield from self._logs(core)
        yield from self._requests(core)
        yield core.GaugeMetricFamily(
            "kafka_server_socket_server_metrics_connection_count",
            "Open connections",
            value=len(self._node.connections),
        )
        offline = self._node.offline()
        yield core.GaugeMetricFamily(
            "tidelog_offline_logs", "Logs offline since a sync of theirs failed", value=len(offline)
        )
        yield core.GaugeMetricFamily(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Log directories with a log that is offline",
            value=len({each.directory.parent for each in offline}),
        )
        kernel = core.GaugeMetricFamily(
            "tidelog_kernels", "Record kernels in use", labels=["implementation"]
        )
        kernel.add_metric([kernels.IMPLEMENTATION], 1)
        yield kernel

    def _counters(self, core: Any) -> Iterator[Any]:
        """What is counted for the whole broker."""
        metrics = self._node.metrics
        for name, (doc, attribute) in _COUNTERS.items():
            yield core.CounterMetricFamily(name, doc, value=getattr(metrics, attribute))
        clients = core.CounterMetricFamily(
            "tidelog_client_handshakes",
            "ApiVersions by client software",
            labels=["name", "version"],
        )
        for labels, count in list(metrics.clients.items()):
            clients.add_metric(labels, count)
        yield clients

    def _logs(self, core: Any) -> Iterator[Any]:
        """What is known of topics and partitions."""
        for name, (doc, attribute) in _TOPIC_COUNTERS.items():
            counter = core.CounterMetricFamily(name, doc, labels=["topic"])
            for topic, counts in list(self._node.metrics.topics.items()):
                counter.add_metric([topic], getattr(counts, attribute))
            yield counter
        for name, (doc, attribute) in _PARTITION_GAUGES.items():
            gauge = core.GaugeMetricFamily(name, doc, labels=["topic", "partition"])
            for partition in self._node.store.opened():
                value = getattr(partition, attribute)
                if value is not None:
                    gauge.add_metric([partition.topic, str(partition.index)], value)
            yield gauge
        yield self._ahead(core)

    def _ahead(self, core: Any) -> Any:
        """How far each partition's append time is ahead of the clock."""
        now_ms = self._node.clock.now_ms()
        gauge = core.GaugeMetricFamily(
            "tidelog_append_time_ahead_ms",
            "How far a last append time is ahead of the clock, ms: until then it stands still",
            labels=["topic", "partition"],
        )
        for partition in self._node.store.opened():
            if partition.last_append_time is not None:
                ahead_ms = timestamps.ahead(partition.last_append_time, now_ms)
                gauge.add_metric([partition.topic, str(partition.index)], ahead_ms)
        return gauge

    def _requests(self, core: Any) -> Iterator[Any]:
        """What was asked, how long it took, and what was refused."""
        metrics = self._node.metrics
        names = {entry.key: entry.name for entry in known_apis()}
        requests = core.CounterMetricFamily(
            "kafka_network_requestmetrics_requests",
            "Requests answered",
            labels=["request", "version"],
        )
        for (key, version), count in list(metrics.requests.items()):
            requests.add_metric([names[key], str(version)], count)
        yield requests
        times = core.HistogramMetricFamily(
            "kafka_network_requestmetrics_totaltime_seconds", "Time to answer", labels=["request"]
        )
        for key, buckets in list(metrics.times.items()):
            times.add_metric([names[key]], _cumulative(buckets), metrics.times_sum_s[key])
        yield times
        for what, doc, failed in (
            ("produce", "Refused appends", metrics.failed_produces),
            ("fetch", "Refused reads", metrics.failed_fetches),
        ):
            counter = core.CounterMetricFamily(
                f"kafka_server_brokertopicmetrics_failed{what}requests", doc, labels=["error"]
            )
            for code, count in list(failed.items()):
                counter.add_metric([code.name], count)
            yield counter


def _cumulative(counts: list[int]) -> list[tuple[str, float]]:
    """Bucket counts as Prometheus wants them: cumulative, the last one +Inf."""
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*map(str, _BUCKETS_S), "+Inf"), counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets
