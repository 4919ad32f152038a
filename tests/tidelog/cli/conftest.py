"""A broker of a test file of its own, whose clock stands at new year 2026, and the commands that ask it."""

from __future__ import annotations

import io
import sys

import pytest

from tests.broker.conftest import healthy
from tidelog.cli.parser import main

SETTINGS = {
    "clock": "manual",
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 2,
}
OVER_HTTP_ALONE = ("clock", "cluster", "doctor", "explain", "offsets", "times")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    with healthy(tmp_path_factory.mktemp("broker"), SETTINGS) as subject:
        yield subject


@pytest.fixture
def broker(one):
    one.clock.freeze("2026-01-01T00:00Z")
    return one


@pytest.fixture
def connection(broker):
    with broker.connect() as connection:
        yield connection


class Terminal(io.StringIO):
    """Standard input at which somebody answers."""

    def isatty(self):
        return True


@pytest.fixture
def run(broker, capsysbinary, monkeypatch):
    """Runs a command against a broker: exit status, what it printed, what it complained of."""

    def run(*arguments, at=broker, http=None, kafka=None, stdin=b"", answer=None, is_told=True):
        where = ["--http", http or at.http] if is_told else []
        if is_told and arguments[0] not in OVER_HTTP_ALONE and "--broker" not in arguments:
            where += ["--broker", kafka or at.bootstrap]
        given = io.TextIOWrapper(io.BytesIO(stdin))
        monkeypatch.setattr(sys, "stdin", given if answer is None else Terminal(answer))
        capsysbinary.readouterr()
        try:
            status = main([*arguments, *where])
        except SystemExit as left:
            status = left.code
        out, err = capsysbinary.readouterr()
        return status, out.decode(errors="surrogateescape"), err.decode()

    return run
