"""On a terminal, what lasts says how far it is on standard error; elsewhere it says nothing."""

from __future__ import annotations

import io
import sys
import time

import pytest

from tests.broker import asking
from tidelog.cli import output
from tidelog.cli.parser import main


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Makes standard error a terminal; pytest puts its own there between the phases of a test."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)

    def begin():
        made = Terminal()
        monkeypatch.setattr(sys, "stderr", made)
        return made

    return begin


@pytest.fixture(scope="module")
def where(one):
    with one.connect() as connection:
        asking.create(connection, "shown")
        asking.produce(connection, "shown", asking.batch_of(*"abc"))
    return one


@pytest.mark.parametrize(
    "line",
    ["dump LOGS/shown-0", "scrub --log-dirs LOGS --topic shown --with-active", "consume shown"],
)
def test_work_on_bytes_and_records_has_a_bar(where, terminal, capsys, line):
    asked = ["-b", where.bootstrap] if line.startswith("consume") else []
    line = line.replace("LOGS", str(where.log_dir)).split()
    shown = terminal()
    assert main([*line, *asked]) == 0
    assert "━" in shown.getvalue()
    assert "━" not in capsys.readouterr().out


def test_produce_from_a_file_has_a_bar(where, terminal, capsys, tmp_path):
    file = tmp_path / "lines"
    file.write_text("x\n" * 1000)
    shown = terminal()
    assert main(["produce", "shown", "--file", str(file), "-b", where.bootstrap]) == 0
    assert "━" in shown.getvalue()
    assert capsys.readouterr().out == "Produced 1,000 records to shown.\n"


def test_what_is_waited_for_is_said_after_a_second(terminal, monkeypatch):
    monkeypatch.setattr(output, "_SHOWN_AFTER_S", 0.0)
    shown = terminal()
    with output.working("waiting for what \x1b lasts"):
        until = time.monotonic() + 60
        while "waiting" not in shown.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
    assert "waiting for what \\x1b lasts" in shown.getvalue()


def test_what_is_quick_says_nothing(where, terminal, capsys, monkeypatch):
    monkeypatch.setattr(output, "_SHOWN_AFTER_S", 600.0)
    shown = terminal()
    with output.working("at once"):
        pass
    assert main(["offsets", "shown", "--http", where.http]) == 0
    assert shown.getvalue() == ""
    assert "largest" in capsys.readouterr().out


def test_without_a_terminal_nothing_is_said(where, capsys):
    assert main(["dump", f"{where.log_dir}/shown-0"]) == 0
    assert capsys.readouterr().err == ""
