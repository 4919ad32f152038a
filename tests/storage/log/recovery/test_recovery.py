"""After damage at any byte of any file the log ends at its last whole batch, and all agrees.

`make test` tries every eighth byte (tests/sampling.py).
"""

import shutil

import pytest

from tests.sampling import sampled
from tidelog.protocol.records.batch import Compression, scan
from tidelog.storage import filenames

KINDS = {
    "v2": {"magic": 2},
    "v2-gzip": {"magic": 2, "compression": Compression.GZIP},
    "v1": {"magic": 1},
    "v1-gzip": {"magic": 1, "compression": Compression.GZIP},
    "v0": {"magic": 0},
    "v0-gzip": {"magic": 0, "compression": Compression.GZIP},
}
ONE_IN = 8
DATA = (".log", ".appendtimes")
FORMATS = {0: "0.9.0", 1: "0.10.0", 2: "3.0"}


@pytest.fixture(params=KINDS)
def small(request, make_log):
    """A log of six small batches that was killed, and what is known of it."""
    kind = KINDS[request.param]
    log = make_log(message_format_version=FORMATS[kind["magic"]], index_interval_bytes=60).create()
    sequence = 0
    for i in range(6):
        count = 1 + i % 3
        producer = {}
        if kind["magic"] == 2:
            producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
        sequence += count
        log.append([1000 * i + j for j in range(count)], now=100 * (i // 2), **kind, **producer)
    log.expected = log.contents()
    log.times = [log.partition.reader.append_time_of(offset) for offset in range(len(log.expected))]
    log.expected_index = log.index_entries()
    assert len(log.expected_index) >= 3
    log.batches = scan(bytes((log.directory / filenames.segment_file(0, ".log")).read_bytes()))
    log.is_v2 = kind["magic"] == 2
    log.crash()
    return log


def path_of(log, suffix, offset=0):
    if not suffix.startswith("."):
        return log.directory / suffix
    return log.directory / filenames.segment_file(offset, suffix)


def whole_batches(log, size):
    return [b for b in log.batches if b.position + b.size <= size]


def check(log, source, kept):
    """The reopened log holds exactly the first `kept` batches of the source."""
    batches = source.batches[:kept]
    end = batches[-1].last_offset + 1 if batches else 0
    size = batches[-1].position + batches[-1].size if batches else 0
    partition = log.partition
    assert partition.log_end_offset == end
    assert path_of(log, ".log").stat().st_size == size
    assert log.contents() == source.expected[:end]
    assert log.index_entries() == [e for e in source.expected_index if e[2] < size]
    if source.is_v2:
        known = partition.state.read_producers().get(5)
        assert (known.last_sequence if known else -1) == end - 1
        tail = known.batches[-1] if known else None
        assert tail is None or tail.last_offset == end - 1
    partition.config = log.config
    check_times(log)


def check_times(log):
    """Times are found as a look at every record finds them."""
    rows = [(o, t) for o, t, _ in log.contents() if t != -1]
    for timestamp in {t + d for _, t in rows for d in (-1, 0, 1)} - {-1}:
        expected = next(((o, t) for o, t in rows if t >= timestamp), None)
        end = log.partition.log_end_offset
        assert log.partition.reader.find_by_time(timestamp, upper_offset=end) == expected


def check_goes_on(log, before):
    """The log takes the next batch, at a time that does not go back, and keeps it over a stop."""
    end = log.partition.log_end_offset
    magic = log.config.target_magic
    log.append([77], now=0, magic=magic)
    assert log.partition.last_append_time >= (before or 0)
    log.close()
    log.open()
    assert log.contents()[end:] == [(end, 77 if magic else -1, b"v0")]


def test_the_log_cut_at_every_byte(small, tmp_path):
    data = path_of(small, ".log").read_bytes()
    for cut in sampled(range(len(data) + 1), ONE_IN):
        copy = small.copy_to(tmp_path / "copy")
        path_of(copy, ".log").write_bytes(data[:cut])
        copy.open()
        kept = len(whole_batches(small, cut))
        check(copy, small, kept)
        end = copy.partition.log_end_offset
        assert copy.partition.last_append_time == (small.times[end - 1] if end else None)
        assert [copy.partition.reader.append_time_of(o) for o in range(end)] == small.times[:end]
        if cut % 40 == 0:
            check_goes_on(copy, copy.partition.last_append_time)
        copy.crash()


def test_every_byte_of_the_log_changed(small, tmp_path):
    data = path_of(small, ".log").read_bytes()
    unprotected = range(12, 16)  # the leader epoch of format 2: a follower writes it
    for number, batch in enumerate(small.batches):
        for at in sampled(range(batch.size), ONE_IN):
            if small.is_v2 and at in unprotected:
                continue
            position = batch.position + at
            damaged = bytearray(data)
            damaged[position] ^= 1 << position % 8
            copy = small.copy_to(tmp_path / "copy")
            path_of(copy, ".log").write_bytes(damaged)
            copy.open()
            check(copy, small, number)
            copy.crash()


@pytest.mark.parametrize("small", ["v2", "v1-gzip"], indirect=True)
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".appendtimes", "partition.times"])
def test_the_other_files_cut_at_every_byte(small, tmp_path, suffix):
    small.open()
    small.partition.flush()
    small.crash()
    data = path_of(small, suffix).read_bytes()
    assert len(data) > 16
    for cut in sampled(range(len(data)), ONE_IN):
        copy = small.copy_to(tmp_path / "copy")
        path_of(copy, suffix).write_bytes(data[:cut])
        copy.open()
        check(copy, small, len(small.batches))
        if cut % 5 == 0:
            check_goes_on(copy, None)
        copy.crash()


