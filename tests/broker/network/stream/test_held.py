"""What a connection holds of the memory for requests: counted once, whoever it waits for."""

from __future__ import annotations

import struct

import pytest

from tidelog.broker.memory.share import Share
from tidelog.broker.network.stream.frames import Frames
from tidelog.broker.network.stream.held import IDLE_S, Held

SHARE, OTHERS, LARGEST = 2 << 20, (2 << 20) - 400_000, 100 << 20


def frame(size):
    return struct.pack(">ih", size, 0) + b"x" * (size - 2)


@pytest.fixture
def share():
    """Room for one frame of 300 kB or less: others have the rest."""
    share = Share(SHARE)
    share.add(OTHERS)
    return share


def test_a_connection_that_waits_for_what_it_holds_itself_counts_it_once(share):
    frames = Frames()
    held = Held(share, frames, lambda: None)
    frames.take(frame(200_000), LARGEST)
    assert held.update()
    held.serving_bytes = len(frames.pop())
    held.update()
    following = frame(300_000)
    frames.take(following[:1_000], LARGEST)
    assert held.update()
    assert held.is_waiting
    held.served()
    assert not held.is_waiting
    frames.take(following[1_000:], LARGEST)
    held.update()
    frames.pop()
    held.update()
    held.close()
    assert share.reserved_bytes == OTHERS


def test_a_peer_that_was_not_read_for_long_has_not_stalled(share):
    frames, granted = Frames(), []
    held = Held(share, frames, lambda: granted.append(True))
    share.add(400_000)
    frames.take(frame(300_000)[:1_000], LARGEST)
    held.update()
    share.release(SHARE)
    assert granted
    held.resume(115.0)
    assert not held.has_stalled(100.0, 115.0 + IDLE_S)
    assert held.has_stalled(100.0, 115.1 + IDLE_S)


def test_a_large_frame_reserves_nothing_behind_what_may_last(share):
    frames = Frames()
    held = Held(share, frames, lambda: None)
    held.is_behind = True
    frames.take(frame(100) + frame(300_000)[:1_000], LARGEST)
    assert held.update()
    assert share.reserved_bytes == OTHERS + 100 + 1_000
    held.is_behind = False
    assert held.update()
    assert share.reserved_bytes == OTHERS + 100 + 1_000, "a request before it waits"
    frames.pop()
    assert held.update()
    assert share.reserved_bytes == OTHERS + 300_004
    held.close()
    assert share.reserved_bytes == OTHERS
