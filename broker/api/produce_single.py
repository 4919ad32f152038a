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
from tidelog.broker.network.answers import NO_RESPONSE, Encoded, Pending
from tidelog.broker.network.context import Context
from tidelog.protocol.api.produce_single import read, write
from tidelog.protocol.errors import BrokerError
from tidelog.storage.log.partition import Appended, Partition
from tidelog.storage.would_block import WouldBlock

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import ClientConnection
    from tidelog.protocol.api.produce import ProduceResponse
    from tidelog.protocol.message import RequestHeader


def shortcut(
    services: Services, client: ClientConnection, header: RequestHeader, frame: bytes | memoryview
) -> Encoded | Pending | None:
    """Appends, and returns the response, which may have to wait until other replicas have the records.

    Returns None if the request has to take the ordinary path.
    """
    version = header.api_version
    request = read(frame, header.body_offset, version)
    if request is None:
        return None
    acks, timeout_ms, name, index, records = request
    try:
        partition = admission.admit_produce(
            services, client.session, str(name, "utf-8"), index, acks, None, records, version
        )
        if not isinstance(partition, Partition):
            return None
        appended = services.appends.append_now(partition, records, version)
    except (BrokerError, WouldBlock, UnicodeDecodeError):
        return None
    if appended is None:
        return None
    if not acks:
        return NO_RESPONSE
    if acks == -1:
        waited: Appended | asyncio.Future[Appended]
        try:
            waited = services.replicas.acknowledged(partition, appended, timeout_ms)
        except BrokerError as error:
            waited = asyncio.get_running_loop().create_future()
            waited.set_exception(error)
        if not isinstance(waited, Appended):
            finish = partial(_when_acknowledged, services, client, header, name, partition, waited)
            return Pending(waited, finish, is_stored=True)
    return _written(header, name, index, appended)


def _written(header: RequestHeader, name: bytes, index: int, appended: Appended) -> Encoded:
    frame = write(
        header.api_version,
        header.correlation_id,
        name,
        index,
        appended.base_offset,
        appended.log_append_time_ms,
        appended.log_start_offset,
    )
    return Encoded(frame, is_frame=True)


def _when_acknowledged(
    services: Services,
    client: ClientConnection,
    header: RequestHeader,
    name: bytes,
    partition: Partition,
    waited: asyncio.Future[Appended],
) -> Encoded | ProduceResponse:
    """Returns the response, once all in-sync replicas have the records, or the append has failed."""
    try:
        appended = waited.result()
    except BrokerError as error:
        context = Context(header, client)
        return failed_alone(services, context, str(name, "utf-8"), partition, error)
    return _written(header, name, partition.index, appended)
