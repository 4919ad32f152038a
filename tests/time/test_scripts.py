"""Runs the scripts beside this file: time as a reader of the proposals understands it.

A script is divided by lines that begin with `===`; each part begins with nothing. Within a part,

    command argument=value ...
    ----
    what is expected, up to an empty line

Everything goes through the real storage on a real disk; the only clock is `now=`. What lies on the
disk is taken apart by the few lines below, and what a consumer sees is read by kafka-python, so that
no code of ours judges itself. TIDELOG_REWRITE=1 writes what came out into the scripts: then review.

    topic SETTING=VALUE ...        make the topic anew          alter SETTING=VALUE ...   change it live
    append now= ts=[..] [magic= codec= version= bit= header= pid= seq= headers= key= raw= control=]
    own       the topic's own settings of retention    event-time     the largest there ever was
    explain   what deletes each segment and when, or what holds it
    commit    in flush mode: make durable, and show to consumers, what was appended
    disk      the batches as they lie there        consume [version=]   what a Fetch of it gives
    times     append times by offset               lookup ts=           ListOffsets by time
    lookup-v0 ts= [most=]   ListOffsets version 0: an offset, then where earlier segments begin
    append-delta now= first= delta=   one record, its time as the bytes (hex) of its delta to `first`
    restart   stop cleanly, start                  crash                kill -9, start
    power-loss  kill -9, and the machine starts anew
    segments  where each segment begins and ends   largest              ListOffsets -3
    index     the entries of each .timeindex       retain               apply retention
    delete-records offset=                         flush                make all durable
    appended at= [below=]   the first offset appended at a time or after it, and what is unknown
    let-go-back   the operator lets append times go back to the clock's
    both offset=   its record's time, and when it was appended
    checkpoint             make all durable, and note where recovery has to begin
    truncate batches= [base=] [zeros=yes]  kill -9, cut the log behind so many batches, start;
              lose=.suffix [keep=BYTES]    ... and cut or remove a file of that segment, too
    damage file=.suffix [keep=BYTES] [base=]   stop cleanly, cut a file or remove it, start
"""

from __future__ import annotations

import gzip
import os
import re
import shlex
import struct
import uuid
import warnings
from pathlib import Path
from zlib import crc32

import lz4.frame
import pytest
from crc32c import crc32c

from config import BrokerConfig, ConfigError, topic_config
from protocol.errors import BrokerError
from protocol.records.batch import Record, build
from protocol.records.convert import down_convert
from storage.directory.store import LogStore
from storage.log import partition_times
from storage.log.producers.producer_state import Producers
from storage.log.recovery import loading
from storage.segment.append_times import AppendTimes
from storage.segment.offset_index import OffsetIndex
from storage.segment.segment import Segment
from storage.segment.time_index import TimeIndex
from storage.time.retention import APPEND_BASIS, Candidate, has_aged, segments_to_delete
from storage.time.rolling import should_roll
from storage.time.segment_times import SegmentTimes
from storage.time.stamping import stamps_at
from tests.time_rules import time_rules

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's, at import
    from kafka.record import MemoryRecords

HERE = Path(__file__).parent
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
CODEC_NAMES = {number: name for name, number in CODECS.items()}


# --- the script files ----------------------------------------------------------------------------


class Part:
    """One part of a script: its title, and its blocks in order."""

    def __init__(self, title):
        self.title = title
        self.blocks = []  # a list of plain lines, or (comments, command, expected lines)


def parse(text):
    """Take a script apart, losing nothing."""
    parts, plain, command = [Part("")], [], None
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("==="):
            parts[-1].blocks.append(plain)
            plain = []
            parts.append(Part(line))
        elif line == "----":
            command = plain.pop()
            expected = []
            for following in lines:
                if not following:
                    break
                expected.append(following)
            parts[-1].blocks += [plain, (command, expected)]
            plain = []
        else:
            plain.append(line)
    parts[-1].blocks.append(plain)
    return parts


