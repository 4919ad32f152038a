"""What the commands say to mistakes: one sentence in the words of the command line, and the right status."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.broker import asking
from tests.broker.conftest import healthy

FAILED, USAGE = 1, 2


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with healthy(tmp_path_factory.mktemp("broker")) as subject:
        with subject.connect() as connection:
            asking.create(connection, "orders")
        yield subject


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("offsets orders --partition x", USAGE, "--partition x: expected a number from 0 on"),
        ("explain orders --partition -1", USAGE, "--partition -1: expected a number from 0 on"),
        ("offsets orders --partition 9", FAILED, "there is no partition orders-9: it has 1"),
        ("times orders x 0", USAGE, "PARTITION x: expected a number from 0 on"),
        ("offsets orders --at noon", USAGE, "--at: 'noon' is no time"),
        ("offsets orders --appended-at noon", USAGE, "--appended-at: 'noon' is no time"),
        ("delete-records orders --before noon --yes", USAGE, "--before: 'noon' is no time"),
        ("delete-records orders --before noon --appended --yes", USAGE, "--before: 'noon' is no"),
        ("delete-records orders --before now --partition x", USAGE, "--partition x: expected"),
        ("explain orders --set x", USAGE, "--set x: expected KEY=VALUE"),
        ("explain orders --set =1", USAGE, "--set =1: expected KEY=VALUE"),
        ("explain orders --set x=1", USAGE, "there is no setting x"),
        ("consume bad/name", USAGE, "'bad/name' is no topic's name: one has up to 249 ASCII"),
        ("topics describe bad/name", USAGE, "'bad/name' is no topic's name"),
        ("topics create t --partitions 99999999999", USAGE, "a number from 1 to 2147483647"),
        ("configs unset orders retention.mss", USAGE, "there is no setting retention.mss"),
        ("topics alter orders --unset retention.mss", USAGE, "there is no setting retention.mss"),
        ("configs unset --of-broker nothing", USAGE, "there is no setting nothing"),
        ("topics describe \udcff", USAGE, "\\udcff is not UTF-8"),
        ("configs set orders a=\udcff", USAGE, "a=\\udcff is not UTF-8"),
        ("offsets \udcff", USAGE, "\\udcff is not UTF-8"),
        ("topics list more", USAGE, "tidelog topics list: unrecognized arguments: more"),
        ("topics list more", USAGE, "(see tidelog topics list --help)"),
        ("offsets orders --frob", USAGE, "tidelog offsets: unrecognized arguments: --frob (see"),
        ("groups delete-offsets g orders --\udcff", USAGE, "unrecognized arguments: --\\udcff"),
    ],
)
def test_a_mistake_is_told_in_the_words_of_the_command_line(run, line, status, said):
    command, *rest = line.split(" ")
    got, out, err = run(command, *rest)
    assert (got, out) == (status, "")
    assert said in err
    assert err.startswith(f"tidelog {command}")
    assert err.count("\n") == 1


def test_settings_that_there_are_can_be_taken_back(run):
    for change in (
        ["set", "orders", "retention.ms=7d"],
        ["unset", "orders", "retention.ms"],
        ["set", "--of-broker", "log.retention.ms=8d"],
        ["unset", "--of-broker", "log.retention.ms"],
    ):
        status, out, _ = run("configs", *change, "--yes")
        assert status == 0
    assert "removed" in out


def test_a_name_is_utf_8_whatever_the_locale_is(broker):
    """Where Python takes no UTF-8 from its locale, what is not ASCII comes as bytes."""
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for name, said in ((b"\xc3\xbc", "is no topic's name"), (b"\xff", "is not UTF-8")):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tidelog", "topics", "describe", name),
                *("--broker", broker.bootstrap, "--http", broker.http),
            ],
            env=plain,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == USAGE
        assert said in done.stderr.decode()


@pytest.mark.parametrize("line", ["topics list", "consume orders", "produce orders"])
def test_what_listens_and_speaks_no_kafka_is_said_to(broker, line):
    """The HTTP port, given by mistake."""
    done = in_shell(broker, f"{line} --broker {broker.http} --http {broker.http}", "")
    assert done.returncode == FAILED
    assert f"what answers at {broker.http} is no Kafka broker" in done.stderr


def in_shell(broker, line, redirection):
    """A command with its streams as a shell leaves them."""
    command, _, rest = line.partition(" ")
    asked = [] if command == "dump" or "--broker" in line else ["--http", broker.http]
    asked += (
        []
        if command in ("dump", "offsets") or "--broker" in line
        else ["--broker", broker.bootstrap]
    )
    return subprocess.run(
        [
            *("sh", "-c", f'exec "$@" {redirection}', "sh"),
            *(sys.executable, "-m", "tidelog", command, *rest.split(), *asked),
        ],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "redirection", "status", "said"),
    [
        (
            "topics list",
            ">/dev/full",
            FAILED,
            "the answer cannot be written: No space left on device",
        ),
        ("topics list --json", ">/dev/full", FAILED, "cannot be written: No space left"),
        ("consume orders", ">/dev/full", FAILED, "cannot be written: No space left"),
        ("offsets orders", ">/dev/full", FAILED, "cannot be written: No space left"),
        ("dump DIRECTORY", ">/dev/full", FAILED, "cannot be written: No space left"),
        ("topics list", ">&-", FAILED, "standard output is closed"),
        ("dump DIRECTORY", ">&-", FAILED, "standard output is closed"),
        ("produce orders", "<&-", USAGE, "standard input is closed"),
    ],
)
def test_streams_that_are_full_or_closed_are_said_in_a_sentence(
    broker, line, redirection, status, said
):
    line = line.replace("DIRECTORY", str(broker.log_dir))
    done = in_shell(broker, line, redirection)
    assert done.returncode == status
    assert said in done.stderr
    assert done.stderr.startswith(f"tidelog {line.partition(' ')[0]}")
    assert done.stderr.count("\n") == 1
