"""Frames out of a stream, and the memory that a connection holds for them."""

from __future__ import annotations

import pytest

from tests.broker.raw import frame
from tidelog.broker.network.memory.share import Share
from tidelog.broker.network.stream.frames import LARGE_BYTES, Frames
from tidelog.broker.network.stream.held import IDLE_S, Held

MIB = 1 << 20
LIMIT = 100 * MIB


PRODUCE = b"\0\0"  # the API key: only Produce may be as large as this


class Receiver:
    """A connection's two parts, fed as the connection feeds them."""

    def __init__(self, share):
        self.frames = Frames()
        self.resumed = []
        self.held = Held(share, self.frames, lambda: self.resumed.append(self))

    def take(self, data):
        assert not self.held.is_waiting, "it is not read while it waits"
        room = self.frames.room()
        if room is not None:
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.frames.extend(count)
            data = data[count:]
        if data:
            assert self.frames.take(data, LIMIT) is None
        return self.held.update()

    def serve(self):
        """Takes the frames that wait, as if they had been served."""
        found = []
        while self.frames.waiting:
            found.append(bytes(self.frames.pop()))
            if not self.frames.waiting:
                assert self.frames.go_on(LIMIT) is None
        assert self.frames.waiting_bytes == 0
        self.held.update()
        return found


def test_a_large_frame_is_reserved_whole_and_a_small_one_as_it_arrives():
    share = Share(10 * MIB)
    receiver = Receiver(share)
    receiver.take(frame(b"\0" * LARGE_BYTES)[:1_000])
    assert share.reserved_bytes == 4 + LARGE_BYTES
    receiver.held.close()
    assert share.reserved_bytes == 0
    receiver.take(frame(b"\0" * 10_000)[:1_000])
    assert share.reserved_bytes == 1_000
    receiver.held.close()
    assert share.reserved_bytes == 0


def test_who_comes_later_waits_and_is_read_on_in_turn():
    share = Share(10 * MIB)
    large = frame(b"\0" * (8 * MIB))
    first, second, third = Receiver(share), Receiver(share), Receiver(share)
    first.take(large[:5_000])
    second.take(large[:6_000])
    third.take(frame(b"\0" * MIB)[:100])
    assert (first.held.is_waiting, second.held.is_waiting) == (False, True)
    assert third.held.is_waiting, "it would fit, but another came first"
    assert share.reserved_bytes == len(large) + 6_000 + 100
    first.take(large[5_000:])
    assert second.resumed == []
    assert first.serve() == [large[4:]]
    assert second.resumed == [second]
    assert third.resumed == [third]
    second.take(large[6_000:])
    assert second.serve() == [large[4:]]
    third.held.close()
    assert share.reserved_bytes == share.waiting == 0


def test_a_frame_that_is_served_holds_its_memory_and_one_who_leaves_does_not():
    share = Share(10 * MIB)
    receiver = Receiver(share)
    receiver.take(frame(b"\0" * MIB))
    receiver.held.serving_bytes = MIB
    receiver.serve()
    receiver.take(frame(b"\0" * MIB)[:50])
    receiver.held.close()
    assert share.reserved_bytes == MIB  # the request goes on without its connection
    receiver.held.serving_bytes = 0
    receiver.held.update()
    assert share.reserved_bytes == 0


def test_so_many_wait_that_nobody_could_go_on():
    share = Share(4 * MIB)
    first, others = Receiver(share), [Receiver(share) for _ in range(20)]
    first.take(frame(b"\0" * (3 * MIB))[:10])
    taken = [receiver.take(frame(b"\0" * (2 * MIB))[:262_144]) for receiver in others]
    assert taken.count(True) == 8
    for receiver, is_taken in zip(others, taken, strict=True):
        if not is_taken:
            receiver.held.close()
    first.held.close()
    served = 0
    while any(receiver.held.is_waiting for receiver in others) or served < 8:
        for receiver in others:
            if receiver.resumed and not receiver.held.is_waiting:
                receiver.resumed.clear()
                receiver.take(frame(b"\0" * (2 * MIB))[262_144:])
                served += len(receiver.serve())
    assert share.reserved_bytes == 0


OTHERS = 2 * MIB - 400_000


@pytest.fixture
def crowded():
    """A share with room for one frame of 300 kB or less: others have the rest."""
    share = Share(2 * MIB)
    share.add(OTHERS)
    return share


def test_a_connection_that_waits_for_what_it_holds_itself_counts_it_once(crowded):
    receiver = Receiver(crowded)
    frames, held = receiver.frames, receiver.held
    assert receiver.take(frame(bytes(200_000)))
    held.serving_bytes = len(frames.pop())
    held.update()
    following = frame(bytes(300_000))
    assert receiver.take(following[:1_000])
    assert held.is_waiting
    held.served()
    assert not held.is_waiting
    receiver.take(following[1_000:])
    frames.pop()
    held.update()
    held.close()
    assert crowded.reserved_bytes == OTHERS


def test_a_large_frame_reserves_nothing_behind_what_may_last(crowded):
    receiver = Receiver(crowded)
    receiver.held.is_behind = True
    assert receiver.take(frame(bytes(100)) + frame(bytes(300_000))[:1_000])
    assert crowded.reserved_bytes == OTHERS + 100 + 1_000
    receiver.held.is_behind = False
    assert receiver.held.update()
    assert crowded.reserved_bytes == OTHERS + 100 + 1_000, "a request before it waits"
    receiver.frames.pop()
    assert receiver.held.update()
    assert crowded.reserved_bytes == OTHERS + 300_004
    receiver.held.close()
    assert crowded.reserved_bytes == OTHERS


class TestStalled:
    """A frame that stays incomplete. Times are seconds of a clock that the test moves."""

    def test_a_peer_that_sends_nothing_of_the_rest(self):
        receiver = Receiver(Share(MIB))
        assert not receiver.held.has_stalled(0.0, 1_000.0), "nothing is incomplete"
        receiver.take(frame(b"\0" * 100)[:50])
        assert not receiver.held.has_stalled(5.0, 5.0 + IDLE_S)
        assert receiver.held.has_stalled(5.0, 5.1 + IDLE_S)

    def test_one_who_waits_for_memory_is_not_to_blame(self):
        share = Share(MIB)
        assert share.take(MIB)
        receiver = Receiver(share)
        receiver.take(frame(b"\0" * (MIB // 2))[:50])
        assert not receiver.held.has_stalled(0.0, 1_000.0)
        share.release(MIB)
        receiver.held.resume(1_000.0)
        assert not receiver.held.has_stalled(1_000.0, 1_010.0)
        assert receiver.held.has_stalled(1_000.0, 1_011.0)

    def test_one_who_has_just_begun_with_a_large_frame(self):
        receiver = Receiver(Share(MIB))
        receiver.take(frame(b"x" * (MIB // 2))[:50])
        assert not receiver.held.has_stalled(1_000_000.0, 1_000_000.0)
        assert not receiver.held.has_stalled(1_000_010.0, 1_000_010.0)

    def test_one_who_sends_too_slowly_is_cut_sooner_where_others_wait(self):
        share = Share(4 * MIB)
        receiver = Receiver(share)
        data, position = frame(b"\0" * (4 * MIB - 4)), 0
        for second in range(30):  # 128 KiB a second
            receiver.take(data[position : position + 131_072])
            position += 131_072
            assert not receiver.held.has_stalled(second, second)
        share.wait(1, list)
        assert not receiver.held.has_stalled(24.0, 24.0)
        assert receiver.held.has_stalled(29.0, 29.0)
