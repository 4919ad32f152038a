"""Every file of a stopped log directory, cut short, zeroed or gone: the log opens, and is what it was.

Damage of logs, indexes and append times is tried byte by byte in tests/storage/log/recovery; here are all
files, also those that many partitions share.
"""

import shutil

import pytest

from tests.storage.conftest import Log

HOW = {
    "cut": lambda data: data[: len(data) // 2],
    "zeros": lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
    "gone": None,
}
DATA = {".log", ".appendtimes", ".lock"}  # what cannot be made again, and what is never read


def answers(log):
    """What is asked of a log: its contents, times, epochs, and what is known of producers."""
    partition = log.partition
    start, end = partition.log_start_offset, partition.log_end_offset
    return (
        start,
        log.contents(),
        [partition.reader.find_by_time(time, upper_offset=end) for time in (-9, 5, 120, 10**6)],
        partition.reader.find_largest_time(upper_offset=end),
        log.append([1], now=900, producer_id=5, producer_epoch=0, base_sequence=11).duplicate,
    )


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A directory of a log whose start has moved and that was stopped, and what it answers."""
    log = Log(tmp_path_factory.mktemp("log") / "log", segment_bytes=400, index_interval_bytes=60)
    log.create()
    log.partition.leader_epoch = 3
    for number in range(12):
        producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": number}
        log.append([10 * number], now=number, **producer)
    log.partition.retainer.delete_records_before(log.partition.segments[1].base_offset + 1)
    log.partition.retainer.apply_retention(12)
    log.close()
    copy = log.copy_to(log.path.with_name("answers"))
    copy.config = log.config
    return log, answers(copy.open(100))


def files_of(log):
    return sorted(p for p in log.path.rglob("*") if p.is_file() and p.suffix not in DATA)


@pytest.mark.parametrize("boot", ["", "another"])
@pytest.mark.parametrize("how", HOW)
def test_whatever_is_damaged_the_log_opens_and_is_right(stopped, tmp_path, how, boot):
    log, right = stopped
    for file in files_of(log):
        copy = log.copy_to(tmp_path / "copy")
        path = copy.path / file.relative_to(log.path)
        if HOW[how] is None:
            path.unlink()
        else:
            path.write_bytes(HOW[how](path.read_bytes()))
        for _ in range(2):
            assert answers(copy.open(100, boot)) == right, file
            copy.crash()
    shutil.rmtree(tmp_path / "copy")
