"""The values of the settings compression.type and compression.gzip.level."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
