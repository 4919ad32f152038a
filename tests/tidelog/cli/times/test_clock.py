"""`tidelog clock`: what it prints while the clock is trusted, has leapt, is accepted, and is behind."""

from __future__ import annotations

import functools
import json

import pytest

from tests.broker import asking
from tests.broker.conftest import healthy
from tests.oracle import recordset
from tests.oracle.recordset import Rec

NEW_YEAR_MS = 1_767_225_600_000


@pytest.fixture
def broker(tmp_path):
    with healthy(tmp_path, {"clock": "manual", "clock.start.ms": NEW_YEAR_MS}) as subject:
        yield subject


@pytest.fixture
def run(run):
    return functools.partial(run, "clock")


def test_a_clock_that_is_trusted_and_goes_back(broker, run):
    trusted = (
        "The clock of broker 1 shows 2026-01-01T00:00:00Z. It is a manual one.\nIt is trusted.\n"
    )
    assert run() == run("status") == (0, trusted, "")
    nothing = "The clock is trusted: there is nothing to accept.\n"
    assert run("accept", "--yes") == (0, nothing, "")
    status, out, _ = run("status", "--json")
    assert (status, json.loads(out)["state"]) == (0, "trusted")
    status, out, _ = run("accept", "--json")
    assert (status, json.loads(out)["accepted"]) == (0, False)
    broker.clock.step("-1d")
    back = (
        "The clock of broker 1 shows 2025-12-31T00:00:00Z. It is a manual one.\n"
        "It is trusted.\n"
        "Went back from 2026-01-01T00:00:00Z to 2025-12-31T00:00:00Z, by 1d 0h. What has a later "
        "append time from before counts as written at 2025-12-31T00:00:00Z.\n"
    )
    assert run() == (0, back, "")


def test_a_leap_is_shown_and_accepted(broker, connection, run):
    asking.create(connection, "t")
    broker.clock.leap("10d")
    leapt = (
        "The clock of broker 1 shows 2026-01-11T00:00:00Z. It is a manual one.\n"
        "It leapt from 2026-01-01T00:00:00Z to 2026-01-11T00:00:00Z, and is not trusted: the "
        "deletion time is 2026-01-01T00:00:00Z, 10d 0h behind it.\n"
        "If the clock is wrong, correct it. If it is right, run: tidelog clock accept\n"
    )
    assert run() == (0, leapt, "")
    told = (
        "The clock has leapt: the deletion time is 2026-01-01T00:00:00Z. See: tidelog clock status"
    )
    assert told in run.func("explain", "t")[1].splitlines()
    preview = (
        "The clock shows 2026-01-11T00:00:00Z, 10d 0h after the time that is trusted, "
        "2026-01-01T00:00:00Z.\n"
        "Once it is accepted, retention, compaction and the expiry of offsets go by it. What was "
        "written before counts as written that much later.\n"
    )
    assert run("accept", "--dry-run") == (0, preview, "")
    status, out, _ = run("accept", "--dry-run", "--json")
    assert (status, json.loads(out)["accepted"], json.loads(out)["state"]) == (0, False, "leapt")
    refusal = (
        "tidelog clock accept: retention would go by 2026-01-11T00:00:00Z: add --yes if the clock is "
        "right, --dry-run to look only\n"
    )
    assert run("accept") == (2, preview, refusal)
    assert run() == (0, leapt, "")
    assert run("accept", "--yes") == (0, preview + "Accepted.\n", "")
    corrected = (
        "The clock of broker 1 shows 2026-01-11T00:00:00Z. It is a manual one.\n"
        "It is trusted.\n"
        "Corrected at 2026-01-11T00:00:00Z: it had been 10d 0h behind. Append times that it gave "
        "then count as later.\n"
    )
    assert run() == (0, corrected, "")
    broker.clock.leap("10d")
    status, out, _ = run("accept", "--yes", "--json")
    assert (status, json.loads(out)["accepted"], json.loads(out)["state"]) == (0, True, "trusted")


# --- reset ---------------------------------------------------------------------------------------


@pytest.fixture
def topic(broker):
    """A topic of two partitions; in the first the append time is five seconds ahead."""
    with broker.connect() as connection:
        name = asking.new_name()
        asking.create(connection, name, partitions=2)
        records = recordset.batch([Rec(NEW_YEAR_MS, b"v")])
        assert asking.produce(connection, name, records)["error_code"] == 0
    broker.clock.step("-5s")
    return name


def test_reset_shows_what_is_ahead_and_lets_it_go_back(broker, run, topic):
    assert run("reset", "nothing")[:2] == (1, "")
    assert run("reset", topic, "--partition", "2", "--yes")[:2] == (1, "")
    assert run("reset", topic, "--partition", "x")[:2] == (2, "")
    status, out, err = run("reset", topic, "--dry-run")
    assert (status, err) == (0, "")
    first, *_, last = out.splitlines()
    assert first == (
        f"{topic}: the clock shows 2025-12-31T23:59:55Z. Append times go on from there, and what was "
        "written before counts as written by then. The largest event time becomes that of the records "
        "that remain."
    )
    assert last.split() == ["0", "1", *["2026-01-01T00:00:00Z"] * 3]
    status, out, err = run("reset", topic)
    assert (status, err) == (
        2,
        (
            f"tidelog clock reset: 1 partition of {topic} would be reset for good: add --yes to do it, "
            "--dry-run to look only\n"
        ),
    )
    status, out, err = run("reset", topic, "--yes")
    assert (status, err, out.splitlines()[-1]) == (0, "", "Reset: 1 partition.")
    nothing = f"{topic}: no times are ahead of the clock, which shows 2025-12-31T23:59:55Z.\n"
    assert run("reset", topic) == (0, nothing, "")
    with broker.connect() as connection:
        records = recordset.batch([Rec(NEW_YEAR_MS, b"v")])
        assert asking.produce(connection, topic, records)["error_code"] == 0
    told = json.loads(broker.page(f"/v1/topics/{topic}/offsets"))["partitions"][0]
    assert told["last"]["append_time_ms"] == NEW_YEAR_MS - 5_000


def test_reset_of_one_partition_as_json(run, topic):
    status, out, _ = run("reset", topic, "--partition", "1", "--yes", "--json")
    told = json.loads(out)
    assert (status, told["done"], told["partitions"]) == (
        0,
        False,
        [{"partition": 1, "reset": None, "leader": 1}],
    )
    status, out, _ = run("reset", topic, "--partition", "0", "--yes", "--json")
    told = json.loads(out)
    assert (status, told["done"]) == (0, True)
    assert told["partitions"][0]["reset"]["last_append_time_ms"] == NEW_YEAR_MS
