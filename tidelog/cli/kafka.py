"""The connection of the commands that speak Kafka's protocol, with kafka-python underneath.

What goes wrong there becomes a CommandError of one sentence. kafka-python is an extra (`tidelog[admin]`):
it is imported when a command first connects.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.shared import BROKER_ADDRESS, USAGE, CommandError, add_common, ask, check_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

_CONNECT_S = 10.0
_OLDEST_KAFKA_PYTHON = 3  # older ones have other names for half of what is called here
_INSTALL = "pip install 'kafka-python>=3,<4', or give tidelog an environment of its own (docs/installing.md)"
EARLIEST, LATEST = -2, -1  # what ListOffsets calls them
UNSAYABLE_MS = range(-6, 0)  # times that ListOffsets has no number for
_TOPIC, _BROKER = 2, 4
_INVALID_TOPIC = 17
_SET, _DELETE = 0, 1
_SOURCES = {
    1: "topic",
    2: "broker, set live",
    3: "all brokers, set live",
    4: "broker's start",
    5: "default",
}


class Entry(NamedTuple):
    """A setting: its value, where that comes from, and what it falls back on, strongest first."""

    name: str
    value: str | None
    source: str
    is_read_only: bool
    doc: str
    synonyms: tuple[tuple[str, str | None, str], ...]  # name, value, source

    @property
    def default(self) -> str | None:
        """The value if nobody sets anything."""
        return self.synonyms[-1][1] if self.synonyms else None


def add_broker(parser: argparse.ArgumentParser, *, again: bool = False) -> None:
    """The option that names the broker's Kafka port; `again` as in add_common."""
    parser.add_argument(
        "--broker",
        metavar="HOST:PORT",
        default=argparse.SUPPRESS if again else BROKER_ADDRESS,
        help=f"the broker's Kafka port ({BROKER_ADDRESS})",
    )


