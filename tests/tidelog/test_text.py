"""Text that commands and jobs read and print."""

import pytest

from tidelog.text import size_of, some, with_signed_values


@pytest.mark.parametrize(
    ("given", "joined"),
    [
        (["--at", "-2h"], ["--at=-2h"]),
        (["--before", "-0044-03-15T12:00Z", "-5"], ["--before=-0044-03-15T12:00Z", "-5"]),
        (["topic", "-2h"], ["topic", "-2h"]),
        (["--at", "--json", "-2h"], ["--at", "--json=-2h"]),
        (["-x", "-2h"], ["-x", "-2h"]),
        (["--at=1", "-2h", "--set", "a=-1"], ["--at=1", "-2h", "--set", "a=-1"]),
        ([], []),
    ],
)
def test_values_with_a_sign_are_joined_to_their_options(given, joined):
    assert with_signed_values(given) == joined


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (-3 << 20, "-3.0 MiB"),
        (1 << 52, "4096.0 TiB"),
    ],
)
def test_sizes_have_the_largest_unit_below_them(count, text):
    assert size_of(count) == text


def test_a_count_has_its_noun():
    assert [some(count, "record") for count in (0, 1, 2000)] == [
        "0 records",
        "1 record",
        "2,000 records",
    ]
