"""The broker under test, seen only from outside.

`Subject` is a broker process (as users start it in their tests) and what an operator can see of it: its
log lines, its metrics over HTTP, its memory and CPU time from /proc. A foreign process can only be
polled; `eventually` does that, with a deadline.
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.broker.finding import Client
from tidelog.control import ControlClient
from tidelog.process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.oracle import wire

_POLL_S = 0.01
_PATIENCE_S = 60
_METRIC = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)$")


def eventually(
    condition: Callable[[], Any], deadline_s: float = _PATIENCE_S, what: str = ""
) -> Any:
    """Wait until `condition` gives something true, and return it; fail at the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s} s: {what or condition}")
        time.sleep(_POLL_S)


def page_at(http: str, path: str) -> tuple[int, str]:
    """Status and text at a path of an HTTP port."""
    try:
        with urllib.request.urlopen(f"http://{http}{path}", timeout=_PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def json_at(http: str, path: str) -> tuple[int, Any]:
    """Status and JSON at a path of an HTTP port, which must be as OpenAPI describes it."""
    from tests.broker import described  # few tests ask for JSON

    status, text = page_at(http, path)
    answer = json.loads(text)
    described.check(path, status, answer)
    return status, answer


class Subject(BrokerProcess):
    """A broker process and what can be seen of it."""

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    def lines(self, *parts: str) -> list[str]:
        """Log lines that hold every one of `parts`."""
        return [line for line in self.log().splitlines() if all(part in line for part in parts)]

    def page(self, path: str) -> str:
        """The body at a path of its HTTP port."""
        url = f"http://{self.http}{path}"
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
            return answer.read().decode()

    def ask_control(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer to a request at its control listener; raises ControlError."""
        client = ControlClient(self.control)
        try:
            return client.ask(method, path, body)
        finally:
            client.close()

    def samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        """The label sets of one metric, and their values."""
        lines = [line for line in self.page("/metrics").splitlines() if line.startswith(name)]
        return [
            (dict(re.findall(r'(\w+)="([^"]*)"', found[2] or "")), float(found[3]))
            for found in map(_METRIC.match, lines)
            if found is not None and found[1] == name
        ]

    def metric(self, name: str, /, **labels: str) -> float:
        """One metric, summed over the label sets that have `labels`; 0 if there is none."""
        return sum(value for has, value in self.samples(name) if labels.items() <= has.items())

    @property
    def bad_requests(self) -> float:
        return self.metric("tidelog_bad_requests_total")

    @property
    def unexpected_errors(self) -> float:
        return self.metric("tidelog_unexpected_errors_total")

    def rss_mb(self, *, peak: bool = False) -> float:
        """Resident memory now, or the most since `forget_peak`, in MiB."""
        name = "VmHWM" if peak else "VmRSS"
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) / 1024

    def forget_peak(self) -> float:
        """Begin a new measurement of the peak; returns the memory resident now, in MiB."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self.rss_mb()

    def cpu_s(self) -> float:
        """CPU time used so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connect(self, timeout_s: float = _PATIENCE_S) -> wire.Connection:
        """A raw client."""
        return Client(self.bootstrap, timeout_s=timeout_s)
