"""Metrics of the disks that hold the log directories."""

from __future__ import annotations

import os
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.http.metrics.family import GAUGE, Family

if TYPE_CHECKING:
    from tidelog.broker.http.metrics.family import Read, Samples, Scrape


class _Volume(NamedTuple):
    """The size of a directory's volume, and the bytes that the broker may still write to it."""

    total_bytes: int
    free_bytes: int


def _volumes(scrape: Scrape) -> dict[str, _Volume]:
    """Returns the volumes by log directory, without directories that do not exist any more."""
    found = scrape.shared.get(__name__)
    if isinstance(found, dict):
        return found
    volumes: dict[str, _Volume] = {}
    for path in scrape.services.store.log_dirs:
        try:
            volume = os.statvfs(path)
        except OSError:
            continue
        block = volume.f_frsize
        volumes[str(path)] = _Volume(block * volume.f_blocks, block * volume.f_bavail)
    scrape.shared[__name__] = volumes
    return volumes


def _of_volumes(attribute: str) -> Read:
    """Declares a metric that reads an attribute of each volume."""
    value = attrgetter(attribute)

    def read(scrape: Scrape) -> Samples:
        for directory, volume in _volumes(scrape).items():
            yield (directory,), value(volume)

    return read


def _full(scrape: Scrape) -> Samples:
    full = scrape.services.store.full_directories()
    for path in scrape.services.store.log_dirs:
        yield (str(path),), int(path in full)


_DIRECTORY = ("directory",)

FAMILIES = (
    Family(
        "tidelog_log_dir_total_bytes",
        GAUGE,
        "Size of the volume that holds a log directory",
        _DIRECTORY,
        _of_volumes("total_bytes"),
    ),
    Family(
        "tidelog_log_dir_free_bytes",
        GAUGE,
        "What the broker may still write to the volume that holds a log directory",
        _DIRECTORY,
        _of_volumes("free_bytes"),
    ),
    Family(
        "tidelog_log_dir_full",
        GAUGE,
        "1 while a log directory refuses records for lack of room, otherwise 0",
        _DIRECTORY,
        _full,
    ),
)
