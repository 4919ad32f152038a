"""The names of a partition: its topic, or the id of its topic, and its number.

Plain tuples, because produce and fetch build one for every partition of a request.
"""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

TopicPartition = tuple[str, int]
TopicIdPartition: TypeAlias = tuple[UUID, int]
