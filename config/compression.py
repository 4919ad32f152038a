"""The settings of compression: which codec the stored batches have, and its levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.config.setting import BrokerName, Type, setting

if TYPE_CHECKING:
    from collections.abc import Mapping

CODECS: Mapping[str, int | None] = {
    "producer": None,
    "uncompressed": 0,
    "gzip": 1,
    "snappy": 2,
    "lz4": 3,
    "zstd": 4,
}
"""The values of compression.type -> the number of the codec; None: as the producer compressed."""


def gzip_level(text: str) -> int:
    """Returns a level of gzip. Raises ValueError if there is no such level."""
    level = int(text)
    if level != -1 and not 1 <= level <= 9:
        raise ValueError("expected 1 to 9, or -1 for the codec's own choice")
    return level


COMPRESSION_TYPE: Any = setting(
    "compression.type",
    Type.STRING,
    "producer",
    "The codec of stored batches; producer keeps the codec that the producer chose.",
    choices=tuple(CODECS),
    broker_names=(BrokerName("compression.type"),),
)
GZIP_LEVEL: Any = setting(
    "compression.gzip.level",
    Type.INT,
    -1,
    "The gzip level of batches that the broker compresses; -1 is the codec's own default.",
    convert=gzip_level,
    broker_names=(BrokerName("compression.gzip.level"),),
    effective=False,
)
LZ4_LEVEL: Any = setting(
    "compression.lz4.level",
    Type.INT,
    9,
    "The lz4 level of batches that the broker compresses.",
    low=1,
    high=17,
    broker_names=(BrokerName("compression.lz4.level"),),
    effective=False,
)
ZSTD_LEVEL: Any = setting(
    "compression.zstd.level",
    Type.INT,
    3,
    "The zstd level of batches that the broker compresses.",
    low=-131_072,
    high=22,
    broker_names=(BrokerName("compression.zstd.level"),),
    effective=False,
)
