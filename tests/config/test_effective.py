"""The declarations tell the truth about what acts on a setting and what does not yet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidelog.config import BROKER_SETTINGS, TOPIC_SETTINGS

ROOT = Path(__file__).parents[2]

# Settings that are read under a derived name, or by config/ itself.
READ_AS = {
    "message_timestamp_before_max_ms": "timestamp_window",
    "message_timestamp_after_max_ms": "timestamp_window",
    "message_timestamp_difference_max_ms": "timestamp_window",
    "message_format_version": "target_magic",
    "compression_type": "compression",
    "cluster.inter_broker_protocol_version": "newest_magic",
    "http.http_listener": "http.address",
    "control_listener": "control",
}
# These may be set for one listener alone, and are read by their names from all that was given.
READ_BY_NAME = "tls."
# What decides about the listeners before anybody else sees them; and what has one possible value.
READ_IN_CONFIG = {"listener_security_protocol_map", "controller_listener_names", "clock"}


@pytest.fixture(scope="module")
def readers():
    """What storage and broker read of a configuration: `config.x` as "x", `config.x.y` as "x" and "x.y"."""
    sources = [path for package in ("storage", "broker") for path in (ROOT / package).rglob("*.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    paths = re.findall(r"(?:\bconfig|settings\.broker)\.(\w+)(\.\w+)?", code)
    return {part for one, two in paths for part in (one, one + two)}


@pytest.mark.parametrize(
    ("attribute", "setting"),
    [*TOPIC_SETTINGS.items(), *BROKER_SETTINGS.items()],
    ids=lambda x: str(x)[:40],
)
def test_effective_means_that_somebody_reads_it(readers, attribute, setting):
    path = READ_AS.get(attribute, attribute)
    is_read = not readers.isdisjoint((path, path.rpartition(".")[2]))
    assert setting.effective == (
        is_read or attribute in READ_IN_CONFIG or attribute.startswith(READ_BY_NAME)
    )
