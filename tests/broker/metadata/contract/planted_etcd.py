"""Mistakes in the store in etcd that the schedules must find. Loads gRPC, so it is apart from `planted`."""

from __future__ import annotations

from tidelog.broker.metadata.etcd.change_log import ChangeLog
from tidelog.broker.metadata.etcd.follower import Follower
from tidelog.broker.metadata.etcd.members import Members
from tidelog.broker.metadata.etcd.store import EtcdStore
from tidelog.broker.metadata.etcd.wire import Keys
from tidelog.broker.metadata.store import Put

_after, _operation, _revisions = ChangeLog.after, Keys._operation, Keys.revisions
_call, _watch, _page = Members.call, Keys.watch, Keys.page
_transact, _transaction = EtcdStore._transact, Keys.transaction


async def _at_once(store, revision):
    """Does not wait until the watch has arrived at a revision."""


async def _read_before(store, compares, operations):
    """Compares what it has read, and then writes without any comparison."""
    found = {pair.key: pair for pair in (await store._read("")).pairs}
    for each in compares:
        pair = found.get(each.key)
        if not each.holds(*(0, 0) if pair is None else (pair.create_revision, pair.mod_revision)):
            return None
    return await _transact(store, (), operations)


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


def _from_now(keys, after):
    request = _watch(keys, after)
    request.create_request.start_revision = 0
    return request


async def _goes_on(follower, answer):
    """Goes on after the compaction as if nothing had been missed."""
    follower._log.add([(answer.compact_revision, [])])


def _serializable(keys, first, end, revision, *, keys_only):
    request = _page(keys, first, end, revision, keys_only=keys_only)
    request.serializable = True
    return request


ETCD = {
    "changes do not wait for the watch": (EtcdStore, "_arrive", _at_once),
    "a read takes the place of a comparison": (EtcdStore, "_transact", _read_before),
    "a key is put without its lease": (Keys, "_operation", _without_lease),
    "the watch tells deletions as empty values": (Keys, "revisions", _empty_deletions),
    "the watch tells a revision in parts": (Keys, "revisions", _event_by_event),
    "changes of etcd that are forgotten are left out": (ChangeLog, "after", _silent_compaction),
    "only the first comparison is sent": (Keys, "transaction", _first_compare),
    "a transaction that may have happened is sent again": (Members, "call", _always_again),
    "a watch does not resume where it ended": (Keys, "watch", _from_now),
    "a compaction is passed over": (Follower, "_cancelled", _goes_on),
    "a member that is behind may answer a read": (Keys, "page", _serializable),
}
