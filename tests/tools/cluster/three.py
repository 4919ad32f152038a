"""`tidelog serve --brokers 3`, whose brokers can be killed: the supervisor starts them again.

with Three(directory, {"log.retention.ms": -1}) as three:
    three.kill(2)  # returns when every replica is in sync again
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.broker.subject import eventually
from tests.oracle import wire
from tidelog.supervisor.control import ask

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[3]
COUNT = 3
BACK_WITHIN_S = 120
STOP_WITHIN_S = 120
FREE = ("--listeners", "PLAINTEXT://127.0.0.1:0", "--http", "127.0.0.1:0")


class Three:
    """Three brokers of one supervisor; at the end they must stop in order, and no log has a traceback."""

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        self.directory = directory / "data"
        self._log = directory / "serve.log"
        given = [
            word
            for name, value in (settings or {}).items()
            for word in ("--set", f"{name}={value}")
        ]
        command = [sys.executable, "-m", "tidelog", "serve", "--brokers", str(COUNT), *FREE]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--log-dirs", self.directory, *given],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        assert line.startswith("ready "), self.log()[-8000:]
        said = dict(part.partition("=")[::2] for part in line.split()[1:])
        self.bootstrap = said["bootstrap"]
        self._pages = said["http"].split(",")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self._process.send_signal(signal.SIGTERM)
            status = self._process.wait(STOP_WITHIN_S)
        finally:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
        if kind is None:
            assert status == 0, self.log()[-8000:]
            assert "Traceback" not in self.log(), self.log()[-8000:]

    def log(self) -> str:
        """Returns what the supervisor and its brokers have logged."""
        return self._log.read_text(errors="replace")

    def log_dir(self, broker: int) -> Path:
        """Returns where a broker keeps its logs."""
        return self.directory if broker == 1 else self.directory / "brokers" / str(broker)

    def address(self, broker: int) -> str:
        """Returns host:port of a broker for clients."""
        return self.bootstrap.split(",")[broker - 1]

    def connect(self, broker: int = 1) -> wire.Connection:
        """Returns a raw client of one broker."""
        return wire.Connection(self.address(broker), timeout_s=60)

    def partitions(self) -> list[dict[str, Any]]:
        """Returns every partition as broker 1 tells of it."""
        return list(json.loads(self._page(1, "/v1/cluster"))["partitions"])

    def leader(self, topic: str, partition: int = 0) -> int:
        """Returns who leads a partition."""
        (found,) = (
            each
            for each in self.partitions()
            if (each["topic"], each["partition"]) == (topic, partition)
        )
        return int(found["leader"])

    def coordinator(self, group: str) -> str:
        """Returns host:port of the coordinator of a group."""
        with self.connect() as connection:
            told = connection.ask("FindCoordinator", 3, key=group, key_type=0)
        assert told["error_code"] == 0, told
        return f"{told['host']}:{told['port']}"

    def settings(self, topic: str) -> dict[str, str | None]:
        """Returns the settings of a topic."""
        resource = {"resource_type": 2, "resource_name": topic}
        with self.connect() as connection:
            answer = connection.ask("DescribeConfigs", 4, resources=[resource])
        return {each["name"]: each["value"] for each in answer["results"][0]["configs"]}

    def kill(self, broker: int) -> None:
        """Kills a broker with SIGKILL; returns when it is back and every replica is in sync."""
        killed = self._pid(broker)
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: self._pid(broker) not in (killed, None), BACK_WITHIN_S)
        eventually(lambda: self._is_well(broker), BACK_WITHIN_S, f"broker {broker} in sync")

    def _pid(self, broker: int) -> int | None:
        told = ask(self.directory, {"ask": "brokers"})["brokers"]
        (found,) = (each["pid"] for each in told if each["broker"] == broker)
        return found

    def _page(self, broker: int, path: str) -> bytes:
        url = f"http://{self._pages[broker - 1]}{path}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.read()

    def _is_well(self, broker: int) -> bool:
        try:
            self._page(broker, "/readyz")
            return all(each["state"] == "ok" for each in self.partitions())
        except OSError:  # it does not listen, or says that it is not ready
            return False
