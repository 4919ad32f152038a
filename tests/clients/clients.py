"""The foreign clients of the matrix: what each is, how its driver starts, what it can and shows.

A client appears once, here. `produce_magic` is the message format it writes, `fetch_magic` the
newest format its Fetch version can be answered with, and the rest says what the client lets a user
set or see; the expectations are worked out from these traits and the broker's rules alone.
"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, NamedTuple

from tests.clients.environments import DRIVERS, Unavailable, environment

if TYPE_CHECKING:
    from pathlib import Path

ALL_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Calls of administration, by the releases of clients that brought them.
TOPIC_CALLS = ("create_topic", "describe_configs", "alter_configs", "delete_topic")
MORE_TOPIC_CALLS = (*TOPIC_CALLS, "create_partitions", "delete_records")
GROUP_CALLS = ("list_groups", "describe_group")
ALL_CALLS = (*MORE_TOPIC_CALLS, *GROUP_CALLS, "delete_group", "list_offsets")
JAVA_OPTIONS = ("-Xmx256m", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Client(NamedTuple):
    """One client library of one version."""

    name: str
    environment: str | None  # name of its recipe; None: the packages of the running Python
    driver: str
    codecs: tuple[str, ...]
    produce_magic: int
    fetch_magic: int
    fetch_version: int  # the newest it uses here; zstd is served as such from version 10
    sets_timestamps: bool = True
    negative_times: bool = True  # it sends times before 1970
    shows_timestamps: bool = True
    shows_types: bool = True
    headers: bool = True
    tells_offsets: bool = True
    empty_value: bool = True
    unreadable: tuple[str, ...] = ()  # codecs the client has no decompression for
    unreadable_in_format_0: tuple[str, ...] = ()  # those it refuses there (lz4's old checksum)
    wrapper_times: bool = True  # it shows the append time of a compressed message of format 1
    reads_mixed: bool = True  # whether it can follow formats that change within one answer
    finds: str = "times"  # or "ends" or "nothing": what it can ask ListOffsets without a group
    idempotence: str = "never"  # or "optional" or "default"
    keeps_order: bool = True  # also without idempotence, when a partition gets another leader
    java_version: str | None = None
    no_groups: str = ""  # why it cannot be a member of a group
    no_commits: str = ""  # why it cannot commit and fetch offsets from outside a group
    rewinds: bool = True  # a member can go back to a time
    admin: tuple[str, ...] = ()  # the calls of administration.py it has
    release: str = ""  # the release of Kafka whose protocol kafka-python speaks; empty: the newest

    @property
    def slug(self) -> str:
        """The name as a part of the names of topics and groups."""
        return self.name.replace(" ", "-").replace(".", "-")

    def command(self, server: str, *, make: bool = True) -> list[str]:
        """The driver's command line; raises Unavailable when its environment cannot be had."""
        driver = DRIVERS / self.driver
        if self.environment is None:
            own = [self.release] if self.release else []
            return [sys.executable, str(driver), server, *own]
        if self.name == "kcat" and shutil.which("kcat"):
            return [sys.executable, str(driver), "-", server]
        place = environment(self.environment, make=make)
        if self.name == "kcat":
            return [sys.executable, str(driver), str(place / "root"), server]
        if self.environment.startswith("librdkafka-"):
            return [sys.executable, str(driver), str(place / "librdkafka.so.1"), server]
        if self.java_version is not None:
            directory = place / self.java_version
            path = f"{directory / 'classes'}:{directory / 'lib'}/*"
            java = [require("java"), *JAVA_OPTIONS, "-cp", path]
            return [*java, "Driver", self.java_version, server]
        if self.driver == "go":
            return [str(place / "driver"), self.name.partition(" ")[0], server]
        if self.driver.startswith("node/"):
            return [require("node"), "--no-deprecation", str(driver), str(place), server]
        return [str(place / "bin" / "python"), str(driver), server]


