"""The command line: spellings, precedence, mistakes in one sentence."""

from __future__ import annotations

import re
import time
import tomllib
from pathlib import Path

import pytest

import tidelog
from tidelog.cli.brokers.serve import overrides_of
from tidelog.cli.parser import main, parser_of
from tidelog.config.instants import parse_instant
from tidelog.config.release import RELEASED_MS

ROOT = Path(__file__).parents[3]


def overrides(*arguments):
    return overrides_of(parser_of().parse_args(["serve", *arguments]))


@pytest.fixture(autouse=True)
def without_kafka_variables(monkeypatch):
    monkeypatch.delenv("KAFKA_NUM_PARTITIONS", raising=False)


def test_every_option_of_serve():
    line = (
        "--listeners PLAINTEXT://127.0.0.1:0 --log-dirs a,b --http 127.0.0.1:0 --control 127.0.0.1:0"
        " --config server.properties --set num.partitions=3 --set a=b=c"
        " --clock manual --clock-start 1969-12-31T23:00Z --clock-scope all --stop-at-eof"
    )
    assert overrides(*line.split()) == {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": "a,b",
        "http.listener": "127.0.0.1:0",
        "control.listener": "127.0.0.1:0",
        "clock": "manual",
        "clock.start.ms": "-3600000",
        "clock.scope": "all",
        "num.partitions": "3",
        "a": "b=c",
    }


def test_a_setting_may_have_a_unit():
    line = "--set log.retention.ms=7d --set log.segment.bytes=64MiB --set log.roll.hours=7d"
    assert overrides(*line.split()) == {
        "log.retention.ms": "604800000",
        "log.segment.bytes": "67108864",
        "log.roll.hours": "168",
    }


def test_nothing_given_overrides_nothing():
    assert overrides() == {}


def mistake(capsys, *arguments):
    """The one sentence on standard error, after checking the exit status."""
    try:
        status = main(arguments)
    except SystemExit as left:
        status = left.code
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1)
    return err.strip()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "num.partitions"], "--set num.partitions: expected KEY=VALUE"),
        (["--set", "=3"], "--set =3: expected KEY=VALUE"),
        (
            ["--set", "num.partions=3"],
            "there is no setting num.partions (from command line); did you mean num.partitions?",
        ),
        (
            ["--set", "num.partitions=x"],
            "num.partitions=x (from command line): expected an integer",
        ),
        (
            ["--listeners", "SASL_SSL://:1"],
            "listener SASL_SSL asks for SASL_SSL, and only PLAINTEXT and SSL are served",
        ),
        (
            ["--http", "127.0.0.1:1", "--set", "http.listener=127.0.0.1:2"],
            "--set http.listener=127.0.0.1:2 contradicts http.listener=127.0.0.1:1 given before it",
        ),
        (
            ["--clock", "manual"],
            (
                "clock=manual needs a control.listener, such as 127.0.0.1:0 (--control): without it "
                "the clock would stand still for ever"
            ),
        ),
        (
            ["--clock-start", "5"],
            "clock.start.ms=5 needs clock=manual: the machine's clock is not set",
        ),
        (
            ["--clock-start", "2h"],
            "--clock-start: '2h': before or after now? write -2h or +2h",
        ),
        (
            ["--control", "nowhere"],
            "control.listener=nowhere (from command line): expected host:port, such as 127.0.0.1:8080",
        ),
        (
            ["--config", "/nowhere/x"],
            "cannot read the properties file /nowhere/x: No such file or directory",
        ),
    ],
)
def test_a_mistake_in_a_setting(capsys, arguments, sentence):
    assert mistake(capsys, "serve", *arguments) == f"tidelog serve: {sentence}"


def test_a_mistake_in_an_option(capsys):
    assert "unrecognized arguments: --listener" in mistake(capsys, "serve", "--listener", "x")
    assert "there is no command 'sevre'" in mistake(capsys, "sevre")
    assert "invalid choice: 'moon'" in mistake(capsys, "serve", "--clock", "moon")


def test_no_command_shows_what_there_is(capsys):
    assert main([]) == 2
    assert "serve" in capsys.readouterr().err


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"tidelog {tidelog.__version__}\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == tidelog.__version__


def test_the_date_of_the_release_changes_with_the_version_and_is_not_in_the_future():
    """Before it no clock is right; with a later one, a wrong clock would be believed."""
    assert (tidelog.__version__, RELEASED_MS) == ("0.1.0", parse_instant("2026-01-01T00:00Z", 0))
    assert time.time() * 1000 > RELEASED_MS


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    known = "--help --brokers --no-restart --listeners --log-dirs --http --config --set --control"
    assert shown == {*known.split(), "--clock", "--clock-start", "--clock-scope", "--stop-at-eof"}


def test_help_names_what_an_adoption_is_given(capsys):
    with pytest.raises(SystemExit):
        main(["adopt", "apply", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "[--config FILE] [--set KEY=VALUE] [--dry-run] [--json] INVENTORY [INVENTORY" in shown


@pytest.mark.parametrize("command", ["topics", "consume", "explain", "cluster"])
def test_help_says_whose_http_is_meant(capsys, command):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "where a broker serves HTTP, as its own --http says (TIDELOG_HTTP, else" in shown