@pytest.mark.parametrize("small", ["v2", "v1-gzip"], indirect=True)
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".appendtimes", "partition.times"])
def test_every_byte_of_the_other_files_changed(small, tmp_path, suffix):
    small.open()
    small.partition.flush()
    small.crash()
    data = path_of(small, suffix).read_bytes()
    for position in sampled(range(len(data)), ONE_IN):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        copy = small.copy_to(tmp_path / "copy")
        path_of(copy, suffix).write_bytes(damaged)
        copy.open()
        check(copy, small, len(small.batches))
        copy.crash()


def test_after_a_checkpoint_only_the_tail_is_read(make_log):
    log = make_log(index_interval_bytes=100).create()
    for i in range(20):
        log.append([i], now=i)
    log.store.checkpoint()
    log.append([20], now=20)
    log.crash()
    path = path_of(log, ".log")
    data = bytearray(path.read_bytes())
    data[70] ^= 1  # before the recovery point: believed, as Kafka believes it
    path.write_bytes(data)
    log.open()
    assert log.partition.log_end_offset == 21
    log.crash()
    data[-1] ^= 1
    path.write_bytes(data)
    log.open()
    assert log.partition.log_end_offset == 20
    assert log.partition.last_append_time == 19


def test_a_bad_batch_takes_the_later_segments_with_it(make_log):
    log = make_log(segment_bytes=300).create()
    for i in range(20):
        log.append([i], now=i)
    bases = [segment.base_offset for segment in log.partition.segments]
    assert len(bases) > 4
    log.crash()
    path = path_of(log, ".log", bases[2])
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)
    log.open()
    assert log.partition.log_end_offset == bases[2]
    assert [record[1] for record in log.contents()] == list(range(bases[2]))
    behind = {
        p.name
        for p in log.directory.iterdir()
        if p.name[:20].isdigit() and int(p.name[:20]) > bases[2]
    }
    assert behind == {f"{base:020}{suffix}-cut" for base in bases[3:] for suffix in DATA}
    assert log.append([99], now=50).base_offset == bases[2]


