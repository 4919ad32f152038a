"""Mistakes in the store in etcd that the schedules must find. Loads gRPC, so it is apart from `injected`.

More of them are injected where brokers run over an etcd in virtual time (tests/simulation/replication).
"""

from __future__ import annotations

from tidelog.broker.metadata.etcd.change_log import ChangeLog
from tidelog.broker.metadata.etcd.members import EtcdMembers
from tidelog.broker.metadata.etcd.store import EtcdStore
from tidelog.broker.metadata.etcd.wire import Keys
from tidelog.broker.metadata.store import Put

_after, _operation, _revisions = ChangeLog.after, Keys._operation, Keys.revisions
_call, _page, _transaction = EtcdMembers.call, Keys.page, Keys.transaction


async def _at_once(store, revision):
    """Does not wait until the watch has arrived at a revision."""


def _without_lease(keys, operation):
    if isinstance(operation, Put):
        operation = operation._replace(lease=0)
    return _operation(keys, operation)


def _empty_deletions(keys, events):
    return [
        (revision, [each._replace(value=each.value or b"") for each in changes])
        for revision, changes in _revisions(keys, events)
    ]


def _event_by_event(keys, events):
    return [
        (revision, [each]) for revision, changes in _revisions(keys, events) for each in changes
    ]


def _silent_compaction(changes, revision):
    return _after(changes, max(revision, changes.begin))


def _first_compare(keys, compares, operations):
    return _transaction(keys, compares[:1], operations)


async def _always_again(members, method, request, *, is_repeatable):
    return await _call(members, method, request, is_repeatable=True)


def _serializable(keys, first, end, revision, *, keys_only):
    request = _page(keys, first, end, revision, keys_only=keys_only)
    request.serializable = True
    return request


ETCD = {
    "changes do not wait for the watch": (EtcdStore, "_wait_for_watch", _at_once),
    "a key is put without its lease": (Keys, "_operation", _without_lease),
    "the watch tells deletions as empty values": (Keys, "revisions", _empty_deletions),
    "the watch tells a revision in parts": (Keys, "revisions", _event_by_event),
    "changes of etcd that are forgotten are left out": (ChangeLog, "after", _silent_compaction),
    "only the first comparison is sent": (Keys, "transaction", _first_compare),
    "a transaction that may have happened is sent again": (EtcdMembers, "call", _always_again),
    "a member that is behind may answer a read": (Keys, "page", _serializable),
}
