"""What strangers send: mutated and truncated frames through every request codec and the header.

Only DecodeError may come out, whatever the bytes. A message made of n bytes holds a bounded number
of objects, and reading takes time in proportion to n. TIDELOG_FUZZ_FRAMES sets how many
frames are tried (a million for the long run); TIDELOG_FUZZ_SEED repeats a run.
"""

from __future__ import annotations

import contextlib
import os
import random
import struct
import time
import timeit
import tracemalloc
import uuid
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.mutations import EVIL, mutate
from tests.sampling import sampled
from tidelog.protocol.decoder import _Decoder
from tidelog.protocol.message import DecodeError, api_of, codec, known_apis, read_request_header
from tidelog.protocol.schema import Field, Message, struct_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FRAMES = int(os.environ.get("TIDELOG_FUZZ_FRAMES", "20000"))
SEED = int(os.environ.get("TIDELOG_FUZZ_SEED", "0")) or random.SystemRandom().getrandbits(32)
# The smallest struct on the wire is three bytes; as an object with a list of its own it is some 150.
BYTES_PER_BYTE = 70

REQUESTS = [
    (entry.key, version)
    for entry in known_apis()
    for version in range(api_of(entry.key).min_version, api_of(entry.key).max_version + 1)
]


def value_of(owner: type[Message], field: Field, version: int, rng: random.Random) -> object:
    if field.is_array:
        element = field._replace(is_array=False, nullable_first=None, tag=None)
        return [value_of(owner, element, version, rng) for _ in range(rng.choice((0, 1, 1, 3)))]
    if field.is_struct:
        return message_of(struct_of(owner, field), version, rng)
    if field.kind == "Uuid":
        return uuid.UUID(int=rng.getrandbits(128))
    if field.kind == "Bool":
        return rng.random() < 0.5
    if field.kind == "String":
        return "x" * rng.choice((0, 1, 7, 130))
    if field.kind in ("Bytes", "Records"):
        return rng.randbytes(rng.choice((0, 1, 61, 200)))
    return rng.randrange(-5, 100)


def message_of(cls: type[Message], version: int, rng: random.Random) -> Message:
    return cls(
        **{
            field.name: value_of(cls, field, version, rng)
            for field in cls.declared_fields
            if field.exists_in(version) and (field.tag is None or rng.random() < 0.5)
        }
    )


def frame_of(key: int, version: int, rng: random.Random) -> bytes:
    api = api_of(key)
    flexible = api.first_flexible is not None and version >= api.first_flexible
    head = struct.pack(">hhih", key, version, rng.randrange(2**31), 3) + b"abc" + b"\0" * flexible
    return head + codec(api.request, version).encode(message_of(api.request, version, rng))


def read(frame: bytes) -> bool:
    """Read a frame as the broker does; whether it could be read."""
    try:
        header = read_request_header(frame)
        api = api_of(header.api_key)
        if api is None or not api.min_version <= header.api_version <= api.max_version:
            return False
        _, end = codec(api.request, header.api_version).decode(frame, header.body_offset)
    except DecodeError as error:
        message = str(error)
    else:
        assert header.body_offset <= end <= len(frame)
        return True
    assert message
    return False


def fuzz(frames: int, seed: int, read_frame: Callable[[bytes], bool]) -> int:
    """Read mutated frames; return how many could be read. Fails on anything but DecodeError."""
    rng = random.Random(seed)
    parents = [frame_of(key, version, rng) for key, version in REQUESTS for _ in range(3)]
    assert all(map(read_frame, parents))
    readable = 0
    for number in range(frames):
        frame = mutate(parents[number % len(parents)], parents, rng)
        try:
            readable += read_frame(frame)
        except Exception as error:
            raise AssertionError(f"seed {seed}, frame {number}: {frame.hex()}") from error
    return readable


@pytest.mark.timeout(3600)
def test_mutated_frames_raise_decode_error_and_nothing_else():
    print(f"TIDELOG_FUZZ_SEED={SEED}")
    readable = fuzz(FRAMES, SEED, read)
    # Both outcomes must be common, or the mutations test nothing.
    assert FRAMES * 0.05 < readable < FRAMES * 0.95


