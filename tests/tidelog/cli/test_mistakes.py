"""What the commands say to mistakes: one sentence in the words of the command line, and the right status."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.broker import asking
from tests.broker.conftest import healthy

FAILED, USAGE = 1, 2


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker with a topic of two partitions, and four records in the first."""
    with healthy(tmp_path_factory.mktemp("broker")) as subject:
        with subject.connect() as connection:
            asking.create(connection, "orders", partitions=2)
            asking.produce(connection, "orders", asking.batch_of(*"abcd"))
        yield subject


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("offsets orders --partition x", USAGE, "--partition x: expected a number from 0 on"),
        ("explain orders --partition -1", USAGE, "--partition -1: expected a number from 0 on"),
        (
            "offsets orders --partition 9",
            FAILED,
            "orders-9: the topic has 2 partitions",
        ),
        ("offsets orders --at noon", USAGE, "--at: 'noon' is not a time"),
        ("offsets orders --appended-at noon", USAGE, "--appended-at: 'noon' is not a time"),
        ("offsets orders --at -1", USAGE, 'which means "no time"'),
        ("offsets orders --at 1969-12-31T23:59:59.999Z", USAGE, "shift=true"),
        ("offsets orders --at 1 --appended-at 1", USAGE, "not allowed with"),
        ("offsets orders --frob", USAGE, "tidelog offsets: unrecognized arguments: --frob (see"),
        ("offsets nobody", FAILED, "there is no topic nobody"),
        ("offsets ordres", FAILED, "there is no topic ordres; did you mean orders?"),
        ("explain order", FAILED, "did you mean orders?"),
        ("times ordesr 0 0", FAILED, "did you mean orders?"),
        ("doctor ordesr", USAGE, "did you mean orders?"),
        ("offsets", USAGE, "TOPIC"),
        ("offsets \udcff", USAGE, "\\udcff is not UTF-8"),
        ("times orders x 0", USAGE, "PARTITION x: expected a number from 0 on"),
        ("times orders 0 99", FAILED, "there is no offset 99: the log holds 0 to 3"),
        ("times orders 0 -1", USAGE, "is not an offset"),
        ("explain orders --set x", USAGE, "--set x: expected KEY=VALUE"),
        ("explain orders --set =1", USAGE, "--set =1: expected KEY=VALUE"),
        ("explain orders --set x=1", USAGE, "there is no setting x"),
        ("explain orders --set retenion.ms=1", USAGE, "did you mean retention.ms"),
        ("delete-records orders", USAGE, "--before"),
        ("delete-records orders --before noon --yes", USAGE, "--before: 'noon' is not a time"),
        ("delete-records orders --before noon --appended --yes", USAGE, "--before: 'noon' is no"),
        ("delete-records orders --before -1 --yes", USAGE, 'which means "no time"'),
        ("delete-records orders --before now --partition x", USAGE, "--partition x: expected"),
        ("topics describe bad/name", USAGE, "'bad/name' is not a topic's name"),
        ("topics describe \udcff", USAGE, "\\udcff is not UTF-8"),
        ("topics list more", USAGE, "tidelog topics list: unrecognized arguments: more"),
        ("topics list more", USAGE, "(see tidelog topics list --help)"),
        ("topics create orders", FAILED, "exists"),
        ("topics create t --partitions 99999999999", USAGE, "a number from 1 to 2147483647"),
        ("topics create t --partitions 0", USAGE, "a number from 1 to 2147483647"),
        ("topics create t --replication-factor 0", USAGE, "from 1 to 32767"),
        ("topics create t --replication-factor 2", FAILED, "replication factor"),
        ("topics create t --set retenion.ms=1", USAGE, "did you mean retention.ms"),
        ("topics create t --set retention.ms", USAGE, "expected KEY=VALUE"),
        ("topics create ../t", USAGE, "../t"),
        ("topics alter orders", USAGE, "nothing to alter"),
        ("topics alter orders --partitions 1", USAGE, "fewer"),
        ("topics alter orders --unset retention.mss", USAGE, "there is no setting retention.mss"),
        ("topics delete", USAGE, "TOPIC"),
        ("topics delete nobody --yes", FAILED, "there is no topic nobody"),
        ("topics nonsense", USAGE, "nonsense"),
        ("configs show", USAGE, "TOPIC is missing"),
        ("topics describe oders", FAILED, "there is no topic oders; did you mean orders?"),
        ("topics alter oders --partitions 9", FAILED, "did you mean orders?"),
        ("topics delete oders --yes", FAILED, "did you mean orders?"),
        ("configs show nobody", FAILED, "there is no topic nobody"),
        ("configs show oders", FAILED, "there is no topic oders; did you mean orders?"),
        ("configs set oders segment.ms=1d", FAILED, "did you mean orders?"),
        ("configs unset oders segment.ms", FAILED, "did you mean orders?"),
        ("groups reset-offsets g oders --to-latest", FAILED, "did you mean orders?"),
        ("configs show orders retention.mz", USAGE, "retention.mz; did you mean retention.ms?"),
        ("configs set orders", USAGE, "no setting is named"),
        ("configs set orders a=\udcff", USAGE, "a=\\udcff is not UTF-8"),
        ("configs set orders retention.ms=soon", USAGE, "expected an integer"),
        ("configs set orders segment.ms=1 segment.ms=2", USAGE, "given twice"),
        ("configs set --of-broker node.id=2", USAGE, "can only be set when"),
        ("configs unset orders segment.ms=1", USAGE, "names alone"),
        ("configs unset orders retention.mss", USAGE, "retention.mss; did you mean retention.ms?"),
        ("configs unset --of-broker nothing", USAGE, "there is no setting nothing"),
        ("groups delete-offsets g orders --\udcff", USAGE, "unrecognized arguments: --\\udcff"),
        ("produce", USAGE, "TOPIC"),
        (
            "produce not/a/topic",
            USAGE,
            "'not/a/topic' is not a topic's name: one has up to 249 ASCII",
        ),
        ("produce orders --time tomorrow", USAGE, "is not a time"),
        ("produce orders --time 2026-01-01", USAGE, "zone"),
        ("produce orders --partition 9", USAGE, "there is no partition"),
        ("produce orders --partition x", USAGE, "expected a number"),
        ("produce orders --header x", USAGE, "NAME=VALUE"),
        ("produce orders --file /nowhere", USAGE, "/nowhere: No such file"),
        ("produce orders --json --key-separator :", USAGE, "plain lines"),
        ("consume bad/name", USAGE, "'bad/name' is not a topic's name: one has up to 249 ASCII"),
        ("consume nobody", FAILED, "there is no topic nobody"),
        ("consume oders", FAILED, "did you mean orders?"),
        ("consume orders --partition 9", FAILED, "there is no partition"),
        ("consume orders --partition x", USAGE, "expected a number"),
        ("consume orders --max x", USAGE, "expected a number"),
        ("consume orders --from -5", USAGE, "are written @-5"),
        ("consume orders --from @-1", USAGE, "no time"),
        ("consume orders --from soon", USAGE, "is not a time"),
        ("consume orders --within", USAGE, "--within needs a time"),
        ("consume orders --follow --to 3", USAGE, "has no end"),
        ("consume orders --format %x", USAGE, "there is no %x: write %s, "),
    ],
)
def test_a_mistake_is_told_in_the_words_of_the_command_line(run, line, status, said):
    command, *rest = line.split(" ")
    got, out, err = run(command, *rest)
    assert (got, out) == (status, "")
    assert said in err
    assert err.startswith(f"tidelog {command}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "status", "error", "message"),
    [
        ("consume orders --format %s --json", USAGE, "USAGE", "--json and --format: one of them"),
        ("offsets nobody --json", FAILED, "UNKNOWN_TOPIC_OR_PARTITION", "there is no topic nobody"),
        ("topics create orders --json", FAILED, "TOPIC_ALREADY_EXISTS", "exists"),
        ("offsets orders --frob --json", USAGE, "USAGE", "unrecognized arguments: --frob"),
        ("topics crate x --json", USAGE, "USAGE", "'crate'"),
    ],
)
def test_with_json_a_mistake_is_one_object_on_standard_error(run, line, status, error, message):
    got, out, err = run(*line.split())
    assert (got, out, err.count("\n")) == (status, "", 1)
    told = json.loads(err)
    assert told.keys() == {"error", "message"}
    assert told["error"] == error
    assert message in told["message"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"x", "line 1: it is not JSON: Expecting value, at column 1 ("),
        (b"[]", "line 1: it is not a record: expected"),
        (b'{"valeu": "x"}', "'valeu' is not a field of a record"),
        (b'{"value": 1}', "expected a text, null or"),
        (b'{"value": {"base64": "?"}}', "does not represent bytes"),
        (b'{"value": "\\ud800"}', "does not represent bytes"),
        (b'{"timestamp": 1.5}', "expected a time"),
        (b'{"headers": ["a"]}', "pairs of name and value"),
        (b'{"partition": -1}', "from 0 on"),
    ],
)
def test_a_record_that_is_none_is_told(run, line, said):
    got, _, err = run("produce", "orders", "--json", stdin=line)
    assert (got, err.count("\n")) == (USAGE, 1)
    assert said in err


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
    for name, said in ((b"\xc3\xbc", "is not a topic's name"), (b"\xff", "is not UTF-8")):
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
    assert f"{broker.http} is an HTTP port: give it as --http {broker.http}" in done.stderr


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
    if "--json" not in line:
        assert done.stderr.startswith(f"tidelog {line.partition(' ')[0]}")
    assert done.stderr.count("\n") == 1
