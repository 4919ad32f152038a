"""Log directories: what is read is what an independent parser finds in the files, wherever it is cut."""

from __future__ import annotations

import itertools
import random
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from tests.pipeline.logs import FORMATS, Writer, read_all, segments, truth
from tests.protocol.records.samples import random_records
from tidelog.pipeline.source import locations, reading
from tidelog.pipeline.source.access import plan, read
from tidelog.pipeline.source.append_times import this_boot
from tidelog.pipeline.source.columns import LAST_OFFSET, POSITION, SIZE
from tidelog.pipeline.source.reading import HEADERS, TIMES, ReadOptions
from tidelog.pipeline.source.splits import (
    LOG_END,
    Selection,
    SourceError,
    Split,
    Within,
    grouped,
    offsets_of,
)
from tidelog.protocol.records.batch import Record, build, scan
from tidelog.storage import checkpoints
from tidelog.storage.segment import offset_index

VECTORS = Path(__file__).parents[2] / "vectors" / "kafka-0.10.2.2"
ALL = Selection(upto=LOG_END)


def fill(writer, rng, batches=40):
    """Append batches of all codecs at rising moments; times of every kind."""
    now = 1_700_000_000_000
    for number in range(batches):
        now += rng.choice([0, 0, 1, 1000])
        sent = random_records(rng, rng.choice([1, 2, 9]), headers=True)
        extra = {}
        if rng.random() < 0.3:
            extra = {"producer_id": number, "producer_epoch": 0, "base_sequence": 0}
        writer.append(sent, now=now, compression=rng.randrange(5), **extra)


@pytest.fixture
def written(tmp_path):
    """A log of several segments, closed cleanly."""
    writer = Writer(tmp_path / "logs")
    fill(writer, random.Random(1))
    writer.close()
    assert len(segments(tmp_path / "logs" / "t-0")) > 2
    return tmp_path / "logs"


def test_logs_of_a_real_kafka():
    found = read_all(VECTORS)
    assert len(found) == 16
    for (topic, partition), rows in found.items():
        assert rows == truth(VECTORS / f"{topic}-{partition}")
        assert len(rows) == 200
        assert {one.append_time for one in rows if one.time_type != 1} <= {None}


@pytest.mark.parametrize("split_bytes", [1, 300, 1999, 5000, 1 << 30])
def test_the_size_of_splits_changes_nothing(written, split_bytes):
    selection = Selection(upto=LOG_END, split_bytes=split_bytes)
    splits = plan(selection, logs=[str(written)])
    assert read_all(written, selection) == {("t", 0): truth(written / "t-0")}
    for before, after in itertools.pairwise(splits):
        assert before.end_offset == after.start_offset
    if split_bytes == 300:
        assert len(splits) > 2 * len(segments(written / "t-0"))
    for depth in (HEADERS, TIMES):
        options = ReadOptions(depth=depth)
        columns = [one for split in splits for one in read(split, options)]
        assert sum(int(one.batches[:, 1].sum()) for one in columns) == sum(
            path.stat().st_size for path in segments(written / "t-0")
        )


@pytest.mark.parametrize("split_bytes", [300, 1 << 30])
def test_batches_know_where_they_lie(written, split_bytes, monkeypatch):
    monkeypatch.setattr(reading, "CHUNK", 700)
    found = []
    for split in plan(Selection(upto=LOG_END, split_bytes=split_bytes), logs=[str(written)]):
        for columns in read(split, ReadOptions(depth=HEADERS, batch_bytes=1000)):
            rows = columns.batches[:, [POSITION, SIZE, LAST_OFFSET]].tolist()
            found += [(split.part.location, *row) for row in rows]
    assert found == [
        (str(log), batch.position, batch.size, batch.last_offset)
        for log in segments(written / "t-0")
        for batch in scan(log.read_bytes())
    ]


