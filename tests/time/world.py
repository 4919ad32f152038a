"""One topic of one partition on a real disk, and the commands of the scripts, which act on it.

Each command is a method `do_...` that yields the lines of its answer. The commands:

    topic SETTING=VALUE ...        make the topic anew          alter SETTING=VALUE ...   change it live
    append now= ts=[..] [magic= codec= version= bit= header= pid= seq= headers= key= keys=[..] raw= control=]
        verified=yes   the coordinator knows of the transaction that it begins
    appends count= every= [ts=]   one record each so many ms: its time is the clock's, or ts
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
    index     the entries of each time index       retain               apply retention
    delete-records offset=                         flush                make all durable
    appended at= [below=]   the first offset appended at a time or after it, and what is unknown
    let-go-back   the operator lets append times go back to the clock's
    step-forward since= until= shift= [later=yes]   the clock was behind; later: the log was closed
    both offset=   its record's time, and when it was appended
    checkpoint             make all durable, and note where recovery has to begin
    truncate batches= [base=] [zeros=yes]  kill -9, cut the log behind so many batches, start;
              lose=.suffix [keep=BYTES]    ... and cut or remove a file of that segment, too
    adopt date=S   stop cleanly, remove what another broker does not write, set the files' dates, start
    damage file=.suffix [keep=BYTES] [base=]   stop cleanly, cut a file or remove it, start
    compact   clean all segments but the active one, as the broker's other process does
    full-disk [writes=N]   after so many more writes there is no room      room   there is room again
    failing-sync           the next sync fails, and what was to be synced may be lost
"""

from __future__ import annotations

import errno
import os
import struct
import uuid

from tests.simulation.disks import Disk
from tests.storage.cleaning import clean
from tests.storage.conftest import kill, read_max_event_time
from tests.time.broker_world import BrokerWorld
from tests.time.clock_world import ClockWorld
from tests.time.produced import produced, with_delta
from tests.time.scripts import arguments
from tests.time.stored_bytes import consumed, describe, shown
from tidelog.config import BrokerConfig, ConfigError, topic_config
from tidelog.protocol.errors import BrokerError
from tidelog.protocol.records.convert import down_convert
from tidelog.storage import files
from tidelog.storage.directory.opening_clock import ClockNow
from tidelog.storage.directory.store import LogStore
from tidelog.storage.time.corrections import NO_HISTORY, ClockHistory, ForwardStep
from tidelog.storage.time.retention import APPEND_BASIS


def time_entries(path, base):
    """What a .timeindex or a .negativetimes says, taken apart by hand."""
    data = path.read_bytes()
    if path.suffix == ".negativetimes":
        assert data[:8] == b"tidn\0\0\0\1"
        data = data[8:]
    entries = [(time, base + offset) for time, offset in struct.iter_unpack(">qi", data)]
    return " ".join(f"({shown(time)}, {offset})" for time, offset in entries)


def lose(path, options):
    """Cut a file to `keep` bytes, or remove it."""
    if "keep" in options:
        path.write_bytes(path.read_bytes()[: int(options["keep"])])
    else:
        path.unlink()


class _Disk(Disk):
    """A disk that is full after so many more writes; None: never."""

    writes = None

    def write(self, number, buffers, position):
        if self.writes is not None:
            if not self.writes:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.writes -= 1
        return super().write(number, buffers, position)


