"""Apache Kafka's own DumpLogSegments reads the logs of transactions, their indexes and their snapshots.

The directories of one history with Kafka 3.9.1 and with tidelog are dumped, and `__transaction_state` of
both: line by line they say the same of every marker, aborted transaction, producer and state.
"""

from __future__ import annotations

import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.oracle import apache_kafka as launcher
from tests.oracle import wire
from tests.oracle.transactions.histories import History

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

SEED = 54
WITHIN_S = 300
KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
ABORTED = re.compile(r"version: 0 producerId: (\d+) (firstOffset: .*)")
PRODUCER = re.compile(r"producerId: (\d+) (producerEpoch: \d+) .*(currentTxnFirstOffset: \S+) ")
MARKER = re.compile(r"\| offset: (\d+) .*endTxnMarker: (\w+)")
STATE = re.compile(
    r"transactionalId=(\S+) payload: .*(producerEpoch:\d+),state=(\w+),(partitions=\[.*?\])"
)


def dumped(*arguments):
    """What DumpLogSegments prints; it may complain of nothing."""
    command = [
        launcher.find_java(),
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{launcher.jar_directory('3.9.1')}/*",
        "kafka.tools.DumpLogSegments",
        "--deep-iteration",
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search("mismatch|corrupt|exception|found non", done.stdout, re.IGNORECASE), (
        done.stdout
    )
    assert "isvalid: false" not in done.stdout
    return done.stdout


def of_partition(directory):
    files = [path for path in sorted(directory.iterdir()) if path.suffix in KINDS]
    return dumped("--files", ",".join(map(str, files)))


def of_states(log_dir):
    log = log_dir / "__transaction_state-0" / f"{0:020d}.log"
    return dumped("--transaction-log-decoder", "--files", str(log))


@pytest.fixture(scope="module")
def told(kafka_3, ours):
    """The history of each, what its directory says and what its coordinator's log says."""
    now_ms, found = time.time_ns() // 1_000_000, []
    for broker in (kafka_3, ours):
        with wire.Connection(broker.bootstrap) as connection:
            history = History(connection, SEED, 0, now_ms, {"segment.bytes": "4000"})
            history.play()
            found.append((history, broker.log_dir))
    with ThreadPoolExecutor(2) as pool:
        data = list(pool.map(lambda one: of_partition(one[1] / f"{one[0].topic}-0"), found))
        states = list(pool.map(lambda one: of_states(one[1]), found))
    return [(history, *both) for (history, _), *both in zip(found, data, states, strict=True)]


def test_the_markers(told):
    theirs, mine = (MARKER.findall(data) for _, data, _ in told)
    assert mine == theirs
    assert {kind for _, kind in mine} == {"COMMIT", "ABORT"}


def of_producers(history, pattern, data):
    """Lines that begin with a producer id, which becomes its number."""
    return sorted((history.numbers[int(one)], *rest) for one, *rest in pattern.findall(data))


@pytest.mark.parametrize("pattern", [ABORTED, PRODUCER])
def test_the_aborted_transactions_and_the_producers(told, pattern):
    theirs, mine = (of_producers(history, pattern, data) for history, data, _ in told)
    assert mine == theirs
    assert len(mine) > 3


def test_the_states(told):
    theirs, mine = (
        sorted_by_id(one for one in STATE.findall(states) if one[0].startswith(history.topic))
        for history, _, states in told
    )
    assert mine == theirs
    reached = {state for _, _, state, _ in mine}
    assert reached == {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "CompleteCommit",
        "PrepareAbort",
        "CompleteAbort",
    }


def sorted_by_id(lines):
    """The lines of each transactional id in their order, one id after the other."""
    return sorted(lines, key=lambda line: line[0])