def test_the_bytes_of_records_add_up(written):
    for split in plan(ALL, logs=[str(written)]):
        for columns in read(split, ReadOptions(depth=TIMES, batch_bytes=3000)):
            assert int(columns.size.sum()) == int(columns.batches[:, 1].sum())
            assert (columns.size > 0).all()


times = st.one_of(
    st.sampled_from([-1, 0, -2, -(2**63), 2**63 - 1, 1_700_000_000_000]),
    st.integers(-(2**63), 2**63 - 1),
)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 4),
            st.booleans(),
            st.lists(times, min_size=1, max_size=4),
            st.sampled_from([0, 0, 1, 5000]),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 900),
    st.sampled_from(["close", "crash"]),
)
@settings(max_examples=40, deadline=None)
def test_any_log(tmp_path_factory, appends, split_bytes, ending):
    path = tmp_path_factory.mktemp("any")
    writer, now = Writer(path, boot_id=this_boot(), segment_bytes=700), 1000
    for magic, codec, is_stamped, drawn, step in appends:
        now += step
        writer.configure(
            message_timestamp_type="LogAppendTime" if is_stamped else "CreateTime",
            message_format_version=FORMATS[magic],
        )
        limit = 5 if magic == 2 else 4
        writer.append(drawn, now=now, magic=magic, compression=codec % limit)
    getattr(writer, ending)()
    expected = {("t", 0): truth(path / "t-0")}
    assert read_all(path, Selection(upto=LOG_END, split_bytes=split_bytes)) == expected
    shutil.rmtree(path)


