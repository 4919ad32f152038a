"""Seconds given for milliseconds are pointed out by every command that takes a time, and units are read."""

from __future__ import annotations

import json

import pytest

from tests.broker import asking
from tidelog.cli.parser import main

SECONDS, MICROSECONDS = 1_767_225_600, 1_767_225_600_000_000
IS = "1767225600 is 1970-01-21T10:53:45.600Z"
MEANT = "if seconds are meant, write 1767225600000 for 2026-01-01T00:00:00.000Z"


@pytest.fixture(scope="module")
def topic(one):
    with one.connect() as connection:
        asking.create(connection, "units")
        asking.produce(connection, "units", asking.batch_of(*"ab"))
    return "units"


@pytest.mark.parametrize(
    ("line", "option", "stdin"),
    [
        ("offsets units --at N", "--at", b""),
        ("offsets units --appended-at N", "--appended-at", b""),
        ("delete-records units --before N --dry-run", "--before", b""),
        ("consume units --from @N", "--from", b""),
        ("consume units --to @N", "--to", b""),
        ("produce units --time N", "--time", b""),
        ("produce units --json", "timestamp", b'{"timestamp": N}\n{"timestamp": N}'),
        ("groups reset-offsets nobody units --to-time N", "--to-time", b""),
    ],
)
def test_seconds_are_pointed_out(run, topic, line, option, stdin):
    line, stdin = line.replace("N", str(SECONDS)), stdin.replace(b"N", b"%d" % SECONDS)
    status, _, err = run(*line.split(), stdin=stdin)
    command, *rest = line.split()
    name = f"{command} {rest[0]}" if command == "groups" else command
    warnings = err.splitlines()
    assert (status, warnings[0]) == (0, f"tidelog {name}: warning: {option} {IS}: {MEANT}")
    assert warnings[1:] in ([], [f"tidelog {name}: warning: there is no group nobody yet"])


def test_other_units_are_pointed_out_and_milliseconds_are_not(run, topic):
    assert (
        "if microseconds are meant, write 1767225600000 for"
        in run("offsets", topic, "--at", str(MICROSECONDS))[2]
    )
    assert "if nanoseconds are meant" in run("offsets", topic, "--at", f"{MICROSECONDS}000")[2]
    for time in ("0", "1767225600000", "-2", "999999999", "2026-01-01T00:00Z"):
        assert run("offsets", topic, "--at", time)[2] == ""


def test_an_offset_that_looks_like_a_time_is_pointed_out(run, topic):
    for number in (SECONDS, SECONDS * 1000):
        status, _, err = run("consume", topic, "--from", str(number))
        ms = SECONDS * 1000
        warning = f"--from {number} is an offset: a time in milliseconds is written @{ms}"
        assert (status, err) == (0, f"tidelog consume: warning: {warning}\n")


def test_with_json_it_is_an_object(run, topic):
    _, out, err = run("offsets", topic, "--at", str(SECONDS), "--json")
    assert json.loads(err) == {"warning": f"--at {IS}: {MEANT}"}
    assert json.loads(out)["at_ms"] == SECONDS


def test_a_broker_and_a_job_point_it_out_too(capsys, tmp_path):
    assert main(["serve", "--clock-start", str(SECONDS)]) == 2  # a manual clock needs more
    assert f"tidelog serve: warning: --clock-start {IS}" in capsys.readouterr().err
    line = ["pipeline", "audit", "--logs", str(tmp_path / "no"), "--at", str(SECONDS), "--dry-run"]
    assert main([*line, "--out", str(tmp_path)]) != 0
    assert f"tidelog pipeline: warning: {IS}" in capsys.readouterr().err


def test_settings_and_waits_have_units(run, topic):
    assert run("configs", "set", topic, "retention.bytes=1GiB", "retention.ms=7d")[0] == 0
    shown = json.loads(run("configs", "show", topic, "--changed", "--json")[1])["settings"]
    assert {name: each["value"] for name, each in shown.items()} == {
        "retention.bytes": str(1 << 30),
        "retention.ms": "604800000",
    }
    assert "segment.bytes=67108864" in run("explain", topic, "--set", "segment.bytes=64MiB")[1]
    status, _, err = run("configs", "set", topic, "retention.bytes=10MB")
    assert (status, "write 10MiB for 1024" in err) == (2, True)
    assert run("cluster", "rebalance", "--dry-run", "--throttle", "20MiB", "--within", "5m")[0] == 0
