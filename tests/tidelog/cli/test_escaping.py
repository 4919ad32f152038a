r"""What commands print of what others have chosen: no control character reaches the terminal.

ESC, the one-byte CSI, a line break and a change of the writing direction are in group ids, client ids,
instance ids, header names, keys and values, and in what a hostile HTTP port answers.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.broker import asking
from tests.broker.members import RawMember, commit
from tests.oracle import recordset
from tests.oracle.recordset import Rec
from tidelog.cli.escaping import as_json, escaped, escaped_lines
from tidelog.cli.parser import main

WILD = "\x1b[31mred\x9b2J\x07\nforged\u202e"
SHOWN = r"\x1b[31mred\x9b2J\x07\nforged\u202e"


def test_only_what_is_not_printable_is_escaped():
    assert escaped(WILD) == SHOWN
    assert escaped("plain, Größe, 東京, \\x1b") == "plain, Größe, 東京, \\x1b"
    assert escaped_lines("one\ntwo\x1b") == "one\ntwo\\x1b"
    told = as_json({"name": WILD, "town": "東京", "lone": "\ud800"})
    assert told.isprintable()
    assert "東京" in told
    assert json.loads(told) == {"name": WILD, "town": "東京", "lone": "\ud800"}


@pytest.fixture
def run(run):
    """Run a command; its status and all it wrote, which has to be lines of printable text."""

    def run_printable(*arguments, **where):
        status, out, err = run(*arguments, **where)
        written = out + err
        assert [line for line in written.split("\n") if not line.isprintable()] == []
        assert "\nforged" not in written
        return status, written

    return run_printable


def test_groups_and_their_members(broker, run):
    with broker.connect() as connection:
        topic = asking.new_name()
        asking.create(connection, topic)
        assert run("groups", "describe", WILD) == (
            1,
            f"tidelog groups describe: there is no group {SHOWN}\n",
        )
        member = RawMember(broker, WILD, instance=WILD)
        member.connection.client_id = WILD
        member.join_now()
        member.sync({member.member_id: b""})
        commit(connection, "plain", topic, 0, note=WILD)
        for arguments in (("list",), ("describe",), ("describe", WILD)):
            status, told = run("groups", *arguments)
            assert (status, SHOWN in told) == (0, True)
        described = run("groups", "describe", WILD, "--json")[1]
        ((found,),) = (each["members"] for each in json.loads(described))
        assert (found["client_id"], found["instance_id"]) == (WILD, WILD)
        for refused in (
            ("delete", WILD, "--yes"),
            ("delete", WILD),
            ("delete-offsets", WILD, topic, "--yes"),
            ("reset-offsets", WILD, topic, "--to-latest", "--yes"),
        ):
            status, told = run("groups", *refused)
            assert (status != 0, SHOWN in told) == (True, True), refused
        member.leave()
        member.connection.close()
        commit(connection, WILD, topic, 0)
        assert run("groups", "reset-offsets", WILD, topic, "--to-latest")[0] == 0
        assert SHOWN in run("groups", "delete-offsets", WILD, topic, "--yes")[1]


def test_records(broker, run):
    with broker.connect() as connection:
        topic = asking.new_name()
        asking.create(connection, topic)
        raw = WILD.encode()
        record = Rec(1_000, raw, raw, ((WILD, raw),))
        assert asking.produce(connection, topic, recordset.batch([record]))["error_code"] == 0
    status, told = run("consume", topic)
    assert (status, told.count(SHOWN)) == (0, 4)
    (line,) = run("consume", topic, "--json")[1].splitlines()
    found = json.loads(line)
    assert (found["key"], found["value"], found["headers"]) == (WILD, WILD, [[WILD, WILD]])
    (log,) = (broker.log_dir / f"{topic}-0").glob("*.log")
    for options in ((), ("--json",)):
        assert "red" in run_dump(log, *options)


def run_dump(log, *options):
    """What `tidelog dump --records` writes."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["dump", str(log), "--records", *options]) == 0
    assert [line for line in out.getvalue().split("\n") if not line.isprintable()] == []
    return out.getvalue()


class Hostile(BaseHTTPRequestHandler):
    """An HTTP port that answers everything with an error, or a doctor's finding, of its own making."""

    def do_GET(self):
        answer = {"error": WILD, "message": f"{WILD} happened"}
        if self.path.startswith("/v1/doctor"):
            finding = {"topic": WILD, "partition": 0, "finding": WILD, "figure": 1, "unit": WILD}
            answer = {
                "topic": None,
                "now_ms": 0,
                "now": WILD,
                "partitions_examined": 1,
                "segments_unread": 0,
                "errors": [],
                "findings": [finding | {"sentence": WILD, "command": WILD}],
            }
        body = json.dumps(answer).encode()
        self.send_response(200 if "findings" in answer else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_what_another_http_port_answers(run):
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            http = f"127.0.0.1:{server.server_port}"
            assert SHOWN in run("doctor", http=http)[1]
            assert SHOWN in run("cluster", "status", http=http)[1]
        finally:
            server.shutdown()
            thread.join()


def test_commands_write_through_the_functions_that_escape():
    """Whoever writes to a stream by hand escapes by hand, or writes nothing of others."""
    root = Path(__file__).parents[3] / "tidelog" / "cli"
    wrote = {
        f"{path.relative_to(root)}: {line.strip()}"
        for path in root.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\b(stdout|stderr)\.(write|buffer)\b|\bprint\(", line)
        and "escaped" not in line
    }
    allowed = {
        "output.py",
        "shared.py",
        "parser.py",
        "brokers/serve.py",
        "consume.py",
        "groups/reset_offsets.py",
        "help/completion.py",
    }
    assert {each.partition(":")[0] for each in wrote} <= allowed, wrote
