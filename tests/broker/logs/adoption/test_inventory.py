"""What the directories of one broker of Kafka hold, and which are refused."""

import shutil
from pathlib import Path

import pytest

from tidelog.broker.logs.adoption.errors import AdoptionError
from tidelog.broker.logs.adoption.inventory import take_inventory
from tidelog.config import load
from tidelog.storage.directory.log_directory import LogDirectoryError
from tidelog.storage.directory.registration_file import DirectoryState, write_state
from tidelog.storage.directory.store import LogStore

LOG = (
    Path(__file__).parents[3] / "vectors" / "kafka-0.10.2.2" / "f-0.10.2-LogAppendTime-none-c0901-0"
)
DEFAULTS = load([], {}, {}).topic_defaults


def directory(path, broker=1, mark=None, cluster="c"):
    """A log directory of Kafka with the log t-0, of 200 records."""
    path.mkdir()
    (path / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\nnode.id={broker}\n")
    shutil.copytree(LOG, path / "t-0")
    if mark is not None:
        (path / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {mark}\n")
    return path


def inventory(*paths):
    return take_inventory(paths, now_ms=1, boot_id="boot", defaults=DEFAULTS)


def test_a_log_is_described_the_same_however_often_it_is_looked_at(tmp_path):
    path = directory(tmp_path / "a", mark=150)
    first = inventory(path)
    assert (first.cluster_id, first.broker, first.metadata) == ("c", 1, None)
    found = first.logs["t", 0]
    assert (found.start_offset, found.end_offset, found.high_watermark) == (0, 200, 150)
    assert found.has_append_times
    assert inventory(path) == first


def test_a_high_watermark_beyond_the_end_is_that_of_records_that_were_lost(tmp_path):
    """The log ends where it ends; other replicas say whether it is long enough."""
    assert inventory(directory(tmp_path / "a", mark=900)).logs["t", 0].high_watermark == 200


def test_directories_of_nobody_of_others_and_of_tidelog_are_refused(tmp_path):
    path = directory(tmp_path / "a")
    (path / "meta.properties").rename(path / "meta")
    with pytest.raises(AdoptionError, match=r"a/meta.properties is missing"):
        inventory(path)
    (path / "meta.properties").write_text("version=1\ncluster.id=c\n")
    with pytest.raises(AdoptionError, match="does not name a cluster and a broker"):
        inventory(path)
    (path / "meta").rename(path / "meta.properties")
    other = directory(tmp_path / "b", broker=2)
    with pytest.raises(AdoptionError, match=r"different brokers: .*broker 1 of c, .*broker 2 of c"):
        inventory(path, other)
    write_state(path, DirectoryState("d", "i", "", "boot", cluster="ours", broker=3))
    with pytest.raises(
        AdoptionError, match="belongs to broker 3 of tidelog's cluster ours already"
    ):
        inventory(path)


def test_a_directory_in_use_is_refused(tmp_path):
    path = directory(tmp_path / "a")
    user = LogStore([path], default_config=DEFAULTS)
    user.lock()
    try:
        with pytest.raises(LogDirectoryError):
            inventory(path)
    finally:
        user.close()
