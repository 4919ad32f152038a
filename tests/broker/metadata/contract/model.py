"""What a key-value store must answer: every state it may be in, given what was asked and answered.

A `State` is immutable and has every change since the beginning. `Worlds` holds the states that
explain all answers so far. A call whose answer is lost may have been applied, or may be applied
later, or never; calls that overlap may be applied in any order. If no state is left, the store has
broken its contract.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.broker.metadata.store import Change, KeyValue, Put

ENDED = "the lease has ended"
FORGOTTEN = "the changes are forgotten"
BARRIER = ("barrier",)
"""A revision without a change, which a store in etcd makes for itself."""


class Lease(NamedTuple):
    ttl_ms: int
    deadline_ms: int


class State(NamedTuple):
    """Keys and leases as sorted tuples, so that two equal states are one."""

    kept: int
    now_ms: int = 0
    revision: int = 0
    pairs: tuple[KeyValue, ...] = ()
    leases: tuple[tuple[int, Lease], ...] = ()
    last_lease: int = 0
    history: tuple[Change, ...] = ()

    @property
    def compacted(self):
        """The last revision whose changes are forgotten: so many with changes are kept."""
        changed = sorted({each.revision for each in self.history})
        return changed[-self.kept - 1] if len(changed) > self.kept else 0

    def after(self, operations):
        """The next revision; the same state if the operations change nothing."""
        pairs = {pair.key: pair for pair in self.pairs}
        number = self.revision + 1
        made = []
        for operation in sorted(operations, key=lambda each: each.key):
            found = pairs.pop(operation.key, None)
            if isinstance(operation, Put):
                created = number if found is None else found.create_revision
                key, value, lease = operation
                pairs[key] = KeyValue(key, value, created, number, lease)
                made.append(Change(number, key, value))
            elif found is not None:
                made.append(Change(number, operation.key, None))
        if not made:
            return self
        return self._replace(
            revision=number,
            pairs=tuple(pairs[key] for key in sorted(pairs)),
            history=self.history + tuple(made),
        )

    def without(self, lease):
        """The state after a lease has ended: its keys are gone, in one revision."""
        left = tuple(each for each in self.leases if each[0] != lease)
        if len(left) == len(self.leases):
            return self
        deletes = [Gone(pair.key) for pair in self.pairs if pair.lease == lease]
        return self._replace(leases=left).after(deletes)

    def with_lease(self, lease, ttl_ms):
        others = {number: each for number, each in self.leases if number != lease}
        others[lease] = Lease(ttl_ms, self.now_ms + ttl_ms)
        return self._replace(leases=tuple(sorted(others.items())))


class Gone(NamedTuple):
    """A deletion as the model makes it."""

    key: str


def expired(state):
    """The state when a call begins: the leases that are over have ended, oldest deadline first."""
    due = sorted(
        (lease.deadline_ms, number)
        for number, lease in state.leases
        if lease.deadline_ms <= state.now_ms
    )
    for _, number in due:
        state = state.without(number)
    return state


def apply(state, call):
    """The state after a call, and its answer."""
    if call == BARRIER:  # no call of a client: leases that are over may end before or after
        state = state._replace(revision=state.revision + 1)
        return state, state.revision
    name, *arguments = call
    return _CALLS[name](expired(state), *arguments)


def _read(state, prefix):
    return state, (state.revision, tuple(p for p in state.pairs if p.key.startswith(prefix)))


def _transact(state, compares, operations):
    pairs = {pair.key: pair for pair in state.pairs}
    for key, target, relation, wanted in compares:
        pair = pairs.get(key)
        actual = 0
        if pair is not None:
            actual = pair.create_revision if target == "create" else pair.mod_revision
        if not {"<": actual < wanted, "=": actual == wanted, ">": actual > wanted}[relation]:
            return state, None
    known = {0, *(number for number, _ in state.leases)}
    if any(isinstance(each, Put) and each.lease not in known for each in operations):
        return state, ENDED
    state = state.after(operations)
    return state, state.revision


def _changes(state, after):
    if after < state.compacted:
        return state, FORGOTTEN
    return state, tuple(each for each in state.history if each.revision > after)


def _grant(state, ttl_ms):
    lease = state.last_lease + 1
    return state._replace(last_lease=lease).with_lease(lease, ttl_ms), lease


def _keep_alive(state, lease):
    held = dict(state.leases).get(lease)
    return (state, False) if held is None else (state.with_lease(lease, held.ttl_ms), True)


def _revoke(state, lease):
    return state.without(lease), None


_CALLS = {
    "read": _read,
    "transact": _transact,
    "changes": _changes,
    "grant": _grant,
    "keep_alive": _keep_alive,
    "revoke": _revoke,
}


class World(NamedTuple):
    """One explanation: a state, calls not applied yet, and answers that were not heard yet."""

    state: State
    waiting: frozenset
    answers: frozenset


class BrokenContract(AssertionError):
    """No state explains what the store has answered, in the schedule with this seed."""

    def __init__(self, message, seed=None):
        super().__init__(message)
        self.seed = seed


class Worlds:
    """All explanations of what a store has answered so far."""

    def __init__(self, kept, before=lambda: None):
        """`before` is called before anything is concluded: it begins what has begun meanwhile."""
        self._before = before
        self.calls = {}
        self.worlds = {World(State(kept), frozenset(), frozenset())}

    def begin(self, number, call):
        """A call has begun; it is applied at some time from now on."""
        self.calls[number] = call
        self.worlds = {world._replace(waiting=world.waiting | {number}) for world in self.worlds}

    def answered(self, number, answer):
        """A call was applied before its answer arrived."""
        heard = (number, answer)
        before = self._any_order()
        self.worlds = {
            world._replace(answers=world.answers - {heard})
            for world in before
            if heard in world.answers
        }
        if not self.worlds:
            possible = {each for world in before for each in world.answers if each[0] == number}
            raise BrokenContract(
                f"{self.calls[number]} was answered {answer}, not one of {possible}"
            )

    def ended(self, number):
        """A call without an answer will not be applied any more; it may have been."""
        self.worlds = {
            World(
                world.state,
                world.waiting - {number},
                frozenset(each for each in world.answers if each[0] != number),
            )
            for world in self._any_order()
        }

    def time_is(self, now_ms):
        """Time goes on; calls in progress are applied before or after that."""
        self.worlds = {
            world._replace(state=world.state._replace(now_ms=now_ms)) for world in self._any_order()
        }

    def leases_have_ended(self):
        """The leases that are over have ended, also if no call has come since."""
        self.worlds = {world._replace(state=expired(world.state)) for world in self._any_order()}

    def last_change(self):
        """The least revision that may be the one with the last change."""
        histories = [world.state.history for world in self._any_order()]
        return min(history[-1].revision if history else 0 for history in histories)

    def check(self, explains, what):
        """Keeps the explanations of which something holds."""
        self.worlds = {world for world in self._any_order() if explains(world.state)}
        if not self.worlds:
            raise BrokenContract(f"nothing explains {what}")

    def _any_order(self):
        self._before()
        found, new = set(self.worlds), list(self.worlds)
        while new:
            world = new.pop()
            for number in world.waiting:
                state, answer = apply(world.state, self.calls[number])
                after = World(state, world.waiting - {number}, world.answers | {(number, answer)})
                if after not in found:
                    found.add(after)
                    new.append(after)
        return found
