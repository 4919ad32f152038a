"""One address is enough, from the command line or the environment, in any spelling that is usual."""

from __future__ import annotations

import socket

import pytest

from tests.broker import asking
from tidelog.cli import connecting
from tidelog.cli.parser import main
from tidelog.cli.shared import CommandError, Nowhere, ask
from tidelog.process import BrokerProcess

CLOSED = "127.0.0.1:1"
EVERY_COMMAND = [
    "topics list",
    "topics describe found",
    "configs show found",
    "configs set found retention.ms=1h --dry-run",
    "groups list",
    "transactions list",
    "produce found --file /dev/null",
    "consume found",
    "explain found",
    "offsets found",
    "times found 0 0",
    "doctor found",
    "clock status",
    "cluster status",
    "cluster rebalance --dry-run",
    "delete-records found --before 1970-01-02T00:00Z --dry-run",
]


@pytest.fixture(scope="module")
def broker(one):
    with one.connect() as connection:
        asking.create(connection, "found")
        asking.produce(connection, "found", asking.batch_of("a"))
    return one


@pytest.fixture
def run(broker, capsys, monkeypatch):
    """Runs a command that is told no address but those of the line, and of the environment."""
    for name in ("TIDELOG_BROKER", "TIDELOG_HTTP", "TIDELOG_COMMAND_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def run(line):
        capsys.readouterr()
        try:
            status = main(line.split())
        except SystemExit as left:
            status = left.code
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.mark.parametrize("line", EVERY_COMMAND)
def test_one_address_is_enough_for_every_command(run, broker, line):
    over_kafka = run(f"{line} --broker {broker.bootstrap}")
    over_http = run(f"{line} --http {broker.http}")
    assert (over_kafka[0], over_kafka[2]) == (0, "")
    assert (over_http[0], over_http[2]) == (0, "")


@pytest.mark.parametrize(
    "where",
    [
        "--bootstrap-server {kafka}",
        "-b {kafka}",
        "--broker PLAINTEXT://{kafka}",
        "--broker {closed},{kafka}",
        "--http http://{http}/",
        "--http {closed},{http}",
    ],
)
def test_addresses_are_taken_as_kafkas_tools_and_kcat_take_them(run, broker, where):
    where = where.format(kafka=broker.bootstrap, http=broker.http, closed=CLOSED)
    for line in ("topics list", "offsets found"):
        status, out, err = run(f"{line} {where}")
        assert (status, err) == (0, "")
        assert "found" in out or "largest" in out


@pytest.mark.parametrize(
    "line",
    [
        "consume -t found",
        "consume --from earliest --topic found",
        "topics describe --topic=found",
        "topics --http {http} describe -t found",
        "groups reset-offsets --to-latest nobody -t found",
        "groups reset-offsets --to-offset 0 --dry-run nobody -t found",
        "configs show retention.ms -t found",
        "times -t found 0 0",
        "groups reset-offsets nobody -t found --to-latest",
    ],
)
def test_a_topic_is_taken_as_kafkas_tools_and_kcat_take_it(run, broker, line):
    status, out, err = run(f"{line.format(http=broker.http)} -b {broker.bootstrap}")
    assert status == 0
    assert err in ("", "tidelog groups reset-offsets: warning: there is no group nobody yet\n")
    assert "found" in out or "retention.ms" in out or "record time" in out


def test_the_environment_has_addresses_too(run, broker, monkeypatch, tmp_path):
    monkeypatch.setenv("TIDELOG_BROKER", broker.bootstrap)
    assert run("offsets found")[0] == 0
    monkeypatch.setenv("TIDELOG_HTTP", CLOSED)
    assert run("topics list")[0] == 0
    assert CLOSED in run("offsets found")[2]
    # An address that is given is that of another broker, whose HTTP port the variable does not name.
    assert run(f"offsets found --broker {broker.bootstrap}")[0] == 0
    monkeypatch.setenv("TIDELOG_BROKER", "nowhere")
    assert run("topics list") == (
        2,
        "",
        "tidelog topics list: TIDELOG_BROKER nowhere: expected HOST:PORT\n",
    )
    monkeypatch.setenv("TIDELOG_BROKER", broker.bootstrap)
    monkeypatch.setenv("TIDELOG_COMMAND_CONFIG", str(tmp_path / "none"))
    assert f"{tmp_path}/none cannot be read" in run("topics list")[2]


@pytest.mark.parametrize(
    "where",
    ["--broker {silent},{kafka}", "--http {silent},{http}", "--http {silent},{closed},{http}"],
)
def test_of_several_addresses_one_that_is_silent_is_passed_over(run, broker, where):
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = "{}:{}".format(*server.getsockname())
        given = where.format(
            silent=silent, closed="127.0.0.1:1", kafka=broker.bootstrap, http=broker.http
        )
        for line in ("topics list", "offsets found"):
            assert run(f"{line} {given}")[::2] == (0, "")


def test_an_address_with_tls_is_told_how_tls_is_asked_for(run):
    status, _, err = run("topics list --broker SASL_SSL://localhost:9093")
    assert status == 2
    assert "security.protocol in --command-config FILE" in err


def test_a_broker_without_http_is_asked_what_kafka_can_answer(run, tmp_path):
    """As Apache Kafka is."""
    with BrokerProcess(tmp_path / "data", settings={"http.listener": ""}) as silent:
        where = f"--broker {silent.bootstrap}"
        assert run(f"topics create t {where}")[0] == 0
        assert run(f"consume t {where}") == (0, run(f"consume t {where}")[1], "")
        of_http = run(f"offsets t {where}")
        of_time = run(f"consume t --from @-2 {where}")
    none = "no broker there has an HTTP port (http.listener): tidelog serve --http HOST:PORT opens one\n"
    assert of_http == (1, "", f"tidelog offsets: {none}")
    assert of_time[0] == 1
    assert of_time[2].endswith(f"over Kafka's protocol, and {none}")


def test_an_http_port_for_its_own_machine_is_not_looked_for_on_this_one(monkeypatch):
    """Another broker may be there."""
    assert connecting._reached("0.0.0.0:8080", "broker-1", 9092) == "broker-1:8080"
    assert connecting._reached("[::]:8080", "::5", 9092) == "[::5]:8080"
    assert connecting._reached("broker-1:8080", "10.0.0.1", 9092) == "broker-1:8080"

    class Far:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def getsockname(self):
            return "10.0.0.2", 1234

        def getpeername(self):
            return "10.0.0.1", 9092

    def unreachable(*_):
        raise TimeoutError

    for reach in (lambda *_: Far(), unreachable):
        monkeypatch.setattr(connecting.socket, "create_connection", reach)
        with pytest.raises(CommandError, match="for its own machine alone"):
            connecting._reached("127.0.0.1:8080", "10.0.0.1", 9092)
    with pytest.raises(CommandError, match="because"):
        ask(Nowhere("because"), "cluster")
