"""The one error of this folder."""

from __future__ import annotations


class NeedsSpark(Exception):
    """Spark has to do this backfill; the message is the clause that follows `because`."""
