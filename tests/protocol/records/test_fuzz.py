"""Damaged record sets of every format and codec: nothing but errors with a code comes out.

Half of the mutants get a right CRC again, so that damage reaches what the CRC guards. The number
of mutants is TIDELOG_FUZZ_FRAMES (6,000 unless told).
"""

from __future__ import annotations

import os
import random
import struct
import zlib

from crc32c import crc32c

from tests.protocol.records.samples import NOW, corpus, plan
from tidelog.protocol.errors import BrokerError, CorruptMessage, InvalidRecord
from tidelog.protocol.records.batch import find_offset, find_time, records, scan, summarize, verify
from tidelog.protocol.records.convert import down_convert, transcode_zstd
from tidelog.protocol.records.prepare import inspect, prepare

FRAMES = int(os.environ.get("TIDELOG_FUZZ_FRAMES", "6000"))
READ_ERRORS = (CorruptMessage,)
TOKENS = (0, 1, 2, 3, 4, 0x7F, 0x80, 0xFE, 0xFF)


def with_true_crc(data):
    """Give the first batch the CRC that its damaged content asks for."""
    if len(data) < 26:
        return
    size = struct.unpack_from(">i", data, 8)[0] + 12
    if not 26 <= size <= len(data):
        return
    if data[16] == 2 and size >= 61:
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:size])))
    elif data[16] < 2:
        struct.pack_into(">I", data, 12, zlib.crc32(data[16:size]))


def mutate(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        span = len(data) if rng.random() < 0.5 else min(70, len(data))
        where = rng.randrange(span)
        choice = rng.random()
        if choice < 0.5:
            data[where] = rng.choice(TOKENS)
        elif choice < 0.8:
            data[where] = rng.randrange(256)
        elif choice < 0.9:
            data[where:where] = rng.randbytes(rng.randrange(1, 5))
        else:
            del data[where : where + rng.randrange(1, 5)]
        if not data:
            data = bytearray(1)
    if rng.random() < 0.5:
        with_true_crc(data)
    return bytes(data)


def produce(rng, data):
    try:
        produced = inspect(
            data, produce_version=rng.choice([0, 2, 3, 9]), max_message_bytes=1 << 20
        )
        prepared = prepare(
            data,
            produced,
            plan(
                first_offset=rng.choice([0, 10**12]),
                magic=rng.randrange(3),
                compression=rng.choice([None, None, 0, 1, 3]),
                log_append_time=rng.random() < 0.3,
                compacted=rng.random() < 0.2,
                **rng.choice([{}, {"min_timestamp": 0, "max_timestamp": NOW}]),
            ),
        )
    except BrokerError as error:
        return error.code
    written = b"".join(bytes(buffer) for buffer in prepared.buffers)
    stored = scan(written)
    assert sum(batch.size for batch in stored) == len(written) == prepared.size
    offset = prepared.first_offset
    for batch, said in zip(stored, prepared.batches, strict=True):
        verify(written, batch)
        summary = summarize(written, batch)
        assert summary.count == said.count
        assert (summary.base_offset, summary.last_offset) == (said.base_offset, said.last_offset)
        assert (summary.largest, summary.largest_offset) == (said.largest, said.largest_offset)
        assert (summary.first, summary.has_missing) == (said.first, said.has_missing)
        for record in records(written, batch):
            assert record.offset == offset
            offset += 1
    assert offset == prepared.last_offset + 1
    return 0


def read(rng, data):
    """Everything a reader of a damaged log may call."""
    outcomes = set()
    batches = []
    for call in (
        lambda: batches.extend(scan(data)),
        lambda: find_offset(data, rng.randrange(50)),
        lambda: down_convert([data], target_magic=rng.randrange(2), fetch_offset=rng.randrange(9)),
        lambda: transcode_zstd([data]),
        lambda: list(records(data)),
    ):
        try:
            call()
        except READ_ERRORS as error:
            outcomes.add(error.code)
    for batch in batches:
        for call in (
            lambda batch=batch: verify(data, batch),
            lambda batch=batch: summarize(data, batch),
            lambda batch=batch: find_time(data, batch, rng.choice([0, NOW]), rng.randrange(9)),
        ):
            try:
                call()
            except READ_ERRORS as error:
                outcomes.add(error.code)
    return outcomes


def test_damage_is_refused_with_a_code():
    rng = random.Random(FRAMES)
    known = [data for _, data in corpus(2)]
    codes = set()
    for _ in range(FRAMES // 2):
        data = mutate(rng, rng.choice(known))
        codes.add(produce(rng, data))
        codes |= read(rng, data)
    # The mutants are worth something only if they reach both the surface and what lies below it.
    assert {0, CorruptMessage.code, InvalidRecord.code} <= codes


def test_undamaged_sets_go_through():
    rng = random.Random(3)
    for magic, data in corpus(4):
        assert read(rng, data) == set()
        batch = scan(data)[0]
        if batch.is_log_append_time:
            continue
        produced = inspect(data, produce_version=9 if magic == 2 else 2, max_message_bytes=1 << 20)
        prepared = prepare(data, produced, plan(magic=magic))
        assert prepared.count >= 1
