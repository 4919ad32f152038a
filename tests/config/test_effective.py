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
# What decides about the listeners before anybody else sees them; and what has one possible value.
READ_IN_CONFIG = {"listener_security_protocol_map", "controller_listener_names", "clock"}


@pytest.fixture(scope="module")
def readers():
    sources = [path for package in ("storage", "broker") for path in (ROOT / package).rglob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in sources)


@pytest.mark.parametrize(
    ("attribute", "setting"),
    [*TOPIC_SETTINGS.items(), *BROKER_SETTINGS.items()],
    ids=lambda x: str(x)[:40],
)
def test_effective_means_that_somebody_reads_it(readers, attribute, setting):
    part, _, name = READ_AS.get(attribute, attribute).rpartition(".")
    found = re.search(rf"(?:\bconfig|settings\.broker)\.(?:{part}\.)?{name}\b", readers)
    is_read = found is not None
    assert setting.effective == (is_read or attribute in READ_IN_CONFIG)
