"""Our codecs against Apache Kafka's own classes, and our declarations against its message files.

Random messages of every API, direction and version are encoded by ours; the Kafka classes decode and
encode them again and must come to the same bytes. The declarations (names, types, versions, nulls,
tags, defaults) are compared with the JSON files inside the kafka-clients jar.
"""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.oracle.apache_kafka import available, fetch, find_java
from tests.protocol.random_messages import all_codecs, codec_name, is_own, messages
from tidelog.protocol.message import api_of, codec, known_apis
from tidelog.protocol.schema import ZERO_UUID, Field, Message, struct_of

VERSION = "3.9.1"
EXAMPLES = 25
# Kafka may name a struct of a request and one of its response alike; here each has a name of its own.
RENAMED = {
    "AlterEntryData": "EntryData",
    "DescribedTopic": "TopicData",
    "DescribedPartition": "PartitionData",
}
JUDGE = Path(__file__).with_name("KafkaJudge.java")

pytestmark = pytest.mark.oracle


@cache
def jars() -> list[Path]:
    able = available(VERSION)
    if not able:
        pytest.skip(able.reason)
    return sorted(fetch(VERSION).rglob("*.jar"))


def examples(cls: type[Message], version: int) -> list[bytes]:
    made = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(
        messages(cls, version, own=True)
    )  # Kafka keeps tags it does not know, and writes them back
    def collect(message: Message) -> None:
        made.append(codec(cls, version).encode(message))

    collect()
    return made


@pytest.mark.timeout(900)
def test_kafka_reads_and_writes_the_same():
    asked = [
        (cls, version, encoded)
        for cls, version in all_codecs()
        for encoded in examples(cls, version)
    ]
    lines = [
        f"{key_of(cls)} {direction_of(cls)} {version} {encoded.hex()}\n"
        for cls, version, encoded in asked
    ]
    class_path = ":".join(map(str, jars()))
    done = subprocess.run(
        [find_java(), "-cp", class_path, str(JUDGE)],
        input="".join(lines),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "compiler" in done.stderr and done.returncode:
        pytest.skip(f"this Java runtime cannot compile the judge: {done.stderr.strip()[:200]}")
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(asked)
    judged = 0
    for (cls, version, encoded), answer in zip(asked, answers, strict=True):
        if answer != "unsupported":
            assert answer == encoded.hex(), (cls.__name__, version)
            judged += 1
    # Kafka 3.9 knows all but the dozen versions that came with 4.x.
    assert judged > 0.9 * len(asked)


def key_of(cls: type[Message]) -> int:
    return next(
        entry.key
        for entry in known_apis()
        if cls.__module__ == f"tidelog.protocol.api.{entry.module}"
    )


def direction_of(cls: type[Message]) -> str:
    return "request" if cls.__name__.endswith("Request") else "response"


# --- declarations --------------------------------------------------------------------------------


@cache
def message_file(name: str) -> dict:
    jar = next(path for path in jars() if re.fullmatch(r"kafka-clients-[\d.]+\.jar", path.name))
    with zipfile.ZipFile(jar) as archive:
        text = archive.read(f"common/message/{name}.json").decode()
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def first_and_last(versions: str | None) -> tuple[int, int | None] | None:
    if versions in (None, "none"):
        return None
    first, _, last = versions.replace("+", "-").partition("-")
    if "-" not in versions and "+" not in versions:
        last = first
    return int(first), int(last) if last else None


def plain_default(told: dict, field: Field) -> object:
    default = told.get("default")
    if default == "null" or (default is None and told["type"] == "records"):
        return None
    if field.is_array:
        return []
    if field.is_struct:
        return None
    if field.kind == "Uuid":
        return ZERO_UUID
    if field.kind == "String":
        # Ours is null where Kafka's is the empty string of a field that was always nullable.
        always_nullable = field.nullable_first == field.first
        return None if default is None and always_nullable else default or ""
    if field.kind == "Bytes":
        return b""
    if field.kind == "Bool":
        return str(default).lower() == "true"
    return int(str(default or 0), 0)


def compare(cls: type[Message], told_fields: list[dict], common: dict, limit: int) -> None:
    """`limit`: the last version both know; what exists only after it is not compared."""
    ours = {
        field.name: field
        for field in cls.declared_fields
        if field.first <= limit and not is_own(field)
    }
    told_by_name = {snake(told["name"]): told for told in told_fields}
    assert list(ours) == list(told_by_name), cls.__name__
    for name, told in told_by_name.items():
        field, where = ours[name], f"{cls.__name__}.{name}"
        kind = told["type"].removeprefix("[]")
        assert field.is_array == told["type"].startswith("[]"), where
        first, last = first_and_last(told["versions"])
        assert field.first == first, where
        assert field.last == last or (last is None and field.last in (limit, limit + 1)), where
        nullable = first_and_last(told.get("nullableVersions"))
        assert field.nullable_first == (max(nullable[0], first) if nullable else None), where
        assert field.tag == told.get("tag"), where
        if not field.is_struct:
            ours_kind = "records" if field.kind == "RecordParts" else field.kind.lower()
            assert ours_kind == kind, where
            assert field.default == plain_default(told, field), where
        else:
            assert RENAMED.get(field.kind, field.kind) == kind, where
            compare(struct_of(cls, field), told.get("fields") or common[kind], common, limit)


@pytest.mark.parametrize(
    "cls",
    [c for e in known_apis() for c in (api_of(e.key).request, api_of(e.key).response)],
    ids=codec_name,
)
def test_declared_as_kafka_declares_it(cls):
    told = message_file(cls.__name__)
    common = {struct["name"]: struct["fields"] for struct in told.get("commonStructs", [])}
    limit = first_and_last(told["validVersions"])[1]
    assert told["apiKey"] == key_of(cls)
    flexible = first_and_last(told["flexibleVersions"])
    assert (flexible and flexible[0]) == api_of(key_of(cls)).first_flexible
    compare(cls, told["fields"], common, limit)
