"""The course of an operation, without I/O: which broker to ask, what to do with a failure.

An operation is a generator. It yields actions and receives their results from a shell: for `Ask` the
answer, for `Pause` nothing; a shell throws ConnectionBroken or VersionMismatch into it where an `Ask`
fails. It returns the result of the operation or raises a ClientError. Both shells drive the same
generators, so they retry, look up leaders and give up alike.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from client import apis
from client.errors import (
    ClusterUnreachable,
    ConnectionBroken,
    RequestError,
    UnsupportedByBroker,
    VersionMismatch,
)
from protocol.api import find_coordinator, metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client.cluster import Address, ClusterState, TopicInfo
    from client.retry import Retry
    from protocol.message import Message

Result = TypeVar("Result")


class Ask(NamedTuple):
    """Send a request and wait for its answer: to the first address, or to whichever can be reached.

    `wait_s` is what the broker may wait on top of the timeout of a request.
    """

    addresses: tuple[Address, ...]
    message: Message
    key: int
    wait_s: float = 0.0
    has_answer: bool = True


class Pause(NamedTuple):
    """Wait."""

    seconds: float


Steps: TypeAlias = Generator[Ask | Pause, Any, Result]


class AnyBroker(NamedTuple):
    """Any broker will do."""


class Controller(NamedTuple):
    """The broker that makes topics, or any where none is named."""


class Leader(NamedTuple):
    """The leader of a partition."""

    topic: str
    partition: int


class Coordinator(NamedTuple):
    """The coordinator of a group or a transactional id (`kind`: GROUP or TRANSACTION)."""

    kind: int
    key: str


class Node(NamedTuple):
    """A broker by its id."""

    node_id: int


Target: TypeAlias = AnyBroker | Controller | Leader | Coordinator | Node


class Call(NamedTuple, Generic[Result]):
    """One request, whom it is for, and how its answer is read.

    `read` raises RequestError for a refusal. A call that is not repeatable is sent once, whatever becomes
    of it. Without an answer (acks=0) `read` gets None.
    """

    key: int
    message: Message
    target: Target
    read: Callable[[Any], Result]
    wait_s: float = 0.0
    is_repeatable: bool = True
    has_answer: bool = True


def perform(state: ClusterState, call: Call[Result], retry: Retry) -> Steps[Result]:
    """Make a call, and again while what is wrong may pass.

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
    """Do it again while what is wrong may pass; what is known of the cluster is forgotten in between."""
    while True:
        try:
            return (yield from once())
        except (ConnectionBroken, VersionMismatch, RequestError) as error:
            state.forget()
            pause_s = retry.pause_after(error)
        yield Pause(pause_s)


def attempt(state: ClusterState, call: Call[Result]) -> Steps[Result]:
    """Make a call once."""
    addresses = yield from resolve(state, call.target)
    return call.read((yield _ask(call, addresses)))


def _ask(call: Call[Any], addresses: tuple[Address, ...]) -> Ask:
    return Ask(addresses, call.message, call.key, call.wait_s, call.has_answer)


def resolve(state: ClusterState, target: Target) -> Steps[tuple[Address, ...]]:
    """The addresses of a target; asks the cluster where it is not known. Raises RequestError."""
    match target:
        case Leader(topic, partition):
            if not state.knows(topic):
                yield from refresh(state, [topic])
            return (state.leader(topic, partition),)
        case Coordinator(kind, key):
            known = state.coordinator(kind, key)
            if known is None:
                request = find_coordinator.FindCoordinatorRequest(key=key, key_type=kind)
                answer = yield Ask(state.any_addresses(), request, apis.FIND_COORDINATOR)
                known = state.learn_coordinator(kind, key, answer)
            return (known,)
        case Controller():
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
    """Ask one broker for metadata, once: of the named topics, or (None) of all. Raises RequestError."""
    asked = None if names is None else [metadata.MetadataRequestTopic(name=one) for one in names]
    answer = yield Ask(
        state.any_addresses(),
        metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=False),
        apis.METADATA,
    )
    return state.learn_metadata(answer)
