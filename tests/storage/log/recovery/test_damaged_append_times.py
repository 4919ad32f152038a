"""A log whose append times are damaged or another's answers with the right time or with none.

Each file is damaged at every byte (or at some, tests/sampling.py), in a directory that was stopped
cleanly, killed, or copied without `partition.times`; then the log is gone on with and opened again. The
last tests take over a directory whose append times an older tidelog wrote.
"""

import pytest

from tests.sampling import EVERY_CASE, sampled
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log.replication import received
from tidelog.storage.log.times import partition_times
from tidelog.storage.segment.appended.layout import HEADER, HEADER_1, Layout

NOW = [10, 10, 11, 13, 13, 13, 20, 21, 21, 22, 30, 31, 31, 40, 41, 41, 41]


def filled(make_log, **settings):
    """A log of some segments; returns it, and the append time of each offset."""
    log, rows = make_log(segment_bytes=420, **settings).create(), []
    for number, now in enumerate(NOW):
        log.append([5] * (1 + number % 3), now=now)
        rows += [now] * (1 + number % 3)
    assert len(log.partition.segments) >= 3
    return log, rows


def opened(log, boot):
    log.store = LogStore([log.path], default_config=log.config, boot_id=boot)
    log.store.open(9_000)
    log.partition = log.store.partition("t", 0)


def times_of(partition, rows):
    """Asks in every way for the append times, and checks that none is wrong."""
    found = [partition.reader.append_time_of(offset) for offset in range(len(rows))]
    assert all(time in (None, row) for time, row in zip(found, rows, strict=True)), found
    offset = 0
    while offset < len(rows):
        fetched, slices = partition.reader.read_with_append_times(
            offset, 1 << 20, upper_offset=len(rows), minimum_one=True
        )
        data = b"".join(fetched.buffers)
        for batch in received.receive(data, received.unpacked(slices)):
            assert batch.append_time_ms in (None, rows[batch.prepared.base_offset])
            assert batch.append_time_ms == found[batch.prepared.last_offset]
            offset = batch.prepared.last_offset + 1
    for time in {time + d for time in rows for d in (0, 1)}:
        since = partition.reader.find_by_append_time(time, upper_offset=len(rows))
        first = next((o for o, row in enumerate(rows) if row >= time), None)
        if since.unknown_from is None:
            assert since.offset == first
        elif first is not None:
            assert since.unknown_from <= first
    return found


def damages(size):
    for at in sampled(range(size), 12):
        yield lambda data, at=at: data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        yield lambda data, at=at: data[:at]
        if at % 3 == 0:
            yield lambda data, at=at: data[:at] + bytes(len(data) - at)


def survive(log, rows, boot):
    """Opens a log, goes on with it, and opens it again: nothing wrong, and nothing that comes back."""
    opened(log, boot)
    rows = list(rows)
    found = times_of(log.partition, rows)
    for now in (9_000, 9_001):
        log.append([5], now=now)
        rows.append(now)
    after = times_of(log.partition, rows)
    assert after == [*found, 9_000, 9_001]
    log.crash()
    opened(log, boot)
    again = times_of(log.partition, rows)
    assert again == after
    log.crash()
    return found


@pytest.mark.parametrize("state", ["clean", "killed", "copied"])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_damage_at_every_byte(make_log, tmp_path, state, which):
    log, rows = filled(make_log)
    log.partition.flush()
    if state == "killed":
        log.crash()
    else:
        log.close()
    if state == "copied":
        (log.directory / partition_times.FILE_NAME).unlink()
    path = sorted(log.directory.glob("*.appendtimes"))[which]
    data = path.read_bytes()
    unknown = 0
    for damage in damages(len(data)):
        copy = log.copy_to(tmp_path / "copy")
        (copy.directory / path.name).write_bytes(damage(data))
        unknown += None in survive(copy, rows, "")
    assert unknown or (state, which) == ("killed", -1) or not EVERY_CASE


def test_a_file_of_another_partition_with_the_same_base(make_log, tmp_path):
    """Another log's first segment, of other times or of another size."""
    log, rows = filled(make_log)
    log.close()
    name = f"{0:020}.appendtimes"
    for number, moments in enumerate(([10, 10, 12, 13], NOW[:3], [*NOW[:8], 50])):
        other = make_log(f"other{number}", segment_bytes=1 << 20).create()
        for now in moments:
            other.append([5], now=now)
        other.close()
        copy = log.copy_to(tmp_path / "copy")
        (copy.directory / name).write_bytes((other.directory / name).read_bytes())
        opened(copy, "")
        end = copy.partition.segments[1].base_offset
        found = [copy.partition.reader.append_time_of(offset) for offset in range(len(rows))]
        assert found[end:] == rows[end:]
        assert set(found[:end]) == {None}
        copy.crash()


# --- version 1 -----------------------------------------------------------------------------------


def of_version_1(path):
    """Writes a file as an older tidelog did: no CRC, and END in flush mode alone."""
    base = int(path.name.split(".")[0])
    new, old = Layout(base), Layout(base, 1)
    data = path.read_bytes()
    assert data.startswith(HEADER)
    entries = [entry for entry in new.parse(data[8:], 0) if entry.time != -(2**63) + 1]
    packed = (old.pack(number, *entry) for number, entry in enumerate(entries))
    path.write_bytes(HEADER_1 + b"".join(packed))


@pytest.mark.parametrize("how", ["close", "crash"])
def test_a_directory_of_version_1_is_gone_on_with(make_log, how):
    log, rows = filled(make_log)
    log.partition.flush()
    getattr(log, how)()
    paths = sorted(log.directory.glob("*.appendtimes"))
    for path in paths:
        of_version_1(path)
    before = {path: path.read_bytes() for path in paths}
    for boot in ("", "", ""):
        opened(log, boot)
        assert times_of(log.partition, rows) == rows
        rows.append(rows[-1] + 50)
        log.append([5], now=rows[-1])
        getattr(log, how)()
    active = paths[-1]
    assert all(path.read_bytes() == before[path] for path in paths[:-1])
    assert active.read_bytes().startswith(before[active])
    opened(log, "")
    for _ in range(12):
        rows.append(rows[-1] + 1)
        log.append([5], now=rows[-1])
    assert times_of(log.partition, rows) == rows
    log.close()
    opened(log, "")
    assert times_of(log.partition, rows) == rows
    heads = [path.read_bytes()[:8] for path in sorted(log.directory.glob("*.appendtimes"))]
    assert heads == [HEADER_1] * len(paths) + [HEADER] * (len(heads) - len(paths))
    assert HEADER in heads


def test_version_1_is_truncated_and_marked_in_its_own_way(make_log):
    log, rows = filled(make_log, flush_messages=1)
    log.partition.commit()
    log.close()
    for path in log.directory.glob("*.appendtimes"):
        of_version_1(path)
    opened(log, "")
    base = log.partition.segments[-1].base_offset
    log.append([5], now=5_000)
    log.partition.commit()
    log.partition.truncater.truncate_to(base + 1, below_high_watermark=True)
    end = log.partition.log_end_offset
    assert times_of(log.partition, rows[:end]) == rows[:end]
    log.append([5], now=6_000)
    log.partition.commit()
    log.crash()
    opened(log, "another")
    assert times_of(log.partition, [*rows[:end], 6_000]) == [*rows[:end], 6_000]
