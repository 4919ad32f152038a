"""A cleaning ends at each of its steps, by kill -9 and by power loss: nothing is lost, doubled or left.

The steps are what it asks of the system (every write, sync, rename and removal), one after another. What a
start finds then holds every record that must stay, no record twice, none that was never there, all with
their times, and the cleaning that follows comes to the same end.
"""

import contextlib
import errno
import itertools
import os
import random
import shutil

import pytest

from tests.simulation.power_loss import Disk, PowerLoss
from tests.storage.cleaning import clean
from tests.storage.conftest import TOPIC_ID, kill
from tidelog.config.topic import TopicConfig
from tidelog.protocol.errors import BrokerError, KafkaStorageError
from tidelog.protocol.records.batch import Record, build, records, scan
from tidelog.storage import files
from tidelog.storage.compaction import cleaned_segment, swap
from tidelog.storage.compaction.cleaner import Cleaner
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log.recovery import leftovers
from tidelog.storage.segment import transaction_index

SETTINGS = {
    "cleanup_policy": ("compact",),
    "index_interval_bytes": 0,
    "file_delete_delay_ms": 0,
}
SMALL = TopicConfig(segment_bytes=320, **SETTINGS)
CONFIG = TopicConfig(segment_bytes=1_000, **SETTINGS)  # several segments become one
NOW = 9_000
STRIDE = int(os.environ.get("TIDELOG_COMPACTION_STRIDE", "5"))  # 1: every one of them

pytestmark = pytest.mark.usefixtures("use")


def store_at(path, boot="first"):
    store = LogStore([path], default_config=CONFIG, boot_id=boot)
    store.open(NOW)
    return store


