"""`tidelog doctor`: its table is on docs/commandline.md, and its exit status says what was found.

TIDELOG_REWRITE=1 writes what came out into the page: then review.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import socket
from pathlib import Path

import pytest

from tests.broker.illnesses import ILLNESSES, examined, findings_of, inject
from tidelog.cli.parser import main, parser_of

PAGE = Path(__file__).parents[4] / "docs" / "commandline.md"
SHOWN = re.compile(r"(<!-- doctor: [^\n]*-->\n```text\n)(.*?)(```\n<!-- /doctor -->)", re.DOTALL)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker with every illness at once."""
    log_dir = tmp_path_factory.mktemp("ill") / "data"
    inject(log_dir)
    with examined(log_dir) as subject:
        yield subject


@pytest.fixture
def run(run):
    return functools.partial(run, "doctor")


def test_the_page_shows_every_illness_at_once(run):
    status, out, err = run()
    assert (status, err) == (1, "")
    text = "".join(f"{line.rstrip()}\n" for line in out.splitlines())
    shown = f"$ tidelog doctor\n{text}"
    page = PAGE.read_text(encoding="utf-8")
    if os.environ.get("TIDELOG_REWRITE") == "1":
        page = SHOWN.sub(lambda match: f"{match[1]}{shown}{match[3]}", page)
        PAGE.write_text(page, encoding="utf-8")
    assert SHOWN.search(page)[2] == shown
    for name, finding in findings_of(ILLNESSES):
        assert re.search(rf"^{name}-0 +{finding} ", text, re.MULTILINE)
        assert f"| {finding} |" in page, "the page says when"


def test_json_is_the_answer_of_the_broker(run):
    status, out, _ = run("seconds", "--json")
    assert status == 1
    answer = json.loads(out)
    assert [(each["topic"], each["finding"]) for each in answer["findings"]] == findings_of(
        ["seconds"]
    )


def test_a_healthy_topic_has_exit_status_0(run):
    status, out, err = run("healthy")
    assert (status, err) == (0, "")
    assert out == "1 partition of healthy examined at 2026-01-01T00:00:00Z: nothing found.\n"
    status, out, _ = run("healthy", "--partition", "0", "--json")
    assert (status, json.loads(out)["findings"]) == (0, [])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nobody"], "there is no topic nobody"),
        (["healthy", "--partition", "7"], "there is no partition healthy-7"),
        (["healthy", "--partition", "x"], "--partition x: expected a number"),
        (["--partition", "0"], "--partition needs a TOPIC"),
        (["--brokr", "localhost:9092"], "unrecognized arguments"),
    ],
)
def test_what_cannot_be_answered_has_exit_status_2(run, arguments, sentence):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("tidelog doctor: ")
    assert sentence in err


def test_a_broker_that_cannot_be_reached_has_exit_status_2(capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert main(["doctor", "--http", f"127.0.0.1:{port}"]) == 2
    assert "nothing answers" in capsys.readouterr().err


@pytest.mark.slow
def test_a_log_that_cannot_be_read_is_said_and_has_exit_status_2(tmp_path, run):
    inject(tmp_path / "data", [])
    log = tmp_path / "data" / "healthy-0"
    with examined(tmp_path / "data") as ill:
        (log / "partition.times").unlink()
        (log / "partition.times").mkdir()  # it can be neither read nor replaced
        status, out, err = run(at=ill)
        assert (status, err) == (2, "")
        assert out.startswith("healthy-0 could not be examined: ")
        assert out.endswith("0 partitions examined at 2026-01-01T00:00:00Z: nothing found.\n")


def test_every_command_that_helps_is_one(run):
    """The parser accepts each of them."""
    _, out, _ = run("--json")
    commands = {each["command"] for each in json.loads(out)["findings"]}
    assert len(commands) >= 5
    for command in commands:
        program, name, *arguments = shlex.split(command)
        assert program == "tidelog"
        assert parser_of(name).parse_args([name, *arguments]).command == name
