"""A fast path for Produce with one record set for one partition, which nearly every request is.

Behaviour: the same bytes as `produce.py`; `admission.py` decides for both. Requests of another
shape, and those that are not admitted at once, belong in a thread or fail, are left to
`produce.py`: `shortcut` then returns None and has stored nothing, so that the ordinary path can
start again and report the error. With acks=all in a cluster the records are stored first, and then wait
for the other replicas: a failure then is answered here.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.api import admission
from tidelog.broker.api.produce_parts import failed_alone
from tidelog.broker.network.answers import Pending
from tidelog.protocol.api.produce_single import read, write
from tidelog.protocol.errors import BrokerError
from tidelog.storage.log.partition import Appended, Partition
from tidelog.storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.broker.security.session import Session
    from tidelog.protocol.api.produce import ProduceResponse
    from tidelog.protocol.message import RequestHeader
    from tidelog.protocol.wire import Buffer

    Waited = list[Buffer] | Callable[[Context], ProduceResponse]


def shortcut(
    services: Services, session: Session, header: RequestHeader, frame: bytes | memoryview
) -> list[Buffer] | Pending | None:
    """Appends, and returns the response's frame: one buffer, or none for acks=0.

    Returns the result of `_when_acknowledged` if other replicas have to store the records first, and None
    if the request has to take the ordinary path.
    """
    version = header.api_version
    request = read(frame, header.body_offset, version)
    if request is None:
        return None
    acks, timeout_ms, name, index, records = request
    try:
        partition = admission.admit_produce(
            services, session, str(name, "utf-8"), index, acks, None, records, version
        )
        if not isinstance(partition, Partition):
            return None
        appended = services.appends.append_now(partition, records, version)
    except (BrokerError, WouldBlock, UnicodeDecodeError):
        return None
    if appended is None:
        return None
    if not acks:
        return []
    if acks == -1:
        waited: Appended | asyncio.Future[Appended]
        try:
            waited = services.replicas.acknowledged(partition, appended, timeout_ms)
        except BrokerError as error:
            waited = asyncio.get_running_loop().create_future()
            waited.set_exception(error)
        if not isinstance(waited, Appended):
            finish = partial(_when_acknowledged, services, header, name, partition, waited)
            return Pending(waited, finish, is_stored=True)
    return [_written(header, name, index, appended)]


def _written(header: RequestHeader, name: bytes, index: int, appended: Appended) -> bytes:
    return write(
        header.api_version,
        header.correlation_id,
        name,
        index,
        appended.base_offset,
        appended.log_append_time_ms,
        appended.log_start_offset,
    )


def _when_acknowledged(
    services: Services,
    header: RequestHeader,
    name: bytes,
    partition: Partition,
    waited: asyncio.Future[Appended],
) -> Waited:
    """Returns the response's frame, once all in-sync replicas have the records.

    If the append has failed, returns a function that makes the response from the context.
    """
    try:
        appended = waited.result()
    except BrokerError as error:
        return partial(failed_alone, services, (str(name, "utf-8"), partition), error)
    return [_written(header, name, partition.index, appended)]
