"""The compiled loops and their Python twin give the same answers and refuse with the same words."""

from __future__ import annotations

import os
import random
import runpy
import types

import pytest

from tests.protocol.records.samples import NOW, corpus
from tidelog.protocol.errors import BrokerError, MessageTooLarge
from tidelog.protocol.records import kernels
from tidelog.protocol.records.batch import Record, build
from tidelog.protocol.records.compression import decompress
from tidelog.protocol.records.kernels import kernels_py
from tidelog.protocol.records.layout import INT64_MAX, INT64_MIN, V2_HEADER_SIZE, Region

_kernels = pytest.importorskip("tidelog.protocol.records._kernels")
FRAMES = int(os.environ.get("TIDELOG_FUZZ_FRAMES", "6000"))


def answer(function, *args):
    try:
        return function(*args)
    except (BrokerError, ValueError) as error:
        return type(error), str(error)


def regions():
    """Unpacked records of every kind, as arguments of the loops."""
    for magic, data in corpus(1):
        batch = kernels_py.scan(data, 0, len(data))[0]
        codec = batch.attributes & 7
        if magic == 2:
            inner = bytes(decompress(codec, data[V2_HEADER_SIZE:], 2))
            yield inner, 2, batch.count, batch.base_timestamp
        elif codec == 0:
            yield data, magic, -1, -1


def mutated(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 5])):
        where = (
            rng.randrange(len(data)) if rng.random() < 0.5 else rng.randrange(min(90, len(data)))
        )
        data[where] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)])
    if rng.random() < 0.1:
        del data[rng.randrange(len(data)) :]
    if rng.random() < 0.1:
        data += rng.randbytes(rng.randrange(20))
    return bytes(data)


def compare(rng, region):
    data, magic, count, base_timestamp = region
    data = mutated(rng, data)
    if rng.random() < 0.1:
        count = rng.choice([-1, 0, count + 1, count - 1, 2**31 - 1])
    base = rng.choice([0, 10**12, INT64_MAX])
    stamp = rng.choice([None, None, NOW, -1])
    whole = Region(data, 0, len(data), magic, count, base, base_timestamp, stamp)
    low, high = rng.choice([(INT64_MIN, INT64_MAX), (0, NOW)])
    calls = [
        ("examine", (whole, low, high, rng.random() < 0.5)),
        ("find", (whole, rng.choice([INT64_MIN, 0, NOW - 10**11, NOW]), base + rng.randrange(3))),
        ("scan", (data, 0, len(data))),
        ("find_last", (data, 0, len(data))),
        ("find_other_format", (data, rng.randrange(3), rng.randrange(3))),
        ("find_offset", (data, rng.choice([0, 1, 10**12]), 0, len(data))),
    ]
    for target, relative in ((0, False), (1, False), (1, True), (2, False)):
        kept = rng.choice([None, 0, 10**12])
        least = rng.choice([INT64_MIN, base])
        calls.append(("rewrite", (whole, target, kept, least, relative, 1 << 20)))
    calls.append(("offenders", (whole, 0, NOW, rng.random() < 0.5, rng.choice([0, 2, 99]))))
    for name, args in calls:
        if name == "find" and args[-1] > INT64_MAX:
            continue
        ours, theirs = (answer(getattr(module, name), *args) for module in (_kernels, kernels_py))
        assert ours == theirs, (name, args)
        assert type(ours) is type(theirs)


def test_both_agree_on_damaged_records():
    rng = random.Random(FRAMES)
    known = list(regions())
    for _ in range(FRAMES // 10):
        compare(rng, rng.choice(known))


def test_both_stamp_alike():
    rng = random.Random(5)
    for data, magic, _, _ in regions():
        if magic == 2:
            continue
        for stamp in (None, NOW, INT64_MIN):
            sets = []
            for module in (_kernels, kernels_py):
                out = bytearray(data)
                module.stamp_messages(
                    out, 0, len(out), INT64_MAX - 1 if len(data) < 99 else 7, stamp
                )
                sets.append(bytes(out))
            assert sets[0] == sets[1]
        broken = bytearray(mutated(rng, data))
        ours, theirs = (
            answer(m.stamp_messages, bytearray(broken), 0, len(broken), 0, NOW)
            for m in (_kernels, kernels_py)
        )
        assert ours == theirs


def test_a_span_outside_the_buffer_is_refused(implementation):
    for call in (
        lambda: implementation.scan(b"abc", 0, 4),
        lambda: implementation.scan(b"abc", -1, 3),
        lambda: implementation.find_offset(b"abc", 0, 2, 1),
        lambda: implementation.find_last(b"abc", 0, 4),
        lambda: implementation.checksum_ok(bytes(80), 40, 61, 2),
        lambda: implementation.checksum_ok(bytes(80), 0, 60, 2),
        lambda: implementation.stamp_messages(bytearray(3), 0, 9, 0, None),
        lambda: implementation.examine(Region(b"", 0, 9, 2, 1, 0, 0, None), 0, 0, False),
    ):
        with pytest.raises(ValueError, match="within"):
            call()


def test_checksums_of_every_length(implementation):
    # The compiled module has a CRC-32 of its own for short messages.
    for size in (*range(40), 470, 471, 472, 480, 500, 600, 5000):
        data = bytearray(build([Record(0, 5, None, b"x" * size)], magic=1))
        assert implementation.checksum_ok(data, 0, len(data), 1)
        data[-1] ^= 1
        assert not implementation.checksum_ok(data, 0, len(data), 1)


def test_rewriting_stops_at_its_limit(implementation):
    data = build([Record(i, 5, None, b"") for i in range(1000)])
    args = (Region(data, 61, len(data), 2, 1000, 0, 5, None), 1, None, 0, False)
    assert len(implementation.rewrite(*args, 40_000).data) == 34_000
    with pytest.raises(MessageTooLarge):
        implementation.rewrite(*args, 20_000)


@pytest.mark.parametrize("interface", [None, kernels.INTERFACE - 1])
def test_a_module_compiled_from_other_sources_is_refused(monkeypatch, interface):
    old = types.ModuleType("tidelog.protocol.records._kernels")
    if interface is not None:
        old.INTERFACE = interface
    monkeypatch.delenv("TIDELOG_KERNELS", raising=False)
    monkeypatch.setattr("tidelog.protocol.records._kernels", old)
    with pytest.raises(ImportError, match="make setup"):
        runpy.run_path(kernels.__file__, run_name=kernels.__name__)


def test_a_region_is_needed(implementation):
    with pytest.raises((TypeError, AttributeError)):
        implementation.examine((b"", 0, 0, 2, 0, 0, 0, None), 0, 0, False)
