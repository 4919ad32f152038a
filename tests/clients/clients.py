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
    reads_mixed: bool = True  # whether it can follow formats that change within one answer
    finds: str = "times"  # or "ends" or "nothing": what it can ask ListOffsets without a group
    idempotence: str = "never"  # or "optional" or "default"
    java_version: str | None = None

    def command(self, server: str, *, make: bool = True) -> list[str]:
        """The driver's command line; raises Unavailable when its environment cannot be had."""
        driver = DRIVERS / self.driver
        if self.environment is None:
            return [sys.executable, str(driver), server]
        if self.name == "kcat" and shutil.which("kcat"):
            return [sys.executable, str(driver), "-", server]
        place = environment(self.environment, make=make)
        if self.name == "kcat":
            return [sys.executable, str(driver), str(place / "root"), server]
        if self.environment == "librdkafka-1.x":
            return [sys.executable, str(driver), str(place / "librdkafka.so.1"), server]
        if self.java_version is not None:
            directory = place / self.java_version
            path = f"{directory / 'classes'}:{directory / 'lib'}/*"
            java = [require("java"), *JAVA_OPTIONS, "-cp", path]
            return [*java, "Driver", self.java_version, server]
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
    idempotence="optional",
)  # fmt: skip
CONFLUENT = Client(
    "confluent-kafka", None, "confluent_driver.py", ALL_CODECS, 2, 2, 16, idempotence="optional"
)
LIBRDKAFKA_1X = Client(
    "librdkafka 1.9", "librdkafka-1.x", "librdkafka_driver.py", ALL_CODECS, 2, 2, 11,
    idempotence="optional",
)  # fmt: skip
KAFKA_PYTHON_3 = Client(
    "kafka-python 3.0", "kafka-python-3.0.12", "kafka_python_driver.py", ALL_CODECS, 2, 2, 16,
    idempotence="default",
)  # fmt: skip
KAFKA_PYTHON_20 = Client(
    "kafka-python 2.0", "kafka-python-2.0.2", "kafka_python_driver.py", ALL_CODECS, 2, 2, 4
)
KAFKA_PYTHON_14 = Client(
    "kafka-python 1.4", "kafka-python-1.4.7", "kafka_python_driver.py", ALL_CODECS[:4], 2, 2, 4
)
# Its compiled reader takes the format of an answer's first message for that of all (the pure Python
# reader of the same release does not).
AIOKAFKA = Client(
    "aiokafka", None, "aiokafka_driver.py", ALL_CODECS, 2, 2, 11,
    unreadable_in_format_0=("lz4",), reads_mixed=False, idempotence="optional",
)  # fmt: skip
JAVA_09 = Client(
    "java 0.9.0", "java", "", ALL_CODECS[:4], 0, 0, 1,
    sets_timestamps=False, negative_times=False, shows_timestamps=False, shows_types=False, headers=False,
    finds="nothing", java_version="0.9.0.1",
)  # fmt: skip
JAVA_010 = Client(
    "java 0.10.0", "java", "", ALL_CODECS[:4], 1, 1, 2,
    headers=False, negative_times=False, finds="nothing", java_version="0.10.0.1",
)  # fmt: skip
JAVA_011 = Client(
    "java 0.11.0", "java", "", ALL_CODECS[:4], 2, 2, 5,
    idempotence="optional", negative_times=False, java_version="0.11.0.3",
)  # fmt: skip
JAVA_39 = Client(
    "java 3.9", "java", "", ALL_CODECS, 2, 2, 16,
    idempotence="default", negative_times=False, java_version="3.9.1",
)  # fmt: skip
JAVA_41 = Client(
    "java 4.1", "java", "", ALL_CODECS, 2, 2, 17,
    idempotence="default", negative_times=False, java_version="4.1.1",
)  # fmt: skip
KAFKA_NODE = Client(
    "kafka-node 5", "node", "node/kafka_node_driver.js", ALL_CODECS[:3], 1, 1, 2,
    shows_types=False, headers=False, unreadable=("lz4",), finds="ends",
)  # fmt: skip
NO_KAFKA = Client(
    "no-kafka 3", "node", "node/no_kafka_driver.js", ALL_CODECS[:3], 0, 0, 0,
    sets_timestamps=False, negative_times=False, shows_timestamps=False, shows_types=False, headers=False,
    unreadable=("lz4",), finds="ends",
)  # fmt: skip

CLIENTS = (
    KCAT, CONFLUENT, LIBRDKAFKA_1X, KAFKA_PYTHON_3, KAFKA_PYTHON_20, KAFKA_PYTHON_14, AIOKAFKA,
    JAVA_09, JAVA_010, JAVA_011, JAVA_39, JAVA_41, KAFKA_NODE, NO_KAFKA,
)  # fmt: skip

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


def driver_files() -> list[Path]:
    """Every driver source, for tests that look at them."""
    return sorted(path for path in DRIVERS.rglob("*") if path.is_file())
