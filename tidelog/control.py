"""A Python client of a broker's control listener: its clock, its faults, its sweeps.

It needs only the standard library, so that it can run in the process under test. Times may be
milliseconds since 1970, ISO 8601 with a zone ("2026-01-01T00:00Z"), datetimes with a time zone, or
relative to the broker's time ("-2h"). Spans may be milliseconds, text ("7d", "-90s") or timedeltas.
A refusal of the broker is a ControlError with its sentence. Several threads may use a
ControlClient.
"""

from __future__ import annotations

import http.client
import json
import threading
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Time = int | str | datetime
Span = int | str | timedelta

__tracebackhide__ = True  # pytest shows a refusal where the test asked

_TIMEOUT_S = 60.0


class ControlError(ValueError):
    """The broker refused a request; the text is its sentence, `name` the error's name."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(sentence)
        self.name = name


class ControlClient:
    """A client of the control listener at host:port, with one connection, opened when needed."""

    def __init__(self, address: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        self.address = address
        self._lock = threading.Lock()
        host, _, port = address.rpartition(":")
        self._connection = http.client.HTTPConnection(
            host.strip("[]"), int(port), timeout=timeout_s
        )

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Sends one request, without fields that are None; returns the answer's JSON.

        Raises ControlError, and OSError if the broker cannot be reached.
        """
        fields = {name: value for name, value in (body or {}).items() if value is not None}
        text = json.dumps(fields) if fields else None
        with self._lock:
            try:
                self._connection.request(method, path, text, {"Content-Type": "application/json"})
                response = self._connection.getresponse()
                status, answer = response.status, json.loads(response.read())
            except OSError:
                self._connection.close()  # a late answer would be taken for the next one
                raise
            except http.client.HTTPException as error:
                self._connection.close()
                raise ConnectionError(f"{self.address} broke off its answer: {error}") from None
        if status >= 400:
            raise ControlError(answer["error"], answer["message"])
        return dict(answer)

    def close(self) -> None:
        """Closes the connection; the next request opens another."""
        with self._lock:
            self._connection.close()


class Clock:
    """The clock of a broker that was started with clock=manual.

    A change returns when it has taken effect in the broker: retention that has become due is done.
    All methods return the resulting time in ms.
    """

    def __init__(self, client: ControlClient, answer: Callable[[Mapping[str, Any]], None]) -> None:
        """`answer` is called with the clock's state in every answer."""
        self._client = client
        self._on_answer = answer

    def now_ms(self) -> int:
        """Returns its time, in ms since the epoch."""
        return self._ask("GET", "")

    def set(self, to: Time) -> int:
        """Jumps to a time, forwards or back."""
        return self._ask("POST", "/set", to=_time(to))

    def step(self, by: Span) -> int:
        """Moves by a span, forwards or back."""
        return self._ask("POST", "/step", by=_span(by))

    def leap(self, by: Span) -> int:
        """Moves by a span without time passing, as a wrong clock does: see docs/time.md."""
        return self._ask("POST", "/leap", by=_span(by))

    def freeze(self, at: Time | None = None) -> int:
        """Stops the clock, now or at a time."""
        return self._ask("POST", "/freeze", at=_time(at))

    def run(self, rate: float = 1, *, start: Time | None = None) -> int:
        """Runs the clock at `rate` times the speed of the machine's, from now or from a time."""
        return self._ask("POST", "/run", **{"rate": rate, "from": _time(start)})

    def _ask(self, method: str, path: str, **body: Any) -> int:
        answer = self._client.ask(method, f"/v1/clock{path}", body)
        self._on_answer(answer)
        return int(answer["now_ms"])


class Faults:
    """The faults added to a broker."""

    def __init__(self, client: ControlClient) -> None:
        self._client = client

    def add(
        self,
        *,
        api: str | None = None,
        storage: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        log_dir: str | None = None,
        error: str | None = None,
        delay: Span | None = None,
        disconnect: bool = False,
        when: str | None = None,
        times: int | None = None,
        skip: int | None = None,
        probability: float | None = None,
        seed: int | None = None,
    ) -> Fault:
        """Adds a fault: where (`api` or `storage`), what, and how often.

        The effect is an `error`, a `delay` or a `disconnect`. `when` is "before" (the default) or
        "after" the request was served. Raises ControlError for an impossible fault.
        """
        asked = {
            "api": api,
            "storage": storage,
            "topic": topic,
            "partition": partition,
            "log_dir": log_dir,
            "error": error,
            "delay": _span(delay),
            "disconnect": disconnect or None,
            "when": when,
            "times": times,
            "skip": skip,
            "probability": probability,
            "seed": seed,
        }
        return Fault(self._client, self._client.ask("POST", "/v1/faults", asked)["id"])

    def list(self) -> list[dict[str, Any]]:
        """Returns all faults in the broker's form; `seen` and `hits` are counters."""
        return list(self._client.ask("GET", "/v1/faults")["faults"])

    def clear(self) -> None:
        """Removes all faults."""
        self._client.ask("DELETE", "/v1/faults")


class Fault:
    """One fault in a broker; as a context manager it is removed at the end."""

    def __init__(self, client: ControlClient, number: int) -> None:
        self._client = client
        self.id = number

    @property
    def hits(self) -> int:
        """Returns how often it took effect. Raises ControlError if it has been removed."""
        return int(self._client.ask("GET", f"/v1/faults/{self.id}")["hits"])

    def lift(self) -> int:
        """Removes it, and releases requests that it delays. Returns how often it took effect."""
        return int(self._client.ask("DELETE", f"/v1/faults/{self.id}")["hits"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.lift()
        except ControlError as error:
            if error.name != "UNKNOWN_FAULT":  # it has been removed
                raise


def _time(given: Time | None) -> int | str | None:
    if not isinstance(given, datetime):
        return given
    if given.tzinfo is None:
        raise ControlError("BAD_TIME", f"{given!r} does not say its time zone")
    return given.isoformat(timespec="milliseconds")


def _span(given: Span | None) -> int | str | None:
    return given // timedelta(milliseconds=1) if isinstance(given, timedelta) else given