def test_segments_behind_a_cut_stay_as_they_were(make_log, caplog):
    """Over later starts and retention, too; and nobody is served what is in them."""
    log = make_log(segment_bytes=300).create()
    for i in range(12):
        log.append([i, i], now=i)
    bases = [segment.base_offset for segment in log.partition.segments]
    log.crash()
    kept = {
        path_of(log, suffix, base): path_of(log, suffix, base).read_bytes()
        for base in bases[2:]
        for suffix in DATA
    }
    torn = path_of(log, ".log", bases[1])
    torn.write_bytes(torn.read_bytes()[:-1])
    log.open()
    (cut,) = (record for record in caplog.records if record.message == "recovery truncated log")
    assert cut.dropped_segments == len(bases) - 2
    assert cut.records_set_aside == 24 - bases[2]
    for i in range(12):
        log.append([100 + i], now=100 + i)
    contents = log.contents()
    assert {time for _, time, _ in contents if time < 100} == set(range(bases[2] // 2 - 1))
    log.close()
    log.open()
    assert log.contents() == contents
    log.partition.retainer.apply_retention(10**15)
    log.crash()
    log.open()
    for path, data in kept.items():
        assert path.with_name(path.name + "-cut").read_bytes() == data


def test_after_a_clean_stop_only_the_tail_is_read(make_log):
    log = make_log(segment_bytes=1000, index_interval_bytes=0).create()
    for i in range(30):
        log.append([i], now=i, producer_id=1, producer_epoch=0, base_sequence=i)
    log.close()
    log.open()
    last = log.partition.segments[-1].index.last().position
    log.close()
    for path in log.directory.glob("*.log"):  # any look at the zeros would fail
        kept = path.read_bytes()[last:] if path == max(log.directory.glob("*.log")) else b""
        path.write_bytes(bytes(path.stat().st_size - len(kept)) + kept)
    log.open()
    assert log.partition.log_end_offset == 30
    assert log.partition.last_append_time == 29
    assert log.partition.state.read_producers().get(1).last_sequence == 29


def test_a_clean_stop_is_believed_once(make_log):
    log = make_log().create()
    log.append([1])
    log.close()
    assert (log.path / filenames.CLEAN_SHUTDOWN_FILE).exists()
    log.open()
    assert not (log.path / filenames.CLEAN_SHUTDOWN_FILE).exists()
    log.append([2])
    log.crash()
    log.open()
    assert [record[1] for record in log.contents()] == [1, 2]


def test_a_damaged_snapshot_is_made_up_for_by_the_log(make_log):
    log = make_log(segment_bytes=500).create()
    for i in range(20):
        log.append([i], now=i, producer_id=1, producer_epoch=0, base_sequence=i)
    assert len(list(log.directory.glob("*.snapshot"))) >= 2
    log.crash()
    for path in log.directory.glob("*.snapshot"):
        path.write_bytes(b"\0\1junk")
    log.open()
    known = log.partition.state.read_producers().get(1)
    assert [b.first_sequence for b in known.batches] == [15, 16, 17, 18, 19]
    assert known.last_append_time_ms == 19


def test_the_stamps_of_a_lost_append_time_still_hold_it_up(make_log):
    log = make_log(message_timestamp_type="LogAppendTime").create()
    log.append([1], now=1000)
    log.append([1], now=9000)
    log.crash()
    path = path_of(log, ".appendtimes")
    path.write_bytes(path.read_bytes()[:-12])
    log.open()
    assert log.partition.last_append_time == 9000
    assert log.append([1], now=2000).log_append_time_ms == 9000


def test_a_log_without_append_times_is_served_and_marked(make_log):
    log = make_log().create()
    log.append([5, -3], now=1000)
    log.crash()
    path_of(log, ".appendtimes").unlink()
    log.open()
    assert log.partition.reader.append_time_of(0) is None
    assert log.partition.reader.find_by_time(-10, upper_offset=9) == (0, 5)
    log.append([6], now=2000)
    assert [log.partition.reader.append_time_of(o) for o in (0, 1, 2, 3)] == [
        None,
        None,
        2000,
        None,
    ]


def test_debris_is_removed(make_log):
    log = make_log().create()
    log.append([1])
    log.crash()
    for name in ("00000000000000000000.index.tmp", "00000000000000000007.log.deleted"):
        (log.directory / name).write_bytes(b"x")
    log.open()
    assert not list(log.directory.glob("*.tmp")) + list(log.directory.glob("*.deleted"))
    assert len(log.contents()) == 1


def test_recovery_may_itself_be_interrupted(small, tmp_path):
    """Opening twice in a row without a clean stop between gives the same log."""
    copy = small.copy_to(tmp_path / "copy")
    data = path_of(copy, ".log").read_bytes()
    path_of(copy, ".log").write_bytes(data[:-1])
    for _ in range(3):
        copy.open()
        check(copy, small, len(small.batches) - 1)
        copy.crash()
    shutil.rmtree(copy.path)


@pytest.mark.parametrize("points", [None, b"0\n1\nt 0 0\n", b"0\n1\nt 0 3\n", b"junk"])
def test_a_stale_checkpoint_hides_nothing_after_a_clean_stop(make_log, points):
    log = make_log().create()
    log.close()  # leaves a snapshot at offset 0
    log.open()
    for i in range(5):
        log.append([i], now=i)
    log.close()
    path = log.path / filenames.RECOVERY_POINT_CHECKPOINT
    if points is None:
        path.unlink()
    else:
        path.write_bytes(points)
    log.open()
    assert [record[1] for record in log.contents()] == [0, 1, 2, 3, 4]
    assert log.append([5], now=9).base_offset == 5
