"""Driver of the kcat command: one run of kcat per produced partition and per topic read.

Arguments: the directory kcat's package was unpacked in ("-" for the one on PATH), then the broker.
A member of a group is one run, too, ended by SIGINT.
kcat cannot set timestamps, has one set of headers per run, and writes an empty key or value either
as empty or as null (here null); it tells no offsets when producing.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lines

ROOT, SERVER = sys.argv[1:3]
TYPES = {"create": "create", "logappend": "append", "unknown": "none"}
KEY_END, RECORD_END = "\x1f", "\x1e"
PARALLEL = 3
RUN_TIMEOUT_S = 100
METADATA_TIMEOUT_S = "60"  # of itself it waits for 5 s
LEAVE_TIMEOUT_S = 60

# librdkafka's sentence for the errors the matrix expects; kcat prints no numbers.
SENTENCES = {
    "Message format on broker does not support request": 43,
    "Unsupported compression type": 76,
    "Broker: Invalid timestamp": 32,
}


def program():
    """The program, and the environment it runs in."""
    environment = dict(os.environ)
    if ROOT == "-":
        return "kcat", environment
    libraries = sorted({str(path.parent) for path in Path(ROOT).rglob("*.so*")})
    return f"{ROOT}/usr/bin/kcat", {**environment, "LD_LIBRARY_PATH": ":".join(libraries)}


def kcat(arguments, stdin=None):
    """Run kcat once: (exit code, output, errors)."""
    name, environment = program()
    command = [name, *arguments]
    if arguments != ["-V"]:
        command += ["-b", SERVER, "-m", METADATA_TIMEOUT_S]
    done = subprocess.run(
        command,
        input=stdin,
        env=environment,
        capture_output=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def options(settings):
    return [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]


def encode(record):
    key = "" if record["key"] is None else record["key"] + KEY_END
    return (key + (record["value"] or "")).encode()


def produce_batch(command, batch):
    settings = {"acks": "all", "linger.ms": 100, "message.timeout.ms": 60_000}
    if command["idempotent"] is not None:
        settings["enable.idempotence"] = str(command["idempotent"]).lower()
    arguments = ["-P", "-t", batch["topic"], "-p", str(batch["partition"]), "-z", command["codec"]]
    arguments += ["-K", KEY_END, "-D", RECORD_END, "-Z", *options(settings)]
    for name, value in batch["records"][0].get("headers") or []:
        arguments += ["-H", name if value is None else f"{name}={value}"]
    body = RECORD_END.encode().join(encode(record) for record in batch["records"])
    code, _, errors = kcat(arguments, body)
    answer = {"topic": batch["topic"], "partition": batch["partition"]}
    if code != 0 or "Delivery failed" in errors:
        number = next((n for text, n in SENTENCES.items() if text in errors), None)
        answer["error"] = lines.failure(number, "kcat", re.sub(r"\s+", " ", errors))
    else:
        answer["offsets"] = None
    return answer


def produce(command):
    with ThreadPoolExecutor(PARALLEL) as pool:
        yield from pool.map(lambda batch: produce_batch(command, batch), command["batches"])


def describe(message):
    headers = message.get("headers") or []
    key, value = message["key"], message["payload"]
    return {
        "offset": message["offset"],
        "key": lines.text(lines.raw(key)),
        "value": lines.text(lines.raw(value)),
        "timestamp": message.get("ts"),
        "timestamp_type": TYPES[message.get("tstype", "unknown")],
        "headers": list(zip(headers[::2], headers[1::2], strict=True)),
    }


def consume_topic(topic, offset, partitions, settings):
    arguments = ["-C", "-t", topic, "-o", str(offset), "-e", "-q", "-J"]
    arguments += options({"fetch.wait.max.ms": 50, "check.crcs": "true", **settings})
    if len(partitions) == 1:
        arguments += ["-p", str(partitions[0])]
    code, output, errors = kcat(arguments)
    found = {partition: [] for partition in partitions}
    for line in output.splitlines():
        message = json.loads(line)
        if message["partition"] in found:
            found[message["partition"]].append(describe(message))
    answers = [{"topic": topic, "partition": p, "records": r} for p, r in found.items()]
    if code != 0:
        for answer in answers:
            answer["problem"] = re.sub(r"\s+", " ", errors)[-200:]
    return answers


def consume(command):
    # kcat reads whole topics: one run serves all partitions wanted from the same offset.
    runs = defaultdict(list)
    for entry in command["partitions"]:
        runs[entry["topic"], entry["from"]].append(entry["partition"])
    settings = {"isolation.level": command["isolation"]} if "isolation" in command else {}
    with ThreadPoolExecutor(PARALLEL) as pool:
        for answers in pool.map(lambda run: consume_topic(*run[0], run[1], settings), runs.items()):
            yield from answers


def find(command):
    arguments = ["-Q"]
    for entry in command["partitions"]:
        arguments += ["-t", f"{entry['topic']}:{entry['partition']}:{entry['timestamp']}"]
    code, output, errors = kcat(arguments)
    if code != 0:
        raise RuntimeError(errors)
    for topic, partition, offset in re.findall(
        r"^(\S+) \[(\d+)\] offset (-?\d+)$", output.decode(), re.MULTILINE
    ):
        # It answers OFFSET_END where no record is as late.
        place = {"topic": topic, "partition": int(partition)}
        yield {**place, "offset": None if int(offset) < 0 else int(offset)}


def ends_of(places):
    """The offsets at the ends of partitions."""
    wanted = [{"topic": t, "partition": p, "timestamp": lines.END} for t, p in sorted(places)]
    found = find({"partitions": wanted}) if wanted else ()
    return {(one["topic"], one["partition"]): one["offset"] for one in found}


class Member:
    """A member of a group: one running kcat, which commits by itself what it printed."""

    def join(self, command):
        settings = {
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            "session.timeout.ms": lines.SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 200,
            "fetch.wait.max.ms": 50,
            "log_level": 0,  # the library's words would come in the midst of kcat's
        }
        if command["assignor"] is not None:
            settings["partition.assignment.strategy"] = command["assignor"]
        name, environment = program()
        self.owned = set()
        self.read_to = {}  # by topic and partition, the offset after what it printed or came to the end of
        self.records = []
        self.news = threading.Condition()
        self.process = subprocess.Popen(
            [
                *(name, "-b", SERVER, "-m", METADATA_TIMEOUT_S, "-J", "-u", *options(settings)),
                *("-G", command["group"], command["topic"]),
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.readers = [
            threading.Thread(target=self.read_records, daemon=True),
            threading.Thread(target=self.read_words, daemon=True),
        ]
        for reader in self.readers:
            reader.start()

    def read_records(self):
        for line in self.process.stdout:
            message = json.loads(line)
            place = {name: message[name] for name in ("topic", "partition", "offset")}
            with self.news:
                self.records.append({**place, "value": message["payload"]})
                self.has_read(message["topic"], message["partition"], message["offset"] + 1)
                self.news.notify_all()

    def read_words(self):
        # "% Group G rebalanced (memberid ...): assigned: T [0], T [1]"; lost ones: "revoked: ...".
        # "% Reached end of topic T [0] at offset 6"
        for line in self.process.stderr:
            text = line.decode(errors="replace")
            end = re.search(r"Reached end of topic (\S+) \[(\d+)\] at offset (\d+)", text)
            with self.news:
                if "rebalanced (" in text:
                    places = re.findall(r"(\S+) \[(\d+)\]", text.partition("): ")[2])
                    owned = {(topic, int(partition)) for topic, partition in places}
                    self.owned = owned if "): assigned" in text else set()
                elif end:
                    self.has_read(end[1], int(end[2]), int(end[3]))
                self.news.notify_all()

    def has_read(self, topic, partition, offset):
        place = topic, partition
        self.read_to[place] = max(self.read_to.get(place, 0), offset)

    def poll(self, command):
        with self.news:
            if not self.records:
                self.news.wait(command["ms"] / 1000)
            records, self.records = self.records, []
        yield lines.polled(self.owned, records)

    def leave(self, _command):
        # Interrupted, it drops the message it has in hand, and commits it: so not while some can come.
        ends = {}
        with self.news:
            if not self.news.wait_for(lambda: self.is_through(ends), LEAVE_TIMEOUT_S):
                raise RuntimeError(f"of {sorted(self.owned)} it has read {self.read_to}")
        self.process.send_signal(signal.SIGINT)
        self.process.wait(LEAVE_TIMEOUT_S)
        for reader in self.readers:
            reader.join(LEAVE_TIMEOUT_S)
        yield {"records": self.records}

    def is_through(self, ends):
        """Whether it has printed all there is in the partitions it owns; nobody writes meanwhile."""
        ends |= ends_of(self.owned - ends.keys())
        return bool(self.owned) and all(self.read_to.get(at, 0) >= ends[at] for at in self.owned)


if __name__ == "__main__":
    version = re.search(r"Version (\S+) .*(librdkafka \S+)", kcat(["-V"])[1].decode())
    member = Member()
    lines.serve(
        f"kcat {version[1]} ({version[2]})" if version else "kcat",
        produce=produce,
        consume=consume,
        find=find,
        join=member.join,
        poll=member.poll,
        leave=member.leave,
    )
