"""What a newcomer gets wrong, as a table in mistakes.txt: the whole message, and the exit status."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.broker import asking

TABLE = Path(__file__).with_name("mistakes.txt")
ROWS = re.findall(r"^\$ tidelog (.*)\n(\d) (.*)\n", TABLE.read_text(encoding="utf-8"), re.MULTILINE)
CLOSED = "127.0.0.1:1"
NOBODY = 65_534
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROGRAM = """
import contextlib, importlib, io, json, os, pkgutil, sys
import tidelog.broker.server, tidelog.cli, tidelog.client.security.files
for each in pkgutil.walk_packages(tidelog.cli.__path__, "tidelog.cli."):
    importlib.import_module(each.name)  # another user may not read them
if os.geteuid() == 0:
    os.setuid(NOBODY)
found = []
for line in json.loads(sys.argv[1]):
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        try:
            status = tidelog.cli.main(line)
        except SystemExit as left:
            status = left.code
    found.append([status, err.getvalue()])
print(json.dumps(found))
""".replace("NOBODY", str(NOBODY))

NO_RIGHTS = [
    ("dump DENIED", 2, "dump: cannot read DENIED: Permission denied"),
    ("dump DENIED/x", 1, "dump: DENIED/x: Permission denied"),
    ("scrub --log-dirs DENIED", 2, "scrub: cannot read DENIED: Permission denied"),
    (
        "adopt inspect --log-dirs DENIED/x --out x",
        1,
        "adopt inspect: DENIED/x: Permission denied",
    ),
    (
        "configs list --directory DENIED",
        1,
        "configs list: DENIED/tidelog.sqlite: Permission denied",
    ),
    ("produce orders --file DENIED/x", 2, "produce: DENIED/x: Permission denied"),
    (
        "serve --config DENIED/x",
        2,
        "serve: cannot read the properties file DENIED/x: Permission denied",
    ),
    (
        "topics list --command-config DENIED/x",
        2,
        "topics list: --command-config DENIED/x cannot be read: Permission denied",
    ),
    (
        "serve --listeners PLAINTEXT://127.0.0.1:0 --log-dirs DENIED",
        1,
        '"broker stopped on error" reason="log directory DENIED/.lock cannot be used: Permission denied"',
    ),
]


@pytest.fixture(scope="module")
def tls():
    """The address of a listener for TLS: it answers what is plain with an alert."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(bytes.fromhex("15030300020246"))

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def names(one, tls, tmp_path_factory):
    """What stands in the table for the broker, and for files."""
    directory = tmp_path_factory.mktemp("mistakes")
    (directory / "ssl.properties").write_text("security.protocol=SSL\n")
    (directory / "sasl.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={LOGIN} username="a" password="b";\n'
    )
    (directory / "misspelt.properties").write_text("security.protokol=SSL\n")
    (directory / "file").write_text("x")
    with one.connect() as connection:
        asking.create(connection, "orders")
    return {
        "kafka": one.bootstrap,
        "http": one.http,
        "closed": CLOSED,
        "tls": tls,
        "tmp": str(directory),
        "logs": str(one.log_dir),
    }


@pytest.fixture
def run(one, run, monkeypatch):
    """Runs a command as a newcomer does, whose broker is named by the environment."""
    monkeypatch.setenv("TIDELOG_BROKER", one.bootstrap)
    monkeypatch.setenv("TIDELOG_HTTP", one.http)
    root = logging.getLogger()
    handlers, level, raises = root.handlers[:], root.level, logging.raiseExceptions
    yield lambda line: run(*line.split(), is_told=False)
    root.handlers[:] = handlers  # `serve` sets up the log of its process
    root.setLevel(level)
    logging.raiseExceptions = raises


def test_there_are_sixty_of_them():
    assert len({line for line, _, _ in ROWS}) == len(ROWS) > 60
    assert TABLE.read_text(encoding="utf-8").count("$ tidelog") == len(ROWS)


@pytest.mark.parametrize(("line", "status", "said"), ROWS, ids=[row[0] for row in ROWS])
def test_a_typical_mistake(run, names, line, status, said):
    got, _, err = run(line.format(**names))
    for name, value in names.items():
        said = said.replace(f"{{{name}}}", value)
    name = "tidelog: " if said.startswith("there is no command") else "tidelog "
    assert (got, err) == (int(status), f"{name}{said}\n")


def test_a_host_without_an_address(run):
    """Why there is none depends on the machine."""
    status, _, err = run("topics list --broker no.such.host.invalid:9092")
    assert status == 1
    assert err.startswith("tidelog topics list: no broker answers at no.such.host.invalid:9092 (")
    assert err.endswith("): is one running there? --broker HOST:PORT names another\n")


def test_no_rights_on_a_directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("rights")
    directory.chmod(0o755)
    for parent in directory.parents[:3]:
        if "pytest-" in str(parent):  # pytest's own
            parent.chmod(0o755)
    denied = directory / "denied"
    denied.mkdir(mode=0o700 if os.geteuid() == 0 else 0)
    rows = [
        (line.replace("DENIED", str(denied)), status, said.replace("DENIED", str(denied)))
        for line, status, said in NO_RIGHTS
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([line.split() for line, _, _ in rows])],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for (line, status, said), (got, err) in zip(rows, json.loads(done.stdout), strict=True):
        assert got == status, (line, err)
        assert said in err or said in done.stderr, (line, err)
