"""Sizes as people write them, and settings with units."""

from __future__ import annotations

import pytest

from tidelog.config.units import in_its_unit, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1000", 1000),
        ("12b", 12),
        ("64k", 65_536),
        ("64KiB", 65_536),
        ("16 MiB", 16 << 20),
        ("1g", 1 << 30),
        ("2TiB", 2 << 40),
    ],
)
def test_a_size(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10MB", "'10MB': units of 1000 or of 1024? write 10MiB for 1024, or bytes"),
        ("-5", "'-5' is not a size: write 64MiB, or bytes"),
        ("1.5g", "is not a size"),
        ("much", "is not a size"),
        ("", "is not a size"),
    ],
)
def test_no_size(text, said):
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        parse_size(text)


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "-1", "-1"),
        ("log.retention.hours", "7d", "168"),
        ("offsets.retention.minutes", "2h", "120"),
        ("quota.window.size.seconds", "1m", "60"),
        ("segment.bytes", "64MiB", "67108864"),
        ("retention.bytes", "-1", "-1"),
        ("log.scrub.io.max.bytes.per.second", "1m", "1048576"),
        ("leader.replication.throttled.rate", "20m", "20971520"),
        ("retention.ms", "soon", "soon"),
        ("cleanup.policy", "7d", "7d"),
    ],
)
def test_a_setting_in_its_unit(name, value, written):
    assert in_its_unit(name, value) == written


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("log.retention.hours", "90m", "'90m' is not a whole number of hours"),
        ("segment.bytes", "10MB", "of 1000 or of 1024"),
        ("retention.bytes", "7d", "'7d' is not a size"),
        ("retention.ms", "7days", "'7days' is not a span of time"),
    ],
)
def test_another_unit_than_that_of_the_setting_is_refused(name, value, said):
    with pytest.raises(ValueError, match=said):
        in_its_unit(name, value)
