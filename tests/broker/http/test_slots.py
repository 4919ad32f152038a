"""Which HTTP connections are served, and which are closed for them."""

from __future__ import annotations

import pytest

from tidelog.broker.http.slots import RESERVED_SLOTS, SlotKind, Slots


class Port:
    """Slots, and a clock."""

    def __init__(self, most):
        self.most, self.now_s, self.slots, self.made = most, 100.0, Slots(), 0

    def come(self, host="10.0.0.1"):
        """A new connection: its kind and number, and whom it replaces; None if it is refused."""
        taken = self.slots.acquire(host, self.most, self.now_s)
        if taken is None:
            return None
        self.made += 1
        self.slots.remove(taken.evicted)
        self.slots.put(self.made, host, taken.kind, self.now_s)
        return taken.kind, self.made, taken.evicted

    def ask(self, *connections):
        for each in connections:
            self.slots.begin(each)


@pytest.fixture
def full():
    """Four connections, all of which wait for answers."""
    port = Port(4)
    for number in range(4):
        assert port.come(f"10.0.0.{number % 2}") == (SlotKind.USUAL, number + 1, None)
    port.ask(1, 2, 3, 4)
    return port


def test_the_one_that_is_quiet_for_longest_leaves(full):
    for each in (3, 2):
        full.slots.end(each, full.now_s)
        full.now_s += 1
    assert full.come("10.0.0.9") == (SlotKind.USUAL, 5, 3)
    assert full.come("10.0.0.9") == (SlotKind.USUAL, 6, 2)


def test_an_address_with_half_of_them_replaces_its_own_alone(full):
    full.most = 6
    assert full.come("10.0.0.9") == (SlotKind.USUAL, 5, None)
    full.most = 4
    full.slots.end(1, full.now_s)
    full.slots.end(2, full.now_s)
    full.now_s += 1
    assert full.come("10.0.0.1") == (SlotKind.USUAL, 6, 2)


def test_nobody_has_to_leave_before_he_could_ask():
    port = Port(1)
    port.come()
    assert port.come()[0] is SlotKind.HEALTH


def test_an_ipv4_address_on_an_ipv6_port_is_of_this_machine(full):
    assert full.come("::ffff:127.0.0.1")[0] is SlotKind.LOCAL


def test_those_that_are_kept(full):
    kinds = [full.come("127.0.0.1")[0] for _ in range(RESERVED_SLOTS)]
    assert kinds == [SlotKind.LOCAL] * RESERVED_SLOTS
    full.ask(*range(5, 5 + RESERVED_SLOTS))
    assert [full.come()[0] for _ in range(RESERVED_SLOTS)] == [SlotKind.HEALTH] * RESERVED_SLOTS
    first = 5 + RESERVED_SLOTS
    assert full.come("127.0.0.1")[2] == first  # at once: a check asks as soon as it has connected
    full.ask(*range(first, full.made + 1))
    assert full.come("127.0.0.1") is None
