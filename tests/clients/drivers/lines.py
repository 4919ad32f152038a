"""The line protocol between the matrix and a client's driver, for drivers written in Python.

One JSON object per line. The driver gets the broker's address as its only argument, says
{"ready": "<client and version>"}, then answers commands from standard input until it ends:

  {"op": "produce", "codec": C, "idempotent": true | false | null, "batches": [
      {"topic": T, "partition": P, "records": [{"key", "value", "timestamp"?, "headers"?}]}]}
    -> per batch {"topic", "partition", "offsets": [...]} or {"topic", "partition", "error": {...}}
    One request at a time: with several under way a client that is not idempotent may store what it sends
    again after what came later, and the offsets must be in the order of the records.
  {"op": "consume", "timeout_ms": N, "isolation": "read_committed" | "read_uncommitted"?, "partitions":
      [{"topic", "partition", "from", "count"}]}; without an isolation the client keeps its own
    -> per partition {"topic", "partition", "records": [{"offset", "key", "value", "timestamp",
       "timestamp_type", "headers"}]}, everything the client handed out until `count` were there
    {"op": "find", "partitions": [{"topic", "partition", "timestamp"}]}: all -2 (start), all -1 (end) or times
    -> per partition {"topic", "partition", "offset"}, null where no record is as late
  {"op": "join", "group": G, "topic": T, "assignor": "range" | null}: become a member, beginning at the
    start where nothing is committed; null keeps the client's own way to share partitions.
    "at_least_once": true asks the clients of the rolling restart for a member that works before it commits
  {"op": "poll", "ms": N}: let the member work until it was handed something, N ms at most
    -> {"assignment": [{"topic", "partition"}], "records": [{"topic", "partition", "offset", "value"}]}
    A member commits what it was handed, and tells of a record once that commit succeeded: what a
    rebalance took away before is somebody else's. At least once, it tells of what it was handed
    whatever becomes of the commit: one that was not answered, or that the client sent again, may be stored
    though it fails, and nobody is handed the record again then. It goes on after what may be tried again.
  {"op": "rewind", "timestamp": M}: go on, in all of the assignment, at the first record from that time on
  {"op": "leave"} -> nothing, or {"records"}: what it was handed and had committed since it was last asked
  {"op": "commit", "group": G, "offsets": [{"topic", "partition", "offset"}]}: from outside the group
  {"op": "committed", "group": G, "partitions": [{"topic", "partition"}]}
    -> per partition {"topic", "partition", "offset"}, null where nothing is committed
  {"op": "send", "topic": T, "partitions": N, "from": K, "ms": M, "every_ms": E, "idempotent": true | false}:
    a producer that stays open between these commands sends the records K, K+1, ..., one every E ms for M ms,
    and waits for all answers; record K is "T K" and goes to partition K mod N. Where the client could lose
    the order of what it sends again, or sends nothing again, it is set up to keep it, and to go on
    -> {"next", "acknowledged": [[number, partition, offset]], "errors": [[number, text]], "longest_ms":
       from sending to the answer}
  {"op": "admin", "what": W, ...} -> {} or what was asked for, or {"error": {...}}; W is one of
    create_topic {"topic", "partitions", "configs"}, create_partitions {"topic", "partitions"}: in all,
    describe_configs {"topic", "configs"} -> {"configs"}: the values of the names asked for,
    alter_configs {"topic", "configs"}, delete_records {"topic", "partition", "offset"},
    list_offsets {"topic", "partition", "timestamps"} -> {"offsets"}, list_groups -> {"groups"},
    describe_group {"group"} -> {"state", "members"}, delete_group {"group"}, delete_topic {"topic"}
  {"op": "transaction", "what": W, "as": A, ...}: a transactional producer, kept under the name A; W is one of
    open {"id"}: a new one with this transactional id; -> {}
    write {"batches", "end": "commit" | "abort" | null}: send records, and end the transaction; null leaves
      it open, and the next write goes on in it -> {}
    copy {"group", "topic", "to", "count", "end"}: become a member of the group, read as many committed
      records, send each with " copied" after its value to the partition of its number in one transaction
      with the offsets of the group, end it, and leave -> {"read": [[partition, offset]]}
    close {} -> {}
    or {"error": {...}, "abort": {...} | null}: what the client raised, and what it raised when the
    transaction was aborted then, as applications do; null where it was aborted
  and after each command {"done": op}.

Where a client waits for more to come before it sends, "linger_ms" of produce says for how long (100).
Texts are UTF-8; a value above LONG_VALUE_BYTES is told by its digest. What a client does not show
(headers, timestamp types, offsets) is null. "idempotent": null keeps the client's own default.
An error is {"code": Kafka's number or null, "name": the client's word, "message": text}.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import traceback

LONG_VALUE_BYTES = 300
# A member that stands still for as long is no member any longer, and what it was handed is another's. Commits
# would be refused then, and members go back to what is committed; machines do stand still for some seconds.
SESSION_TIMEOUT_MS = 30_000
START, END = -2, -1  # as "timestamp" of find


def text(data: bytes | None) -> str | None:
    """Key or value as the protocol writes it."""
    if data is None:
        return None
    if len(data) > LONG_VALUE_BYTES:
        return f"sha1:{hashlib.sha1(bytes(data)).hexdigest()}:{len(data)}"
    return bytes(data).decode("utf-8", "backslashreplace")


def raw(value: str | None) -> bytes | None:
    """Key or value as the client wants it."""
    return None if value is None else value.encode()


def say(**fields: object) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(fields, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def failure(code: int | None, name: str, message: object) -> dict[str, object]:
    """An error as the protocol writes it."""
    return {"code": code, "name": name, "message": str(message)[:300]}


class Pending:
    """What a member was handed and has not committed yet."""

    def __init__(self):
        self._values = {}

    def __bool__(self):
        return bool(self._values)

    def add(self, topic, partition, offset, value):
        """Take one record in; handed out again after a rebalance it is the same one."""
        self._values[topic, partition, offset] = text(value)

    def clear(self):
        """Forget all."""
        self._values.clear()

    def nexts(self):
        """What to commit: by topic and partition the offset after the last record."""
        found = {}
        for topic, partition, offset in self._values:
            found[topic, partition] = max(found.get((topic, partition), 0), offset + 1)
        return found

    def keep(self, positions):
        """Forget what a rebalance took away, and what the client will hand out again.

        `positions` are where the member goes on, by topic and partition of all that it owns: after a
        rebalance some clients go on there at what is committed, others where they had been.
        """
        self._values = {
            place: value
            for place, value in self._values.items()
            if place[2] < positions.get(place[:2], 0)
        }

    def settle(self):
        """All is committed: its lines."""
        found = [
            {"topic": topic, "partition": partition, "offset": offset, "value": value}
            for (topic, partition, offset), value in self._values.items()
        ]
        self._values.clear()
        return found


def polled(owned, records):
    """The answer to poll; `owned` are pairs of topic and partition."""
    places = [{"topic": topic, "partition": partition} for topic, partition in sorted(owned)]
    return {"assignment": places, "records": records}


class Sending:
    """The records of one `send`: which to send now, and what became of them."""

    def __init__(self, command):
        self.topic, self.partitions = command["topic"], command["partitions"]
        self.next = command["from"]
        self._acknowledged, self._errors, self._longest_s = [], [], 0.0
        self._began = time.monotonic()
        self._every_s, self._for_s = command["every_ms"] / 1000, command["ms"] / 1000
        self._first = self.next

    @property
    def is_over(self):
        """Whether the time to send is over."""
        return time.monotonic() - self._began >= self._for_s

    def due(self):
        """Yields number, partition and value of each record that is due."""
        passed_s = min(time.monotonic() - self._began, self._for_s)
        while self.next - self._first < passed_s / self._every_s:
            number, self.next = self.next, self.next + 1
            yield number, number % self.partitions, f"{self.topic} {number}".encode()

    def acknowledge(self, number, partition, offset, sent):
        """One record is stored; `sent` is when it was sent, by time.monotonic()."""
        self._acknowledged.append((number, partition, offset))
        self._longest_s = max(self._longest_s, time.monotonic() - sent)

    def fail(self, number, error):
        """The application was told that one record could not be sent."""
        self._errors.append((number, str(error)[:200]))

    def answer(self):
        """The answer to the command."""
        return {
            "next": self.next,
            "acknowledged": self._acknowledged,
            "errors": self._errors,
            "longest_ms": round(self._longest_s * 1000),
        }


class Transactions:
    """The transactional producers of one driver, by name; a client's own class says how each thing is done.

    That is `open`, `write`, `copy` and `close` of a command, `begin` and `abort` of a client, `raised`, which
    its calls raise, and `failure_of` such an error.
    """

    def __init__(self):
        self.producers = {}
        self.begun = set()

    def run(self, command):
        """Answers one command."""
        client = self.producers.get(command["as"])
        try:
            yield getattr(self, command["what"])(command) or {}
        except self.raised as error:
            told = self.aborted(client, command["as"])
            yield {"error": self.failure_of(error), "abort": told}

    def aborted(self, client, name):
        """Aborts as applications do after an error; what was raised, if anything."""
        self.begun.discard(name)
        if client is None:
            return None
        try:
            self.abort(client)
        except self.raised as error:
            return self.failure_of(error)
        return None

    def begun_by(self, name):
        """The producer of that name, in a transaction."""
        client = self.producers[name]
        if name not in self.begun:
            self.begin(client)
            self.begun.add(name)
        return client

    def ended(self, command):
        """The transaction has ended as the command says, unless that leaves it open."""
        if command["end"] is not None:
            self.begun.discard(command["as"])


def serve(version: str, **operations) -> None:
    """Answer commands until standard input ends.

    Each operation takes the command and yields the answer lines as dicts.
    """
    say(ready=version)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            for answer in operations[command["op"]](command) or ():
                say(**answer)
        except Exception as error:
            traceback.print_exc()
            say(fatal=f"{type(error).__name__}: {error}"[:300])
        say(done=command["op"])
