"""The broker's log: how failures are said, what is cut and counted, and that nobody waits for its reader."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys

from tidelog.broker.logging import log_output, repeats
from tidelog.broker.logging.log_output import LogOutput
from tidelog.broker.logging.repeats import SHOWN
from tidelog.broker.logging.structured_log import MOST_CHARACTERS, Logfmt, LogHandler
from tidelog.protocol.errors import KafkaStorageError

LOG = logging.getLogger("tidelog.tests")


def logged(caplog, error):
    try:
        raise error
    except type(error):
        LOG.exception("the work failed", extra={"log": "orders-0"})
    return Logfmt().format(caplog.records[-1]).split(" ", 1)[1].splitlines()


def test_an_error_of_the_protocol_is_one_line_with_its_reason(caplog):
    assert logged(caplog, KafkaStorageError("the metadata do not answer")) == [
        (
            'level=error logger=tidelog.tests msg="the work failed" log=orders-0 '
            'reason="the metadata do not answer"'
        )
    ]


def test_any_other_error_has_a_traceback(caplog):
    first, *traceback = logged(caplog, ZeroDivisionError("a fault of the broker"))
    assert first == 'level=error logger=tidelog.tests msg="the work failed" log=orders-0'
    assert traceback[0] == "  Traceback (most recent call last):"
    assert traceback[-1] == "  ZeroDivisionError: a fault of the broker"


def test_long_texts_are_cut(caplog):
    LOG.warning("refused %s", "n" * 70_000, extra={"client": "c" * 70_000})
    line = Logfmt().format(caplog.records[-1])
    assert len(line) < 2 * MOST_CHARACTERS + 300
    assert line.count("more characters)") == 2


# --- what is written --------------------------------------------------------------------------------


def record(text, **extra):
    said = {"name": "tidelog.tests", "levelname": "INFO", "levelno": logging.INFO, "msg": text}
    return logging.makeLogRecord({**said, **extra})


def written(records, level=logging.INFO):
    """Return the lines that a handler writes of some records, without their times."""
    read, write = os.pipe()
    handler = LogHandler(LogOutput(lambda lines: b"dropped %d\n" % lines, write))
    root = logging.getLogger()
    before = root.level
    root.setLevel(level)
    try:
        for each in records:
            handler.emit(each)
        handler.flush()
    finally:
        root.setLevel(before)
    os.close(write)
    with os.fdopen(read) as lines:
        return [line.split(" ", 1)[1].rstrip() for line in lines]


def test_the_same_line_is_written_ten_times_and_then_counted():
    same = 'level=info logger=tidelog.tests msg="the same"'
    assert written([*[record("the same")] * (SHOWN + 32), record("another")]) == [
        *[same] * SHOWN,
        "level=info logger=tidelog.tests msg=another",
        f"{same} repeated=32",
    ]


def test_a_disk_that_fails_under_many_partitions_is_a_few_lines():
    def offline(index):
        why = f"t-{index}: the log cannot be made durable: Input/output error"
        return record(
            "log offline", levelname="CRITICAL", levelno=50, topic="t", partition=index, reason=why
        )

    def refused(index):
        text, log = f"records not replicated: t-{index} is offline", f"t-{index}"
        return record(text, levelname="ERROR", levelno=40, log=log, epoch=index)

    records = [make(index) for index in range(200) for make in (offline, refused)]
    lines = written(records)
    assert len(lines) == 2 * SHOWN + 2
    assert "partition=0" in lines[0]
    reason = "*: the log cannot be made durable: Input/output error"
    assert lines[-2:] == [
        f'level=critical logger=tidelog.tests msg="log offline" reason="{reason}" repeated=190',
        'level=error logger=tidelog.tests msg="records not replicated: * is offline" repeated=190',
    ]
    assert len(written(records, logging.DEBUG)) == 400


def test_texts_that_a_client_chooses_switch_no_folding_off_and_hide_no_other_line(monkeypatch):
    """What a logger has beyond so many lines at one level is a few lines and a number."""
    monkeypatch.setattr(repeats, "MOST_KEYS", 50)
    chosen = [record(f"refused {n}", levelname="WARNING", levelno=30) for n in range(300)]
    others = [record("log offline", levelname="ERROR", levelno=40), record("leader started")]
    lines = written([*chosen, *others])
    assert len(lines) == 50 + SHOWN + 2 + 1
    assert lines[-3:-1] == [
        'level=error logger=tidelog.tests msg="log offline"',
        'level=info logger=tidelog.tests msg="leader started"',
    ]
    number = 300 - 50 - SHOWN
    of = 'level=warning logger=tidelog.tests msg="other lines not logged"'
    assert lines[-1] == f"{of} repeated={number}"
    traced = [record(f"read {n}", levelname="DEBUG", levelno=10) for n in range(100)]
    assert len(written(traced, logging.DEBUG)) == 100


def test_what_happens_to_each_partition_in_order_is_a_line_each():
    deletions = [
        record("retention deleted segment", levelno=20, log=f"t-{n}") for n in range(3 * SHOWN)
    ]
    assert len(written(deletions)) == 3 * SHOWN


def test_nobody_waits_for_a_reader_and_what_is_dropped_is_told():
    read, write = os.pipe()
    output = LogOutput(lambda lines: b"dropped %d\n" % lines, write, most_bytes=200_000)
    line = b"x" * 999 + b"\n"
    for _ in range(1_000):  # five times what the pipe and the queue hold
        output.put(line)
    assert not output.drain(0)
    with os.fdopen(read, "rb", buffering=0) as reader:
        have = bytearray()
        while not output.drain(0.01):
            have += reader.read(1 << 16)
        output.put(b"last\n")
        assert output.drain(10)
        os.close(write)
        have += reader.read()
    *earlier, last = bytes(have).splitlines()
    assert last == b"last"
    # A thread that begins to write late may make room, so that more is dropped after some was told.
    told = [int(each.split()[1]) for each in earlier if each.startswith(b"dropped ")]
    written = [each for each in earlier if not each.startswith(b"dropped ")]
    assert set(written) == {line.rstrip()}
    assert 0 < sum(told) == 1_000 - len(written)
    assert len(written) < 300, "no more than the queue and the pipe hold"


def test_a_log_that_nobody_reads_any_more_is_dropped():
    read, write = os.pipe()
    os.close(read)
    output = LogOutput(lambda _: b"", write)
    output.put(b"lost\n")
    assert output.drain(10)
    os.close(write)


def test_what_nobody_can_read_any_more_goes_to_a_file_of_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr(log_output, "UNREAD_BYTES", 1_000)
    read, write = os.pipe()
    output = LogOutput(lambda _: b"", write)
    output.unread_file = file = tmp_path / "unread.log"
    output.put(b"read\n")
    assert os.read(read, 100) == b"read\n"
    assert not file.exists()
    os.close(read)
    for number in range(200):
        output.put(b"%04d\n" % number)
    assert output.drain(60)
    assert file.read_bytes().split() == [b"%04d" % number for number in range(200)]
    output.put(b"one too many\n")
    assert file.stat().st_size == 1_000
    os.close(write)


def test_a_broker_whose_log_nobody_reads_serves_on_and_stops(tmp_path):
    command = [sys.executable, "-m", "tidelog", "serve", "--listeners", "PLAINTEXT://127.0.0.1:0"]
    options = ["--log-dirs", str(tmp_path / "logs"), "--set", "log.level=debug"]
    read, write = os.pipe()  # full from the start, as one that nobody has read for long
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=write, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(read)
        os.close(write)
