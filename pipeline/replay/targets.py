"""The topics that a run writes to: created on request, and checked before anything is written.

The facts about the target are determined once, when the plan of a run is made, and stored in the
plan: the end of each partition at that time, the delivery mode, and the producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from tidelog.client import EARLIEST, LATEST, Client, RequestError
from tidelog.client.calls import topics
from tidelog.config import BrokerConfig, topic_config
from tidelog.pipeline.declaring import Choice, Flag, Item, Many, Needed, Options, Text, declared
from tidelog.pipeline.errors import PipelineError, UsageError
from tidelog.pipeline.options import (
    TO_COMMAND_CONFIG,
    brokers,
    setting,
    size,
)
from tidelog.pipeline.replay import delivery, identities
from tidelog.pipeline.replay.delivery import AUTO, MODES, TRANSACTIONS, Delivery, Mode
from tidelog.pipeline.replay.transactions import ensure_progress_topic
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records.column_batches import BATCH_LIMIT
from tidelog.protocol.records.layout import NEWEST_MAGIC, Compression
from tidelog.storage.time.stamping import StampingRules, rules_of, stamps_at
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.pipeline.replay.replay import ReplaySource, Task
    from tidelog.protocol.topic_partition import TopicPartition

NO_LIMIT: Final = 2**63 - 1
Codec = Literal["source", "none", "gzip", "snappy", "lz4", "zstd"]
CODECS: Final[tuple[Codec, ...]] = get_args(Codec)
_BATCH_OVERHEAD: Final = 1024
_AS_SOURCE: Final = -1
_OF_REFUSAL: Final = (
    "cleanup.policy",
    "retention.min.append.ms",
    "retention.ms",
    "retention.refuse.expired",
    "retention.time.basis",
)


class TargetTopic(NamedTuple):
    """A target topic, and those of its settings that matter."""

    topic: str
    partition_count: int
    is_stamped: bool
    before_ms: int
    after_ms: int
    batch_limit: int
    settings: Mapping[str, str]

    @property
    def changes_times(self) -> bool:
        """Whether records may get other times there than they come with."""
        return self.is_stamped or bool(self.settings.get("message.timestamp.missing.values"))

    @property
    def before_setting(self) -> str:
        """What limits how old records may be: the setting, and its value."""
        name = "message.timestamp.before.max.ms"
        if self.before_ms == _refused_beyond(self.settings) != NO_LIMIT:
            name = "retention.ms, because of retention.refuse.expired, which is"
        return f"{name} = {self.before_ms}"

    def window(self, now_ms: int) -> tuple[int, int]:
        """Returns the oldest and the newest time that the topic accepts now."""
        rules = StampingRules(
            False, None, None
        )  # of a topic that replaces times, which has no window
        if not self.is_stamped:
            rules = StampingRules(False, _or_none(self.before_ms), _or_none(self.after_ms))
        stamps = stamps_at(rules, None, now_ms)
        return stamps.min_timestamp, stamps.max_timestamp


def _or_none(limit_ms: int) -> int | None:
    return None if limit_ms == NO_LIMIT else limit_ms


@declared
class Writing(Options):
    """The target, and the delivery."""

    section = "where to"

    to_broker: Needed = Needed(
        "write to a cluster",
        also=("--to-brokers",),
        parse=brokers,
        metavar="HOST:PORT,...",
        secured_by="to_command_config",
    )
    to_command_config: Text = Text(TO_COMMAND_CONFIG, metavar="FILE")
    create: Flag = Flag("make topics that are not there (else they have to be)")
    set: Many[tuple[str, str]] = Many(
        "a setting of topics that are made, spans as 7d; may be given many times",
        parse=setting,
        metavar="KEY=VALUE",
    )
    append: Flag = Flag(
        "write behind records that the target holds already (else a new run is refused, unless"
        " --exclusive is given)"
    )
    delivery: Choice[Mode] = Choice(
        "transactions where the target has them, else by position where nobody else writes, else"
        " at-least-once; or one of them",
        choices=MODES,
        default=AUTO,
    )
    exclusive: Flag = Flag("nobody else writes to these partitions, though they have records")
    compression: Choice[Codec] = Choice(
        "of the batches written (source)", choices=CODECS, default="source"
    )
    batch_bytes: Item[int] = Item(
        parse=size,
        default=BATCH_LIMIT,
        metavar="SIZE",
        instead="batches are as large as the target takes, up to 512 KiB before compression",
    )


def accept_deletion() -> Flag:
    """Declares the option that writes what the target's retention would delete."""
    return Flag("continue although retention would delete some of the records")


