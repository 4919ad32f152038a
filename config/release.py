"""When this version was released: no clock is right that shows an earlier time.

It changes together with the version (`tidelog/__init__.py`, `pyproject.toml`). A date that is too
early does no harm. With one that is too late, a leap of a clock would be trusted.
"""

from __future__ import annotations

RELEASED_MS = 1_767_225_600_000  # 2026-01-01T00:00Z
