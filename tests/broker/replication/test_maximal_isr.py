"""Whatever the coordinator does with a leader's changes, every stored member of the ISR counts (KIP-497).

Hypothesis plays the coordinator: it applies a change at once, later or never, loses answers, and lets
another writer change the partition. Images come late. The leader must wait for all who are stored.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.broker.replication.scene import LAG_MS, ME, ONE, TWO, Led
from tidelog.broker.replication.messages import Assignment, ChangeIsr

OTHERS = (ONE, TWO)


class Coordinator:
    """The stored state, and transactions that it may still carry out."""

    def __init__(self, led):
        self.led = led
        self.versions = [(led.stored, led.revision)]
        self.under_way = []  # their outcome is still to be told
        self.late = []  # nobody will be told

    @property
    def record(self):
        return self.versions[-1][0]

    @property
    def revision(self):
        return self.versions[-1][1]

    def store(self, record):
        self.versions.append((record, self.revision + 1))

    def may_apply(self, change):
        return change.mod_revision == self.revision

    def carries_out(self, change):
        """Applies a change if it still can be."""
        if not self.may_apply(change):
            return False
        self.store(change.record)
        return True

    def answer(self):
        """Decides on the oldest change, and says so."""
        change = self.under_way.pop(0)
        if self.carries_out(change):
            self.led.actions = self.led.leader.on_change_applied(
                Assignment(change.record, self.revision), self.led.now_ms
            )
        else:
            self.refuse(change)

    def refuse(self, change, seen=-1):
        record, revision = self.versions[seen]
        self.led.actions = self.led.leader.on_change_refused(
            change, Assignment(record, revision), self.led.now_ms
        )

    def lose_answer(self, *, applies):
        change = self.under_way.pop()
        if applies:
            self.carries_out(change)
        else:
            self.late.append(change)
        self.led.leader.on_change_unknown(change)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("fetch"), st.sampled_from(OTHERS), st.integers(0, 2)),
        st.tuples(st.just("lag"), st.sampled_from(OTHERS)),
        st.tuples(
            st.sampled_from(
                ["append", "answer", "refuse", "lost", "lost, applied", "applied late", "removed"]
            )
        ),
        st.tuples(st.just("image"), st.integers(0, 3)),
        st.tuples(st.just("tick")),
    ),
    max_size=60,
)


@given(st.sampled_from([(ME, ONE, TWO), (ME, TWO), (ME,)]), steps)
def test_every_stored_member_counts(isr, steps):
    led = Led(isr, min_insync=1)
    coordinator, true_ends = Coordinator(led), {ONE: 0, TWO: 0}
    for step, *given_with in steps:
        led.actions = []
        play(coordinator, step, given_with, true_ends)
        coordinator.under_way += [each for each in led.actions if isinstance(each, ChangeIsr)]
        open_changes = [each for each in coordinator.under_way if coordinator.may_apply(each)]
        assert len(open_changes) <= 1, "one change at a time, but for those that came too late"
        assert led.leader.maximal_isr >= set(coordinator.record.isr)
        for broker in set(coordinator.record.isr) - {ME}:
            assert led.high_watermark <= true_ends[broker]


def play(coordinator, step, given_with, true_ends):
    led = coordinator.led
    if step == "fetch":
        broker, behind = given_with
        true_ends[broker] = max(true_ends[broker], led.log.end - behind)
        led.fetch(broker, true_ends[broker])
    elif step == "lag":
        led.append()
        led.now_ms += LAG_MS
        (kept,) = set(OTHERS) - set(given_with)
        true_ends[kept] = led.log.end
        led.fetch(kept, led.log.end)
        led.tick(1)
    elif step == "append":
        led.append()
    elif step == "tick":
        led.tick(1)
    elif step == "image":
        record, revision = coordinator.versions[max(-1 - given_with[0], -len(coordinator.versions))]
        led.actions = led.leader.on_assignment(
            Assignment(record, revision), led.brokers, led.rules, led.now_ms
        )
    elif step == "removed":
        isr = tuple(broker for broker in coordinator.record.isr if broker != ONE)
        coordinator.store(coordinator.record._replace(isr=isr))
    elif step == "applied late":
        if coordinator.late:
            coordinator.carries_out(coordinator.late.pop())
    elif coordinator.under_way:
        if step == "answer":
            coordinator.answer()
        elif step == "refuse":  # because of a session; what is read after it may be old
            coordinator.refuse(coordinator.under_way.pop(), max(-2, -len(coordinator.versions)))
        else:
            coordinator.lose_answer(applies=step == "lost, applied")
