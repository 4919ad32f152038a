"""Kafka Connect: lines of a file become records, and lines of another file.

Standalone, where a worker keeps its offsets in a file; `cluster/` has it distributed.
"""

from __future__ import annotations

import pytest

from tests.broker import asking
from tests.broker.subject import Subject, eventually
from tests.oracle import apache_kafka
from tests.tools.conftest import VERSIONS
from tests.tools.connect import STANDALONE, Lines, Program, properties, worker

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(1800)]

DEADLINE_S = 150


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {"auto.create.topics.enable": "false"}
    with Subject(tmp_path_factory.mktemp("connect") / "data", settings) as subject:
        yield subject
        assert subject.unexpected_errors == 0, subject.log()[-8000:]


@pytest.fixture(autouse=True)
def jars():
    apache_kafka.require(*(f"connect-{version}" for version in VERSIONS))


@pytest.fixture
def lines(tmp_path):
    return Lines(tmp_path)


@pytest.mark.parametrize("version", VERSIONS)
def test_goes_on_where_it_was(version, broker, lines, tmp_path):
    own = worker(
        broker.bootstrap,
        listeners="http://127.0.0.1:0",
        offset_storage_file_filename=tmp_path / "told",
    )
    files = [
        properties(tmp_path, "worker", own),
        properties(tmp_path, "source", {"name": lines.topic, **lines.source()}),
        properties(tmp_path, "sink", {"name": f"{lines.topic}-sink", **lines.sink()}),
    ]
    for _ in range(2):
        lines.give(50)
        program = Program(version, "standalone", STANDALONE, tmp_path, *files)
        try:
            eventually(lines.arrived, DEADLINE_S, f"all lines:\n{program.tail(60)}")
        finally:
            program.stop()
    assert lines.numbers == list(range(100))  # each once, in their order
    with broker.connect() as connection:
        settings = asking.own(connection, lines.topic)
    assert settings["message.timestamp.type"] == "LogAppendTime"
