"""The steps of an operation, without I/O: which broker to ask, and how to handle a failure.

An operation is a generator. It yields actions, and a shell sends their results into it: the answer
for `Ask`, nothing for `Pause`. If an `Ask` fails, the shell throws ConnectionBroken or
VersionMismatch into it. The generator returns the result of the operation or raises a ClientError.
Both shells run the same generators, so they retry, look up leaders and give up in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from tidelog.client import apis
from tidelog.client.errors import (
    ClusterUnreachable,
    ConnectionBroken,
    RequestError,
    UnsupportedByBroker,
    VersionMismatch,
)
from tidelog.protocol.api import find_coordinator, metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client.cluster import Address, ClusterState, TopicInfo
    from tidelog.client.retry import Retry
    from tidelog.protocol.message import Message

Result = TypeVar("Result")


class Ask(NamedTuple):
    """Send a request to the first address, or to any that can be reached, and wait for its answer.

    `wait_s` is how long the broker may wait, in addition to the timeout of a request.
    """

    addresses: tuple[Address, ...]
    message: Message
    key: int
    wait_s: float = 0.0
    has_answer: bool = True


class Pause(NamedTuple):
    """Wait for some seconds before the next try; `why` is what failed."""

    seconds: float
    why: Exception


Steps: TypeAlias = Generator[Ask | Pause, Any, Result]


class AnyBroker(NamedTuple):
    """The target is any broker."""


class ControllerTarget(NamedTuple):
    """The target is the broker that creates topics, or any broker if none is reported."""


class Leader(NamedTuple):
    """The target is the leader of a partition."""

    topic: str
    partition: int


class CoordinatorTarget(NamedTuple):
    """The target is the coordinator of a group or a transactional id.

    `kind` is GROUP or TRANSACTION.
    """

    kind: int
    key: str


class Node(NamedTuple):
    """The target is a broker by its id."""

    node_id: int


Target: TypeAlias = AnyBroker | ControllerTarget | Leader | CoordinatorTarget | Node


class Call(NamedTuple, Generic[Result]):
    """One request, its target, and how its answer is read.

    `read` raises RequestError for a refusal. A call that is not repeatable is sent only once,
    whatever the outcome. Without an answer (acks=0) `read` gets None.
    """

    key: int
    message: Message
    target: Target
    read: Callable[[Any], Result]
    wait_s: float = 0.0
    is_repeatable: bool = True
    has_answer: bool = True


def perform(state: ClusterState, call: Call[Result], retry: Retry) -> Steps[Result]:
    """Performs a call, with retries after failures that may pass.

    Raises RequestError, ClusterUnreachable or UnsupportedByBroker.
    """
    if call.is_repeatable:
        return (yield from retrying(state, lambda: attempt(state, call), retry))
    addresses = yield from retrying(state, lambda: resolve(state, call.target), retry)
    try:
        return call.read((yield _ask(call, addresses)))
    except VersionMismatch as error:
        raise UnsupportedByBroker(str(error)) from error
    except ConnectionBroken as error:
        state.forget()
        raise ClusterUnreachable(str(error)) from error
    except RequestError:
        state.forget()
        raise


def retrying(state: ClusterState, once: Callable[[], Steps[Result]], retry: Retry) -> Steps[Result]:
    """Repeats steps after failures that may pass; forgets the state of the cluster in between."""
    while True:
        try:
            return (yield from once())
        except (ConnectionBroken, VersionMismatch, RequestError) as error:
            state.forget()
            pause = Pause(retry.pause_after(error), error)
        yield pause


def attempt(state: ClusterState, call: Call[Result]) -> Steps[Result]:
    """Performs a call once."""
    addresses = yield from resolve(state, call.target)
    return call.read((yield _ask(call, addresses)))


def _ask(call: Call[Any], addresses: tuple[Address, ...]) -> Ask:
    return Ask(addresses, call.message, call.key, call.wait_s, call.has_answer)


def resolve(state: ClusterState, target: Target) -> Steps[tuple[Address, ...]]:
    """Returns the addresses of a target; asks the cluster if necessary. Raises RequestError."""
    match target:
        case Leader(topic, partition):
            if not state.knows(topic):
                yield from refresh(state, [topic])
            return (state.leader(topic, partition),)
        case CoordinatorTarget(kind, key):
            known = state.coordinator(kind, key)
            if known is None:
                request = find_coordinator.FindCoordinatorRequest(key=key, key_type=kind)
                answer = yield Ask(state.any_addresses(), request, apis.FIND_COORDINATOR)
                known = state.learn_coordinator(kind, key, answer)
            return (known,)
        case ControllerTarget():
            if state.controller not in state.nodes:
                yield from refresh(state, [])
            address = state.nodes.get(state.controller)
            return state.any_addresses() if address is None else (address,)
        case Node(node_id):
            if node_id not in state.nodes:
                yield from refresh(state, [])
            if node_id not in state.nodes:
                raise ConnectionBroken(f"the cluster has no broker {node_id}")
            return (state.nodes[node_id],)
        case AnyBroker():
            return state.any_addresses()


def refresh(state: ClusterState, names: Sequence[str] | None) -> Steps[dict[str, TopicInfo]]:
    """Asks one broker once for metadata of these topics, or (None) of all. Raises RequestError."""
    asked = None if names is None else [metadata.MetadataRequestTopic(name=one) for one in names]
    answer = yield Ask(
        state.any_addresses(),
        metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=False),
        apis.METADATA,
    )
    return state.learn_metadata(answer)
