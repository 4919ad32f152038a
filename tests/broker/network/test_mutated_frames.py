"""Mutated frames over TCP: nothing unhandled, nobody hangs, and the neighbours see no error.

Honest requests of every API and version are bent (bytes flipped, integers replaced by evil ones, slices
cut, doubled, moved, spliced from other requests, lengths falsified) and sent, a few on each connection.
Beside them a client produces, fetches and looks up all along.
TIDELOG_FUZZ_TCP_FRAMES says how many frames; TIDELOG_FUZZ_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
import time
import uuid

import pytest

from tests.broker import asking
from tests.broker.asking import batch_of, create, fetch, list_offset, produce
from tests.broker.raw import frame, request
from tests.mutations import mutate
from tests.oracle import codecs, recordset

FRAMES = int(os.environ.get("TIDELOG_FUZZ_TCP_FRAMES", "500"))
SEED = int(os.environ.get("TIDELOG_FUZZ_SEED", "0")) or random.SystemRandom().getrandbits(32)


def honest_requests(topic, topic_id):
    """One or several of every API at every version, on a topic that exists; without lengths."""
    texts = ("a", "b" * 40, "c")
    record_sets = [
        recordset.batch(asking.values(*texts), codec)
        for codec in (codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD)
    ]
    record_sets.append(batch_of(*texts, producer_id=5, producer_epoch=0, base_sequence=0))
    old_sets = [recordset.plain_set(magic, asking.values(*texts)) for magic in (0, 1)]
    old_sets += [recordset.wrapper(m, asking.values(*texts), c) for m in (0, 1) for c in (1, 2, 3)]
    found = []
    for api in asking.VERSIONS:
        for version in asking.all_versions(api):
            named = topic_id if version >= 13 and api in ("Produce", "Fetch") else topic
            if api == "Produce":
                newer = record_sets if version >= 7 else [*record_sets[:4], record_sets[5]]
                for records in newer if version >= 3 else old_sets + record_sets[:2]:
                    for acks in (-1, 0):
                        fields = asking.produce_fields(named, records, acks=acks)
                        found.append(request(api, version, **fields))
            elif api == "Fetch":
                found += [
                    request(api, version, **asking.fetch_fields(named, **more))
                    for more in ({}, {"max_wait_ms": 5}, {"isolation_level": 1, "min_bytes": 1_000})
                ]
            else:
                found.append(request(api, version, **asking.BODIES[api]))
                found.append(request(api, version, **changing(api, topic)))
    return found


def changing(api, topic):
    """A body that does something, where that is possible."""
    if api == "CreateTopics":
        wanted = {
            "name": f"made-{uuid.uuid4().hex[:6]}",
            "num_partitions": 1,
            "replication_factor": 1,
        }
        return {"topics": [wanted], "timeout_ms": 100, "validate_only": False}
    if api == "Metadata":
        return {"topics": [{"name": topic}, {"name": "auto"}], "allow_auto_topic_creation": True}
    if api == "ListOffsets":
        partitions = [
            {"partition_index": 0, "timestamp": time, "max_num_offsets": 5}
            for time in (-1, 0, 1_001)
        ]
        topics = [{"name": topic, "partitions": partitions[:1]}]
        return {"replica_id": -1, "isolation_level": 0, "timeout_ms": 9, "topics": topics}
    if api == "InitProducerId":
        return {"transactional_id": None, "transaction_timeout_ms": 1}
    if api == "IncrementalAlterConfigs":
        change = {"name": "segment.bytes", "config_operation": 0, "value": "100000"}
        resource = {"resource_type": 2, "resource_name": topic, "configs": [change]}
        return {"resources": [resource], "validate_only": False}
    return asking.BODIES[api]


def bent(data, others, chance):
    """The request, mutated, behind a length that is nearly always right."""
    data = mutate(data, others, chance)
    size = len(data)
    if chance.random() < 0.03:
        size = chance.choice((size + 1, size - 1, size + 1_000, -1, 0, 7, 2**31 - 1, 10**8))
    return struct.pack(">i", size) + data


def send(broker, data):
    """On a connection of its own, whose sending half then closes: the broker must close the rest."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as peer:
        try:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(1 << 16):
                pass
        except TimeoutError:
            raise AssertionError(f"no end of {data.hex()}") from None
        except OSError:
            pass  # closed before everything was sent


