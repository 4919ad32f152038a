"""What counts as a clean start, and that a process killed anywhere in a start says the truth at the next."""

from __future__ import annotations

import pytest

from tests.broker.partitions.replication.cluster import Cluster
from tidelog.broker.lifecycle.clean_start import is_clean
from tidelog.broker.metadata.brokers.records import (
    OfflineRecord,
    RegistrationRecord,
    put_offline,
    put_registration,
)
from tidelog.storage.directory.registration_file import DirectoryState, begun

BOOT = "boot-1"
RUNNING = DirectoryState("d1", "now", "before", BOOT)
TWO = (RUNNING, RUNNING._replace(directory="d2"))


def registered(*directories, offline=None):
    """Returns an image in which broker 1 is registered as `now` with these directories."""
    cluster = Cluster()
    cluster.put(put_registration(1, RegistrationRecord("now", directories, is_clean=True)))
    if offline is not None:
        cluster.put(put_offline(1, offline))
    return cluster.image


STARTS = {
    "kill -9, on the same boot": (TWO, True),
    "killed after the files were written, and before it registered": (
        [each._replace(incarnation="next", previous="now") for each in TWO], True),
    "killed between two of the files": (
        (RUNNING._replace(incarnation="next", previous="now"), TWO[1]), True),
    "stopped in order, then the machine started again": (
        [each._replace(is_stopped=True, boot_id="boot-0") for each in TWO], True),
    "a directory was added": ((*TWO, None), True),
    "a power loss": ([each._replace(boot_id="boot-0") for each in TWO], False),
    "one directory was not flushed before the power loss": (
        (TWO[0]._replace(is_stopped=True), TWO[1]._replace(boot_id="boot-0")), False),
    "a wiped volume, or a torn file": ((TWO[0], None), False),
    "a directory that is not there any more": (TWO[:1], False),
    "all of them wiped": ((None, None), False),
    "an older copy of a directory": (
        (TWO[0], TWO[1]._replace(incarnation="older", previous="oldest")), False),
    "a copy from before an unclean start": (
        (TWO[0], TWO[1]._replace(incarnation="before", previous="")), False),
    "an older copy in place of none": (
        (*TWO, DirectoryState("d3", "older", "", BOOT, is_stopped=True)), False),
    "a log has failed": ((TWO[0], TWO[1]._replace(has_failed=True)), False),
    "a log has failed before the broker stopped in order": (
        (TWO[0], TWO[1]._replace(has_failed=True, is_stopped=True)), False),
    "an unclean start that was killed before it registered": (
        [each._replace(incarnation="next", previous="") for each in TWO], False),
}  # fmt: skip


@pytest.mark.parametrize("start", STARTS)
def test_starts(start):
    found, expected = STARTS[start]
    assert is_clean(registered("d1", "d2"), 1, found, BOOT) is expected


def test_a_log_that_failed_is_remembered_by_the_metadata_where_the_disk_takes_no_file():
    for offline in (OfflineRecord(("d1",)), OfflineRecord((), {Cluster().create("t"): (0,)})):
        assert not is_clean(registered("d1", "d2", offline=offline), 1, TWO, BOOT)


def test_a_full_disk_has_lost_nothing():
    full = OfflineRecord(full={Cluster().create("t"): (0,)})
    assert is_clean(registered("d1", "d2", offline=full), 1, TWO, BOOT)


def test_a_machine_whose_boot_is_not_known_has_lost_its_page_cache_for_all_one_knows():
    unknown = [each._replace(boot_id="") for each in TWO]
    assert not is_clean(registered("d1", "d2"), 1, unknown, "")


def test_a_broker_that_never_registered_is_clean():
    assert is_clean(Cluster().image, 1, (None, None), BOOT)


@pytest.mark.parametrize("is_registered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("clean", [False, True], ids=["unclean", "clean"])
def test_a_process_killed_around_its_registration(clean, is_registered):
    before = list(TWO) if clean else [TWO[0], None]
    image = registered("d1", "d2")
    assert is_clean(image, 1, before, BOOT) is clean
    previous = "now" if clean else ""
    after = [
        begun(each, f"new-{number}", "next", previous, BOOT) for number, each in enumerate(before)
    ]
    directories = tuple(each.directory for each in after)
    assert directories == (("d1", "d2") if clean else ("d1", "new-1"))
    if not is_registered:
        assert is_clean(image, 1, after, BOOT) is clean
        return
    cluster = Cluster()
    cluster.put(put_registration(1, RegistrationRecord("next", directories, is_clean=clean)))
    assert is_clean(cluster.image, 1, after, BOOT)  # nothing was lost since that registration
