"""Kafka release numbers: whether there is such a release, and which message format it wrote.

`message.format.version` and `inter.broker.protocol.version` take release numbers, with or without
the `-IVn` of an unreleased step: 0.9.0, 0.10.0-IV1, 2.8, 4.1-IV0. Releases up to 0.9 write format 0
(no times), 0.10 writes format 1 (with times, KIP-32), and later ones write format 2.
"""

from __future__ import annotations

import re

_RELEASE = re.compile(r"([0-9]+)\.([0-9]+)((?:\.[0-9]+)*)(-IV[0-9]+)?", re.ASCII)
_LAST_MINOR = {0: 11, 1: 1, 2: 8, 3: 9}
_FIRST_OPEN_MAJOR = 4


def check_release(text: str) -> str:
    """Returns the release number unchanged; raises ValueError if Kafka has no such release."""
    found = _RELEASE.fullmatch(text)
    if found is None:
        raise ValueError("expected a Kafka release, such as 0.9.0, 0.10.2, 2.8 or 3.0-IV1")
    major, minor = int(found[1]), int(found[2])
    last_minor = _LAST_MINOR.get(major, minor if major == _FIRST_OPEN_MAJOR else -1)
    if minor > last_minor or (major == 0 and minor < 8):
        raise ValueError("there is no such Kafka release; they go from 0.8.0 to 4.x")
    return text


FIRST_RELEASE_OF = {0: "0.8.0", 1: "0.10.0", 2: "0.11.0"}
"""The first release that wrote each message format."""


def magic_of(release: str) -> int:
    """The message format (0, 1 or 2) that a checked release writes (KIP-32, KIP-98)."""
    major, minor = (int(part) for part in release.split("-", maxsplit=1)[0].split(".")[:2])
    if major > 0 or minor >= 11:
        return 2
    return 1 if minor == 10 else 0
