"""The examples of docs/testing.md, run: every command gives the answer that stands below it."""

from __future__ import annotations

import json
import re
import shlex
import urllib.error
import urllib.request
from pathlib import Path

from kafka import KafkaProducer

from tidelog.broker.testing.control import ROUTES
from tidelog.process import BrokerProcess

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLE = re.compile(r"^    (curl .*)\n    (\{.*)$", re.MULTILINE)
NEW_YEAR_MS = 1_767_225_600_000


def run(command, address):
    """What curl would send, sent; method, path and answer."""
    words = shlex.split(command)[1:]
    method, body = None, None
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-d":
            body = words.pop(0).encode()
        elif word != "-s":
            path = word.removeprefix("localhost:9099")
    request = urllib.request.Request(f"http://{address}{path}", body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return request.get_method(), path, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return request.get_method(), path, json.loads(error.read())


def test_every_example_gives_the_answer_below_it(tmp_path):
    examples = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
    asked = set()
    settings = {"clock.start.ms": NEW_YEAR_MS}
    with BrokerProcess(tmp_path / "data", settings, clock="manual") as broker:
        for command, expected in examples:
            if '"8d"' in command:
                producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
                producer.send("orders", b"1", timestamp_ms=NEW_YEAR_MS).get(60)
                producer.close()
            method, path, answer = run(command, broker.control)
            told = json.loads(expected)
            if not told.get("frozen", True):
                assert 0 <= answer.pop("now_ms") - told.pop("now_ms") < 3_600_000
                del answer["now"], told["now"]
            assert answer == told, command
            path = re.sub(r"faults/\d+$", "faults/{id}", path)
            path = path.replace("orders/partitions/0", "{topic}/partitions/{partition}")
            asked.add((method, path))
    named = {(route.method, route.path) for route in ROUTES}
    assert asked <= named
    text = PAGE.read_text(encoding="utf-8")
    assert [f"{m} {p}" for m, p in named - asked if f"`{m} {p}`" not in text] == []
