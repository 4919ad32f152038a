"""The loop of a handler over the partitions, topics, groups or resources of a request.

Error codes are written in two places: here and in dispatch. An unexpected error is
UNKNOWN_SERVER_ERROR, a logged traceback and a counter. `CloseConnection` is raised on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.broker.network.answers import CloseConnection
from tidelog.broker.network.scheduler import checkpoint
from tidelog.broker.pools import Abandoned
from tidelog.protocol.errors import BrokerError, ErrorCode, UnknownServerError
from tidelog.storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tidelog.broker.network.services import Services

log = logging.getLogger("tidelog.dispatch")

FEW: Final = 16
"""So many partitions need not give way to others."""

Wanted = TypeVar("Wanted")
Result = TypeVar("Result")


def as_broker_error(services: Services, error: Exception, doing: str) -> BrokerError:
    """Returns the error as a BrokerError; an unexpected one is logged with its traceback.

    Raises `error` again if it is a CloseConnection.
    """
    if isinstance(error, CloseConnection):
        raise error
    if isinstance(error, BrokerError):
        return error
    services.metrics.unexpected_errors += 1
    log.error("unexpected error, a bug of tidelog", exc_info=error, extra={"api": doing})
    return UnknownServerError(f"unexpected error in {doing}")


def code_for(code: ErrorCode, before_storage_errors: bool) -> int:
    """Returns the code to send: clients older than KAFKA_STORAGE_ERROR know it by another name."""
    if before_storage_errors and code == ErrorCode.KAFKA_STORAGE_ERROR:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code


def few_partitions(
    services: Services,
    api: str,
    wanted: Iterable[Wanted],
    serve: Callable[[Wanted], Result],
    failed: Callable[[Wanted, BrokerError], Result],
) -> list[Result]:
    """Serves each partition in turn; `failed` makes the result of one whose `serve` raises.

    Abandoned and WouldBlock end the whole loop, because they do not concern one partition. `api` names the
    request in the log.
    """
    results = []
    for each in wanted:
        try:
            results.append(serve(each))
        except (Abandoned, WouldBlock):
            raise
        except Exception as error:
            results.append(failed(each, as_broker_error(services, error, api)))
    return results


async def per_partition(
    services: Services,
    api: str,
    wanted: Iterable[Wanted],
    serve: Callable[[Wanted], Result],
    failed: Callable[[Wanted, BrokerError], Result],
) -> list[Result]:
    """Does what `few_partitions` does for any number: others have their turn in between, if need be."""
    results: list[Result] = []
    for each in wanted:
        results += few_partitions(services, api, (each,), serve, failed)
        await checkpoint()
    return results


async def per_partition_async(
    services: Services,
    api: str,
    wanted: Iterable[Wanted],
    serve: Callable[[Wanted], Awaitable[Result]],
    failed: Callable[[Wanted, BrokerError], Result],
) -> list[Result]:
    """Does what `per_partition` does with an asynchronous `serve`, one after the other."""
    results = []
    for each in wanted:
        try:
            results.append(await serve(each))
        except Exception as error:
            results.append(failed(each, as_broker_error(services, error, api)))
        await checkpoint()
    return results
