"""Mistakes that the schedules must find: each is a switch, and each is injected in one store.

The tables below name, for each, what it replaces: parts that nobody else calls, so they are private.
A mistake in SQLite is injected in the processes too.
"""

from __future__ import annotations

import contextlib
import time
from unittest import mock

from tidelog.broker.metadata.memory import MemoryState
from tidelog.broker.metadata.sqlite import tables
from tidelog.broker.metadata.store import Delete, KeyValue, Put

_end, _changes = MemoryState._end, MemoryState.changes
_apply_memory = MemoryState._apply
_apply, _read, _keep_alive = tables._apply, tables.read, tables.keep_alive
_changes_sqlite, _due, _holds = tables.changes, tables.end_due_leases, tables._holds


def _keys_one_by_one(state, lease):
    keys = [key for key, pair in state._pairs.items() if pair.lease == lease]
    for key in keys:
        state._apply([Delete(key)])
    _end(state, lease)


def _keys_stay(state, lease):
    state._leases.pop(lease, None)


def _early(state):
    now_ms = state._now_ms() + 1
    for lease in [each for each, held in state._leases.items() if held.deadline_ms <= now_ms]:
        state._end(lease)


def _made_anew(state, operations):
    before = {each.key: state._pairs.get(each.key) for each in operations}
    _apply_memory(state, operations)
    for key, pair in before.items():
        if pair is not None and key in state._pairs:
            state._pairs[key] = state._pairs[key]._replace(create_revision=state.revision)


def _value_only(state, compare):
    """Compares as if a key that was written again with the same value had not been."""
    pair = state._pairs.get(compare.key)
    if pair is None:
        return compare.holds(0, 0)
    same = [
        each.revision
        for each in state._changes
        if each.key == compare.key and each.value == pair.value
    ]
    return any(compare.holds(pair.create_revision, each) for each in {*same, pair.mod_revision})


def _skips_one(state, after):
    found = _changes(state, after)
    revisions = sorted({each.revision for each in found})
    return [each for each in found if len(revisions) < 3 or each.revision != revisions[0]]


def _without_deletions(state, after):
    return [each for each in _changes(state, after) if each.value is not None]


def _half_a_revision(db, after):
    return _changes_sqlite(db, after)[:1]


def _checked_before(db, compares, operations, kept):
    """Compares in one transaction and writes in the next."""
    if not all(_holds(db, compare) for compare in compares):
        return None
    db.execute("COMMIT")
    time.sleep(0.002)  # as long as a commit may take on a disk
    db.execute("BEGIN IMMEDIATE")
    return _real_transact(db, (), operations, kept)


_real_transact = tables.transact


def _in_two_commits(db, operations, kept):
    """Commits the values before the revision, so that a kill or a reader finds one without the other."""
    for each in operations:
        if isinstance(each, Put):
            db.execute("UPDATE kv SET value = ? WHERE key = ?", (each.value, each.key))
    db.execute("COMMIT")
    db.execute("BEGIN IMMEDIATE")
    return _apply(db, operations, kept)


_kept_here: set[int] = set()


def _from_memory(db, lease, clock):
    if lease in _kept_here:
        return True
    if _keep_alive(db, lease, clock):
        _kept_here.add(lease)
        return True
    return False


def _without_leases(db, prefix):
    found = _read(db, prefix)
    return found._replace(pairs=tuple(KeyValue(*pair[:4]) for pair in found.pairs))


def _remembered_time(db, clock, kept):
    """Ends leases by a time that was right once: the first that this process has read."""
    _times.append(clock.now_ms())
    _due(db, clock._replace(now_ms=lambda: _times[max(0, len(_times) - 4)]), kept)


_times: list[int] = []

MEMORY = {
    "an ended lease deletes its keys in several revisions": ("_end", _keys_one_by_one),
    "an ended lease leaves its keys": ("_end", _keys_stay),
    "a lease ends before its deadline": ("end_leases", _early),
    "a key that is replaced is created anew": ("_apply", _made_anew),
    "a comparison sees the value only": ("_holds", _value_only),
    "changes skip a revision": ("changes", _skips_one),
    "changes leave deletions out": ("changes", _without_deletions),
}
SQLITE = {
    "changes end within a revision": ("changes", _half_a_revision),
    "a read forgets leases": ("read", _without_leases),
    "comparisons and operations are two transactions": ("transact", _checked_before),
    "a transaction is written in two commits": ("_apply", _in_two_commits),
    "a lease is kept alive in the memory of a process": ("keep_alive", _from_memory),
    "leases end by a time that was read before": ("end_due_leases", _remembered_time),
}
IN_PROCESSES = {
    "a transaction is written in two commits",
    "a lease is kept alive in the memory of a process",
}


ETCD = (
    "changes do not wait for the watch",
    "a key is put without its lease",
    "the watch tells deletions as empty values",
    "the watch tells a revision in parts",
    "changes of etcd that are forgotten are left out",
    "only the first comparison is sent",
)
TROUBLED_ETCD = ("a transaction that may have happened is sent again",)
LAGGING_ETCD = ("a member that is behind may answer a read",)
"""Mistakes that only trouble shows, the last one only with three members; see `injected_etcd`."""


@contextlib.contextmanager
def injected(name):
    """Injects a mistake while it lasts; none for an empty name."""
    if not name:
        yield
    elif name in (*ETCD, *TROUBLED_ETCD, *LAGGING_ETCD):
        from tests.broker.metadata.contract import injected_etcd

        with mock.patch.object(*injected_etcd.ETCD[name]):
            yield
    elif name in MEMORY:
        with mock.patch.object(MemoryState, *MEMORY[name]):
            yield
    else:
        with mock.patch.object(tables, *SQLITE[name]):
            yield