def test_a_decoder_that_leaks_other_errors_would_be_caught():
    """The generated functions without what surrounds them raise struct.error and more."""
    raw = {
        (key, version): _Decoder(
            version,
            flexible=api_of(key).first_flexible is not None
            and version >= api_of(key).first_flexible,
            elements=api_of(key).request_elements,
        ).generate(api_of(key).request)
        for key, version in REQUESTS
    }

    def read_unsafely(frame: bytes) -> bool:
        try:
            header = read_request_header(frame)
            decode = raw.get((header.api_key, header.api_version))
            return decode is not None and decode(frame, header.body_offset)[1] > 0
        except DecodeError:
            return False

    with pytest.raises(AssertionError, match="seed 1, frame"):
        fuzz(2_000, 1, read_unsafely)


@pytest.mark.parametrize(("key", "version"), REQUESTS, ids=str)
def test_every_prefix_of_a_request_is_refused(key, version):
    frame = frame_of(key, version, random.Random(7))
    header = read_request_header(frame)
    decode = codec(api_of(key).request, version).decode
    _, end = decode(frame, header.body_offset)
    assert end == len(frame)
    for length in range(header.body_offset, end):
        with pytest.raises(DecodeError):
            decode(frame[:length], header.body_offset)


@pytest.mark.parametrize(("key", "version"), REQUESTS, ids=str)
def test_a_lying_length_allocates_nothing(key, version):
    """Wherever a length may stand, a huge one is refused before a list or copy of it is made."""
    frame = frame_of(key, version, random.Random(7))[:300]
    start = read_request_header(frame).body_offset
    decode = codec(api_of(key).request, version).decode

    def decode_all() -> None:
        for at in range(start, len(frame), 3):
            for evil in EVIL:
                with contextlib.suppress(DecodeError):
                    decode(frame[:at] + evil + frame[at + len(evil) :], start)

    assert peak_bytes(decode_all, 400_000) < 400_000


def peak_bytes(call: Callable[[], object], limit: int) -> int:
    """The memory that a call takes, the least of three: threads of earlier tests may take some, too."""
    peak = limit
    for _ in range(3):
        tracemalloc.start()
        try:
            call()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        if peak < limit:
            break
    return peak


def crowded(cls: type[Message], version: int, count: int) -> Iterator[Message]:
    """Messages in which one array, on any level, has `count` of the smallest elements."""
    for field in cls.declared_fields:
        if not field.exists_in(version) or not (field.is_array or field.is_struct):
            continue
        inner = struct_of(cls, field) if field.is_struct else None
        if field.is_array:
            smallest = inner() if inner else "" if field.kind == "String" else 0
            yield cls(**{field.name: [smallest] * count})
        for crowd in crowded(inner, version, count) if inner else ():
            yield cls(**{field.name: [crowd] if field.is_array else crowd})


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted({key for key, _ in REQUESTS}))
def test_time_and_memory_grow_with_the_frame_and_not_faster(key):
    """The oldest version, the newest, and a share of those between."""
    versions = [version for of, version in REQUESTS if of == key]
    for version in sorted({versions[0], versions[-1], *sampled(versions, 8)}):
        check_growth(key, version)


def check_growth(key: int, version: int) -> None:
    """The worst a frame of its size can do: as many of the smallest elements as fit."""
    api = api_of(key)
    decode = codec(api.request, version).decode
    most = min(2_400, api.request_elements - 10)
    few, many = (
        [codec(api.request, version).encode(m) for m in crowded(api.request, version, count)]
        for count in (most // 8, most)
    )
    for short, long in zip(few, many, strict=True):
        limit = BYTES_PER_BYTE * len(long) + 10_000
        assert peak_bytes(partial(decode, long), limit) < limit
        assert seconds(decode, long) < 8 * 4 * seconds(decode, short) + 0.005


def test_a_huge_frame_of_tiny_elements_is_refused():
    """Ten topics of 20,000 partitions each: the lists together break the budget, none alone."""
    partitions = (20_000).to_bytes(4, "big") + bytes(20_000 * 16)
    frame = bytes(12) + (10).to_bytes(4, "big") + (b"\0\0" + partitions) * 10
    with pytest.raises(DecodeError, match="more than 50000 array elements"):
        codec(api_of(1).request, 0).decode(frame)


def seconds(decode: Callable[[bytes], object], frame: bytes) -> float:
    return min(timeit.repeat(lambda: decode(frame), number=1, repeat=3, timer=time.thread_time))