def require(program: str) -> str:
    """The path of an installed program."""
    found = shutil.which(program)
    if found is None:
        raise Unavailable(f"{program} is not installed")
    return found


KCAT = Client(
    "kcat", "kcat", "kcat_driver.py", ALL_CODECS, 2, 2, 11,
    sets_timestamps=False, negative_times=False, tells_offsets=False, empty_value=False,
    idempotence="optional", no_commits="it has no command for it", rewinds=False,
)  # fmt: skip
# Only an idempotent producer of librdkafka waits for what is under way to the old leader before it sends to
# the new one. Without idempotence a record that has to be sent again may come after those that the new leader
# has, also with one request at a time: that is one for each connection.
CONFLUENT = Client(
    "confluent-kafka", None, "confluent_driver.py", ALL_CODECS, 2, 2, 16,
    idempotence="optional", keeps_order=False, admin=ALL_CALLS,
)  # fmt: skip
LIBRDKAFKA_1X = Client(
    "librdkafka 1.9", "librdkafka-1.x", "librdkafka_driver.py", ALL_CODECS, 2, 2, 11,
    idempotence="optional", admin=GROUP_CALLS,
)  # fmt: skip
# It does not ask which versions are served unless told to (api.version.request).
LIBRDKAFKA_09 = Client(
    "librdkafka 0.9", "librdkafka-0.9", "librdkafka_driver.py", ALL_CODECS[:4], 0, 0, 1,
    sets_timestamps=False, negative_times=False, shows_timestamps=False, shows_types=False,
    headers=False, finds="ends", rewinds=False, admin=GROUP_CALLS,
)  # fmt: skip
KAFKA_PYTHON_3 = Client(
    "kafka-python 3.0", "kafka-python-3.0.12", "kafka_python_driver.py", ALL_CODECS, 2, 2, 16,
    idempotence="default", admin=ALL_CALLS,
)  # fmt: skip
KAFKA_PYTHON_23 = Client(
    "kafka-python 2.3", "kafka-python-2.3.3", "kafka_python_driver.py", ALL_CODECS, 2, 2, 10,
    idempotence="optional", admin=(*MORE_TOPIC_CALLS, *GROUP_CALLS, "delete_group"),
)  # fmt: skip
KAFKA_PYTHON_20 = Client(
    "kafka-python 2.0", "kafka-python-2.0.2", "kafka_python_driver.py", ALL_CODECS, 2, 2, 4,
    admin=(*TOPIC_CALLS, *GROUP_CALLS, "create_partitions", "delete_group"),
)  # fmt: skip
KAFKA_PYTHON_14 = Client(
    "kafka-python 1.4", "kafka-python-1.4.7", "kafka_python_driver.py", ALL_CODECS[:4], 2, 2, 4,
    admin=(*TOPIC_CALLS, *GROUP_CALLS, "create_partitions"),
)  # fmt: skip
# Its compiled reader takes the format of an answer's first message for that of all (the pure Python
# reader of the same release does not).
AIOKAFKA = Client(
    "aiokafka", None, "aiokafka_driver.py", ALL_CODECS, 2, 2, 11,
    unreadable_in_format_0=("lz4",), reads_mixed=False, idempotence="optional",
    admin=(*MORE_TOPIC_CALLS, *GROUP_CALLS),
)  # fmt: skip
# Its producer is the one of kafka-clients, its readers the Scala ones: SimpleConsumer is driven here.
JAVA_08 = Client(
    "java 0.8.2", "java", "", ALL_CODECS[:4], 0, 0, 0,
    sets_timestamps=False, negative_times=False, shows_timestamps=False, shows_types=False, headers=False,
    finds="ends", java_version="0.8.2.2", no_groups="its members coordinate through ZooKeeper",
)  # fmt: skip
JAVA_09 = Client(
    "java 0.9.0", "java", "", ALL_CODECS[:4], 0, 0, 1,
    sets_timestamps=False, negative_times=False, shows_timestamps=False, shows_types=False, headers=False,
    finds="nothing", java_version="0.9.0.1", rewinds=False,
)  # fmt: skip
JAVA_010 = Client(
    "java 0.10.0", "java", "", ALL_CODECS[:4], 1, 1, 2,
    headers=False, negative_times=False, finds="nothing", java_version="0.10.0.1", rewinds=False,
)  # fmt: skip
JAVA_0102 = Client(
    "java 0.10.2", "java", "", ALL_CODECS[:4], 1, 1, 3,
    headers=False, negative_times=False, java_version="0.10.2.2",
)  # fmt: skip
JAVA_011 = Client(
    "java 0.11.0", "java", "", ALL_CODECS[:4], 2, 2, 5,
    idempotence="optional", negative_times=False, java_version="0.11.0.3", admin=TOPIC_CALLS,
)  # fmt: skip
JAVA_11 = Client(
    "java 1.1", "java", "", ALL_CODECS[:4], 2, 2, 7,
    idempotence="optional", negative_times=False, java_version="1.1.1", admin=MORE_TOPIC_CALLS,
)  # fmt: skip
JAVA_28 = Client(
    "java 2.8", "java", "", ALL_CODECS, 2, 2, 12,
    idempotence="optional", negative_times=False, java_version="2.8.2", admin=ALL_CALLS,
)  # fmt: skip
JAVA_39 = Client(
    "java 3.9", "java", "", ALL_CODECS, 2, 2, 16,
    idempotence="default", negative_times=False, java_version="3.9.1", admin=ALL_CALLS,
)  # fmt: skip
JAVA_41 = Client(
    "java 4.1", "java", "", ALL_CODECS, 2, 2, 17,
    idempotence="default", negative_times=False, java_version="4.1.1", admin=ALL_CALLS,
)  # fmt: skip
KAFKA_NODE = Client(
    "kafka-node 5", "node", "node/kafka_node_driver.js", ALL_CODECS[:3], 1, 1, 2,
    shows_types=False, wrapper_times=False, headers=False, unreadable=("lz4",), finds="ends", rewinds=False,
    admin=("create_topic", "describe_configs", *GROUP_CALLS),
)  # fmt: skip
NO_KAFKA = Client(
    "no-kafka 3", "node", "node/no_kafka_driver.js", ALL_CODECS[:3], 0, 0, 0,
    sets_timestamps=False, negative_times=False, shows_timestamps=False, shows_types=False, headers=False,
    unreadable=("lz4",), finds="ends", rewinds=False,
)  # fmt: skip

