"""The first groups of a broker: they join while __consumer_offsets is being made, and nobody is warned."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

from tests.broker.members import join_once, sync_alone
from tests.broker.subject import eventually
from tests.oracle import wire

GROUPS = 12
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: a client tries again.
AGAIN = (14, 15, 16)


def join(bootstrap: str, group: str) -> tuple[int, int]:
    """Finds the coordinator and joins as clients do; the error of the join and of a first commit."""
    with wire.Connection(bootstrap) as connection:

        def joined():
            connection.ask("FindCoordinator", 0, key=group)
            answer = join_once(connection, group, version=2)
            return None if answer["error_code"] in AGAIN else answer

        answer = eventually(joined, what="the coordinator of a group")
        return answer["error_code"], sync_alone(connection, group, answer["member_id"], 1)


def test_they_join_and_nobody_is_warned(start):
    broker = start({"group.initial.rebalance.delay.ms": 0})
    names = [f"group-{number}" for number in range(GROUPS)]
    with ThreadPoolExecutor(GROUPS) as pool:
        found = list(pool.map(lambda name: join(broker.bootstrap, name), names))
    assert found == [(0, 0)] * GROUPS
    log = broker.log()
    assert "__consumer_offsets" in log, "it was there before"
    assert re.findall(r"^.*level=(?:warning|error).*$", log, re.MULTILINE) == []
