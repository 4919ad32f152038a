"""What happens to many partitions at once is one line of the log; at debug level each has its own, too."""

import asyncio
import logging

from tidelog.broker.logging import folded_log
from tidelog.broker.logging.folded_log import FoldedLog

LOG = logging.getLogger("tidelog.tests.folded")


def told(caplog):
    return [(each.levelname, each.message, vars(each)) for each in caplog.records]


async def test_a_line_for_all_that_have_the_same_fields(caplog, monkeypatch):
    monkeypatch.setattr(folded_log, "WITHIN_S", 0)
    caplog.set_level("INFO")
    folded = FoldedLog(LOG)
    for index in range(1_000):
        folded.add(logging.INFO, "followers started", f"t-{index}", {"epoch": index}, leader=2)
    folded.add(logging.INFO, "followers started", "u-0", {"epoch": 7}, leader=3)
    folded.add(logging.ERROR, "records not replicated", "u-1", reason="the disk is full")
    assert not caplog.records
    await asyncio.sleep(0.05)
    (_, _, first), (_, _, second), (level, what, third) = told(caplog)
    assert (first["partitions"], first["leader"]) == (1_000, 2)
    assert first["logs"] == "t-0 t-1 t-2 t-3 t-4 (995 more)"
    assert (second["partitions"], second["logs"], second["leader"]) == (1, "u-0", 3)
    assert (level, what, third["reason"]) == ("ERROR", "records not replicated", "the disk is full")
    assert "epoch" not in first


async def test_what_waits_is_told_at_the_end_and_each_partition_at_debug_level(caplog):
    caplog.set_level("DEBUG")
    folded = FoldedLog(LOG)
    folded.add(logging.INFO, "leaders started", "t-0", {"epoch": 3})
    folded.flush()
    own, together = [entry for entry in told(caplog) if entry[2]["name"] == LOG.name]
    assert (own[0], own[2]["log"], own[2]["epoch"]) == ("DEBUG", "t-0", 3)
    assert (together[0], together[2]["partitions"]) == ("INFO", 1)
    folded.flush()
    assert len(told(caplog)) >= 2
