"""Drivers that misbehave: each becomes a sentence in time, and no process stays behind."""

from __future__ import annotations

import sys

import pytest

from tests.clients import clients, matrix
from tests.clients.session import DriverError, Session

READY = 'import sys, time\nprint(\'{"ready": "test 1.0"}\', flush=True)\nsys.stdin.readline()\n'


def driver(text):
    return Session("test", [sys.executable, "-c", text])


def test_answers_are_collected_until_the_command_is_done():
    text = READY + 'print(\'{"a": 1}\\n{"a": 2}\\n{"done": "x"}\', flush=True)'
    with driver(text) as session:
        assert session.version == "test 1.0"
        assert session.ask({"op": "x"}, 30) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sys.exit('no such topic')", r"the driver ended \(no such topic\)"),
        ('print(\'[WARN] hello\\n{"done": "x"}\', flush=True)', "not a line of the protocol"),
        ('print(\'{"fatal": "it broke"}\\n{"done": "x"}\', flush=True)', "it broke"),
        ("sys.stdin.read()", "silent for 0 s"),
    ],
)
def test_a_failing_driver_is_reported(text, sentence):
    with driver(READY + text) as session, pytest.raises(DriverError, match=sentence):
        session.ask({"op": "x"}, 0.3 if "silent" in sentence else 30)


def test_a_driver_that_does_not_start_is_reported():
    with (
        pytest.raises(DriverError, match=r"the driver ended \(no client here\)"),
        driver("import sys; sys.exit('no client here')"),
    ):
        pass


@pytest.mark.parametrize("pause_s", [0, 0.5])
def test_after_a_fatal_answer_the_next_command_starts_clean_however_late_its_end(pause_s):
    text = READY + (
        'print(\'{"fatal": "once"}\', flush=True)\n'
        f"time.sleep({pause_s})\n"
        'print(\'{"late": 1}\\n{"done": "x"}\', flush=True)\n'
        "sys.stdin.readline()\n"
        'print(\'{"b": 1}\\n{"done": "x"}\', flush=True)'
    )
    with driver(text) as session:
        with pytest.raises(DriverError, match="once"):
            session.ask({"op": "x"}, 30)
        assert session.ask({"op": "x"}, 30) == [{"b": 1}]


def test_a_driver_that_does_not_end_a_failed_command_is_not_asked_again():
    with driver(READY + 'print("[WARN] hello", flush=True); time.sleep(3600)') as session:
        with pytest.raises(DriverError):
            session.ask({"op": "x"}, 0.5)
        with pytest.raises(DriverError, match="the driver ended"):
            session.ask({"op": "x"}, 30)


def test_a_client_whose_environment_is_missing_is_skipped_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDELOG_CACHE", str(tmp_path))
    report = matrix.run_matrix("127.0.0.1:1", [clients.KAFKA_PYTHON_14], make=False)
    assert report.versions == {}
    assert list(report.skipped) == ["kafka-python 1.4"]
    assert "not set up" in report.skipped["kafka-python 1.4"]
