"""Every option of Spark's own Kafka source and sink, and what it does in `timelog`.

A program that has them runs with `timelog` without a change: an option has Spark's meaning, or it
changes nothing and one warning says so, or it is refused with a sentence. The tables in
docs/pipeline/source.md and sink.md are derived from this by tools/derive_spark_options.py.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KAFKA: Final = "kafka."
_A_TYPO: Final = 0.92  # so near to a name that means something is no other name of Kafka's

SAME: Final = "the same"
UNUSED: Final = "changes nothing, with one warning"
REFUSED: Final = "refused"


class Meaning(NamedTuple):
    """What an option does here: SAME, UNUSED or REFUSED, and the reason or the difference."""

    kind: str
    says: str = ""


_SECURITY: Final = {
    name: Meaning(SAME) for name in ("kafka.security.*", "kafka.ssl.*", "kafka.sasl.*")
}
_NO_GROUP: Final = Meaning(UNUSED, "no consumer group is used")
_OWN_RETRIES: Final = Meaning(UNUSED, "the client has its own deadlines and retries")
_BYTES: Final = Meaning(REFUSED, "keys and values are bytes: cast the columns")
_NO_CLASSES: Final = "there is no Java client here to run a class"
_ALL_REPLICAS: Final = Meaning(UNUSED, "every write waits for all replicas, and is repeated safely")

SOURCE: Final[Mapping[str, Meaning]] = {
    "kafka.bootstrap.servers": Meaning(SAME),
    "assign": Meaning(SAME),
    "subscribe": Meaning(SAME, "may be left out: then every topic but Kafka's own"),
    "subscribePattern": Meaning(SAME, "a regular expression of Python"),
    "startingOffsets": Meaning(
        SAME, "partitions that are not named begin at the default; Spark refuses that"
    ),
    "startingTimestamp": Meaning(SAME, "ISO 8601, and times before 1970, too"),
    "startingOffsetsByTimestamp": Meaning(SAME, "ISO 8601, and times before 1970, too"),
    "startingOffsetsByTimestampStrategy": Meaning(SAME),
    "endingOffsets": Meaning(SAME),
    "endingTimestamp": Meaning(
        SAME,
        "late records before that time are read, too; Spark stops at the first that is not before it",
    ),
    "endingOffsetsByTimestamp": Meaning(SAME, "as `endingTimestamp`"),
    "failOnDataLoss": Meaning(SAME, "a topic that was created again is a loss, too"),
    "minPartitions": Meaning(SAME),
    "maxRecordsPerPartition": Meaning(SAME),
    "maxOffsetsPerTrigger": Meaning(SAME, "from Spark 4.2 on"),
    "minOffsetsPerTrigger": Meaning(SAME, "`availableNow` does not wait for them"),
    "maxTriggerDelay": Meaning(SAME, "`15m` where it is not given"),
    "includeHeaders": Meaning(SAME, "`true` where it is not given"),
    "kafka.isolation.level": Meaning(SAME),
    "kafka.client.rack": Meaning(SAME),
    "kafka.client.id": Meaning(SAME),
    "kafka.check.crcs": Meaning(SAME),
    **_SECURITY,
    "groupIdPrefix": _NO_GROUP,
    "kafka.group.id": _NO_GROUP,
    "kafkaConsumer.pollTimeoutMs": _OWN_RETRIES,
    "fetchOffset.numRetries": _OWN_RETRIES,
    "fetchOffset.retryIntervalMs": _OWN_RETRIES,
    "kafka.auto.offset.reset": Meaning(REFUSED, "`startingOffsets` says where to start"),
    "kafka.enable.auto.commit": Meaning(REFUSED, "a stream's position is in its checkpoint"),
    "kafka.key.deserializer": _BYTES,
    "kafka.value.deserializer": _BYTES,
    "kafka.interceptor.classes": Meaning(REFUSED, _NO_CLASSES),
    "kafka.*": Meaning(UNUSED, "it sets up a Java consumer"),
}
"""The options of the source. `kafka.*` stands for every other one of Kafka's consumers."""

SINK: Final[Mapping[str, Meaning]] = {
    "kafka.bootstrap.servers": Meaning(SAME),
    "topic": Meaning(SAME),
    "includeHeaders": Meaning(SAME, "a column `headers` is written in any case"),
    "kafka.compression.type": Meaning(SAME),
    "kafka.client.id": Meaning(SAME),
    **_SECURITY,
    "kafka.acks": _ALL_REPLICAS,
    "kafka.enable.idempotence": _ALL_REPLICAS,
    "kafka.retries": _ALL_REPLICAS,
    "kafka.transactional.id": Meaning(REFUSED, "`delivery` says how records arrive once"),
    "kafka.partitioner.class": Meaning(REFUSED, f"{_NO_CLASSES}: use a column `partition`"),
    "kafka.partitioner.ignore.keys": Meaning(REFUSED, "use a column `partition`"),
    "kafka.interceptor.classes": Meaning(REFUSED, _NO_CLASSES),
    "kafka.key.serializer": _BYTES,
    "kafka.value.serializer": _BYTES,
    "kafka.*": Meaning(UNUSED, "it sets up a Java producer"),
}
"""The options of the sink. `kafka.*` stands for every other one of Kafka's producers."""


def meaning_of(name: str, among: Mapping[str, Meaning], others: Iterable[str]) -> Meaning | None:
    """Returns what an option that has no meaning of its own here does: UNUSED or REFUSED.

    None: it is no option of Spark's, or is near enough to a name of Kafka's in `others`, which have
    a meaning, to be a mistake for it.
    """
    lower = name.lower()
    for known, meaning in among.items():
        if known.lower() == lower:
            return meaning
    own = [other.lower() for other in others if other.startswith(_KAFKA)]
    if not lower.startswith(_KAFKA) or difflib.get_close_matches(lower, own, 1, _A_TYPO):
        return None
    return among["kafka.*"]