class Neighbour(threading.Thread):
    """Produces, reads back and looks up on one connection; notes what goes wrong and how long it took."""

    def __init__(self, broker):
        super().__init__(daemon=True)
        self.broker = broker
        self.enough = threading.Event()
        self.rounds = 0
        self.longest_s = 0.0
        self.error = None

    def run(self):
        try:
            with self.broker.connect() as connection:
                create(connection, "a-neighbour-who-notices-nothing")
                while not self.enough.is_set():
                    started = time.monotonic()
                    self.one_round(connection)
                    self.longest_s = max(self.longest_s, time.monotonic() - started)
                    self.rounds += 1
        except Exception as error:
            self.error = error

    def one_round(self, connection):
        topic, text = "a-neighbour-who-notices-nothing", f"{self.rounds}"
        mine = connection._socket
        got = produce(connection, topic, batch_of(text))
        assert (got["error_code"], got["base_offset"]) == (0, self.rounds), got
        got = fetch(connection, topic, self.rounds)
        assert got["error_code"] == 0, got
        batches, _ = recordset.parse(got["records"])
        assert [each["value"] for each in batches[0]["records"]] == [text.encode()]
        got = list_offset(connection, topic, -1)
        assert got["offset"] == self.rounds + 1, got
        assert connection._socket is mine, "it was disconnected"


def play(broker, frames):
    chance = random.Random(SEED)
    print(f"TIDELOG_FUZZ_SEED={SEED}")
    with broker.connect() as connection:
        topic_id = create(connection, "fuzzed", partitions=2, segment_bytes="100000")
    requests = honest_requests("fuzzed", topic_id)
    for each in requests:
        send(broker, frame(each))
    assert broker.bad_requests == 0, broker.log()[-3_000:]
    assert broker.page("/metrics")
    before = broker.forget_peak()
    neighbour = Neighbour(broker)
    neighbour.start()
    sent = 0
    while sent < frames and neighbour.error is None:
        few = min(chance.choice((1, 1, 2, 5)), frames - sent)
        send(broker, b"".join(bent(chance.choice(requests), requests, chance) for _ in range(few)))
        sent += few
    neighbour.enough.set()
    neighbour.join(60)
    assert neighbour.error is None, f"after {sent} frames, seed {SEED}: {neighbour.error!r}"
    assert broker.is_running
    assert broker.unexpected_errors == 0, broker.log()[-8_000:]
    assert broker.bad_requests > frames / 20
    grown = broker.rss_mb(peak=True) - before
    print(
        f"{sent} frames; closed {broker.bad_requests:.0f}; neighbour {neighbour.rounds} rounds, the "
        f"longest {neighbour.longest_s * 1000:.0f} ms; memory grew {grown:.0f} MiB at most"
    )
    assert grown < 200
    assert neighbour.rounds > 10
    with broker.connect() as connection:
        assert connection.ask("ApiVersions", 0)["error_code"] == 0


# A mutated AlterClientQuotas may give everybody a quota: then connections are muted for this long.
SETTINGS = {"max.partitions.per.topic": 20, "connections.max.idle.ms": 5_000}


def test_mutated_frames(start):
    play(start(SETTINGS), min(FRAMES, 2_000))


@pytest.mark.long
@pytest.mark.timeout(7200)  # a million frames take 25 to 50 minutes
def test_many_mutated_frames(start):
    play(start(SETTINGS), max(FRAMES, 20_000))
