"""Where the bytes of a connection arrive, and when its socket is read."""

from __future__ import annotations

import random

import pytest

from tests.broker.raw import frame
from tidelog.broker.network.memory.share import Share
from tidelog.broker.network.stream.incoming import ARRIVING_BYTES, Incoming

MIB = 1 << 20
LIMIT = 100 * MIB
PRODUCE = b"\0\0"  # the API key: only Produce may be as large as this


class Transport:
    """A socket whose peer has sent everything already; it is read until it is paused."""

    def __init__(self, stream):
        self._stream = memoryview(stream)
        self._is_read = True

    def pause_reading(self):
        assert self._is_read
        self._is_read = False

    def resume_reading(self):
        assert not self._is_read
        self._is_read = True

    def deliver(self, incoming, most, *, is_crowded):
        """Writes into the buffer; returns the bytes that are to be cut."""
        assert self._is_read
        room = incoming.buffer(is_crowded=is_crowded)
        count = min(len(room), len(self._stream), most)
        room[:count] = self._stream[:count]
        self._stream = self._stream[count:]
        return incoming.arrived(count)

    def __bool__(self):
        return self._is_read and bool(self._stream)


def served(frames):
    """The frames that wait, taken as if they had been served."""
    found = []
    assert frames.waiting or frames.go_on(LIMIT) is None
    while frames.waiting:
        found.append(bytes(frames.pop()))
        assert frames.waiting or frames.go_on(LIMIT) is None
    return found


@pytest.fixture
def shared():
    return memoryview(bytearray(ARRIVING_BYTES))


@pytest.mark.parametrize("seed", range(4))
def test_any_cut_of_the_stream_gives_the_same_frames(seed, shared):
    chance, share = random.Random(seed), Share(16 * MIB)
    sizes = [chance.choice((8, 100, 20_000, 70_000, MIB, 5 * MIB)) for _ in range(12)]
    sent = [PRODUCE + chance.randbytes(size - 2) for size in sizes]
    transport = Transport(b"".join(map(frame, sent)))
    incoming, got = Incoming(share, shared, list), []
    frames = incoming.frames
    while len(got) < len(sent):
        data = None
        if transport:
            most, is_crowded = chance.choice((1_000, 65_536, 7 * MIB)), chance.random() < 0.5
            data = transport.deliver(incoming, most, is_crowded=is_crowded)
        if data is not None and frames.is_empty and chance.random() < 0.5:
            frames.keep(data)
        elif data is not None:
            assert frames.take(data, LIMIT) is None
        if chance.random() < 0.5 or not transport:
            got += served(frames)
        assert incoming.held.update()
        incoming.regulate(transport, 0.0, may_read=True)
    assert got == sent
    assert share.reserved_bytes == 0


def test_the_rest_of_a_large_frame_arrives_where_it_is_served_from(shared):
    incoming = Incoming(Share(16 * MIB), shared, list)
    large = frame(PRODUCE + b"\0" * MIB)
    assert incoming.frames.take(large[:1_000], LIMIT) is None
    assert incoming.held.update()
    for _ in range(100):
        room = incoming.buffer(is_crowded=True)
        if room.obj is shared.obj:
            break
        room[:] = b"x" * len(room)
        assert incoming.arrived(len(room)) is None
    (served,) = incoming.frames.waiting
    assert served == large[4:1_000] + b"x" * (len(large) - 1_000)


def test_only_a_whole_small_frame_is_one_frame(shared):
    incoming = Incoming(Share(MIB), shared, list)

    def arrives(data, limit=LIMIT):
        shared[: len(data)] = data
        return incoming.one_frame(len(data), limit)

    assert arrives(frame(b"12345678")) == b"12345678"
    assert arrives(frame(b"12345678"), 7) is None
    assert arrives(frame(b"1234567")) is None
    assert arrives(frame(b"12345678")[:-1]) is None
    assert arrives(frame(b"12345678") + b"\0") is None
    assert arrives(b"\0\0") is None
    assert arrives(frame(bytes(20_000))) is None
    incoming.is_read = False
    assert arrives(frame(b"12345678")) is None


def test_the_socket_is_not_read_while_much_waits_to_be_served(shared):
    incoming, transport = Incoming(Share(16 * MIB), shared, list), Transport(b"")
    for _ in range(16):
        assert incoming.is_read
        assert incoming.frames.take(frame(b"\0" * 65_536), LIMIT) is None
        incoming.regulate(transport, 0.0, may_read=True)
    assert not incoming.is_read
    incoming.frames.pop()
    incoming.regulate(transport, 0.0, may_read=False)
    assert not incoming.is_read
    incoming.regulate(transport, 0.0, may_read=True)
    assert incoming.is_read


def test_less_is_read_at_a_time_while_others_wait_for_their_turn(shared):
    incoming = Incoming(Share(16 * MIB), shared, list)
    assert len(incoming.buffer(is_crowded=False)) == ARRIVING_BYTES
    assert len(incoming.buffer(is_crowded=True)) < ARRIVING_BYTES


def test_two_connections_share_the_memory_and_mix_nothing(shared):
    share = Share(16 * MIB)
    both = [Incoming(share, shared, list) for _ in range(2)]
    sent = [frame(PRODUCE + bytes([number]) * 100_000) for number in range(2)]
    for at in range(0, 100_006, 1_000):
        for incoming, data in zip(both, sent, strict=True):
            piece = memoryview(data)[at : at + 1_000]
            while piece:
                room = incoming.buffer(is_crowded=True)
                count = min(len(room), len(piece))
                room[:count] = piece[:count]
                piece = piece[count:]
                taken = incoming.arrived(count)
                assert taken is None or incoming.frames.take(taken, LIMIT) is None
                assert incoming.held.update()
    for incoming, data in zip(both, sent, strict=True):
        assert served(incoming.frames) == [data[4:]]
        incoming.held.close()
    assert share.reserved_bytes == 0


def test_the_memory_of_an_open_place_is_given_back(shared):
    share = Share(16 * MIB)
    incoming = Incoming(share, shared, list)
    assert incoming.frames.take(frame(PRODUCE + b"x" * MIB)[:1_000], LIMIT) is None
    assert incoming.held.update()
    room = incoming.buffer(is_crowded=False)
    assert room.obj is not shared.obj
    assert share.reserved_bytes == MIB + 6
    incoming.held.close()
    assert share.reserved_bytes == 0
    assert incoming.buffer(is_crowded=False).obj is shared.obj
