"""Produce v0-v2: the offsets that old clients write into their message sets mean nothing."""

from __future__ import annotations

import pytest

from tests.broker.asking import fetch, new_topic, produce, values
from tests.oracle import codecs, recordset

FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "3.0"}
TEXTS = ("a", "b", "c")
INVALID_RECORD = 87

INNER = {"all 0": (0, 0, 0), "all -1": (-1, -1, -1), "0, 1, 2": (0, 1, 2), "far": (7, 8, 9)}
WRAPPERS = (-1, 0, 2, 3)


def offsets_and_values(records):
    """What a consumer sees, by rules written here again: offset and value of each record."""
    found = []
    for each in recordset.parse(records)[0]:
        if each["magic"] == 2:
            found += [(one["offset"], one["value"]) for one in each["records"]]
        elif "inner" not in each:
            found.append((each["offset"], each["value"]))
        else:
            inner = each["inner"]
            base = each["offset"] - inner[-1]["offset"] if each["magic"] else 0
            found += [(base + one["offset"], one["value"]) for one in inner]
    return found


@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize("sent", [0, 1])
def test_any_offsets_become_0_1_2(connection, stored, sent):
    topic = new_topic(connection, message_format_version=FORMATS[stored])
    recs, version = values(*TEXTS), 1 + sent
    sets = {
        f"wrapper at {outer} around {name}": recordset.wrapper(
            sent, recs, codecs.GZIP, offset=outer, inner_offsets=inner
        )
        for outer in WRAPPERS
        for name, inner in INNER.items()
    }
    for name, offsets in INNER.items():
        sets[f"plain, {name}"] = b"".join(
            recordset.message(sent, rec, offset=offset)
            for rec, offset in zip(recs, offsets, strict=True)
        )
    wanted = []
    for number, (name, data) in enumerate(sets.items()):
        got = produce(connection, topic, data, version=version)
        assert (got["error_code"], got["base_offset"]) == (0, 3 * number), name
        wanted += [(3 * number + i, text.encode()) for i, text in enumerate(TEXTS)]
    assert offsets_and_values(fetch(connection, topic)["records"]) == wanted


def test_later_versions_stay_strict(connection):
    topic = new_topic(connection)
    recs = values(*TEXTS)
    for data in (
        recordset.wrapper(1, recs, codecs.GZIP, offset=-1),
        recordset.batch(recs, base_offset=-1),
    ):
        assert produce(connection, topic, data, version=3)["error_code"] == INVALID_RECORD
