"""The contract's values as etcd's messages, and back.

All keys of a cluster are below one prefix, which the contract's keys do not have. One key below it
is not the contract's: `BARRIER` is put to see how far the watch is (`store.py`).
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from aetcd import rpc

from tidelog.broker.metadata.store import Change, KeyValue, Put

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.broker.metadata.store import Compare, Operation

BARRIER = "~"
_RESULTS = {"<": rpc.Compare.LESS, "=": rpc.Compare.EQUAL, ">": rpc.Compare.GREATER}
_PAGE = 1_000


class Keys:
    """The keys of one cluster."""

    def __init__(self, name: str) -> None:
        """`name` is that of the cluster."""
        self._prefix = f"/tidelog/{name}/"

    def range_of(self, prefix: str = "") -> tuple[bytes, bytes]:
        """Returns the first key that begins with a prefix, and the first after all of them."""
        first = (self._prefix + prefix).encode()
        return first, first[:-1] + bytes((first[-1] + 1,))  # no key ends with the byte 255

    def page(self, first: bytes, end: bytes, revision: int, *, keys_only: bool) -> Any:
        """Returns the request for one page of keys; at the newest revision if that is 0."""
        return rpc.RangeRequest(
            key=first, range_end=end, limit=_PAGE, revision=revision, keys_only=keys_only
        )

    def newest_revision(self) -> Any:
        """Returns a request whose answer has etcd's newest revision, and no keys."""
        return rpc.RangeRequest(key=self._written(BARRIER), count_only=True)

    def put_barrier(self) -> Any:
        """Returns the request that puts the barrier key, which is not one of the contract."""
        return rpc.PutRequest(key=self._written(BARRIER))

    def transaction(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Any:
        """Returns the request of a transaction."""
        return rpc.TxnRequest(
            compare=[self._compare(each) for each in compares],
            # A transaction without operations is answered by a member that may be behind, unless
            # it reads.
            success=[self._operation(each) for each in operations]
            or [self._read_newest_revision()],
            failure=[self._read_newest_revision()],
        )

    def watch(self, revision: int) -> Any:
        """Returns the request to watch the changes from a revision on: the last one that was received.

        etcd accepts a watch from the revision to which it was compacted, but does not return the deletions
        of that revision (etcd issue 18089, in 3.4 and 3.5). A watch from a revision earlier is refused.
        """
        first, end = self.range_of()
        start = max(revision, 1)  # 0: from now on
        creation = rpc.WatchCreateRequest(key=first, range_end=end, start_revision=start)
        return rpc.WatchRequest(create_request=creation)

    def pairs(self, found: Iterable[Any]) -> list[KeyValue]:
        """Returns the contract's keys among those of an answer."""
        return [
            KeyValue(key, each.value, each.create_revision, each.mod_revision, each.lease)
            for each in found
            if (key := self._key(each.key)) != BARRIER
        ]

    def revisions(self, events: Iterable[Any]) -> list[tuple[int, list[Change]]]:
        """Returns the changes of each revision, in order; a revision may have none for the contract."""
        by_revision: dict[int, list[Change]] = {}
        for event in events:
            revision, key = event.kv.mod_revision, self._key(event.kv.key)
            changes = by_revision.setdefault(revision, [])
            if key != BARRIER:
                value = event.kv.value if event.type == rpc.Event.PUT else None
                changes.append(Change(revision, key, value))
        return [
            (revision, sorted(by_revision[revision], key=attrgetter("key")))
            for revision in sorted(by_revision)
        ]

    def _compare(self, compare: Compare) -> Any:
        is_create = compare.target == "create"
        target = rpc.Compare.CREATE if is_create else rpc.Compare.MOD
        which = "create_revision" if is_create else "mod_revision"
        return rpc.Compare(
            key=self._written(compare.key),
            target=target,
            result=_RESULTS[compare.relation],
            **{which: compare.revision},
        )

    def _operation(self, operation: Operation) -> Any:
        key = self._written(operation.key)
        if isinstance(operation, Put):
            put = rpc.PutRequest(key=key, value=operation.value, lease=operation.lease)
            return rpc.RequestOp(request_put=put)
        return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))

    def _read_newest_revision(self) -> Any:
        return rpc.RequestOp(request_range=self.newest_revision())

    def _written(self, key: str) -> bytes:
        return (self._prefix + key).encode()

    def _key(self, written: bytes) -> str:
        return written.decode()[len(self._prefix) :]