# It takes the format of an answer's first message for that of all.
KAFKAJS = Client(
    "kafkajs 2", "node", "node/kafkajs_driver.js", ALL_CODECS[:3], 2, 2, 11,
    shows_types=False, wrapper_times=False, unreadable=("lz4", "zstd"), reads_mixed=False,
    idempotence="optional", admin=ALL_CALLS,
)  # fmt: skip
FRANZ_GO = Client(
    "franz-go 1", "go", "go", ALL_CODECS, 2, 2, 16,
    wrapper_times=False, unreadable_in_format_0=("lz4",), idempotence="default", admin=ALL_CALLS,
)  # fmt: skip

# Its users have a producer and a group that work for long: it takes part in the rolling restart alone.
SARAMA = Client("sarama 1", "go", "go", ALL_CODECS, 2, 2, 11, idempotence="optional")

CLIENTS = (
    KCAT, CONFLUENT, LIBRDKAFKA_1X, LIBRDKAFKA_09, KAFKA_PYTHON_3, KAFKA_PYTHON_23, KAFKA_PYTHON_20,
    KAFKA_PYTHON_14, AIOKAFKA, JAVA_08, JAVA_09, JAVA_010, JAVA_0102, JAVA_011, JAVA_11, JAVA_28,
    JAVA_39, JAVA_41, KAFKA_NODE, NO_KAFKA, KAFKAJS, FRANZ_GO,
)  # fmt: skip

