"""The examples of docs/http.md, run: every request gives the answer that stands below it.

TIDELOG_REWRITE=1 writes what came out into the page: then review.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from tidelog.process import BrokerProcess

PAGE = Path(__file__).parents[2] / "docs" / "http.md"
EXAMPLE = re.compile(r"^    curl -s '(localhost:8080/\S*)'\n    (\{.*)$", re.MULTILINE)
NEW_YEAR_MS, HOUR_MS = 1_767_225_600_000, 3_600_000
TOPIC_ID = "0b7e5a4c-6d1f-4f3e-9a53-2f6f1f0c9d11"  # on the page; in truth another one every time


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """The broker of the page: three records, an hour apart."""
    directory = tmp_path_factory.mktemp("page") / "data"
    settings = {"clock.start.ms": NEW_YEAR_MS}
    with BrokerProcess(directory, settings, clock="manual") as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        topic = {"num_partitions": 1, "replication_factor": 1, "configs": {"retention.ms": "-1"}}
        admin.create_topics({"orders": topic})
        admin.close()
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=False)
        for time in (-14_182_980_000, NEW_YEAR_MS + HOUR_MS, -2):
            producer.send("orders", b"v", timestamp_ms=time).get(60)
            broker.clock.step("1h")
        producer.close()
        yield broker


def answer_of(broker, url):
    """What curl would print."""
    try:
        with urllib.request.urlopen(
            f"http://{broker.http}{url.removeprefix('localhost:8080')}", timeout=240
        ) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode()
    return re.sub(r'"topic_id": "[^"]*"', f'"topic_id": "{TOPIC_ID}"', text.strip())


def test_every_example_gives_the_answer_below_it(broker):
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("TIDELOG_REWRITE") == "1":
        text = EXAMPLE.sub(lambda m: f"    curl -s '{m[1]}'\n    {answer_of(broker, m[1])}", text)
        PAGE.write_text(text, encoding="utf-8")
    examples = EXAMPLE.findall(text)
    assert len(examples) == 11
    for url, expected in examples:
        assert json.loads(answer_of(broker, url)) == json.loads(expected), url
