"""What a broker uses while it is soaked, and the rule that says whether that is level.

The first third of the samples is not judged: caches and pools fill. Of the others, the median of the last
third may exceed that of the first third by a tenth and a fixed allowance, which is what one
more client or topic takes.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TENTH = 0.1
ALLOWANCE = {"memory_mb": 8.0, "descriptors": 10.0, "threads": 2.0}


class Usage(NamedTuple):
    """What a process uses at one moment; `memory_mb` is what is resident."""

    memory_mb: float
    descriptors: int
    threads: int


def usage_of(pid: int) -> Usage:
    """Returns what a process uses, as the kernel says it."""
    directory = Path(f"/proc/{pid}")
    status = (directory / "status").read_text()
    return Usage(
        _number(status, "VmRSS") / 1024,
        len(list((directory / "fd").iterdir())),
        int(_number(status, "Threads")),
    )


def _number(status: str, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    assert found is not None
    return float(found[1])


def growths(samples: Sequence[Usage]) -> Iterator[str]:
    """Yields what is not level, in words."""
    judged = samples[len(samples) // 3 :]
    third = len(judged) // 3
    assert third, f"{len(samples)} samples are too few"
    for name, allowance in ALLOWANCE.items():
        values = [getattr(sample, name) for sample in judged]
        first, last = median(values[:third]), median(values[-third:])
        if last > first * (1 + _TENTH) + allowance:
            yield f"{name} grew from {first:.0f} to {last:.0f}"
