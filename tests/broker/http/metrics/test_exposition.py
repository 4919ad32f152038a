"""The text of all metrics: byte for byte what the Prometheus library writes, at a fraction of the cost."""

from __future__ import annotations

import math
from types import SimpleNamespace

import prometheus_client
import pytest

from tests.broker.asking import create, produce
from tests.broker.inside import Inside
from tests.oracle import recordset
from tests.oracle.recordset import Rec
from tidelog.broker.http.metrics import exposition
from tidelog.broker.http.metrics.collector import FAMILIES, collected
from tidelog.broker.http.metrics.family import COUNTER, GAUGE, Buckets, Family, Scrape

NONE = prometheus_client.CollectorRegistry()
VALUES = [0, 1, -1, 999_999, 1_000_000, -1_000_000, 2**53 + 1, -(2**63), True, 0.0, 0.5, 1e-7]
VALUES += [1234567.125, 1e22, math.inf, -math.inf, math.nan]
NAMES = ["plain", 'quo"te', "back\\slash", "new\nline", "Grüße", ""]


class Library:
    """The same families, read as objects of the library."""

    def __init__(self, node, families):
        self._node, self._families = node, families

    def collect(self):
        scrape = Scrape(self._node)
        return [collected(family, scrape) for family in self._families]


def texts(node, families, monkeypatch):
    """The text, and that of the library."""
    monkeypatch.setattr(exposition, "FAMILIES", families)
    ours = exposition.metrics_text(node, NONE)
    return ours, prometheus_client.generate_latest(Library(node, families))


@pytest.fixture
def node():
    status = SimpleNamespace(status=lambda: None)
    return SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 0), clock_watch=status)


def test_every_value_and_label(node, monkeypatch):
    samples = [
        ((name, str(number)), value) for name in NAMES for number, value in enumerate(VALUES)
    ]
    families = [
        Family(f"a_{kind}", kind, 'What "it" is\\\n', ("topic", "partition"), lambda _: samples)
        for kind in (COUNTER, GAUGE)
    ]
    families.append(Family("b", GAUGE, "No labels", (), lambda _: [((), 7)]))
    families.append(Family("c", GAUGE, "Others", ("z", "a"), lambda _: samples))
    buckets = Buckets((0.1, 1.0), (1, 2, 3), 4.5)
    families.append(Family("d", "histogram", "Times", ("api",), lambda _: [(("x",), buckets)]))
    ours, library = texts(node, families, monkeypatch)
    assert ours == library


def test_a_broker_shows_what_the_library_would_write(tmp_path, monkeypatch):
    moving = ("seconds", "_ms", "lag", "connection", "free")  # with the clock, or with others
    with Inside(tmp_path) as broker, broker.connect() as connection:
        create(connection, "t", 3)
        produce(connection, "t", recordset.batch([Rec(1, b"v")]))
        still = [each for each in FAMILIES if not any(word in each.name for word in moving)]
        ours, library = texts(broker.node, still, monkeypatch)
        assert ours == library
        assert b'kafka_log_log_logendoffset{partition="0",topic="t"} 1.0\n' in ours
        status, page = broker.page("/metrics")
        assert (status, 'kafka_log_log_logendoffset{partition="0",topic="t"} 1.0\n' in page) == (
            200,
            True,
        )
        assert "process_cpu_seconds_total" in page
