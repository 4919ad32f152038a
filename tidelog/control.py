"""A broker's control listener, from Python: its clock, its faults, its sweeps.

Needs nothing but the standard library, so that it may live in the process under test. Times may be given
as milliseconds since 1970, as ISO 8601 with its zone ("2026-01-01T00:00Z"), as datetimes with a time zone,
or from the broker's now ("-2h"); spans as milliseconds, as text ("7d", "-90s") or as timedeltas. What the
broker refuses is a ControlError with its sentence. A ControlClient may be used by several threads.
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

_TIMEOUT_S = 60.0


class ControlError(ValueError):
    """What the broker would not do; the text is its sentence, `name` the error's name."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(sentence)
        self.name = name


class ControlClient:
    """Asks the control listener at host:port, over one connection that is opened when needed."""

    def __init__(self, address: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        self.address = address
        self._lock = threading.Lock()
        host, _, port = address.rpartition(":")
        self._connection = http.client.HTTPConnection(
            host.strip("[]"), int(port), timeout=timeout_s
        )

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one request, fields that are None left out; the answer's JSON.

        Raises ControlError, and OSError if the broker is not there.
        """
        fields = {name: value for name, value in (body or {}).items() if value is not None}
        text = json.dumps(fields) if fields else None
        with self._lock:
            try:
                self._connection.request(method, path, text, {"Content-Type": "application/json"})
                answer = self._connection.getresponse()
                status, told = answer.status, json.loads(answer.read())
            except (OSError, http.client.HTTPException):
                self._connection.close()  # what may still come would be the answer to this
                raise
        if status >= 400:
            raise ControlError(told["error"], told["message"])
        return dict(told)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        with self._lock:
            self._connection.close()


class Clock:
    """The clock of a broker that was started with clock=manual.

    Each change returns once the broker lives by it: a round of retention that has come due is over. All
    of them return the time the clock shows then, in ms.
    """

    def __init__(self, client: ControlClient, told: Callable[[Mapping[str, Any]], None]) -> None:
        """`told` is called with what every answer says of the clock."""
        self._client = client
        self._told = told

    def now_ms(self) -> int:
        """The time it shows, in ms since the epoch."""
        return self._ask("GET", "")

    def set(self, to: Time) -> int:
        """Jump to a time, forwards or back."""
        return self._ask("POST", "/set", to=_time(to))

    def step(self, by: Span) -> int:
        """Move by a span, forwards or back."""
        return self._ask("POST", "/step", by=_span(by))

    def freeze(self, at: Time | None = None) -> int:
        """Stand still, now or at a time."""
        return self._ask("POST", "/freeze", at=_time(at))

    def run(self, rate: float = 1, *, start: Time | None = None) -> int:
        """Run, `rate` times as fast as the machine's clock, from now on or from a time."""
        return self._ask("POST", "/run", **{"rate": rate, "from": _time(start)})

    def _ask(self, method: str, path: str, **body: Any) -> int:
        told = self._client.ask(method, f"/v1/clock{path}", body)
        self._told(told)
        return int(told["now_ms"])


class Faults:
    """The faults planted in a broker."""

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
        """Plant one: where (`api` or `storage`), what (`error`, `delay` or `disconnect`), how often.

        `when` is "before" (the default) or "after" the request was served. Raises ControlError for what
        cannot be.
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
        """All that are planted, as the broker shows them: `seen` and `hits` count."""
        return list(self._client.ask("GET", "/v1/faults")["faults"])

    def clear(self) -> None:
        """Lift them all."""
        self._client.ask("DELETE", "/v1/faults")


class Fault:
    """One planted fault; as a context manager it is lifted at the end."""

    def __init__(self, client: ControlClient, number: int) -> None:
        self._client = client
        self.id = number

    @property
    def hits(self) -> int:
        """How often it has struck; raises ControlError once it is lifted."""
        return int(self._client.ask("GET", f"/v1/faults/{self.id}")["hits"])

    def lift(self) -> int:
        """Take it away; whoever it holds goes on. Returns how often it struck."""
        return int(self._client.ask("DELETE", f"/v1/faults/{self.id}")["hits"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.lift()
        except ControlError as error:
            if error.name != "UNKNOWN_FAULT":  # it has been lifted
                raise


def _time(given: Time | None) -> int | str | None:
    if not isinstance(given, datetime):
        return given
    if given.tzinfo is None:
        raise ControlError("BAD_TIME", f"{given!r} does not say its time zone")
    return given.isoformat(timespec="milliseconds")


def _span(given: Span | None) -> int | str | None:
    return given // timedelta(milliseconds=1) if isinstance(given, timedelta) else given
