"""Flush mode: what is durable, what consumers see before it is, and what a failed sync does."""

import threading

import pytest

from tidelog.config.topic import TopicConfig
from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage.log.failures import go_offline
from tidelog.storage.log.state import LogState
from tidelog.storage.log.times import partition_times
from tidelog.storage.segment.appended.layout import END


def test_without_flush_mode_records_are_readable_at_once(log, disk):
    log.append([1])
    before = disk.syncs
    log.append([2])
    assert log.partition.high_watermark == 2
    assert not log.partition.must_commit
    assert disk.syncs == before


def test_flush_messages_counts_what_is_on_its_way(make_log, disk):
    log = make_log(flush_messages=3).create()
    log.append([1, 2])
    assert not log.partition.must_commit
    assert log.partition.high_watermark == 2  # as in Kafka, readable before
    log.append([3])
    assert log.partition.must_commit
    log.partition.commit()
    log.append([4])
    assert not log.partition.must_commit


def test_a_commit_costs_two_syncs_once_the_segment_is_known(make_log, disk):
    log = make_log(flush_messages=1).create()
    log.append([1], now=1)
    log.partition.commit()
    before = disk.syncs
    for now in (2, 3, 4):
        log.append([1], now=now)
    log.partition.commit()
    assert disk.syncs - before == 2
    assert log.partition.commit() == 4
    assert disk.syncs - before == 2, "nothing new, and yet a sync"
    assert log.partition.recovery_point == 1, (
        "indexes are not durable: recovery must read them anew"
    )


def test_a_commit_after_a_roll_makes_the_new_files_durable(make_log, disk):
    log = make_log(flush_messages=1, segment_bytes=200).create()
    for now in range(5):
        log.append([1], now=now)
        log.partition.commit()
    assert len(log.partition.segments) > 1
    assert log.partition.recovery_point == log.partition.segments[-1].base_offset + 1


def test_what_recovery_found_is_made_durable_before_it_is_shown(make_log, disk):
    log = make_log(flush_messages=1).create()
    log.append([1, 2])
    log.crash()
    before = disk.syncs
    log.open()
    assert disk.syncs > before
    assert log.partition.recovery_point == log.partition.high_watermark == 2


def test_a_failed_sync_takes_the_log_offline_for_good(make_log, disk):
    log = make_log(flush_messages=1).create()
    log.append([1])
    log.partition.commit()
    log.append([2])
    disk.failures = 1
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        log.partition.commit()
    for ask in (
        log.partition.commit,
        log.partition.flush,
        lambda: log.append([3]),
        log.read,
        lambda: log.partition.reader.find_by_time(0, upper_offset=1),
        lambda: log.partition.retainer.delete_records_before(0),
        lambda: log.partition.retainer.apply_retention(0),
    ):
        with pytest.raises(KafkaStorageError, match="offline"):
            ask()
    assert log.partition.durable_offset == log.partition.high_watermark == 1
    with pytest.raises(KafkaStorageError, match="offline"):
        log.close()
    assert not (log.path / ".kafka_cleanshutdown").exists()
    log.open()
    assert log.partition.offline is None
    assert [offset for offset, _, _ in log.contents()][:1] == [0]
    log.append([4])
    log.partition.commit()


@pytest.mark.parametrize("failures", [1, 10**6], ids=["one sync fails", "all syncs fail"])
@pytest.mark.parametrize("stops", ["is killed", "stops"])
def test_what_was_refused_is_cut_off_at_the_next_start(make_log, disk, failures, stops):
    log = make_log(flush_messages=1).create()
    log.append([1, 2], now=5)
    log.partition.commit()
    log.append([2**50], now=6)
    log.append([4], now=7)
    disk.failures = failures
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        log.partition.commit()
    if stops == "stops":
        with pytest.raises(KafkaStorageError, match=r"offline|not closed"):
            log.close()
    else:
        log.crash()
    disk.failures = 0
    for _ in range(2):
        log.open()
        assert [offset for offset, _, _ in log.contents()] == [0, 1]
        assert log.partition.log_end_offset == log.partition.recovery_point == 2
        assert log.partition.reader.find_largest_time(upper_offset=9) == (1, 2)
        assert log.partition.max_event_time == 2
        log.crash()
    log.open()
    log.append([5], now=8)
    log.partition.commit()
    log.close()
    log.open()
    assert [offset for offset, _, _ in log.contents()] == [0, 1, 2]


def test_refused_records_of_several_segments_are_cut_off(make_log, disk):
    log = make_log(flush_messages=1, segment_bytes=200).create()
    producer = {"producer_id": 7, "producer_epoch": 0}
    log.append([1], base_sequence=0, **producer)
    log.partition.commit()
    for sequence in range(1, 8):
        log.append([1], base_sequence=sequence, **producer)
    assert len(log.partition.segments) > 2
    disk.failures = 1
    with pytest.raises(KafkaStorageError):
        log.partition.commit()
    log.crash()
    log.open()
    assert log.partition.log_end_offset == 1
    assert len(log.partition.segments) == 1
    retried = log.append([1], base_sequence=1, **producer)
    assert (retried.base_offset, retried.duplicate) == (1, False)


def test_records_that_were_acknowledged_before_a_sync_failed_stay(make_log, disk):
    log = make_log(flush_messages=3).create()
    log.append([1])
    log.append([2])
    disk.failures = 1
    with pytest.raises(KafkaStorageError):
        log.partition.commit()
    log.crash()
    log.open()
    assert [offset for offset, _, _ in log.contents()] == [0, 1]