# Groups whose members are of different clients; all share partitions by ranges. The first one leads.
MIXED_GROUPS = (
    (JAVA_28, KAFKA_PYTHON_20, LIBRDKAFKA_1X),
    (JAVA_09, LIBRDKAFKA_09, KAFKA_PYTHON_14),
    (KAFKA_PYTHON_3, JAVA_41, CONFLUENT),
    (AIOKAFKA, KCAT, JAVA_0102),  # kcat goes while nobody else does: see its driver
    (CONFLUENT, AIOKAFKA, KAFKA_PYTHON_3),
    (FRANZ_GO, JAVA_011, KAFKA_NODE),
)

# One of each family: what is run a second time, against the Python kernels.
SHORT = (CONFLUENT, LIBRDKAFKA_09, KAFKA_PYTHON_20, AIOKAFKA, JAVA_08, JAVA_0102, JAVA_39, KAFKAJS)

# Against three brokers: one of each family, of the oldest protocols, and of both kinds of transactions (the
# producer of Java 4.1 gets a new epoch after each). The SimpleConsumer of Java 0.8.2 is
# told one broker and asks no other.
ON_THREE_BROKERS = (
    CONFLUENT, LIBRDKAFKA_09, KAFKA_PYTHON_3, AIOKAFKA, JAVA_0102, JAVA_39, JAVA_41, KAFKAJS, FRANZ_GO,
    NO_KAFKA._replace(no_commits="it sends them to the leader of their partition, as if for ZooKeeper"),
)  # fmt: skip

# These work on while brokers restart.
ROLLING = (
    CONFLUENT, KAFKA_PYTHON_3, AIOKAFKA, JAVA_0102, JAVA_39, JAVA_41, KAFKAJS, FRANZ_GO, SARAMA,
)  # fmt: skip

# These try on while no broker can be reached. The producers of kafkajs and sarama give up then, and tell the
# application that the record could not be sent.
PATIENT = tuple(each for each in ROLLING if each not in (KAFKAJS, SARAMA))

# What the development environment already holds: the matrix of every `make test`. There kafka-python
# lacks the modules it compresses snappy with, and reads lz4's old checksum with.
QUICK = (
    CONFLUENT,
    KAFKA_PYTHON_3._replace(
        environment=None,
        codecs=("none", "gzip", "lz4", "zstd"),
        unreadable=("snappy",),
        unreadable_in_format_0=("lz4",),
    ),
    AIOKAFKA,
)

# kafka-python as it speaks to brokers of 0.9 (Fetch v1, format 0) and 0.10 (Fetch v2, format 1).
_SPEAKS_OLD = QUICK[1]._replace(
    codecs=("none", "gzip"), headers=False, negative_times=False, idempotence="default", admin=()
)
OLD_PROTOCOLS = (
    _SPEAKS_OLD._replace(
        name="kafka-python as 0.9", release="0.9", produce_magic=0, fetch_magic=0, fetch_version=1,
        sets_timestamps=False,
    ),
    _SPEAKS_OLD._replace(
        name="kafka-python as 0.10", release="0.10.0", produce_magic=1, fetch_magic=1, fetch_version=2,
    ),
)  # fmt: skip

# These go through KIP-32's migration; the second ones also as groups that work all the time (a producer of
# Java 3.9 that stays open is idempotent by default, which formats 0 and 1 have no place for).
MIGRATING = (
    JAVA_09, JAVA_010, JAVA_0102, LIBRDKAFKA_09, JAVA_39, JAVA_41, CONFLUENT, KAFKA_PYTHON_3,
    *OLD_PROTOCOLS,
)  # fmt: skip
MIGRATING_GROUPS = (JAVA_0102, CONFLUENT, *OLD_PROTOCOLS)


def driver_files() -> list[Path]:
    """Every driver source, for tests that look at them."""
    return sorted(path for path in DRIVERS.rglob("*") if path.is_file())
