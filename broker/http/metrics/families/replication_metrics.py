"""Metrics of replication, under Kafka's names.

Metrics with `kafka_server_` are about this broker: the partitions that it leads or has a replica of. Metrics
with `kafka_controller_` are about the cluster, and every broker has them, by its own image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.http.metrics.family import COUNTER, GAUGE, Family
from tidelog.broker.metadata.eligible_leaders import effective_min
from tidelog.broker.metadata.partition_health import (
    FENCED,
    SERVING,
    STOPPING,
    health_of_partitions,
    state_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.http.metrics.family import Read, Samples, Scrape
    from tidelog.broker.metadata.partition_health import PartitionHealth

_SERVER = "kafka_server_replicamanager_"
_CONTROLLER = "kafka_controller_kafkacontroller_"


def _all(scrape: Scrape) -> list[PartitionHealth]:
    found = scrape.shared.get(__name__)
    if not isinstance(found, list):
        image = scrape.services.metadata.image
        found = scrape.shared[__name__] = list(health_of_partitions(image))
    return found


def _counted(matches: Callable[[Scrape, PartitionHealth], bool]) -> Read:
    """Declares how many partitions match."""

    def read(scrape: Scrape) -> Samples:
        yield (), sum(matches(scrape, each) for each in _all(scrape))

    return read


def _leads(scrape: Scrape, each: PartitionHealth) -> bool:
    return each.record.leader == scrape.services.metadata.node_id


def _has(scrape: Scrape, each: PartitionHealth) -> bool:
    return scrape.services.metadata.node_id in each.record.replicas


def _is_under_replicated(scrape: Scrape, each: PartitionHealth) -> bool:
    return _leads(scrape, each) and bool(each.missing)


def _least(scrape: Scrape, each: PartitionHealth) -> int:
    return effective_min(
        each.record, scrape.services.settings.served(each.topic).min_insync_replicas
    )


def _is_under_min(scrape: Scrape, each: PartitionHealth) -> bool:
    return _leads(scrape, each) and len(each.record.isr) < _least(scrape, each)


def _is_at_min(scrape: Scrape, each: PartitionHealth) -> bool:
    return _leads(scrape, each) and len(each.record.isr) == _least(scrape, each)


def _is_reassigned(scrape: Scrape, each: PartitionHealth) -> bool:
    return _leads(scrape, each) and bool(each.record.adding or each.record.removing)


def _since_start(attribute: str) -> Read:
    """Declares a counter of the watch."""

    def read(scrape: Scrape) -> Samples:
        yield (), getattr(scrape.services.cluster_watch, attribute)

    return read


def _is_controller(scrape: Scrape) -> Samples:
    services = scrape.services
    controller = services.metadata.image.controller
    is_mine = controller is not None and controller.broker == services.metadata.node_id
    yield (), int(is_mine)


def _brokers(*states: str) -> Read:
    def read(scrape: Scrape) -> Samples:
        image = scrape.services.metadata.image
        yield (), sum(state_of(image, broker) in states for broker in image.brokers)

    return read


def _lags(scrape: Scrape) -> Samples:
    replicas = scrape.services.replicas
    largest: dict[int, int] = {}
    for each in _all(scrape):
        led = replicas.led_by_id(each.topic.topic_id, each.number)
        if led is None:
            continue
        end = led.leader.log_end_offset
        for one in led.leader.followers:
            lag = max(end - max(one.log_end_offset, led.leader.log_start_offset), 0)
            largest[one.broker] = max(lag, largest.get(one.broker, 0))
    for broker, lag in largest.items():
        yield (str(broker),), lag


def _byte_rate(side: str) -> Read:
    """Declares the rate of throttled replication on one side; 0 where nothing is throttled."""

    def read(scrape: Scrape) -> Samples:
        yield (), scrape.services.replicas.throttled_rate(side)

    return read


def _suspended(scrape: Scrape) -> Samples:
    yield (), len(scrape.services.replicas.suspended_logs())


def _refused(scrape: Scrape) -> Samples:
    for reason, count in scrape.services.metrics.broker_requests_refused.items():
        yield (reason,), count


def _without_secret(scrape: Scrape) -> Samples:
    live = scrape.services.metadata.image.brokers.values()
    yield (), sum(not each.record.secret for each in live)


def _topics(scrape: Scrape) -> Samples:
    yield (), len(scrape.services.metadata.image.topics)


FAMILIES = (
    Family(_SERVER + "leadercount", GAUGE, "Partitions led here", (), _counted(_leads)),
    Family(_SERVER + "partitioncount", GAUGE, "Replicas here", (), _counted(_has)),
    Family(
        "tidelog_suspended_leaders",
        GAUGE,
        "Partitions led here that answer no client: the broker is cut off from the metadata, and no "
        "in-sync replica asks",
        (),
        _suspended,
    ),
    Family(
        _SERVER + "underreplicatedpartitions",
        GAUGE,
        "Partitions led here of which a replica is not in sync",
        (),
        _counted(_is_under_replicated),
    ),
    Family(
        _SERVER + "underminisrpartitioncount",
        GAUGE,
        "Partitions led here with fewer replicas in sync than min.insync.replicas: acks=all is refused",
        (),
        _counted(_is_under_min),
    ),
    Family(
        _SERVER + "atminisrpartitioncount",
        GAUGE,
        "Partitions led here with just min.insync.replicas in sync",
        (),
        _counted(_is_at_min),
    ),
    Family(
        _SERVER + "reassigningpartitions",
        GAUGE,
        "Partitions led here whose replicas are being moved",
        (),
        _counted(_is_reassigned),
    ),
    Family(
        _SERVER + "isrshrinks",
        COUNTER,
        "Replicas that left the ISR of a partition led here",
        (),
        _since_start("isr_shrinks"),
    ),
    Family(
        _SERVER + "isrexpands",
        COUNTER,
        "Replicas that joined the ISR of a partition led here",
        (),
        _since_start("isr_expands"),
    ),
    Family(
        "kafka_server_leaderreplication_byte_rate",
        GAUGE,
        "Bytes of throttled replicas that this broker sends in a second as a leader",
        (),
        _byte_rate("leader"),
    ),
    Family(
        "kafka_server_followerreplication_byte_rate",
        GAUGE,
        "Bytes of throttled replicas that this broker fetches in a second as a follower",
        (),
        _byte_rate("follower"),
    ),
    Family(
        "tidelog_follower_max_lag_records",
        GAUGE,
        "How many records a follower is behind at most, over the partitions led here",
        ("broker",),
        _lags,
    ),
    Family(
        "tidelog_broker_requests_refused",
        COUNTER,
        "Requests that name a broker and are refused: forged (without proof), over (of an earlier session), "
        "unknown (of a session that is not known here)",
        ("reason",),
        _refused,
    ),
    Family(
        "tidelog_broker_sessions_without_secret",
        GAUGE,
        "Brokers of an older version, whose requests are believed without proof",
        (),
        _without_secret,
    ),
    Family(
        "kafka_controller_controllerstats_leaderelections",
        COUNTER,
        "Elections of this broker as the leader of a partition",
        (),
        _since_start("elections"),
    ),
    Family(
        "kafka_controller_controllerstats_uncleanleaderelections",
        COUNTER,
        "Elections of this broker although it was in neither ISR nor ELR: committed records may be lost",
        (),
        _since_start("unclean_elections"),
    ),
    Family(
        _CONTROLLER + "activecontrollercount",
        GAUGE,
        "1 if this broker is the controller, else 0",
        (),
        _is_controller,
    ),
    Family(
        _CONTROLLER + "offlinepartitionscount",
        GAUGE,
        "Partitions of the cluster that nobody leads",
        (),
        _counted(lambda _, each: each.is_offline),
    ),
    Family(
        _CONTROLLER + "preferredreplicaimbalancecount",
        GAUGE,
        "Partitions of the cluster that another replica than the preferred one leads",
        (),
        _counted(lambda _, each: each.is_led_by_non_preferred),
    ),
    Family(
        _CONTROLLER + "globalpartitioncount",
        GAUGE,
        "Partitions of the cluster",
        (),
        _counted(lambda *_: True),
    ),
    Family(_CONTROLLER + "globaltopiccount", GAUGE, "Topics of the cluster", (), _topics),
    Family(
        _CONTROLLER + "activebrokercount",
        GAUGE,
        "Brokers with a session that are not fenced",
        (),
        _brokers(SERVING, STOPPING),
    ),
    Family(
        _CONTROLLER + "fencedbrokercount",
        GAUGE,
        "Brokers with a session that have not caught up with the metadata",
        (),
        _brokers(FENCED),
    ),
)
