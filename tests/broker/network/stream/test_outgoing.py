"""Answers on their way: who reads nothing while others wait for the memory is known."""

from __future__ import annotations

from tidelog.broker.network.memory.share import Share
from tidelog.broker.network.stream.outgoing import UNREAD_S, Outgoing


def unread(share, size):
    outgoing = Outgoing(share)
    outgoing.is_paused = True
    outgoing.count(size)
    return outgoing


def test_nobody_stalls_while_nobody_waits():
    outgoing = unread(Share(10), 8)
    assert not outgoing.has_stalled(8, 0.0)
    assert not outgoing.has_stalled(8, 1_000.0)


def test_one_who_reads_nothing_stalls_and_one_who_reads_a_little_does_not():
    share = Share(10)
    stalled, slow = unread(share, 4), unread(share, 4)
    share.wait(5, list)
    for second in range(int(UNREAD_S) + 1):
        assert not stalled.has_stalled(4, second)
        assert not slow.has_stalled(4 - second % 2, second)
    assert stalled.has_stalled(4, UNREAD_S + 1)
    assert not slow.has_stalled(3, UNREAD_S + 1)


def test_what_is_unread_moves_with_the_connection_to_another_share():
    answers, replication = Share(10), Share(10)
    outgoing = unread(answers, 4)
    outgoing.count_in(replication)
    assert (answers.reserved_bytes, replication.reserved_bytes) == (0, 4)
    outgoing.lost()
    assert replication.reserved_bytes == 0