def rows_of(partition):
    """{offset: (time, key, value, append time)}, read as a consumer reads."""
    found, offset = {}, 0
    while offset < partition.log_end_offset:
        fetched = partition.read(offset, 500, upper_offset=10**9, minimum_one=True)
        if not fetched.size:
            break
        data = b"".join(fetched.buffers)
        for batch in scan(data):
            for record in records(data, batch):
                if record.offset >= offset:
                    assert record.offset not in found, "a record twice"
                    append = partition.reader.append_time_of(record.offset)
                    found[record.offset] = (record.timestamp, record.key, record.value, append)
            offset = batch.last_offset + 1
    assert list(found) == sorted(found)
    return found


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A log directory to be cleaned, what it holds, and what must be left of it."""
    path = tmp_path_factory.mktemp("origin") / "log"
    before = files.use(files.System())
    store = store_at(path)
    partition = store.create_partition("t", TOPIC_ID, 0, SMALL, NOW)
    pick = random.Random(3)
    for number in range(18):
        sent = [
            Record(
                i, 1_000 + pick.randrange(99), b"k%d" % pick.randrange(9), b"%d.%d" % (number, i)
            )
            for i in range(pick.choice([1, 2]))
        ]
        more = (
            {"producer_id": 5, "producer_epoch": 0, "base_sequence": number} if number < 3 else {}
        )
        if more:
            sent = sent[:1]
        partition.append(build(sent, **more), now_ms=5_000 + 3 * number, produce_version=9)
    store.close()
    copy = path.with_name("cleaned")
    shutil.copytree(path, copy)
    everything, left = [], []
    for where, into in ((path, everything), (copy, left)):
        store = store_at(where)
        partition = store.partition("t", 0)
        if into is left:
            assert clean(partition, NOW) is not None
            assert len(partition.segments) > 2
        into.append(rows_of(partition))
        store.close()
        if into is everything:
            shutil.rmtree(path)
            shutil.copytree(copy, path)
    files.use(before)
    return path, everything[0], left[0]


class Life:
    """A cleaning that is stopped at one step."""

    def __init__(self, origin, tmp_path, step, *, counts):
        self.path, self.everything, self.left = origin
        self.root = tmp_path / "disk"
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.path, self.root)
        self.disk = Disk(self.root)
        files.use(self.disk)
        self.store = store_at(self.root)
        self.store.partition("t", 0)
        self.store.checkpoint()
        self.disk.failing_call_counts = counts
        self.disk.fails_at = self.disk.calls + step
        self.is_over = False
        with contextlib.suppress(PowerLoss):
            clean(self.store.partition("t", 0), NOW)
            self.is_over = True

    def end(self, target, boot, pick=None):
        """Open what is found afterwards, and look at it."""
        shutil.rmtree(target, ignore_errors=True)
        if pick is None:
            shutil.copytree(self.root, target)
        else:
            self.disk.lose_power(target, pick)
        files.use(files.System())
        store = store_at(target, boot)
        try:
            check(store.partition("t", 0), self.everything, self.left)
        finally:
            kill(store)


def check(partition, everything, left):
    """Look at what a start finds: all that must be left, with its times, and nothing else."""
    found = rows_of(partition)
    assert left.items() <= found.items(), "something is lost"
    assert found.items() <= everything.items(), "something was never there"
    assert partition.log_end_offset == max(everything) + 1
    assert partition.log_start_offset == 0
    for time in range(999, 1_101, 7):
        wanted = next(((o, row[0]) for o, row in found.items() if row[0] >= time), None)
        assert partition.reader.find_by_time(time, upper_offset=10**9) == wanted
    for time in range(4_999, 5_120, 7):
        wanted = next((o for o, row in found.items() if row[3] >= time), None)
        since = partition.reader.find_by_append_time(time, upper_offset=10**9)
        assert since.unknown_from is None
        assert since.offset == wanted
    assert partition.state.read_producers().get(5).next_sequence == 3
    names = os.listdir(partition.directory)
    assert not [n for n in names if n.endswith((".cleaned", ".swap", ".tmp", ".deleted"))]
    logs = {name.removesuffix(".log") for name in names if name.endswith(".log")}
    assert not [n for n in names if n.endswith(".appendtimes") and n[:20] not in logs]
    clean(partition, NOW)
    assert rows_of(partition) == left


def every_step(origin, tmp_path, ends, *, stride=1):
    """Stop at each step until the cleaning is not stopped any more; return how many there were."""
    step = 0
    while True:
        step += stride
        life = Life(origin, tmp_path, step, counts=bool(step // stride % 2))
        ends(life)
        kill(life.store)
        if life.is_over:
            return step


def killed(tmp_path):
    """An end by kill -9, looked at where it is another than the last one."""
    seen = set()

    def ends(life):
        there = frozenset(
            (path.name, path.stat().st_size) for path in (life.root / "t-0").iterdir()
        )
        if there not in seen:
            seen.add(there)
            life.end(tmp_path / "found", "first")

    return ends, seen


@pytest.mark.slow
def test_killed_at_every_step(origin, tmp_path):
    ends, seen = killed(tmp_path)
    assert every_step(origin, tmp_path, ends) > 100
    assert len(seen) > 50


def test_power_lost_at_every_step(origin, tmp_path):
    pick = random.Random(1)

    def ends(life):
        life.end(tmp_path / "found", "second", pick)

    assert every_step(origin, tmp_path, ends, stride=STRIDE) > 100


def no_sync(*_):
    pass


BUGS = {
    "the old ones go first": (
        swap,
        "complete",
        lambda directory, base: [
            path.unlink() for path in directory.glob(f"{base:020}.*") if path.suffix == ".log"
        ],
    ),
    "a swap is dropped": (leftovers, "_complete", lambda *_: False),
    "what was cleaned is not made durable": (cleaned_segment.files, "sync", no_sync),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_an_injected_bug_is_caught(origin, tmp_path, monkeypatch, bug):
    pick = random.Random(8)
    monkeypatch.setattr(*BUGS[bug])
    by_kill, _ = killed(tmp_path)

    def ends(life):
        if life.disk.is_off:
            by_kill(life)
        life.end(tmp_path / "found", "second", pick)

    with pytest.raises((AssertionError, BrokerError, OSError)):
        every_step(origin, tmp_path, ends)


FIRST, *LATER = (f"{base:020}.log" for base in (0, 5, 11))  # they become one


@pytest.mark.slow
def test_no_old_log_comes_back_beside_what_holds_its_records(origin, tmp_path):
    """Where the new one has its name, the later ones are gone, in whatever order a disk takes names."""
    pick, ways, back = random.Random(8), 0, []

    def ends(life):
        nonlocal ways
        if not {FIRST, FIRST + ".deleted"} <= set(os.listdir(life.root / "t-0")):
            return
        for _ in range(40 if life.disk.is_off else 0):
            shutil.rmtree(tmp_path / "found", ignore_errors=True)
            life.disk.lose_power(tmp_path / "found", pick)
            names = set(os.listdir(tmp_path / "found" / "t-0"))
            if FIRST + ".swap" not in names:
                assert FIRST in names
                ways += 1
                back.extend(names & set(LATER))

    every_step(origin, tmp_path, ends)
    assert ways > 20
    assert back == []


@pytest.fixture
def complete(origin, tmp_path):
    """A directory with a segment that is to replace three, none of which has been renamed."""
    root = tmp_path / "complete"
    shutil.copytree(origin[0], root)
    store = store_at(root)
    partition = store.partition("t", 0)
    job = partition.compactor.begin_cleaning(NOW, asked=True)
    cleaner = Cleaner(partition.directory, job)
    cleaned = cleaner.clean(cleaner.groups()[0])
    assert (cleaned.base_offset, cleaned.sources, cleaned.end_offset) == (0, 3, 16)
    state = partition.state
    state.cleaning = state.cleaning._replace(replacing=frozenset((0, 5, 11)))
    state.gaps_end_offset = 16
    state.saved_times.save_covered(durable=True)
    swap.complete(partition.directory, 0)
    kill(store)
    return root


GONE = [f"{base:020}{suffix}" for base in (0, 5, 11) for suffix in (".log", ".appendtimes")]
PLACED = [f"{0:020}{suffix}" for suffix in (".index", ".timeindex", ".appendtimes", ".log")]


NAMES = [
    ([], []),
    ([FIRST], []),
    ([FIRST, LATER[0]], []),
    ([FIRST, LATER[1]], []),  # the one between them came back
    ([LATER[0]], []),
    (GONE, []),
    (GONE, PLACED[:2]),
    (GONE, PLACED[:3]),  # append times have their name, and the log has not
    (GONE, PLACED[2:3]),
    ([FIRST, *LATER], PLACED[2:3]),  # and took that of the old ones
    (GONE, PLACED[3:]),
    ([FIRST, *LATER], PLACED[3:]),
    (GONE, PLACED),
    ([FIRST, *LATER], PLACED),  # append times of the others have come back
]


def after_power_loss(origin, root, gone, placed):
    """Give some files their next name, as a power loss leaves them, start, and look."""
    directory = root / "t-0"
    for name in gone:
        (directory / name).rename(directory / f"{name}.deleted")
    for name in placed:
        (directory / f"{name}.swap").rename(directory / name)
    store = store_at(root, "second")
    try:
        check(store.partition("t", 0), *origin[1:])
        if gone:
            assert not [name for name in os.listdir(directory) if name in LATER]
    finally:
        kill(store)


@pytest.mark.parametrize(("gone", "placed"), NAMES)
def test_whatever_names_of_a_swap_a_power_loss_leaves(origin, complete, gone, placed):
    after_power_loss(origin, complete, gone, placed)


@pytest.mark.parametrize("found", ["new", "old"])
def test_the_transaction_index_in_place_stays_where_no_other_is_to_replace_it(complete, found):
    directory = complete / "t-0"
    for name in (FIRST, *LATER):
        (directory / name).rename(directory / f"{name}.deleted")
    path = directory / FIRST.replace(".log", ".txnindex")
    path.write_bytes(transaction_index.pack([transaction_index.Aborted(0, 9, 1, 4, 0)]))
    before = path.read_bytes()
    if found == "old":
        path.with_name(f"{path.name}.swap").write_bytes(before * 2)
    store = store_at(complete, "second")
    try:
        assert store.partition("t", 0).offline is None
        assert path.read_bytes() == before * (1 + (found == "old"))
    finally:
        kill(store)


class Refusing(files.System):
    """A disk that refuses a name at one step of a swap, lets some be removed then, and refuses some."""

    def __init__(self, step, removals, refusals):
        self.step, self.removals, self.refusals = step, removals, refusals
        self.is_refusing = False

    def rename(self, path, target):
        if target.name.endswith(".swap") and not self.is_refusing:
            self.step -= 1
            if self.step < 0:
                self.is_refusing = True
                raise OSError(errno.EIO, "no")
        self._change(path)
        super().rename(path, target)

    def unlink(self, path):
        self._change(path)
        super().unlink(path)

    def _change(self, path):
        if self.is_refusing and path.name.endswith((".swap", ".cleaned")) and path.exists():
            self.removals -= 1
            if self.removals < 0 <= self.removals + self.refusals:
                raise OSError(errno.EIO, "no")


def refused(origin, tmp_path, step, removals, refusals):
    """A log in which a cleaned segment was neither taken in nor wholly removed."""
    path, everything, _ = origin
    root = tmp_path / "refused"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(path, root)
    store = store_at(root)
    partition = store.partition("t", 0)
    store.checkpoint()
    disk = Refusing(step, removals, refusals)
    files.use(disk)
    with pytest.raises(KafkaStorageError, match="is not kept"):
        clean(partition, NOW)
    assert disk.is_refusing
    assert partition.offline is None
    assert rows_of(partition) == everything
    return store, partition, disk


MANY = 1_000
REFUSED = list(itertools.product(range(5), range(5), (2, 3, MANY)))


@pytest.mark.slow
@pytest.mark.parametrize("begun", ["at once", "after a cleaning that came to nothing"])
def test_what_cannot_be_removed_takes_nothings_place(origin, tmp_path, begun):
    """The next start finds the log as it was, with all its times, and removes what is left."""
    for case in REFUSED:
        store, partition, _ = refused(origin, tmp_path, *case)
        files.use(files.System())
        if begun != "at once":
            cleaner = Cleaner(
                partition.directory, partition.compactor.begin_cleaning(NOW, asked=True)
            )
            cleaner.clean(cleaner.groups()[-1])  # not the one that was refused
        kill(store)
        again = store_at(tmp_path / "refused")
        try:
            found = again.partition("t", 0)
            assert rows_of(found) == origin[1], case
            assert leftover(found) == []
        finally:
            kill(again)


@pytest.mark.slow
def test_no_cleaning_begins_beside_what_cannot_be_removed(origin, tmp_path):
    for case in REFUSED:
        store, partition, disk = refused(origin, tmp_path, *case)
        if leftover(partition):
            disk.removals, disk.refusals = 0, MANY
            with pytest.raises(OSError, match="no"):
                clean(partition, NOW)
            assert rows_of(partition) == origin[1]
        files.use(files.System())
        assert clean(partition, NOW) is not None
        assert rows_of(partition) == origin[2]
        assert not [n for n in leftover(partition) if not n.endswith(".deleted")]
        kill(store)


def leftover(partition):
    return [
        name
        for name in os.listdir(partition.directory)
        if name.endswith((".cleaned", ".swap", ".tmp", ".deleted"))
    ]
