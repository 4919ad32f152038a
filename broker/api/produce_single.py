"""Produce with one record set for one partition: the shape of nearly every request, taken a short way.

Behaviour: that of produce.py, to the byte; admission.py decides for both. What has another shape, is not
admitted at once, belongs in a thread or fails is left to produce.py: `shortcut` then returns None and has
stored nothing, so the ordinary way may try from the beginning and say what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.partitions import admission
from protocol.api.produce_single import read, write
from protocol.errors import BrokerError
from storage.log.partition import Partition
from storage.would_block import WouldBlock

if TYPE_CHECKING:
    from broker.node import Node
    from broker.security.session import Session
    from protocol.message import RequestHeader

Buffer = bytes | bytearray | memoryview


def shortcut(
    node: Node, session: Session, header: RequestHeader, frame: bytes | memoryview
) -> list[Buffer] | None:
    """Append, and return the answer's frame: one buffer, or none where acks=0 wants no answer.

    None if the request has to go the ordinary way.
    """
    version = header.api_version
    request = read(frame, header.body_offset, version)
    if request is None:
        return None
    acks, name, index, records = request
    try:
        partition = admission.admit_produce(
            node, session, str(name, "utf-8"), index, acks, None, records
        )
        if not isinstance(partition, Partition):
            return None
        appended = node.appends.append_now(partition, records, version)
    except (BrokerError, WouldBlock, UnicodeDecodeError):
        return None
    if appended is None:
        return None
    if not acks:
        return []
    answer = write(
        version,
        header.correlation_id,
        name,
        index,
        appended.base_offset,
        appended.log_append_time_ms,
        appended.log_start_offset,
    )
    return [answer]
