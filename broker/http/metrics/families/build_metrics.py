"""Metrics of the build: the release of tidelog, the version of Python, the kernels."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from tidelog import __version__
from tidelog.broker.http.metrics.family import GAUGE, Family
from tidelog.protocol.records import kernels

if TYPE_CHECKING:
    from tidelog.broker.http.metrics.family import Samples, Scrape

COMMIT_VARIABLE = "TIDELOG_COMMIT"
"""The environment variable with the commit of the sources, which the image sets."""


def _build(_scrape: Scrape) -> Samples:
    commit = os.environ.get(COMMIT_VARIABLE, "")
    yield (__version__, platform.python_version(), commit), 1


def _kernels(_scrape: Scrape) -> Samples:
    yield (kernels.IMPLEMENTATION,), 1


FAMILIES = (
    Family(
        "tidelog_build_info",
        GAUGE,
        "Always 1: the version of tidelog, that of Python, and the commit of the sources, where the "
        "image knows it",
        ("version", "python", "commit"),
        _build,
    ),
    Family("tidelog_kernels", GAUGE, "Record kernels in use", ("implementation",), _kernels),
)