def unparse(parts):
    """Write a script back."""
    lines = []
    for part in parts:
        if part.title:
            lines.append(part.title)
        for block in part.blocks:
            lines += block if isinstance(block, list) else [block[0], "----", *block[1], ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def arguments(command):
    """Split `name a=1 b=[2, none]` into the name and its arguments."""
    joined = re.sub(r"\[[^]]*\]", lambda m: m[0].replace(" ", ""), command)
    name, *rest = shlex.split(joined)
    return name, dict(word.split("=", 1) for word in rest)


def times_in(text):
    return [-1 if t == "none" else int(t) for t in text.strip("[]").split(",") if t]


# --- what lies on the disk, taken apart by hand --------------------------------------------------


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def unpacked(codec, data):
    if codec == 1:
        return gzip.decompress(data)
    if codec == 3:
        return lz4.frame.decompress(bytes(data))
    return data


def shown(timestamp):
    timestamp = (timestamp + 2**63) % 2**64 - 2**63  # base plus delta wraps, as in Java
    return "none" if timestamp == -1 else str(timestamp)


def type_of(attributes):
    return "LogAppendTime" if attributes & 8 else "CreateTime"


def codec_of(attributes):
    return "" if not attributes & 7 else " " + CODEC_NAMES[attributes & 7]


def describe_v2(data, at, size):
    base, _, epoch, _, crc, attributes, delta, first, largest, pid, _, seq, count = (
        struct.unpack_from(">qiibIhiqqqhii", data, at)
    )
    assert crc == crc32c(data[at + 21 : at + size]), "a wrong CRC on disk"
    body, position, own = unpacked(attributes & 7, data[at + 61 : at + size]), 0, []
    for _ in range(count):
        length, position = varint(body, position)
        own.append(shown(first + varint(body, position + 1)[0]))
        position += length
    text = f"{base}-{base + delta} format 2{codec_of(attributes)} {type_of(attributes)}"
    text += f" max={shown(largest)} own=[{', '.join(own)}]"
    if pid >= 0:
        text += f" pid={pid} seq={seq}"
    assert epoch == 0
    return text


def messages(data):
    at = 0
    while at < len(data):
        offset, size = struct.unpack_from(">qi", data, at)
        yield offset, data[at + 12 : at + 12 + size]
        at += 12 + size


def describe_message(offset, message):
    crc, magic, attributes = struct.unpack_from(">IBb", message)
    assert crc == crc32(message[4:]), "a wrong CRC on disk"
    text = f"{offset} format {magic}{codec_of(attributes)}"
    if magic:
        text += f" {type_of(attributes)} {shown(struct.unpack_from('>q', message, 6)[0])}"
    if attributes & 7:
        at = 6 + 8 * magic
        (key_size,) = struct.unpack_from(">i", message, at)
        inner = unpacked(attributes & 7, message[at + 8 + max(key_size, 0) :])
        found = []
        for inner_offset, inner_message in messages(inner):
            time = f": {shown(struct.unpack_from('>q', inner_message, 6)[0])}" if magic else ""
            bit = " bit" if magic and inner_message[5] & 8 else ""
            found.append(f"{inner_offset}{time}{bit}")
        text += f" inside=[{', '.join(found)}]"
    return text


def describe(data):
    at, lines = 0, []
    while at < len(data):
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        if data[at + 16] == 2:
            lines.append(describe_v2(data, at, size))
        else:
            offset = struct.unpack_from(">q", data, at)[0]
            lines.append(describe_message(offset, data[at + 12 : at + size]))
        at += size
    return lines


def consumed(data):
    """What kafka-python's consumer makes of the bytes."""
    lines, found = [], MemoryRecords(bytes(data))
    while (batch := found.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            if record.timestamp is None or record.timestamp_type is None:
                lines.append(f"{record.offset}: none")
            else:
                kind = ("CreateTime", "LogAppendTime")[record.timestamp_type]
                lines.append(f"{record.offset}: {shown(record.timestamp)} {kind}")
    return lines


# --- the world a part lives in -------------------------------------------------------------------


def produced(options):
    """Build what a producer sends."""
    magic, stamps = int(options.get("magic", 2)), times_in(options["ts"])
    headers = ((b"h", b"1"),) if "headers" in options else ()
    key = None if options.get("key") == "null" else b"k"
    key = b"\0\0\0\1" if "control" in options else key  # the end of a transaction
    kind = {}
    if options.get("bit") == "LogAppendTime":
        kind = {"timestamp_type": 1, "log_append_time": int(options.get("header", stamps[0]))}
    if "pid" in options:
        kind |= {
            "producer_id": int(options["pid"]),
            "producer_epoch": 0,
            "base_sequence": int(options.get("seq", 0)),
            "is_transactional": "transactional" in options,
            "is_control": "control" in options,
        }
    data = bytearray(
        build(
            [Record(i, t, key, b"v%d" % i, headers) for i, t in enumerate(stamps)],
            magic=magic,
            compression=CODECS[options.get("codec", "none")],
            **kind,
        )
    )
    if "header" in options and magic == 2:
        struct.pack_into(">q", data, 35, int(options["header"]))
        struct.pack_into(">I", data, 17, crc32c(data[21:]))
    if "header" in options and magic == 1:
        struct.pack_into(">q", data, 18, int(options["header"]))
        struct.pack_into(">I", data, 12, crc32(data[16:]))
    return bytes(data)


def with_delta(first, delta):
    """A batch of one record whose time is `first` plus the varint `delta`, however that is written."""
    body = b"\0" + delta + b"\0\x02k\x02v\0"
    record = bytes([2 * len(body)]) + body
    tail = struct.pack(">hiqqqhii", 0, 0, first, first, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


def time_entries(path, base):
    """What a .timeindex says, taken apart by hand."""
    return [(time, base + offset) for time, offset in struct.iter_unpack(">qi", path.read_bytes())]


def lose(path, options):
    """Cut a file to `keep` bytes, or remove it."""
    if "keep" in options:
        path.write_bytes(path.read_bytes()[: int(options["keep"])])
    else:
        path.unlink()


class World:
    """One topic of one partition, on disk."""

    def __init__(self, path):
        self.path, self.store, self.partition, self.now = path, None, None, 0
        self.boots = 0
        self.settings = {}

    def run(self, command):
        name, options = arguments(command)
        self.now = int(options.pop("now", self.now))
        try:
            return list(getattr(self, "do_" + name.replace("-", "_"))(options))
        except BrokerError as error:
            lines = [f"{error.code.name} ({error.code})"]
            if error.record_errors:
                return lines + [f"  {index}: {text}" for index, text in error.record_errors]
            return [*lines, f"  {error.message}"]
        except ConfigError as error:
            return ["refused", f"  {error}"]

    def close(self):
        if self.store is not None:
            self.store._release()

    def start(self, config):
        self.store = LogStore([self.path], default_config=config, boot_id=f"boot {self.boots}")
        self.store.open(self.now, {"t": config})

    def settle(self, settings):
        """Settings with what they bring along, as the broker keeps them."""
        config = topic_config(BrokerConfig(), settings)
        if config.lacks_basis:
            settings = settings | {"retention.time.basis": APPEND_BASIS}
            config = topic_config(BrokerConfig(), settings)
        self.settings = settings
        return config

    def do_topic(self, options):
        config = self.settle(options)
        if self.store is None:
            self.start(config)
        self.store.delete_topic("t")
        self.partition = self.store.create_partition("t", uuid.uuid4(), 0, config, self.now)
        yield f"format {config.target_magic}, {config.message_timestamp_type}"

    def do_alter(self, options):
        config = self.settle(self.settings | options)
        self.store.set_config("t", config)
        yield f"format {config.target_magic}, {config.message_timestamp_type}"

    def do_restart(self, _):
        self.store.close()
        return self.again()

    def do_crash(self, _):
        self.store._release()
        return self.again()

    def do_power_loss(self, _):
        self.boots += 1
        return self.do_crash(_)

    def do_truncate(self, options):
        self.store._release()
        path = max(self.directory.glob("*.log"))
        if "base" in options:
            path = self.directory / f"{int(options['base']):020d}.log"
        data, at = path.read_bytes(), 0
        for _ in range(int(options["batches"])):
            at += 12 + struct.unpack_from(">i", data, at + 8)[0]
        if "zeros" in options:
            path.write_bytes(data[:at] + bytes(len(data) - at))
        else:
            path.write_bytes(data[: at + 20])  # and a torn one
        if "lose" in options:
            lose(path.with_suffix(options["lose"]), options)
        return self.again()

    def do_damage(self, options):
        self.store.close()
        if options["file"].startswith("."):
            path = self.directory / f"{int(options.get('base', 0)):020d}{options['file']}"
        else:
            path = self.directory / options["file"]
        lose(path, options)
        return self.again()

    @property
    def directory(self):
        return self.path / "t-0"

    def again(self):
        self.start(topic_config(BrokerConfig(), self.settings))
        self.partition = self.store.partition("t", 0)
        yield f"log end {self.partition.log_end_offset}"

    def do_append(self, options):
        magic = int(options.get("magic", 2))
        version = int(options.get("version", (1, 2, 9)[magic]))
        result = self.partition.append(
            produced(options),
            now_ms=self.now,
            produce_version=version,
            internal="internal" in options,
        )
        text = f"offset={result.base_offset} timestamp={result.log_append_time_ms}"
        yield text + (" duplicate" if result.duplicate else "")

    def do_append_delta(self, options):
        data = with_delta(int(options["first"]), bytes.fromhex(options["delta"]))
        result = self.partition.append(data, now_ms=self.now, produce_version=9)
        yield f"offset={result.base_offset} timestamp={result.log_append_time_ms}"

    def stored(self):
        partition = self.partition
        fetched = partition.read(
            partition.log_start_offset,
            1 << 24,
            upper_offset=partition.high_watermark,
            minimum_one=True,
        )
        return b"".join(fetched.buffers)

    def do_disk(self, _):
        return describe(self.stored())

    def do_consume(self, options):
        version, data = int(options.get("version", 4)), self.stored()
        sent = data
        if version < 4:
            target = 0 if version < 2 else 1
            sent = down_convert([data], target_magic=target, fetch_offset=0).data
        formats = sorted({line.split("format ")[1][0] for line in describe(sent)})
        untouched = "untouched" if sent == data else "converted"
        yield f"{untouched}, format {' and '.join(formats)}"
        yield from consumed(sent)

    def do_times(self, _):
        for offset in range(self.partition.log_end_offset):
            yield f"{offset}: {self.partition.append_time_of(offset)}"

    def do_lookup(self, options):
        partition = self.partition
        found = partition.find_by_time(int(options["ts"]), upper_offset=partition.high_watermark)
        yield "none" if found is None else f"offset={found[0]} timestamp={found[1]}"

    def do_lookup_v0(self, options):
        most = int(options.get("most", 100))
        yield " ".join(map(str, self.partition.offsets_before_v0(int(options["ts"]), most)))

    def do_largest(self, _):
        partition = self.partition
        found = partition.find_largest_time(upper_offset=partition.high_watermark)
        yield "none" if found is None else f"offset={found[0]} timestamp={found[1]}"

    def do_segments(self, _):
        for segment in self.partition.segments:
            kind = " active" if segment.is_active else ""
            last = segment.tail.end_offset - 1
            first = f"{segment.base_offset}-{last}" if segment.tail.size else "empty"
            yield first + kind

    def do_index(self, _):
        self.partition.flush()
        for path in sorted(self.directory.glob("*.timeindex")):
            base = int(path.stem)
            entries = [f"({shown(t)}, {offset})" for t, offset in time_entries(path, base)]
            yield f"{base}: {' '.join(entries) or 'empty'}"

    def do_flush(self, _):
        yield f"durable up to {self.partition.flush()}"

    def do_checkpoint(self, _):
        self.store.checkpoint()
        return ()

    def do_retain(self, _):
        for gone in self.partition.apply_retention(self.now):
            largest = "none" if gone.largest_time is None else gone.largest_time
            yield (
                f"{gone.base_offset}-{gone.end_offset - 1} by {gone.policy}={gone.limit} "
                f"largest={largest} appended={gone.last_append_time}"
            )
        yield f"log start {self.partition.log_start_offset}"

    def do_appended(self, options):
        partition = self.partition
        upper = int(options.get("below", partition.high_watermark))
        found = partition.find_by_append_time(int(options["at"]), upper_offset=upper)
        text = "none"
        if found.offset is not None:
            text = f"offset={found.offset} appended={found.append_time}"
        if not found.is_exact:
            text += f", or earlier: unknown from {found.unknown_from} on"
        yield text

    def do_let_go_back(self, _):
        yield f"from {self.partition.reset_append_clock(self.now)}"

    def do_both(self, options):
        found = self.partition.times_of(int(options["offset"]))
        own = "none" if found.record_time is None else found.record_time
        appended = "unknown" if found.append_time is None else found.append_time
        yield f"{found.kind} time={own} appended={appended}"

    def do_own(self, _):
        yield " ".join(f"{k}={v}" for k, v in sorted(self.settings.items()) if "retention" in k)

    def do_event_time(self, _):
        largest = self.partition.read_max_event_time()
        yield "none" if largest is None else str(largest)

    def do_explain(self, _):
        for segment in self.partition.explain(self.now).segments:
            by = "stays" if segment.policy is None else f"goes by {segment.policy}"
            when = "" if segment.due_ms is None else f" at {segment.due_ms}"
            held = "" if segment.held_by is None else f", held by {segment.held_by}"
            if segment.held_by_segment is not None:
                held += f" {segment.held_by_segment}"
            event = segment.due_event_time
            needs = "" if event is None else f", outdated by {event}"
            yield f"{segment.base_offset}: {by}{when}{held}{needs}"

    def do_commit(self, _):
        yield f"shown up to {self.partition.commit()}"

    def do_delete_records(self, options):
        yield f"log start {self.partition.delete_records_before(int(options['offset']))}"


# --- the tests -----------------------------------------------------------------------------------

SCRIPTS = {path.name: parse(path.read_text()) for path in sorted(HERE.glob("*.txt"))}


def run_part(part, path):
    """Run one part: what every command gave, by block."""
    world, results = World(path), {}
    try:
        for number, block in enumerate(part.blocks):
            if isinstance(block, tuple):
                results[number] = world.run(block[0])
    finally:
        world.close()
    return results


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(name, number, id=f"{name}:{part.title.strip('= ')}")
        for name, parts in SCRIPTS.items()
        for number, part in enumerate(parts)
        if any(isinstance(block, tuple) for block in part.blocks)
    ],
)
def test_script(name, number, tmp_path):
    part = SCRIPTS[name][number]
    if os.environ.get("TIDELOG_REWRITE") == "1":
        part.blocks = [
            (block[0], result[n]) if isinstance(block, tuple) else block
            for result in [run_part(part, tmp_path)]
            for n, block in enumerate(part.blocks)
        ]
        (HERE / name).write_text(unparse(SCRIPTS[name]))
        return
    for block, result in run_part(part, tmp_path).items():
        command, expected = part.blocks[block]
        assert result == expected, f"{name}: {part.title}: {command}"


def test_a_script_survives_parsing():
    for path in HERE.glob("*.txt"):
        assert unparse(parse(path.read_text())) == path.read_text()


def test_a_wrong_expectation_fails(tmp_path):
    (part,) = parse("topic\n----\nformat 1, CreateTime\n")
    assert run_part(part, tmp_path) == {1: ["format 2, CreateTime"]}
    assert part.blocks[1] == ("topic", ["format 1, CreateTime"])


# --- the scripts can fail ------------------------------------------------------------------------


def stamped(**changes):
    """Plant a change of the stamps; each is a function of (stamps, now)."""

    def plant(monkeypatch):
        real = stamps_at

        def planted(rules, last, now):
            stamps = real(rules, last, now)
            return stamps._replace(**{k: change(stamps, now) for k, change in changes.items()})

        monkeypatch.setattr(time_rules, "stamps_at", planted)

    return plant


def patched(target, name, replacement):
    return lambda monkeypatch: monkeypatch.setattr(target, name, replacement)


PLANTS_32 = {
    "the append time goes back": patched(time_rules, "append_time", lambda _, now: now),
    "the window lies around the append time": stamped(
        min_timestamp=lambda s, now: s.min_timestamp + (s.append_time_ms - now),
        max_timestamp=lambda s, now: min(s.max_timestamp + s.append_time_ms - now, 2**63 - 1),
    ),
    "the early edge is outside": stamped(min_timestamp=lambda s, _: s.min_timestamp + 1),
    "the late edge is outside": stamped(max_timestamp=lambda s, _: s.max_timestamp - 1),
    "there is no window": stamped(
        min_timestamp=lambda *_: -(2**63), max_timestamp=lambda *_: 2**63 - 1
    ),
    "the stamp is the clock's": stamped(append_time_ms=lambda _, now: now),
    "a LogAppendTime topic does not stamp": stamped(log_append_time=lambda *_: False),
    "every topic stamps": stamped(log_append_time=lambda *_: True),
    "the answer does not tell the stamp": patched(time_rules, "reported", lambda _: -1),
    "the answer always tells a stamp": patched(
        time_rules, "reported", lambda stamps: stamps.append_time_ms
    ),
    "append times are not kept": patched(AppendTimes, "append", lambda *_: None),
    "duplicates are stored again": patched(Producers, "check", lambda *_: None),
    "lookups take the last segment's word": patched(Segment, "find_time", lambda *_, **__: None),
}


def both(*plants):
    """Two mistakes at once, where one alone is made good elsewhere."""

    def plant(monkeypatch):
        for one in plants:
            one(monkeypatch)

    return plant


def without_largest(times):
    times = times.copy()
    times.largest, times.largest_offset = None, -1
    return times


def noting(change):
    """Plant a change of what a segment notes: of (first, largest, offset, missing, append time)."""

    def plant(monkeypatch):
        real = SegmentTimes.note

        def planted(times, *noted):
            real(times, *change(*noted[:5]), noted[5])

        monkeypatch.setattr(SegmentTimes, "note", planted)

    return plant


def exceeding(largest, last_indexed):
    """Whether an index that took negative times too would take this one."""
    return largest is not None and (last_indexed is None or largest > last_indexed)


def all_that_may_go(candidates, retention, *, high_watermark, **more):
    """What retention would delete that looks at every segment on its own."""
    real = [
        TO_DELETE(
            [c, Candidate(high_watermark, 1, SegmentTimes)],
            retention,
            high_watermark=high_watermark,
            **more,
        )[:1]
        for c in candidates
    ]
    return [policy for one in real for policy in one]


TO_DELETE = segments_to_delete
PLANTS_33 = {
    "an entry has the next offset": patched(
        TimeIndex, "append", lambda i, largest, offset: INDEX(i, largest, offset + 1)
    ),
    "a time that has not grown is indexed": patched(
        time_rules,
        "is_indexed",
        lambda largest, last: largest is not None and largest >= (-1 if last is None else last),
    ),
    "negative times are indexed": patched(time_rules, "is_indexed", exceeding),
    "no time is indexed": patched(time_rules, "is_indexed", lambda *_: False),
    "lookups go to the last entry": patched(TimeIndex, "first_reaching", lambda i, _: i.last()),
    "lookups begin at the entry that reaches the time": patched(
        OffsetIndex, "floor", lambda i, offset: FLOOR(i, offset + 1)
    ),
    "negative times are looked up in the index": patched(
        time_rules, "is_searchable", lambda _: True
    ),
    "roll and close add no entry": patched(Segment, "complete_indexes", lambda _: None),
    "a short index is believed": both(
        patched(
            Segment,
            "adopt",
            lambda segment, line, **known: ADOPT(
                segment, line._replace(index_entries=0, time_index_entries=0), **known
            ),
        ),
        patched(Segment, "_is_time_index_true", lambda _: True),
    ),
    "truncation keeps entries": patched(TimeIndex, "truncate", lambda *_: None),
    "the largest time is lost at a start": patched(
        Segment,
        "adopt",
        lambda segment, line, **known: ADOPT(
            segment, line._replace(times=without_largest(line.times)), **known
        ),
    ),
    "the future blocks retention": noting(
        lambda first, largest, offset, missing, _: (first, largest, offset, missing, 2**62)
    ),
    "a missing time ages nothing": noting(
        lambda first, largest, offset, _, append: (first, largest, offset, False, append)
    ),
    "a segment lasts one millisecond less": patched(
        time_rules,
        "has_aged",
        lambda times, now, retention: HAS_AGED(times, now + 1, retention),
    ),
    "retention does not stop at the first that stays": patched(
        time_rules, "segments_to_delete", all_that_may_go
    ),
    "the active segment never goes": patched(
        time_rules,
        "segments_to_delete",
        lambda candidates, *a, **k: TO_DELETE(candidates, *a, **k)[: len(candidates) - 1],
    ),
    "the basis is the record's always": patched(time_rules, "APPEND_BASIS", "none"),
    "rolling goes by the append time": patched(
        time_rules,
        "should_roll",
        lambda times, _, *more: SHOULD_ROLL(times, None, *more),
    ),
    "rolling is one millisecond early": patched(
        time_rules,
        "should_roll",
        lambda times, largest, now, ms, least: SHOULD_ROLL(times, largest, now, ms - 1, least),
    ),
    "old and new roll one each": patched(
        time_rules,
        "should_roll",
        lambda times, largest, now, ms, _: SHOULD_ROLL(times, largest, now, ms, 0),
    ),
    "nothing rolls by time": patched(time_rules, "should_roll", lambda *_: False),
    "append times are believed after a power loss": patched(
        loading, "_doubt_append_times", lambda *_: None
    ),
    "the log start is forgotten": patched(
        partition_times,
        "pack",
        lambda times: PACK(times._replace(log_start_offset=0)),
    ),
}
FLOOR, HAS_AGED, SHOULD_ROLL = OffsetIndex.floor, has_aged, should_roll
PACK, INDEX, ADOPT = partition_times.pack, TimeIndex.append, Segment.adopt
PLANTS = [("kip-32.txt", name, plant) for name, plant in PLANTS_32.items()]
PLANTS += [("kip-33.txt", name, plant) for name, plant in PLANTS_33.items()]


@pytest.mark.parametrize(("script", "name", "plant"), PLANTS, ids=[name for _, name, _ in PLANTS])
def test_a_planted_mistake_is_caught(script, name, plant, tmp_path, monkeypatch):
    plant(monkeypatch)
    for number, part in enumerate(SCRIPTS[script]):
        results = run_part(part, tmp_path / str(number))
        if any(part.blocks[block][1] != result for block, result in results.items()):
            return
    pytest.fail(f"no script noticed that {name}")
