"""Cycles among transactions: which ones come before each other."""

from __future__ import annotations

from collections import defaultdict
from graphlib import CycleError, TopologicalSorter


class Graph:
    """Transactions, and which one comes before which."""

    def __init__(self) -> None:
        self._before: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, before: str, after: str) -> None:
        """Notes that one transaction comes before another; nothing if they are the same."""
        if before != after:
            self._before[after].add(before)

    def cycle(self) -> list[str]:
        """Returns one cycle, which ends where it begins, or nothing."""
        try:
            TopologicalSorter(self._before).prepare()
        except CycleError as error:
            return list(error.args[1])
        return []
