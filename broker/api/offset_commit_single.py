"""A fast path for OffsetCommit of one offset, which is what a consumer of one partition sends.

Behaviour: the same bytes as `offset_commit.py`; `admission.py` decides for both. Requests of
another shape, and those that are refused or have to wait, are left to `offset_commit.py`:
`shortcut` then returns None and has stored nothing, so that the ordinary path can start again and
report the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.api import admission
from tidelog.broker.coordinators.groups.committed import Commit, Committed, Committer
from tidelog.broker.network.answers import Encoded
from tidelog.protocol.api.offset_commit_single import read, write
from tidelog.protocol.errors import BrokerError
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import ClientConnection
    from tidelog.protocol.message import RequestHeader


def shortcut(
    services: Services, client: ClientConnection, header: RequestHeader, frame: bytes | memoryview
) -> Encoded | None:
    """Stores the offset and returns the response; None for the ordinary path."""
    version = header.api_version
    request = read(frame, header.body_offset, version)
    if request is None:
        return None
    group, generation, member, instance, topic, index, offset, leader_epoch, metadata = request
    try:
        name = (str(topic, "utf-8"), index)
        if admission.admit_commit(services, client.session, group, name, metadata) is not None:
            return None
        offsets = services.coordinator.offsets
        committed = Committed(offset, leader_epoch, metadata, offsets.now_ms(), NO_TIMESTAMP)
        committer = Committer(member, instance, generation)
        if not offsets.commit_now(Commit.of(group, committer, {name: committed})):
            return None
    except (BrokerError, UnicodeDecodeError):
        return None
    return Encoded(write(version, header.correlation_id, topic, index), is_frame=True)