def test_append_times_are_those_of_the_broker(tmp_path):
    """Kept times come back exactly; a machine that was restarted vouches only for what is covered."""
    for ending, boot_id, all_known in (
        ("close", "another", True),
        ("crash", this_boot(), True),
        ("crash", "another", False),
    ):
        path = tmp_path / f"{ending}-{all_known}"
        writer = Writer(path, boot_id=boot_id)
        now = [5_000 + 7 * (i // 3) for i in range(30)]
        for moment in now:
            writer.append([1, 2], now=moment)
        getattr(writer, ending)()
        found = [one.append_time for one in read_all(path)["t", 0]]
        expected = [moment for moment in now for _ in range(2)]
        if all_known:
            assert found == expected
        else:
            assert None in found
            assert all(a in (None, b) for a, b in zip(found, expected, strict=True))


def version_1(times):
    """A file of append times as an older tidelog wrote it, of entries from offset 0 on."""
    packed = (struct.pack(">qi", time, offset) for offset, time in enumerate(times))
    return b"tide" + struct.pack(">i", 1) + b"".join(packed)


WHOLE = version_1(range(5_000, 5_010))


@pytest.mark.parametrize(
    ("data", "known"),
    [
        (WHOLE, range(5_000, 5_010)),
        (None, ()),
        (b"x" + WHOLE[1:], ()),
        (WHOLE[:56] + (3).to_bytes(8, "big") + WHOLE[64:], range(5_000, 5_004)),  # it goes back
        (WHOLE[:80] + bytes(48), range(5_000, 5_006)),
        # Cut: partition.times vouches for the last entry that is there.
        (WHOLE[:-5], [*range(5_000, 5_009), 5_008]),
    ],
    ids=["whole", "missing", "header", "back", "zeros", "cut"],
)
def test_append_times_of_version_1_that_cannot_be_are_unknown(tmp_path, data, known):
    writer = Writer(tmp_path / "logs", segment_bytes=1 << 20)
    for moment in range(10):
        writer.append([1], now=5_000 + moment)
    writer.close()
    path = tmp_path / "logs" / "t-0" / f"{0:020d}.appendtimes"
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    found = [one.append_time for one in read_all(tmp_path / "logs")["t", 0]]
    assert found == [*known, *[None] * (10 - len(known))]


@pytest.mark.parametrize("is_clean", [True, False])
def test_damaged_append_times_are_right_or_unknown_at_every_byte(tmp_path, is_clean):
    """As the broker reads them: a closed segment's, and the last one's of a log that was stopped."""
    writer, rows = Writer(tmp_path / "logs", segment_bytes=500, boot_id=this_boot()), []
    for number in range(12):
        rows += [5_000 + number // 2 * 3] * 2
        writer.append([1, 2], now=rows[-1])
    (writer.close if is_clean else writer.crash)()
    directory, unknown = tmp_path / "logs", 0
    paths = sorted((directory / "t-0").glob("*.appendtimes"))
    assert len(paths) > 2
    assert [one.append_time for one in read_all(directory)["t", 0]] == rows
    for path in (paths[1], paths[-1]) if is_clean else (paths[1],):
        data = path.read_bytes()
        for at in range(len(data)):
            for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]):
                path.write_bytes(damaged)
                found = [one.append_time for one in read_all(directory)["t", 0]]
                assert all(a in (None, b) for a, b in zip(found, rows, strict=True)), at
                unknown += None in found
        path.write_bytes(data)
    assert unknown > 100
    paths[1].write_bytes(paths[0].read_bytes())
    found = [one.append_time for one in read_all(directory)["t", 0]]
    assert all(a in (None, b) for a, b in zip(found, rows, strict=True))
    assert None in found


# --- up to where -------------------------------------------------------------------------------


def test_the_high_watermark_is_respected(written):
    path = written / "replication-offset-checkpoint"
    end = checkpoints.read_offsets(path)["t", 0]
    assert [one.offset for one in read_all(written, Selection())["t", 0]] == list(range(end))
    for watermark in (0, 1, 7, end - 1):
        checkpoints.write_offsets(path, {("t", 0): watermark})
        assert len(read_all(written / "t-0", Selection()).get(("t", 0), [])) == watermark
        found = read_all(written, Selection())
        assert [one.offset for one in found.get(("t", 0), [])] == list(range(watermark))
    checkpoints.write_offsets(path, {("t", 0): end + 1})
    with pytest.raises(
        SourceError, match=f"watermark of t-0 is {end + 1}, but its log ends at offset {end} "
    ):
        plan(Selection(), logs=[str(written)])
    path.unlink()
    with pytest.raises(SourceError, match=r"no replication-offset-checkpoint .* t-0: upto=log-end"):
        plan(Selection(), logs=[str(written)])
    path.write_text("0\n1\nt zero 5\n")
    with pytest.raises(SourceError, match="replication-offset-checkpoint has 'zero'"):
        plan(Selection(), logs=[str(written)])


def test_the_log_begins_where_the_checkpoint_says(written):
    everything = truth(written / "t-0")
    checkpoints.write_offsets(written / "log-start-offset-checkpoint", {("t", 0): 11})
    assert read_all(written) == {("t", 0): everything[11:]}


@pytest.mark.parametrize("tail", [b"", bytes(5000), b"\0" * 7 + b"rubbish", "half", "crc"])
def test_what_is_behind_the_last_whole_batch_is_no_log(written, tail):
    active = segments(written / "t-0")[-1]
    before = truth(written / "t-0")
    more = build([Record(len(before) + i, 5, b"k", b"v" * 50) for i in range(4)])
    if tail == "half":
        tail = more[: len(more) // 2]
    elif tail == "crc":
        tail = more[:-1] + b"x"
    active.write_bytes(active.read_bytes() + tail)
    for split_bytes in (500, 1 << 30):
        found = read_all(written, Selection(upto=LOG_END, split_bytes=split_bytes))
        assert found == {("t", 0): before}


@pytest.mark.parametrize("count", [0, 1, 32_767, 32_768, 32_769, 100_000])
@pytest.mark.parametrize("zeros", [0, 8, 16, 10 << 20])
def test_all_entries_of_a_long_index_are_read(tmp_path, count, zeros):
    """An index is read up to the zeros that Kafka preallocates, wherever a chunk ends."""
    entries = [(number * 256, number * 256) for number in range(1, count + 1)]  # the last byte is 0
    data = b"".join(struct.pack(">ii", *entry) for entry in entries) + bytes(zeros)
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(data)
    found = locations.read_index(str(path))
    assert list(zip(*offset_index.parse(found), strict=True)) == entries
    assert len(found) <= max(len(data) - zeros, 0) + (512 << 10)
    assert locations.read_index(str(tmp_path / "none")) is None


def test_no_index_is_trusted(written):
    """Whatever an index says: what is read is right, or the reading stops."""
    rng = random.Random(4)
    expected = {("t", 0): truth(written / "t-0")}
    indexes = sorted((written / "t-0").glob("*.index"))
    kept = [path.read_bytes() for path in indexes]
    for _ in range(60):
        for path, data in zip(indexes, kept, strict=True):
            changed = bytearray(data)
            for _ in range(rng.choice([1, 3])):
                if changed:
                    changed[rng.randrange(len(changed))] = rng.choice([0, 1, 9, rng.randrange(256)])
            path.write_bytes(changed[: rng.randrange(len(changed) + 1)])
        selection = Selection(upto=LOG_END, split_bytes=rng.choice([1, 300, 900]))
        assert read_all(written, selection) == expected
    for path in indexes:
        path.unlink()
    assert read_all(written, Selection(upto=LOG_END, split_bytes=300)) == expected


def test_what_is_nobodys_data_is_passed_over(written):
    expected = {("t", 0): truth(written / "t-0")}
    inside = written / "t-0"
    log = segments(inside)[0]
    for suffix in (".deleted", ".cleaned", ".swap"):
        shutil.copy(log, inside / (log.name + suffix))
    shutil.copy(log, inside / f"{7:020d}.log.cleaned")
    shutil.copytree(inside, written / ("gone-0." + "a" * 32 + "-delete"))
    shutil.copytree(inside, written / ("lost-0." + "a" * 32 + "-stray"))
    shutil.copytree(inside, written / "__cluster_metadata-0")
    shutil.copytree(inside, written / "not a topic")
    (written / "file-0").write_bytes(b"")
    assert read_all(written) == expected
    shutil.copy(log, inside / f"{7:020d}.log.swap")
    with pytest.raises(SourceError, match=r"log\.swap and no log in its place: a compaction was"):
        plan(ALL, logs=[str(written)])


def test_a_compaction_at_work_keeps_nobody_from_other_topics(written):
    """A broker that runs gives names by and by: a log is away for a moment, and then there again."""
    expected = {("t", 0): truth(written / "t-0")}
    other = written / "other-0"
    shutil.copytree(written / "t-0", other)
    log = segments(other)[0]
    log.rename(other / (log.name + ".swap"))
    selection = Selection(topics=("t",), upto=LOG_END)
    assert read_all(written, selection) == expected
    with pytest.raises(SourceError, match=r"other-0 has .* try again, or let a broker open"):
        plan(ALL, logs=[str(written)])
    (other / (log.name + ".swap")).rename(log)
    assert read_all(written, Selection(topics=("other",), upto=LOG_END)) == {
        ("other", 0): expected["t", 0]
    }


def test_topics_are_chosen(tmp_path):
    writer = Writer(tmp_path / "logs")
    for topic in ("a-b", "a.b", "c", "__internal"):
        writer.append([1, 2], topic=topic)
    writer.append([3], topic="c", number=11)
    writer.close()
    root = tmp_path / "logs"

    def found(**wanted):
        return sorted(read_all(root, Selection(upto=LOG_END, **wanted)))

    assert found() == [("a-b", 0), ("a.b", 0), ("c", 0), ("c", 11)]
    assert found(topics=("c", "__internal")) == [("__internal", 0), ("c", 0), ("c", 11)]
    assert found(pattern="a.b") == [("a-b", 0), ("a.b", 0)]
    assert found(pattern="a") == []
    with pytest.raises(SourceError, match="there is no topic d, e"):
        found(topics=("e", "c", "d"))
    with pytest.raises(SourceError, match="is no regular expression"):
        found(pattern="(")


def test_several_directories(tmp_path):
    for name in ("one", "two"):
        writer = Writer(tmp_path / name)
        writer.append([1, 2], topic=name)
        writer.close()
    roots = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert [split.topic for split in plan(ALL, logs=roots)] == ["one", "two"]
    shutil.copytree(tmp_path / "one" / "one-0", tmp_path / "two" / "one-0")
    with pytest.raises(SourceError, match=r"one-0 is in .*one.* and in .*two"):
        plan(ALL, logs=roots)
    with pytest.raises(SourceError, match="nowhere is not a directory"):
        plan(ALL, logs=[str(tmp_path / "nowhere")])


# --- offsets and times -------------------------------------------------------------------------


def test_frozen_offsets_read_the_same_again(written):
    everything = truth(written / "t-0")
    frozen = offsets_of(plan(ALL, logs=[str(written)]))
    assert frozen == {("t", 0): (0, len(everything))}
    for start, end in ((0, 5), (3, 4), (17, len(everything)), (6, 6)):
        selection = Selection(upto=LOG_END, offsets={("t", 0): (start, end)}, split_bytes=400)
        found = read_all(written, selection).get(("t", 0), [])
        assert found == everything[start:end]
    beyond = Selection(upto=LOG_END, offsets={("t", 0): (0, len(everything) + 2)})
    with pytest.raises(SourceError, match=f"t-0 ends at offset {len(everything)}: there is no"):
        plan(beyond, logs=[str(written)])
    with pytest.raises(SourceError, match="there is no partition t-5"):
        plan(Selection(upto=LOG_END, offsets={("t", 5): (0, 1)}), logs=[str(written)])
    checkpoints.write_offsets(written / "log-start-offset-checkpoint", {("t", 0): 11})
    with pytest.raises(SourceError, match="t-0 begins at offset 11: 4 to 10 are gone"):
        plan(Selection(upto=LOG_END, offsets={("t", 0): (4, 20)}), logs=[str(written)])
    lenient = Selection(upto=LOG_END, offsets={("t", 0): (4, 20)}, allow_gone=True)
    assert read_all(written, lenient)["t", 0] == everything[11:20]


def test_filters_narrow(written):
    everything = truth(written / "t-0")
    within = Within(frozenset(["t"]), frozenset([0, 3]), 5, 30)
    assert read_all(written, Selection(upto=LOG_END, within=within))["t", 0] == everything[5:30]
    for empty in (Within(frozenset(["u"])), Within(partitions=frozenset([1]))):
        assert read_all(written, Selection(upto=LOG_END, within=empty)) == {}


@pytest.fixture
def in_order(tmp_path):
    """A log whose times rise over several segments, before 1970 too, with some that have none."""
    writer = Writer(tmp_path / "logs")
    for number in range(60):
        day = (number - 20) * 86_400_000
        writer.append([day, -1, day + 5], now=1000 + number, compression=number % 3)
    writer.close()
    return tmp_path / "logs"


@pytest.mark.parametrize("known", ["partition.times", "nothing", "trusted"])
def test_event_times_choose_records(in_order, known):
    everything = truth(in_order / "t-0")
    if known != "partition.times":
        (in_order / "t-0" / "partition.times").unlink()  # END entries vouch for append times
    rng, whole = random.Random(6), len(plan(ALL, logs=[str(in_order)]))
    pruned = 0
    for _ in range(40):
        bounds = [rng.randrange(-22, 42) * 86_400_000 + rng.choice([-1, 0, 1, 5, 6]) for _ in "ab"]
        low, high = (rng.choice([None, bound]) for bound in sorted(bounds))
        if low is None and high is None:
            continue
        selection = Selection(
            upto=LOG_END, low_time=low, high_time=high, trust_time_index=known == "trusted"
        )
        found = read_all(in_order, selection).get(("t", 0), [])
        assert found == [
            one
            for one in everything
            if one.timestamp != -1
            and (low is None or low <= one.timestamp)
            and (high is None or one.timestamp < high)
        ]
        pruned += whole - len(plan(selection, logs=[str(in_order)]))
    assert (pruned > 0) == (known != "nothing")


def test_pruning_keeps_the_largest_time_of_each_segment(in_order):
    everything = truth(in_order / "t-0")
    starts = [int(log.stem) for log in segments(in_order / "t-0")]
    for first, last in itertools.pairwise([*starts, len(everything)]):
        largest = max(one.timestamp for one in everything[first:last])
        for low in (largest, largest + 1):
            for trusting in (False, True):
                selection = Selection(upto=LOG_END, low_time=low, trust_time_index=trusting)
                found = read_all(in_order, selection).get(("t", 0), [])
                assert found == [
                    one for one in everything if one.timestamp != -1 and one.timestamp >= low
                ]


def test_a_time_index_that_lies_prunes_nothing_unless_trusted(in_order):
    (in_order / "t-0" / "partition.times").unlink()
    for path in (in_order / "t-0").glob("*.timeindex"):
        path.write_bytes((5).to_bytes(8, "big") + (1).to_bytes(4, "big"))
    low = 10 * 86_400_000
    expected = [one.offset for one in truth(in_order / "t-0") if one.timestamp >= low]
    honest = read_all(in_order, Selection(upto=LOG_END, low_time=low))
    assert [one.offset for one in honest["t", 0]] == expected
    trusting = read_all(in_order, Selection(upto=LOG_END, low_time=low, trust_time_index=True))
    assert len(trusting.get(("t", 0), [])) < len(expected)


# --- broken ------------------------------------------------------------------------------------


def test_a_broken_batch_is_named_with_its_place(written):
    log = segments(written / "t-0")[1]
    data = bytearray(log.read_bytes())
    batch = scan(bytes(data))[2]
    data[batch.position + batch.size - 1] ^= 1
    log.write_bytes(data)
    location = (
        f"{log}: the batch at byte {batch.position} (offset {batch.base_offset}) fails its CRC"
    )
    for split_bytes in (300, 1 << 30):
        with pytest.raises(SourceError) as caught:
            read_all(written, Selection(upto=LOG_END, split_bytes=split_bytes))
        assert str(caught.value) == location


def test_a_closed_segment_that_was_cut_is_an_error(written):
    log = segments(written / "t-0")[0]
    data = log.read_bytes()
    batch = scan(data)[-1]
    log.write_bytes(data[:-3])
    with pytest.raises(SourceError) as caught:
        read_all(written)
    assert f"{log}: the batch at byte {batch.position} (offset {batch.base_offset}) claims" in str(
        caught.value
    )
    assert f"is cut short after {batch.size - 3}" in str(caught.value)
    log.write_bytes(data + bytes(4096))  # room made in advance is no batch
    assert read_all(written)["t", 0] == truth(written / "t-0")


def test_a_segment_gone_since_it_was_planned_is_an_error(written):
    splits = plan(ALL, logs=[str(written)])
    log = segments(written / "t-0")[0]
    log.unlink()
    with pytest.raises(SourceError, match="is gone since it was planned"):
        list(read(splits[0]))


def test_a_segment_written_anew_since_it_was_planned_is_an_error(written):
    splits = plan(Selection(upto=LOG_END, split_bytes=500), logs=[str(written)])
    for log in segments(written / "t-0"):
        data = log.read_bytes()
        batches = scan(data)
        log.write_bytes(data[: batches[-1].position])
    for split in splits:
        with pytest.raises(SourceError, match="compaction rewrote it, or the log was truncated"):
            list(read(split))


def test_a_log_that_grows_and_loses_segments_while_it_is_read(written):
    splits = plan(ALL, logs=[str(written)])
    expected = truth(written / "t-0")
    active = segments(written / "t-0")[-1]
    reading = read(splits[0], ReadOptions(batch_bytes=100))
    first = next(reading)
    segments(written / "t-0")[0].unlink()
    active.write_bytes(active.read_bytes() + build([Record(10**6, 1, None, b"later")]))
    offsets = [*first.offset.tolist()]
    for columns in reading:
        offsets += columns.offset.tolist()
    for split in splits[1:]:
        for columns in read(split):
            offsets += columns.offset.tolist()
    assert offsets == [one.offset for one in expected]


def test_offsets_that_go_back_are_an_error(written):
    log = segments(written / "t-0")[0]
    data = log.read_bytes()
    first, second = scan(data)[:2]
    log.write_bytes(data[: second.position + second.size] + data[: first.size] + data)
    with pytest.raises(SourceError, match="which is not behind the one before it"):
        read_all(written)


@pytest.mark.parametrize("number", range(3))
def test_no_damage_is_read_as_something_else(written, number):
    """Of a damaged log either everything before the damage is right, or the reading stops and names it."""
    rng = random.Random(number)
    before = {one.offset: one for one in truth(written / "t-0")}
    log = rng.choice(segments(written / "t-0"))
    kept = log.read_bytes()
    stopped = whole = 0
    for _ in range(25):
        data = bytearray(kept)
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
        log.write_bytes(data)
        try:
            found = read_all(written)["t", 0]
        except SourceError as error:
            stopped += str(log) in str(error)
            continue
        whole += 1
        for one in found:
            same = before.get(one.offset)
            assert same is None or same._replace(append_time=one.append_time) == one
    assert stopped + whole == 25
    assert stopped > 10 or log == segments(written / "t-0")[-1]


# --- places ------------------------------------------------------------------------------------


def test_any_file_system_of_pyarrow(written):
    """The same through pyarrow's file systems as through our own."""
    expected = {("t", 0): truth(written / "t-0")}
    assert read_all(f"file://{written}") == expected

    class Remote:
        """Stands for an object store: what it is asked for goes through pyarrow."""

        opened = 0

    local = fs.LocalFileSystem()

    def system(location):
        Remote.opened += 1
        return local, "/" + location.removeprefix("mem://").partition("?")[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locations, "system_of", system)
        root = f"mem://{str(written)[1:]}?region=x"
        assert locations.base_name(locations.join(root, "t-0")) == "t-0"
        found = read_all(root, Selection(upto=LOG_END, split_bytes=500))
        assert read_all(locations.join(root, "t-0")) == expected
    assert found == expected
    assert Remote.opened > 10


def test_small_splits_go_together():
    splits = plan(ALL, logs=[str(VECTORS)])
    groups = grouped(splits)
    assert [split for group in groups for split in group] == splits
    assert len(groups) < len(splits) / 2
    assert [[split] for split in splits] == grouped(splits, 1)


def test_a_directory_of_small_segments_is_a_few_tasks():
    """A hundred megabytes in segments of 2.6 MB are a few tasks, about equally large."""
    size = 2_600_000
    splits = [Split("t", n % 4, n, n + 1, size, None) for n in range(38)]
    groups = grouped(splits)
    assert [split for group in groups for split in group] == splits
    assert 4 <= len(groups) <= 10
    sizes = [sum(split.size_bytes for split in group) for group in groups]
    assert max(sizes) - min(sizes) <= 2 * size
    large = [Split("t", 0, n, n + 1, 128 << 20, None) for n in range(40)]
    assert grouped(large) == [[split] for split in large]
    assert len(grouped([Split("t", 0, n, n + 1, 8 << 20, None) for n in range(1000)])) >= 32
    assert grouped([]) == []


def test_what_cannot_be_meant_is_refused():
    for wrong, words in (
        ({"split_bytes": 0}, "smaller than one byte"),
        ({"upto": "end"}, "upto is high-watermark or log-end"),
        ({"isolation": "serializable"}, "isolation is read_uncommitted or read_committed"),
        ({"topics": ("a",), "pattern": "b"}, "not both"),
    ):
        with pytest.raises(SourceError, match=words):
            Selection(**wrong)
    with pytest.raises(SourceError, match="either log directories or brokers"):
        plan(ALL)
