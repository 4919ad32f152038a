"""Our codecs against two that share no line with them: kio (what Kafka 4 speaks) and kafka-python.

A random message is encoded by ours, decoded by the oracle, compared field by field and name by name,
and encoded again by the oracle: the bytes must be the same. Ours then decodes the oracle's bytes to
the message it began with. Every API, both directions, every version the oracle knows.
"""

from __future__ import annotations

import datetime as dt
import enum
import importlib
import io
import warnings
from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from tests.protocol.random_messages import all_codecs, codec_name, is_own, messages
from tidelog.protocol.message import ZERO_UUID, codec
from tidelog.protocol.schema import Message

QUICK, LONG = 6, 400
EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)

KAFKA_PYTHON_MODULES = (
    "kafka.protocol.admin",
    "kafka.protocol.consumer",
    "kafka.protocol.metadata",
    "kafka.protocol.producer",
)


@cache
def kafka_python_class(name: str) -> type | None:
    for module in KAFKA_PYTHON_MODULES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it reads its JSON in an old way
            found = getattr(importlib.import_module(module), name, None)
        if found is not None:
            return found
    return None


@cache
def kio_class(cls: type[Message], version: int) -> type | None:
    package = cls.__module__.rsplit(".", 1)[1]
    direction = "request" if cls.__name__.endswith("Request") else "response"
    try:
        module = importlib.import_module(f"kio.schema.{package}.v{version}.{direction}")
    except ModuleNotFoundError:
        return None
    return getattr(module, cls.__name__)


def plain(value: object) -> object:
    """An oracle's value as the wire has it: kio makes objects of times, ids and error codes."""
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(milliseconds=1)
    if isinstance(value, dt.datetime):
        return (value - EPOCH) // dt.timedelta(milliseconds=1)
    if isinstance(value, set):
        return int.from_bytes(sum(1 << bit for bit in value).to_bytes(4, "big"), "big", signed=True)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    return value


def their_field(theirs: object, name: str) -> object:
    """The oracle's field of that name: kio drops units, kafka-python renames the bit sets."""
    for alias in (name, name.removesuffix("_ms"), "authorized_operations"):
        if hasattr(theirs, alias):
            return getattr(theirs, alias)
    raise AssertionError(f"{type(theirs).__name__} has no {name}")


def assert_same_fields(ours: Message, theirs: object, version: int) -> None:
    for field in ours.declared_fields:
        if not field.exists_in(version) or is_own(field):
            continue
        assert_same(getattr(ours, field.name), plain(their_field(theirs, field.name)), version)


def assert_same(ours: object, theirs: object, version: int) -> None:
    if isinstance(ours, Message):
        assert_same_fields(ours, theirs, version)
    elif isinstance(ours, list):
        assert isinstance(theirs, list)
        assert len(ours) == len(theirs)
        for our, their in zip(ours, theirs, strict=True):
            assert_same(our, plain(their), version)
    elif ours is None:
        # An absent tagged struct: kio has one of defaults, kafka-python None.
        assert theirs is None or theirs == type(theirs)()
    elif theirs is None:
        assert ours in (ZERO_UUID, -1, -(2**31))  # their word for what was not told
    else:
        assert ours == theirs


def check_with_kio(data: st.DataObject, cls: type[Message], version: int) -> None:
    foreign = kio_class(cls, version)
    message = data.draw(messages(cls, version, tame=True))
    encoded = codec(cls, version).encode(message)
    theirs, end = entity_reader(foreign)(encoded, 0)
    assert end == len(encoded)
    assert_same_fields(message, theirs, version)
    again = io.BytesIO()
    entity_writer(foreign)(again, theirs)
    assert again.getvalue() == encoded
    assert codec(cls, version).decode(again.getvalue()) == (message, len(encoded))


def check_with_kafka_python(data: st.DataObject, cls: type[Message], version: int) -> None:
    foreign = kafka_python_class(cls.__name__)
    message = data.draw(messages(cls, version))
    if cls.__name__ == "ApiVersionsResponse":
        message.error_code = 0  # with an error it reads version 0 whatever it was asked to read
    encoded = codec(cls, version).encode(message)
    theirs = foreign[version].decode(encoded)
    assert_same_fields(message, theirs, version)
    theirs.with_header(0)  # it cannot encode what it decoded without one
    again = bytes(theirs.encode())
    assert again == encoded
    assert codec(cls, version).decode(again) == (message, len(encoded))


def by_class(cases: list[tuple[type[Message], int]]) -> dict[type[Message], list[int]]:
    found: dict[type[Message], list[int]] = {}
    for cls, version in cases:
        found.setdefault(cls, []).append(version)
    return found


KIO_CASES = [case for case in all_codecs() if kio_class(*case)]
KAFKA_PYTHON_CASES = [
    (cls, version)
    for cls, version in all_codecs()
    if kafka_python_class(cls.__name__) and version <= kafka_python_class(cls.__name__).max_version
]


def profile(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    )


ORACLES = {
    "kio": (check_with_kio, by_class(KIO_CASES)),
    "kafka-python": (check_with_kafka_python, by_class(KAFKA_PYTHON_CASES)),
}
CLASSES = [(name, cls) for name, (_, versions) in ORACLES.items() for cls in versions]


def check_any_version(data: st.DataObject, name: str, cls: type[Message]) -> None:
    check, versions = ORACLES[name]
    check(data, cls, data.draw(st.sampled_from(versions[cls])))


@pytest.mark.parametrize(("name", "cls"), CLASSES, ids=codec_name)
@profile(QUICK)
@given(data=st.data())
def test_an_oracle_reads_and_writes_the_same(data, name, cls):
    """Any version, another in every run."""
    check_any_version(data, name, cls)


@pytest.mark.long
@pytest.mark.parametrize(("name", "cls"), CLASSES, ids=codec_name)
@profile(LONG)
@given(data=st.data())
def test_an_oracle_reads_and_writes_the_same_many_times(data, name, cls):
    check_any_version(data, name, cls)


def test_every_codec_has_an_oracle():
    judged = {*KIO_CASES, *KAFKA_PYTHON_CASES}
    unjudged = [
        (cls.__name__, version) for cls, version in all_codecs() if (cls, version) not in judged
    ]
    # Younger than both oracles, and not served: KIP-1242.
    assert unjudged == [("ApiVersionsRequest", 5), ("ApiVersionsResponse", 5)]