class World:
    """One topic of one partition, on disk."""

    def __init__(self, path):
        self.path, self.store, self.partition, self.now = path, None, None, 0
        self.disk = _Disk()
        self._disk_before = files.use(self.disk)
        self.boots = 0
        self.history = NO_HISTORY
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
            kill(self.store)
        files.use(self._disk_before)

    def start(self, config):
        self.store = LogStore([self.path], default_config=config, boot_id=f"boot {self.boots}")
        self.store.clock.ask(lambda: ClockNow(self.now, self.now, self.history))
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
        kill(self.store)
        return self.again()

    def do_power_loss(self, _):
        self.boots += 1
        return self.do_crash(_)

    def do_truncate(self, options):
        kill(self.store)
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

    def do_adopt(self, options):
        self.store.close()
        for path in [*self.directory.glob("*.appendtimes"), self.directory / "partition.times"]:
            path.unlink(missing_ok=True)
        for path in self.directory.iterdir():
            os.utime(path, (int(options["date"]), int(options["date"])))
        return self.again()

    @property
    def directory(self):
        return self.path / "t-0"

    def again(self):
        self.start(topic_config(BrokerConfig(), self.settings))
        self.partition = self.store.partition("t", 0)
        yield f"log end {self.partition.log_end_offset}"

    def meet_clock(self):
        """What the broker does when the clock has gone back, before an append."""
        self.partition.append_clock.note_step_back(self.now)

    def do_append(self, options):
        self.meet_clock()
        magic = int(options.get("magic", 2))
        version = int(options.get("version", (1, 2, 9)[magic]))
        result = self.partition.append(
            produced(options),
            now_ms=self.now,
            produce_version=version,
            internal="internal" in options,
            guard=self.guard(options) if "verified" in options else None,
        )
        text = f"offset={result.base_offset} timestamp={result.log_append_time_ms}"
        yield text + (" duplicate" if result.duplicate else "")

    def guard(self, options):
        """What a coordinator's word about a transaction that begins gives."""
        return self.partition.verification(int(options["pid"]), 0, int(options.get("seq", 0)))

    def do_appends(self, options):
        """Append one record after the other, a step of the clock before each."""
        first = self.partition.log_end_offset
        for _ in range(int(options["count"])):
            self.now += int(options["every"])
            stamps = options.get("ts", str(self.now))
            self.meet_clock()
            self.partition.append(produced({"ts": stamps}), now_ms=self.now, produce_version=9)
        yield f"offsets {first}-{self.partition.log_end_offset - 1}, now={self.now}"

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
            yield f"{offset}: {self.partition.reader.append_time_of(offset)}"

    def do_lookup(self, options):
        partition = self.partition
        found = partition.reader.find_by_time(
            int(options["ts"]), upper_offset=partition.high_watermark
        )
        yield "none" if found is None else f"offset={found[0]} timestamp={found[1]}"

    def do_lookup_v0(self, options):
        most = int(options.get("most", 100))
        yield " ".join(map(str, self.partition.reader.offsets_before_v0(int(options["ts"]), most)))

    def do_largest(self, _):
        partition = self.partition
        found = partition.reader.find_largest_time(upper_offset=partition.high_watermark)
        yield "none" if found is None else f"offset={found[0]} timestamp={found[1]}"

    def do_segments(self, _):
        for segment in self.partition.segments:
            kind = " active" if segment.log.is_active else ""
            last = segment.tail.end_offset - 1
            first = f"{segment.base_offset}-{last}" if segment.tail.size else "empty"
            yield first + kind

    def do_index(self, _):
        self.partition.flush()
        for path in sorted(self.directory.glob("*.timeindex")):
            base = int(path.stem)
            yield f"{base}: {time_entries(path, base) or 'empty'}"
            negative = path.with_suffix(".negativetimes")
            if negative.exists():
                yield f"{base} below zero: {time_entries(negative, base) or 'empty'}"

    def do_flush(self, _):
        yield f"durable up to {self.partition.flush()}"

    def do_checkpoint(self, _):
        self.store.checkpoint()
        return ()

    def do_retain(self, _):
        for gone in self.partition.retainer.apply_retention(self.now):
            largest = "none" if gone.largest_time is None else gone.largest_time
            yield (
                f"{gone.base_offset}-{gone.end_offset - 1} by {gone.policy}={gone.limit} "
                f"largest={largest} appended={gone.last_append_time}"
            )
        yield f"log start {self.partition.log_start_offset}"

    def do_appended(self, options):
        partition = self.partition
        upper = int(options.get("below", partition.high_watermark))
        found = partition.reader.find_by_append_time(int(options["at"]), upper_offset=upper)
        text = "none"
        if found.offset is not None:
            text = f"offset={found.offset} appended={found.append_time}"
        if found.unknown_from is not None:
            text += f", or earlier: unknown from {found.unknown_from} on"
        if found.absent_from is not None:
            gone, last = found.absent_from, found.offset - 1
            text += f", {gone} is gone" if gone == last else f", {gone}-{last} are gone"
        yield text

    def do_let_go_back(self, _):
        reset = self.partition.append_clock.reset(self.now)
        if reset is None:
            yield "nothing is ahead of the clock"
        else:
            yield (
                f"from {reset.last_append_time}, maxEventTime {reset.max_event_time} -> "
                f"{reset.next_max_event_time}"
            )

    def do_step_forward(self, options):
        """The clock was behind from `since` to `until`, by `shift`, and is right now."""
        step = ForwardStep(*(int(options[name]) for name in ("since", "until", "shift")), self.now)
        number = len(self.history.steps) + 1
        self.history = ClockHistory("clock", (*self.history.steps, (number, step)))
        if "later" not in options:
            self.partition.append_clock.note_step_forward(step, "clock", number)
        for each in self.partition.state.timing.corrections:
            yield " ".join(f"{name}={value}" for name, value in each._asdict().items())

    def do_both(self, options):
        found = self.partition.reader.times_of(int(options["offset"]))
        own = "none" if found.record_time is None else found.record_time
        appended = "unknown" if found.append_time is None else found.append_time
        yield f"{found.kind} time={own} appended={appended}"

    def do_own(self, _):
        yield " ".join(f"{k}={v}" for k, v in sorted(self.settings.items()) if "retention" in k)

    def do_event_time(self, _):
        largest = read_max_event_time(self.partition)
        yield "none" if largest is None else str(largest)

    def do_explain(self, _):
        for segment in self.partition.retainer.explain(self.now).segments:
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

    def do_compact(self, _):
        done = clean(self.partition, self.now)
        yield "nothing to compact" if done is None else f"clean up to {done.first_dirty_offset}"

    def do_full_disk(self, options):
        self.disk.writes = int(options.get("writes", 0))
        return ()

    def do_room(self, _):
        self.disk.writes = None
        return ()

    def do_failing_sync(self, _):
        self.disk.failures = 1
        return ()

    def do_delete_records(self, options):
        yield f"log start {self.partition.retainer.delete_records_before(int(options['offset']))}"


_WORLDS = {"machine": ClockWorld, "broker": BrokerWorld}  # by the first command; others: World


def run_part(part, path):
    """Run one part: what every command gave, by block."""
    first = next((block[0].split()[0] for block in part.blocks if isinstance(block, tuple)), "")
    world, results = _WORLDS.get(first, World)(path), {}
    try:
        for number, block in enumerate(part.blocks):
            if isinstance(block, tuple):
                results[number] = world.run(block[0])
    finally:
        world.close()
    return results
