"""Names are Kafka's, and what is parsed is what was made."""

import pytest

from tidelog.storage import filenames


def test_segment_files_have_twenty_digits():
    assert filenames.segment_file(42, ".log") == "00000000000000000042.log"
    assert filenames.segment_file(2**63 - 1, ".index") == "09223372036854775807.index"


@pytest.mark.parametrize("offset", [0, 1, 10**12, 2**63 - 1])
@pytest.mark.parametrize("suffix", [".log", ".index", ".appendtimes", ".snapshot"])
def test_a_segment_file_is_parsed_back(offset, suffix):
    name = filenames.segment_file(offset, suffix)
    assert filenames.parse_segment_file(name) == (offset, suffix)


@pytest.mark.parametrize("name", ["1.log", "leader-epoch-checkpoint", "0" * 20, "0" * 20 + ".log~"])
def test_other_files_are_no_segment_files(name):
    assert filenames.parse_segment_file(name) is None


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("orders-0", ("orders", 0)),
        ("a-b-c-12", ("a-b-c", 12)),
        ("a.b_c-3", ("a.b_c", 3)),
        ("__consumer_offsets-49", ("__consumer_offsets", 49)),
        ("orders", None),
        ("-1", None),
        ("orders-x", None),
        ("orders-0.0123456789abcdef0123456789abcdef-delete", None),
        ("orders-0.0123456789abcdef0123456789abcdef-future", None),
        (".lock", None),
    ],
)
def test_partition_directories(name, parsed):
    assert filenames.parse_partition_directory(name) == parsed
    if parsed is not None:
        assert filenames.partition_directory(*parsed) == name


def test_a_deleted_directory_fits_the_file_system_and_is_recognized():
    unique = "0123456789abcdef" * 2
    name = filenames.deleted_directory("t", 3, unique)
    assert name == f"t-3.{unique}-delete"
    long = filenames.deleted_directory("x" * 249, 12345, unique)
    assert len(long) == 255
    for deleted in (name, long):
        assert filenames.is_deleted_directory(deleted)
        assert filenames.parse_partition_directory(deleted) is None
    assert not filenames.is_deleted_directory("t-3")
    assert not filenames.is_deleted_directory("my-delete")


def test_leftovers():
    assert filenames.is_leftover("00000000000000000000.index.tmp")
    assert filenames.is_leftover("00000000000000000000.log.deleted")
    assert not filenames.is_leftover("00000000000000000000.log")