def test_refused_records_are_cut_off_also_when_flush_mode_has_ended(make_log, disk):
    log = make_log(flush_messages=1).create()
    log.append([1])
    log.partition.commit()
    log.append([2])
    log.partition.config = TopicConfig()
    disk.failures = 1
    with pytest.raises(KafkaStorageError):
        log.partition.commit()
    log.crash()
    log.open()
    assert [offset for offset, _, _ in log.contents()] == [0]


@pytest.mark.parametrize("makes_durable", ["commit", "flush"])
def test_a_commit_is_refused_if_the_log_goes_offline_before_it_counts(
    make_log, disk, monkeypatch, makes_durable
):
    """Another thread decides meanwhile that the log ends before what has just been synced."""
    log = make_log(flush_messages=1).create()
    log.append([1])
    partition = log.partition
    partition.commit()
    log.append([2])
    mark_durable = LogState.mark_durable

    def late(state, end_offset, **more):
        go_offline(state, "another sync has failed")
        mark_durable(state, end_offset, **more)

    monkeypatch.setattr(LogState, "mark_durable", late)
    with pytest.raises(KafkaStorageError, match="another sync has failed"):
        getattr(partition, makes_durable)()
    assert partition.high_watermark == 1
    monkeypatch.undo()
    log.crash()
    log.open()
    assert log.partition.log_end_offset == 1


def test_a_failed_checkpoint_takes_the_log_offline_too(log, disk):
    log.append([1])
    disk.failures = 1
    log.store.checkpoint()  # said by the log, and no reason to fail for the others
    assert log.partition.offline is not None
    log.store.checkpoint()
    assert log.partition.recovery_point == 0


def test_a_sync_under_way_while_another_fails_makes_nothing_durable(make_log, disk):
    """The system says of a failure once: who asks second hears that all is well."""
    log = make_log(flush_messages=1).create()
    log.append([1])
    partition = log.partition
    partition.commit()
    log.append([2])
    checkpoint_may_go, commit_has_failed = threading.Event(), threading.Event()
    by_turns = disk._sync

    def sync(number):
        if threading.current_thread() is checkpoint:
            if not checkpoint_may_go.is_set():
                disk.failures = 1
            checkpoint_may_go.set()
            commit_has_failed.wait(0.2)  # where it may fail meanwhile it has by then
        by_turns(number)

    disk._sync = sync
    errors = []

    def flush():
        try:
            partition.flush()
        except KafkaStorageError as error:
            errors.append(error)

    checkpoint = threading.Thread(target=flush)
    checkpoint.start()
    assert checkpoint_may_go.wait(60)
    try:
        partition.commit()
    except KafkaStorageError as error:
        errors.append(error)
    commit_has_failed.set()
    checkpoint.join(60)
    assert partition.offline is not None
    assert len(errors) == 2, "somebody was told that all is well"
    assert (partition.recovery_point, partition.high_watermark) == (1, 1)
    assert partition_times.read(log.directory).boot_id == "offline"


def test_append_times_beyond_a_failed_sync_are_not_trusted(log, disk):
    log.append([1], now=5)
    log.partition.flush()
    log.append([2], now=9)
    disk.failures = 1
    with pytest.raises(KafkaStorageError):
        log.partition.flush()
    log.crash()
    log.open()
    assert [log.partition.reader.append_time_of(offset) for offset in (0, 1)] == [5, None]


# --- append times that vouch for themselves ------------------------------------------------------


def boot(log, name):
    """Open after a power loss: another start of the machine."""
    partition = log.partition
    log.crash()
    kept = partition.directory / "partition.times"
    data = bytearray(kept.read_bytes())
    assert data  # of a boot without a name
    from tidelog.storage.log.times import partition_times

    known = partition_times.read(partition.directory)
    partition_times.write(
        partition.directory, partition_times.pack(known._replace(boot_id=name)), durable=False
    )
    return log.open()


def test_append_times_not_committed_may_be_unknown_after_a_power_loss(make_log):
    log = make_log(flush_messages=1).create()
    for now in (5, 7):
        log.append([1, 2], now=now)
        log.partition.commit()
    log.append([3], now=9)
    path = log.partition.segments[0].append_times.path
    written = path.read_bytes()
    log.append([4], now=11)
    path.write_bytes(written)  # the last entry did not reach the disk
    boot(log, "another")
    times = [log.partition.reader.append_time_of(offset) for offset in range(6)]
    assert times == [5, 5, 7, 7, 9, None]


def test_the_end_is_the_last_entry_and_counts_as_none(make_log):
    log = make_log(flush_messages=1).create()
    for now in (5, 7):
        log.append([1], now=now)
        log.partition.commit()
    append_times = log.partition.segments[0].append_times
    assert len(append_times) == 2
    assert append_times.path.read_bytes()[-16:-8] == END.to_bytes(8, "big", signed=True)
    assert append_times.is_complete
    assert append_times.load()
    assert (len(append_times), append_times.is_complete, append_times.end_offset) == (2, True, 2)


def test_an_end_that_stayed_in_the_middle_ends_what_is_known(make_log):
    log = make_log(flush_messages=1).create()
    for now in (5, 7):
        log.append([1], now=now)
        log.partition.commit()
    path = log.partition.segments[0].append_times.path
    early = path.read_bytes()
    for now in (9, 11):
        log.append([1], now=now)
    late = path.read_bytes()
    boundary = len(early)
    path.write_bytes(early + late[boundary:-16])  # the sector with the end stayed as it was
    boot(log, "another")
    assert [log.partition.reader.append_time_of(offset) for offset in range(4)] == [
        5,
        7,
        None,
        None,
    ]