def add_actions(
    parser: argparse.ArgumentParser, described: Mapping[str, str]
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The sub-commands of one that speaks to a broker, each with its parser; without one it lists."""
    add_broker(parser)
    add_common(parser)
    parser.set_defaults(action="list")
    actions = parser.add_subparsers(metavar="action")
    for action, text in described.items():
        one = actions.add_parser(action, help=text, allow_abbrev=False)
        one.set_defaults(action=action)
        yield action, one
        add_broker(one, again=True)
        add_common(one, again=True)


def check_broker(address: str) -> None:
    """Make sure that kafka-python is there and that something listens. Raises CommandError."""
    check_address("--broker", address)
    try:
        import kafka
    except ImportError:
        raise CommandError(f"Kafka's protocol needs kafka-python 3: {_INSTALL}") from None
    version = str(kafka.__version__)
    if int(version.partition(".")[0]) < _OLDEST_KAFKA_PYTHON:
        raise CommandError(
            f"Kafka's protocol needs kafka-python 3, and {version} is installed: {_INSTALL}"
        )
    import logging
    import socket

    host, _, port = address.rpartition(":")
    try:  # the client would try again and again
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except OSError as error:
        raise CommandError(
            f"no broker answers at {address} ({error.strerror or error}): is one running there? "
            "--broker HOST:PORT names another"
        ) from None
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # what goes wrong is raised as well
    _lend_snappy()


def _lend_snappy() -> None:
    """Let kafka-python, where nobody has installed python-snappy, use the broker's own library for it."""
    import cramjam
    from kafka import codec

    class Snappy:
        """What kafka-python asks of python-snappy: single blocks."""

        @staticmethod
        def compress(data: bytes) -> bytes:
            return bytes(cramjam.snappy.compress_raw(data))

        @staticmethod
        def decompress(data: bytes) -> bytes:
            return bytes(cramjam.snappy.decompress_raw(data))

    if codec.snappy is None:
        codec.snappy = Snappy


@contextlib.contextmanager
def telling(what: str = "") -> Iterator[None]:
    """Turn what kafka-python raises into a CommandError, which begins with `what`."""
    from kafka.errors import KafkaError

    try:
        yield
    except (KafkaError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise CommandError(what + sentence_of(error)) from None
    except ValueError as error:  # kafka-python's own checks
        raise CommandError(what + sentence_of(error), USAGE) from None


def no_broker(address: str, error: BaseException) -> CommandError:
    """What is told of something that listens and does not speak Kafka's protocol."""
    return CommandError(f"what answers at {address} is no Kafka broker ({type(error).__name__})")


def sentence_of(error: BaseException) -> str:
    """What kafka-python says of an error, in short."""
    return " ".join(str(error).split()) or type(error).__name__


class Kafka:
    """One broker, asked with kafka-python's admin client; a context manager."""

    def __init__(self, address: str) -> None:
        """Connect. Raises CommandError."""
        check_broker(address)
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        self.address = address
        try:
            self._admin = KafkaAdminClient(bootstrap_servers=address, client_id="tidelog")
        except (KafkaError, OSError, ValueError) as error:
            raise no_broker(address, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self._admin.close()

    def _send(self, request: Any, node_id: int | None = None) -> Any:
        """Send a request as it is: kafka-python's own calls leave out documentation and error messages."""
        with telling():
            manager = self._admin._manager  # noqa: SLF001 - there is no public way; the pin holds it
            return manager.run(manager.send, request, node_id)

    # --- topics ------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """Topics as Metadata tells them, by name: all, or those named. Raises CommandError."""
        with telling():
            found = self._admin.describe_topics(None if names is None else list(names))
        for topic in found:
            if topic["error_code"] == _INVALID_TOPIC:
                raise CommandError(
                    f"{topic['name']!r} is no topic's name: one has up to 249 ASCII letters, digits, '.', "
                    "'_' and '-'",
                    USAGE,
                )
            if topic["error_code"]:
                raise CommandError(
                    f"there is no topic {topic['name']}"
                    if topic["error_code"] == 3
                    else f"{topic['name']}: {_error(topic['error_code'])}"
                )
            topic["partitions"].sort(key=lambda each: each["partition_index"])
        return sorted(found, key=lambda topic: str(topic["name"]))

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Make a topic; -1 partitions: as many as the broker's default. Raises CommandError."""
        asked = {"num_partitions": partitions, "replication_factor": -1, "configs": dict(settings)}
        with telling():
            (told,) = self._admin.create_topics({name: asked}, raise_errors=False)["topics"]
        _refused(told, f"{name}: ")

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics; those that can be are, even if others cannot. Raises CommandError."""
        with telling():
            told = self._admin.delete_topics(list(names), raise_errors=False)["topics"]
        for each in told:
            _refused(each, f"{each['name']}: ")

    def add_partitions(self, name: str, count: int) -> None:
        """Give a topic `count` partitions in all. Raises CommandError."""
        with telling():
            told = self._admin.create_partitions({name: count}, raise_errors=False)
        for each in told.results:
            _refused(each.to_dict(), f"{name}: ")

    def sizes(self, name: str) -> dict[int, int]:
        """Bytes of each partition's log; nothing where the broker does not tell."""
        from kafka.errors import KafkaError

        try:
            told = self._admin.describe_log_dirs([name])
        except KafkaError:
            return {}
        return {
            partition["partition_index"]: partition["partition_size"]
            for broker in told
            for directory in broker["log_dirs"]
            for topic in directory["topics"]
            if topic["name"] == name
            for partition in topic["partitions"]
            if not partition["is_future_key"]
        }

    def offsets(self, name: str, partitions: Iterable[int], at: int) -> dict[int, int]:
        """The offset of a time (or EARLIEST, LATEST) in each partition; -1 where there is none.

        Not for UNSAYABLE_MS. Raises CommandError.
        """
        from kafka import TopicPartition

        asked = {TopicPartition(name, number): at for number in partitions}
        if at < min(UNSAYABLE_MS):  # kafka-python has no name for it, and needs none
            found = {each: self._offset_before_1970(name, each.partition, at) for each in asked}
        else:
            with telling():
                told = self._admin.list_partition_offsets(asked)
            found = {each: result.offset for each, result in told.items()}
        return {each.partition: offset for each, offset in found.items()}

    def _offset_before_1970(self, name: str, partition: int, at: int) -> int:
        from kafka.protocol.consumer import ListOffsetsRequest

        topic = ListOffsetsRequest.ListOffsetsTopic
        told = self._send(
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=0,
                topics=[
                    topic(
                        name=name,
                        partitions=[
                            topic.ListOffsetsPartition(partition_index=partition, timestamp=at)
                        ],
                    )
                ],
                min_version=1,
            )
        )
        (found,) = told.topics[0].partitions
        if found.error_code:
            raise CommandError(f"{name}-{partition}: {_error(found.error_code)}")
        return int(found.offset)

    def delete_records(self, name: str, offsets: Mapping[int, int]) -> None:
        """Have the log of each partition begin at an offset. Raises CommandError."""
        from kafka import TopicPartition

        with telling("not all was deleted: "):
            self._admin.delete_records({TopicPartition(name, n): at for n, at in offsets.items()})

    def is_at(self, http: str, name: str) -> dict[str, Any] | None:
        """What the HTTP port tells of "now" in this topic, if it is this broker's; else None."""
        try:
            (topic,) = self.topics([name])
            told = ask(http, "topics", name, "offsets", query=[("at", "now"), ("shift", "true")])
        except CommandError:
            return None
        return told if told.get("topic_id") == str(topic.get("topic_id")) else None

    # --- settings ----------------------------------------------------------------------------

    def settings(self, topic: str | None) -> list[Entry]:
        """Every setting of a topic, or with None of the broker. Raises CommandError."""
        from kafka.protocol.admin import DescribeConfigsRequest

        told = self._send(
            DescribeConfigsRequest(
                resources=[(*self._resource(topic), None)],
                include_synonyms=True,
                include_documentation=True,
                min_version=3,
            )
        )
        (result,) = told.results
        _refused(result.to_dict(), "")
        return [
            Entry(
                each.name,
                each.value,
                _source(each.config_source),
                bool(each.read_only),
                each.documentation or "",
                tuple((one.name, one.value, _source(one.source)) for one in each.synonyms),
            )
            for each in sorted(result.configs, key=lambda each: str(each.name))
        ]

    def alter(
        self, topic: str | None, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Change settings, all or none; None: what it falls back on. Raises CommandError."""
        from kafka.protocol.admin import IncrementalAlterConfigsRequest

        entries = [
            (name, _DELETE if value is None else _SET, value) for name, value in changes.items()
        ]
        told = self._send(
            IncrementalAlterConfigsRequest(
                resources=[(*self._resource(topic), entries)], validate_only=validate_only
            )
        )
        _refused(told.responses[0].to_dict(), "")

    def _resource(self, topic: str | None) -> tuple[int, str]:
        if topic is not None:
            return _TOPIC, topic
        with telling():
            (broker,) = self._admin.describe_cluster()["brokers"][:1]
        return _BROKER, str(broker["node_id"] if "node_id" in broker else broker["broker_id"])


def _source(number: int) -> str:
    return _SOURCES.get(number, str(number))


def _error(code: int) -> str:
    from kafka.errors import for_code

    known: str = for_code(code).__name__
    return known.removesuffix("Error")


def _refused(told: Mapping[str, Any], prefix: str) -> None:
    """Raise what the broker says of something it did not do; a mistake of the caller's is status 2."""
    code = told["error_code"]
    if not code:
        return
    message = told.get("error_message") or _error(code)
    raise CommandError(prefix + message, USAGE if code in _MISTAKEN else 1)


_MISTAKEN = frozenset({17, 37, 40, 42})  # name, partitions, config, request: invalid
