"""The line protocol between the matrix and a client's driver, for drivers written in Python.

One JSON object per line. The driver gets the broker's address as its only argument, says
{"ready": "<client and version>"}, then answers commands from standard input until it ends:

  {"op": "produce", "codec": C, "idempotent": true | false | null, "batches": [
      {"topic": T, "partition": P, "records": [{"key", "value", "timestamp"?, "headers"?}]}]}
    -> per batch {"topic", "partition", "offsets": [...]} or {"topic", "partition", "error": {...}}
  {"op": "consume", "timeout_ms": N, "partitions": [{"topic", "partition", "from", "count"}]}
    -> per partition {"topic", "partition", "records": [{"offset", "key", "value", "timestamp",
       "timestamp_type", "headers"}]}, everything the client handed out until `count` were there
    {"op": "find", "partitions": [{"topic", "partition", "timestamp"}]}: all -2 (start), all -1 (end) or times
    -> per partition {"topic", "partition", "offset"}, null where no record is as late
  and after each command {"done": op}.

Texts are UTF-8; a value above LONG_VALUE_BYTES is told by its digest. What a client does not show
(headers, timestamp types, offsets) is null. "idempotent": null keeps the client's own default.
An error is {"code": Kafka's number or null, "name": the client's word, "message": text}.
"""

from __future__ import annotations

import hashlib
import json
import sys
import traceback

LONG_VALUE_BYTES = 300
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


def serve(version: str, produce, consume, find) -> None:
    """Answer commands until standard input ends.

    `produce(command)`, `consume(command)` and `find(command)` yield the answer lines as dicts.
    """
    say(ready=version)
    operations = {"produce": produce, "consume": consume, "find": find}
    for line in sys.stdin:
        command = json.loads(line)
        try:
            for answer in operations[command["op"]](command):
                say(**answer)
        except Exception as error:
            traceback.print_exc()
            say(fatal=f"{type(error).__name__}: {error}"[:300])
        say(done=command["op"])
