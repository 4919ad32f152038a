"""A fast path for Produce with one record set for one partition, which nearly every request is.

Behaviour: the same bytes as `produce.py`; `admission.py` decides for both. Requests of another
shape, and those that are not admitted at once, belong in a thread or fail, are left to
`produce.py`: `shortcut` then returns None and has stored nothing, so that the ordinary path can
start again and report the error.
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
    from protocol.wire import Buffer


def shortcut(
    node: Node, session: Session, header: RequestHeader, frame: bytes | memoryview
) -> list[Buffer] | None:
    """Appends, and returns the response's frame: one buffer, or none for acks=0.

    Returns None if the request has to take the ordinary path.
    """
    version = header.api_version
    request = read(frame, header.body_offset, version)
    if request is None:
        return None
    acks, name, index, records = request
    if acks == -1 and node.replicas is not None:
        return None  # it waits for other brokers
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
