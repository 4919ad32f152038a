"""Metrics of serving: requests, connections, records, logs.

Names are Kafka's own where dashboards expect them (as the JMX exporter writes them); ours begin
with `tidelog_`.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from tidelog.broker.http.metrics.family import COUNTER, GAUGE, HISTOGRAM, Buckets, Family
from tidelog.broker.metrics.counters import BUCKETS_S
from tidelog.broker.metrics.loop_lag import BOUNDS_S as LAGS_S
from tidelog.protocol.message import known_apis

if TYPE_CHECKING:
    from tidelog.broker.http.metrics.family import Read, Samples, Scrape
    from tidelog.protocol.errors import ErrorCode


def _count(attribute: str) -> Read:
    """Declares a counter of the whole broker."""

    def read(scrape: Scrape) -> Samples:
        yield (), getattr(scrape.services.metrics, attribute)

    return read


def _of_topics(attribute: str) -> Read:
    """Returns the function that reads a counter of each topic."""
    value = attrgetter(attribute)

    def read(scrape: Scrape) -> Samples:
        for topic, counts in dict(scrape.services.metrics.topics).items():
            yield (topic,), value(counts)

    return read


def _of_partitions(attribute: str) -> Read:
    """Declares a metric that reads an attribute of each partition; None is left out."""
    of = attrgetter(attribute)

    def read(scrape: Scrape) -> Samples:
        for partition in scrape.partitions:
            value = of(partition)
            if value is not None:
                yield (partition.topic, str(partition.index)), value

    return read


def _clients(scrape: Scrape) -> Samples:
    yield from dict(scrape.services.metrics.clients).items()


def _sessions(attribute: str) -> Read:
    """Declares a metric of the fetch sessions."""
    of = attrgetter(attribute)

    def read(scrape: Scrape) -> Samples:
        yield (), of(scrape.services.fetch_sessions)

    return read


def _requests(scrape: Scrape) -> Samples:
    names = {entry.key: entry.name for entry in known_apis()}
    for (key, version), count in dict(scrape.services.metrics.requests).items():
        yield (names[key], str(version)), count


def _times(scrape: Scrape) -> Samples:
    names = {entry.key: entry.name for entry in known_apis()}
    metrics = scrape.services.metrics
    for key, counts in dict(metrics.times).items():
        yield (names[key],), Buckets(BUCKETS_S, counts, metrics.times_sum_s[key])


def _lags(scrape: Scrape) -> Samples:
    lag = scrape.services.metrics.loop_lag
    yield (), Buckets(LAGS_S, lag.counts, lag.sum_s)


def _longest_lag(scrape: Scrape) -> Samples:
    yield (), scrape.services.metrics.loop_lag.longest_s


def _fetched(scrape: Scrape) -> Samples:
    for topic, counts in dict(scrape.services.metrics.topics).items():
        for place, size_bytes in enumerate(counts.fetched):
            if size_bytes:
                magic, is_converted = divmod(place, 2)
                yield (topic, str(magic), _SERVED[is_converted]), size_bytes


def _failed(attribute: str) -> Read:
    def read(scrape: Scrape) -> Samples:
        failed: dict[ErrorCode, int] = getattr(scrape.services.metrics, attribute)
        for code, count in dict(failed).items():
            yield (code.name,), count

    return read


def _connections(scrape: Scrape) -> Samples:
    yield (), len(scrape.services.connections)


def _connections_limit(scrape: Scrape) -> Samples:
    yield (), scrape.services.connections.most(scrape.services.metadata.image)


def _config_bytes(scrape: Scrape) -> Samples:
    yield (), scrape.services.metadata.image.config_bytes


def _configs_refused(scrape: Scrape) -> Samples:
    yield (), scrape.services.settings.refused_for_room


def _offline_logs(scrape: Scrape) -> Samples:
    yield (), len(scrape.services.partitions.offline())


def _offline_directories(scrape: Scrape) -> Samples:
    yield (), len({each.directory.parent for each in scrape.services.partitions.offline()})


_SERVED = ("as_stored", "converted")
_TOPIC = ("topic",)
_PARTITION = ("topic", "partition")
_KAFKA = "kafka_server_brokertopicmetrics_"
_SESSIONS = "kafka_server_fetchsessioncache_"

FAMILIES = (
    Family(
        "tidelog_bad_requests",
        COUNTER,
        "Requests that closed their connection",
        (),
        _count("bad_requests"),
    ),
    Family(
        "tidelog_excessive_requests",
        COUNTER,
        "Requests that closed their connection because they, or their answers, would be too large",
        (),
        _count("excessive_requests"),
    ),
    Family(
        "tidelog_unexpected_errors",
        COUNTER,
        "Unexpected errors",
        (),
        _count("unexpected_errors"),
    ),
    Family(
        "tidelog_disconnects_mid_request",
        COUNTER,
        "Peers gone in mid-request",
        (),
        _count("disconnects_mid_request"),
    ),
    Family(
        "tidelog_tls_handshakes_failed",
        COUNTER,
        "TLS handshakes that have failed",
        (),
        _count("tls_handshakes_failed"),
    ),
    Family(
        "tidelog_connections_made", COUNTER, "Connections accepted", (), _count("connections_made")
    ),
    Family(
        "tidelog_segments_deleted",
        COUNTER,
        "Segments deleted by retention",
        (),
        _count("segments_deleted"),
    ),
    Family(
        "tidelog_commits",
        COUNTER,
        "Syncs of a log that acknowledgements or flush.ms asked for",
        (),
        _count("commits"),
    ),
    Family(
        "tidelog_connections_refused",
        COUNTER,
        "Connections that a limit of connections refused",
        (),
        _count("connections_refused"),
    ),
    Family(
        "tidelog_connections_limit",
        GAUGE,
        "Connections that clients may have: max.connections, or what the limit of open files leaves",
        (),
        _connections_limit,
    ),
    Family(
        "tidelog_connections_silent_closed",
        COUNTER,
        "Connections closed for others, because they had been silent for longest",
        (),
        _count("connections_silent"),
    ),
    Family(
        "tidelog_connections_delayed",
        COUNTER,
        "Connections that waited for max.connection.creation.rate",
        (),
        _count("connections_delayed"),
    ),
    Family(
        "tidelog_http_connections_refused",
        COUNTER,
        "HTTP connections over http.max.connections",
        (),
        _count("http_connections_refused"),
    ),
    Family(
        "tidelog_config_bytes",
        GAUGE,
        "Bytes of the stored settings of all topics and brokers",
        (),
        _config_bytes,
    ),
    Family(
        "tidelog_configs_refused",
        COUNTER,
        "Changes of settings, and topics, over max.config.bytes or max.config.bytes.per.resource",
        (),
        _configs_refused,
    ),
    Family(
        "tidelog_client_handshakes",
        COUNTER,
        "ApiVersions by client software",
        ("name", "version"),
        _clients,
    ),
    Family(_KAFKA + "messagesin", COUNTER, "Records appended", _TOPIC, _of_topics("messages_in")),
    Family(_KAFKA + "bytesin", COUNTER, "Bytes appended", _TOPIC, _of_topics("bytes_in")),
    Family(_KAFKA + "bytesout", COUNTER, "Bytes served", _TOPIC, _of_topics("bytes_out")),
    Family(
        _KAFKA + "producemessageconversions",
        COUNTER,
        "Records converted to the topic's format on produce",
        _TOPIC,
        _of_topics("produce_converted"),
    ),
    Family(
        _KAFKA + "fetchmessageconversions",
        COUNTER,
        "Records converted to an older format on fetch",
        _TOPIC,
        _of_topics("down_converted"),
    ),
    Family(
        "tidelog_fetch_bytes",
        COUNTER,
        "Bytes served to consumers, by the newest message format that their Fetch version carries, and "
        "whether they were served as they are stored, without a copy, or converted",
        ("topic", "format", "served"),
        _fetched,
    ),
    Family(
        "tidelog_duplicate_batches",
        COUNTER,
        "Batches answered as the first time",
        _TOPIC,
        _of_topics("duplicates"),
    ),
    Family(
        "kafka_log_log_logendoffset",
        GAUGE,
        "Log end offset",
        _PARTITION,
        _of_partitions("log_end_offset"),
    ),
    Family(
        "kafka_log_log_logstartoffset",
        GAUGE,
        "Log start offset",
        _PARTITION,
        _of_partitions("log_start_offset"),
    ),
    Family("kafka_log_log_size", GAUGE, "Bytes of the log", _PARTITION, _of_partitions("size")),
    Family(
        "tidelog_last_append_time_ms",
        GAUGE,
        "Last append time, ms",
        _PARTITION,
        _of_partitions("last_append_time"),
    ),
    Family(
        "tidelog_append_times_unknown_bytes",
        GAUGE,
        "Bytes of segments in which the append time of some batch is unknown",
        _PARTITION,
        _of_partitions("unknown_append_bytes"),
    ),
    Family(
        "kafka_network_requestmetrics_requests",
        COUNTER,
        "Requests answered",
        ("request", "version"),
        _requests,
    ),
    Family(
        "kafka_network_requestmetrics_totaltime_seconds",
        HISTOGRAM,
        "Time to answer",
        ("request",),
        _times,
    ),
    Family(
        "tidelog_loop_lag_seconds",
        HISTOGRAM,
        "How late a timer of the event loop was: how long requests wait before they are looked at",
        (),
        _lags,
    ),
    Family(
        "tidelog_loop_lag_longest_seconds",
        GAUGE,
        "The longest lag of the event loop in the last one to two minutes",
        (),
        _longest_lag,
    ),
    Family(
        _KAFKA + "failedproducerequests",
        COUNTER,
        "Refused appends",
        ("error",),
        _failed("failed_produces"),
    ),
    Family(
        _KAFKA + "failedfetchrequests",
        COUNTER,
        "Refused reads",
        ("error",),
        _failed("failed_fetches"),
    ),
    Family(
        _SESSIONS + "numincrementalfetchsessions",
        GAUGE,
        "Fetch sessions of clients",
        (),
        _sessions("sessions"),
    ),
    Family(
        _SESSIONS + "numincrementalfetchpartitionscached",
        GAUGE,
        "Partitions of all fetch sessions",
        (),
        _sessions("partitions"),
    ),
    Family(
        _SESSIONS + "incrementalfetchsessionevictions",
        COUNTER,
        "Fetch sessions that went for others",
        (),
        _sessions("evicted"),
    ),
    Family(
        "kafka_server_socket_server_metrics_connection_count",
        GAUGE,
        "Open connections",
        (),
        _connections,
    ),
    Family(
        "tidelog_offline_logs",
        GAUGE,
        "Logs offline since a sync of theirs failed",
        (),
        _offline_logs,
    ),
    Family(
        "kafka_log_logmanager_offlinelogdirectorycount",
        GAUGE,
        "Log directories with a log that is offline",
        (),
        _offline_directories,
    ),
)