def codec_of(name: str) -> int:
    """Returns the number of a codec, or the one that means the source's codec."""
    return _AS_SOURCE if name == "source" else int(Compression[name.upper()])


def look_at(client: Client, topic: str) -> TargetTopic:
    """Returns the facts about a topic. Raises RequestError if there is none."""
    settings = {name: one.value or "" for name, one in client.topic_settings(topic).items()}
    return as_made(topic, client.partition_count(topic), settings)


def as_made(topic: str, partition_count: int, settings: Mapping[str, str]) -> TargetTopic:
    """Returns the facts that a new topic with these settings would have."""
    largest = min(  # a request and a segment both limit the size of a batch
        int(settings.get("max.message.bytes") or 1 << 20),
        int(settings.get("segment.bytes") or 1 << 30),
    )
    both = _limit(settings.get("message.timestamp.difference.max.ms"))
    return TargetTopic(
        topic,
        partition_count,
        settings.get("message.timestamp.type") == "LogAppendTime",
        min(
            both,
            _limit(settings.get("message.timestamp.before.max.ms")),
            _refused_beyond(settings),
        ),
        min(both, _limit(settings.get("message.timestamp.after.max.ms"))),
        max(largest // 2, largest - _BATCH_OVERHEAD),
        settings,
    )


def _refused_beyond(settings: Mapping[str, str]) -> int:
    """Returns the age in ms from which retention.refuse.expired refuses a record."""
    config = topic_config(
        BrokerConfig(), {name: settings[name] for name in _OF_REFUSAL if settings.get(name)}
    )
    before_ms = rules_of(config, NEWEST_MAGIC).before_ms
    return NO_LIMIT if before_ms is None else before_ms


def as_it_would_be(
    client: Client, topic: str, partition_count: int, settings: Mapping[str, str]
) -> TargetTopic:
    """Returns the facts that a new topic would have, with the cluster's defaults. Creates nothing.

    Where the cluster does not tell its defaults, only the given settings are known. Raises
    UsageError if it would refuse the settings, and RequestError.
    """
    try:
        found = client.perform(topics.validate(topic, partition_count, settings))
    except RequestError as error:
        if error.code is not ErrorCode.INVALID_CONFIG:
            raise
        raise UsageError(str(error)) from error
    known = settings if found is None else {name: value or "" for name, value in found.items()}
    return as_made(topic, partition_count, known)


def prepare(
    client: Client,
    topic: str,
    partition_count: int,
    *,
    create: bool,
    settings: Mapping[str, str],
    exactly: bool = False,
) -> TargetTopic:
    """Returns the topic, which is created if it is missing and `create` is set.

    Raises UsageError if it does not exist, or has too few partitions (or not `exactly` as many).
    """
    if create and not client.has_topic(topic):
        try:
            client.create_topic(topic, partition_count, settings)
        except RequestError as error:  # somebody else may have created it just now
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
    try:
        found = look_at(client, topic)
    except RequestError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise UsageError(f"the target has no topic {topic}: make it, or say --create") from error
    if found.partition_count < partition_count or (
        exactly and found.partition_count != partition_count
    ):
        raise UsageError(
            f"topic {topic} has {some(found.partition_count, 'partition')} in the target, and"
            f" {partition_count} are needed"
        )
    return found


def settle(
    client: Client,
    places: Sequence[TopicPartition],
    options: Writing,
    *,
    left: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Returns the facts about the target for the plan: delivery, producer id, ends, topic ids.

    The partitions are exclusively ours if each is empty or ends where we `left` it, or if an option
    says so. `left` is None where the run is new, and then raises UsageError as `refuse_records`.
    """
    spans = _spans(client, places)
    if left is None:
        _refuse_held(spans, options)
    ends, is_ours = {}, True
    for (topic, partition), (start, end) in spans.items():
        is_ours &= start == end or (left or {}).get(f"{topic}-{partition}") == end
        ends[f"{topic}-{partition}"] = end
    mode = delivery.choose(client, options.delivery, is_exclusive=is_ours or options.exclusive)
    if mode == TRANSACTIONS:
        ensure_progress_topic(client)
    producer_id, _ = client.init_producer_id()
    ids = identities.ids_of(client, {topic for topic, _ in places})
    return {"delivery": mode, "producer_id": producer_id, "ends": ends, "target_ids": ids}


def refuse_records(client: Client, places: Sequence[TopicPartition], options: Writing) -> None:
    """Raises UsageError if one of the partitions holds records, unless an option accepts that.

    A run whose plan is elsewhere, or that had another name, would write its records a second time.
    A topic that does not exist yet holds none.
    """
    there = client.topics()
    _refuse_held(_spans(client, [one for one in places if one[0] in there]), options)


def _refuse_held(spans: Mapping[TopicPartition, tuple[int, int]], options: Writing) -> None:
    if options.append or options.exclusive:
        return
    held: dict[str, int] = {}
    for (topic, _), (start, end) in spans.items():
        if end > start:
            held[topic] = held.get(topic, 0) + end - start
    for topic, number in held.items():
        raise UsageError(
            f"topic {topic} of the target already holds records ({some(number, 'offset')}), and this run is"
            " new: to repeat an earlier run, give its --run and --out, or work in its directory; to write"
            " behind these records, say --append"
        )


def _spans(
    client: Client, places: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the first offset of each partition and its end; they are equal if it is empty."""
    return {
        (topic, partition): (
            client.list_offsets(topic, {partition: EARLIEST})[partition].offset,
            client.list_offsets(topic, {partition: LATEST})[partition].offset,
        )
        for topic, partition in places
    }


def refuse_anew(client: Client, notes: Mapping[str, Any]) -> None:
    """Raises PipelineError if a target topic was created again since the plan, with transactions.

    The progress of transactions is in another topic and would count the records of the earlier one.
    The other modes ask the target itself.
    """
    if notes["delivery"] == TRANSACTIONS:
        for name in identities.made_anew(client, notes.get("target_ids", {})):
            raise PipelineError(identities.sentence(name, "target"))


def tasks_of(
    options: Writing,
    notes: Mapping[str, Any],
    run: str,
    sources: Mapping[TopicPartition, ReplaySource],
    names: Mapping[str, str],
    *,
    compression: int,
) -> list[Task]:
    """Returns a task for each partition that has a source.

    `names` are the names that topics have in the target, as far as they have others. Raises
    PipelineError if a target topic was created again since the plan.
    """
    from tidelog.pipeline.replay.replay import Task

    with Client(options.to_broker) as client:
        refuse_anew(client, notes)
        found = {topic: look_at(client, names.get(topic, topic)) for topic, _ in sources}
    return [
        Task(
            brokers=options.to_broker,
            topic=found[topic].topic,
            partition=partition,
            delivery=delivery_of(notes, run, found[topic].topic, partition),
            source=source,
            source_topic=topic,
            source_partition=partition,
            compression=compression,
            batch_limit=min(options.batch_bytes, found[topic].batch_limit),
            changes_times=found[topic].changes_times,
        )
        for (topic, partition), source in sorted(sources.items())
    ]


def delivery_of(notes: Mapping[str, Any], run: str, topic: str, partition: int) -> Delivery:
    """Returns how one partition is written to, according to the plan."""
    try:
        end = notes["ends"][f"{topic}-{partition}"]
        return Delivery(notes["delivery"], run, end, notes["producer_id"])
    except KeyError as error:
        raise PipelineError(f"the plan does not say where {topic}-{partition} ended") from error


def _limit(text: str | None) -> int:
    """Returns a limit of a window in ms; a missing setting is no limit."""
    if not text:
        return NO_LIMIT
    value = int(text)
    return NO_LIMIT if value < 0 else value
