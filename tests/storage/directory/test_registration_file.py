"""The registration file of a log directory: what is written is read, and damage is told from absence."""

from __future__ import annotations

import itertools
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.power_loss import Disk, PowerLoss
from tidelog.storage import filenames, files
from tidelog.storage.directory.registration_file import (
    DirectoryState,
    RegistrationFileError,
    parse_state,
    read_state,
    write_state,
)

STATE = DirectoryState("d", "a", "b", "boot", is_stopped=True, cluster="c", broker=3)


def test_what_is_written_is_read(tmp_path):
    assert read_state(tmp_path) is None
    for state in (STATE, STATE._replace(is_stopped=False, has_failed=True, previous="")):
        write_state(tmp_path, state)
        assert read_state(tmp_path) == state
    assert [path.name for path in tmp_path.iterdir()] == [filenames.REGISTRATION_FILE]


@given(st.data())
def test_a_torn_file_is_damaged(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("d")
    write_state(directory, STATE)
    path = directory / filenames.REGISTRATION_FILE
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 2))])
    with pytest.raises(RegistrationFileError):
        read_state(directory)


@pytest.mark.parametrize("counts", [False, True])
def test_a_power_loss_at_any_step_leaves_the_old_state_or_the_new_one(tmp_path, counts):
    """And the new one, once the write has returned."""
    new = STATE._replace(incarnation="c", previous="a", is_stopped=False)
    before = files.use(files.System())
    try:
        for fails_at, seed in itertools.product(range(1, 20), range(10)):
            root, after = tmp_path / f"{fails_at}-{seed}", tmp_path / f"{fails_at}-{seed}-after"
            root.mkdir()
            files.use(files.System())
            write_state(root, STATE)
            disk = Disk(root)
            files.use(disk)
            disk.fails_at, disk.failing_call_counts = fails_at, counts
            is_written = True
            try:
                write_state(root, new)
            except PowerLoss:
                is_written = False
            disk.lose_power(after, random.Random(seed))
            files.use(files.System())
            assert read_state(after) in ((new,) if is_written else (STATE, new))
        assert is_written
    finally:
        files.use(before)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((b"1\n", b"2\n"), "not a registration file of version 1"),
        ((b'"boot"', b'"tobo"'), "checksum"),
        ((b"\n{", b"\n{}{"), "checksum"),
    ],
)
def test_a_damaged_file_says_what_is_wrong(tmp_path, change, reason):
    write_state(tmp_path, STATE)
    data = (tmp_path / filenames.REGISTRATION_FILE).read_bytes()
    with pytest.raises(RegistrationFileError, match=reason):
        parse_state(data.replace(*change, 1))


def test_a_field_that_is_missing_is_damage(tmp_path):
    body = b'{"directory": "d"}'
    with pytest.raises(RegistrationFileError, match="incarnation"):
        parse_state(b"1\n%08x\n%s\n" % (zlib.crc32(body), body))
