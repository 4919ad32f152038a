"""The name of a partition: its topic and its number.

A plain tuple, because produce and fetch build one for every partition of a request.
"""

from __future__ import annotations

TopicPartition = tuple[str, int]
