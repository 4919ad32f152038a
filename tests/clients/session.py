"""One running driver process: commands go in as JSON lines, answers come out, nothing waits forever."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import tempfile
import threading
from typing import Any, Self

START_TIMEOUT_S = 200.0
ANSWER_TIMEOUT_S = 120.0  # for each line of an answer


class DriverError(Exception):
    """The driver died, hung or reported a problem of its own; the message says which."""


class Session:
    """A driver process of one client; a context manager that ends the process it started."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._command = command
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.version = name

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.version = self._line(START_TIMEOUT_S)["ready"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(30)
        self._process.stdout.close()
        self._errors.close()

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _tail(self) -> str:
        self._errors.seek(0)
        text = " | ".join(line.strip() for line in self._errors.read().splitlines()[-4:])
        return f" ({text[-600:]})" if text else ""

    def _line(self, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            self._process.kill()  # it would answer the next command with the rest of this one
            raise DriverError(f"silent for {timeout_s:.0f} s{self._tail()}") from None
        if line is None:
            self._lines.put(None)
            raise DriverError(f"the driver ended{self._tail()}")
        try:
            answer = json.loads(line)
        except ValueError:
            raise DriverError(f"not a line of the protocol: {line[:200]!r}") from None
        if "fatal" in answer:
            raise DriverError(f"{answer['fatal']}{self._tail()}")
        return answer

    def ask(self, command: dict[str, Any], timeout_s: float) -> list[dict[str, Any]]:
        """Send one command and collect its answers, waiting at most `timeout_s` for each line."""
        try:
            self._process.stdin.write(json.dumps(command, ensure_ascii=True) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise DriverError(f"the driver ended{self._tail()}") from None
        answers = []
        while True:
            try:
                answer = self._line(timeout_s)
            except DriverError:
                self._drain(command["op"], timeout_s)
                raise
            if "done" in answer:
                return answers
            answers.append(answer)

    def _drain(self, operation: str, timeout_s: float) -> None:
        """After a failed command, skip to its end, so that the next one starts clean.

        One that does not come to it is ended: the next command would be answered with the rest of this one.
        """
        try:
            while (line := self._lines.get(timeout=timeout_s)) is not None:
                with contextlib.suppress(ValueError):
                    if json.loads(line).get("done") == operation:
                        return
        except queue.Empty:
            self._process.kill()
        else:
            self._lines.put(None)  # whoever asks next must see the end, too
