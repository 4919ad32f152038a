"""Faults on demand: their targets, their effects, and when each is injected.

The target of a fault is requests (`api`, with or without a topic and partition) or operations of storage on
the disk (`storage`, with or without a log directory, topic or partition). Its effect is an error, a delay or
a disconnect. It strikes `times` times, after `skip` opportunities, or with a probability, whose seed makes
it repeatable.

A broker without a control listener has none of this: `fault_requests` and `fault_storage` are
installed only at start. Bad input is a FaultError of one sentence.
"""

from __future__ import annotations

import asyncio
import errno
import random
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.timer import timeout
from tidelog.config.instants import parse_duration
from tidelog.config.setting import closest
from tidelog.protocol import message
from tidelog.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tidelog.broker.testing.cuts import Cuts

BEFORE, AFTER = "before", "after"
STORAGE = ("open", "read", "write", "sync", "truncate", "rename", "unlink")
_MOST_FAULTS = 1000
_MOST_DELAY_MS = 86_400_000
_FIELDS = (
    "api",
    "storage",
    "topic",
    "partition",
    "log_dir",
    "error",
    "delay",
    "disconnect",
    "when",
    "times",
    "skip",
    "probability",
    "seed",
)
# The APIs whose parts are partitions, and those whose parts are topics: only there can one be named.
BY_PARTITION = ("Produce", "Fetch", "ListOffsets", "DeleteRecords", "OffsetForLeaderEpoch")
BY_TOPIC = ("Metadata", "CreateTopics", "DeleteTopics", "CreatePartitions")
_ERRNOS = {name: number for number, name in errno.errorcode.items()}


class FaultError(ValueError):
    """A fault that cannot be added; the text is the reason."""


class FaultTarget(NamedTuple):
    """The target of a fault; None means any."""

    api: str | None
    storage: str | None
    topic: str | None
    partition: int | None
    log_dir: Path | None

    def is_at(self, topic: str, partition: int | None) -> bool:
        """Returns whether a topic's partition is a target; a partition of None is the topic as a whole."""
        return self.topic in (None, topic) and self.partition in (None, partition)


class FaultEffect(NamedTuple):
    """The effect of a fault: one of error, delay (in ms) and disconnect."""

    error: str | None
    delay_ms: int | None
    disconnect: bool
    after: bool  # strikes after the request has been served, not before


class FaultTrigger(NamedTuple):
    """The opportunities at which a fault strikes."""

    times: int | None
    skip: int
    probability: float
    seed: int


class Fault:
    """One fault, and how often it has struck. For use by any thread."""

    def __init__(
        self, number: int, target: FaultTarget, effect: FaultEffect, trigger: FaultTrigger
    ) -> None:
        self.number = number
        self.target = target
        self.effect = effect
        self.trigger = trigger
        self.seen = 0
        self.hits = 0
        self._lock = threading.Lock()
        self._random = random.Random(trigger.seed)  # noqa: S311 - to be the same every time
        self._released = threading.Event()
        self._released_on_loop = asyncio.Event()

    def strikes(self) -> bool:
        """Returns whether the fault strikes now; called once for every opportunity."""
        times, skip, probability, _ = self.trigger
        with self._lock:
            self.seen += 1
            if self.seen <= skip or (times is not None and self.hits >= times):
                return False
            if probability < 1 and self._random.random() >= probability:
                return False
            self.hits += 1
            return True

    async def hold(self) -> None:
        """Waits for the delay of the fault, or until the fault is removed."""
        delay_ms = self.effect.delay_ms or 0
        try:  # the loop's timers have whole milliseconds, and may fire up to one too early
            async with timeout((delay_ms + 1) / 1000):
                await self._released_on_loop.wait()
        except TimeoutError:
            pass

    def block(self) -> None:
        """Blocks a thread for the delay, as a slow disk does."""
        self._released.wait((self.effect.delay_ms or 0) / 1000)

    def release(self) -> None:
        """Ends the delays of the fault; called on the event loop."""
        self._released.set()
        self._released_on_loop.set()

    def shown(self) -> dict[str, Any]:
        """Returns the fault as JSON: its definition, and how often it was injected."""
        target, effect, trigger = self.target, self.effect, self.trigger
        fields: dict[str, Any] = {
            "api": target.api,
            "storage": target.storage,
            "topic": target.topic,
            "partition": target.partition,
            "log_dir": None if target.log_dir is None else str(target.log_dir),
            "error": effect.error,
            "delay_ms": effect.delay_ms,
            "disconnect": effect.disconnect or None,
            "when": None if target.storage else AFTER if effect.after else BEFORE,
            "times": trigger.times,
            "skip": trigger.skip or None,
        }
        if trigger.probability < 1:
            fields |= {"probability": trigger.probability, "seed": trigger.seed}
        given = {name: value for name, value in fields.items() if value is not None}
        return {"id": self.number, **given, "seen": self.seen, "hits": self.hits}


class Faults:
    """The faults of one broker. Changed on the event loop; any thread may read meanwhile."""

    def __init__(self, log_dirs: Iterable[Path]) -> None:
        """Begins with no faults; `log_dirs` are the directories that may be named."""
        self._log_dirs = {str(path): path for path in log_dirs}
        self.cuts: Cuts | None = None  # from others; None for a broker that is alone
        self._faults: dict[int, Fault] = {}
        self._added = 0
        self.of_requests: Mapping[str, tuple[Fault, ...]] = {}  # by API
        self.of_storage: Mapping[str, tuple[Fault, ...]] = {}  # by operation of storage

    def __iter__(self) -> Iterator[Fault]:
        return iter(list(self._faults.values()))

    def get(self, number: int) -> Fault | None:
        """Returns a fault by its id."""
        return self._faults.get(number)

    def add(self, given: Mapping[str, Any]) -> Fault:
        """Adds a fault; raises FaultError."""
        if len(self._faults) >= _MOST_FAULTS:
            raise FaultError(f"there are {_MOST_FAULTS} faults already: remove some")
        target, effect, trigger = parse(given, self._log_dirs)
        self._added += 1
        fault = self._faults[self._added] = Fault(self._added, target, effect, trigger)
        self._sort()
        return fault

    def remove(self, number: int) -> Fault | None:
        """Removes a fault and returns it; None if there is no such fault."""
        fault = self._faults.pop(number, None)
        if fault is not None:
            self._sort()
            fault.release()
        return fault

    def clear(self) -> list[Fault]:
        """Removes all faults."""
        return [fault for number in list(self._faults) if (fault := self.remove(number))]

    def stopping(self) -> None:
        """Removes all faults but errors of the disk, which last while the logs are closed."""
        for fault in list(self._faults.values()):
            if fault.target.storage is None or fault.effect.delay_ms is not None:
                self.remove(fault.number)

    def _sort(self) -> None:
        of_requests: dict[str, tuple[Fault, ...]] = {}
        of_storage: dict[str, tuple[Fault, ...]] = {}
        for fault in self._faults.values():
            api, storage = fault.target.api, fault.target.storage
            if api is not None:
                of_requests[api] = (*of_requests.get(api, ()), fault)
            if storage is not None:
                of_storage[storage] = (*of_storage.get(storage, ()), fault)
        self.of_requests, self.of_storage = of_requests, of_storage


# --- what is asked for ---------------------------------------------------------------------------


def parse(
    given: Mapping[str, Any], log_dirs: Mapping[str, Path]
) -> tuple[FaultTarget, FaultEffect, FaultTrigger]:
    """Parses a fault from JSON; raises FaultError."""
    for name in given:
        if name not in _FIELDS:
            raise FaultError(f"{name!r} is nothing a fault has{_meant(name, _FIELDS)}")
    given = {name: value for name, value in given.items() if value is not None}
    target = _target(given, log_dirs)
    return target, _effect(given, target), _trigger(given)


def _target(given: Mapping[str, Any], log_dirs: Mapping[str, Path]) -> FaultTarget:
    api, storage = given.get("api"), given.get("storage")
    if (api is None) == (storage is None):
        raise FaultError("say where: api (such as Produce) or storage (such as write), one of them")
    topic, partition = given.get("topic"), given.get("partition")
    if topic is not None and (not isinstance(topic, str) or not topic):
        raise FaultError(f"topic={topic!r}: expected a name")
    if partition is not None:
        partition = _integer("partition", partition, 0)
        if topic is None:
            raise FaultError("partition needs a topic")
    log_dir = given.get("log_dir")
    if storage is not None:
        _one_of("storage", storage, STORAGE)
        if log_dir is not None:
            _one_of("log_dir", log_dir, tuple(log_dirs))
        return FaultTarget(None, storage, topic, partition, log_dirs[log_dir] if log_dir else None)
    _one_of("api", api, served_apis())
    if log_dir is not None:
        raise FaultError("log_dir goes with storage, not with api")
    if topic is not None and api not in BY_PARTITION + BY_TOPIC:
        raise FaultError(
            f"{api} cannot be selected by topic; {', '.join(BY_PARTITION + BY_TOPIC)} can"
        )
    if partition is not None and api not in BY_PARTITION:
        raise FaultError(f"{api} cannot be selected by partition; {', '.join(BY_PARTITION)} can")
    return FaultTarget(api, None, topic, partition, None)


def _effect(given: Mapping[str, Any], target: FaultTarget) -> FaultEffect:
    kinds = [name for name in ("error", "delay", "disconnect") if given.get(name)]
    if len(kinds) != 1:
        raise FaultError("say what: error, delay or disconnect, one of them")
    error, delay_ms = None, None
    if "error" in kinds:
        if target.storage is not None:
            error = _one_of("error", given["error"], tuple(_ERRNOS))
        else:
            error = _one_of("error", given["error"], tuple(c.name for c in ErrorCode if c != 0))
    elif "delay" in kinds:
        try:
            delay_ms = parse_duration(given["delay"])
        except ValueError as wrong:
            raise FaultError(f"delay={given['delay']}: {wrong}") from None
        if not 0 < delay_ms <= _MOST_DELAY_MS:
            raise FaultError(f"delay={given['delay']}: expected more than 0 and at most a day")
    elif given["disconnect"] is not True:
        raise FaultError(
            f"disconnect={given['disconnect']!r}: expected true, and when=before or after"
        )
    when = _one_of("when", given.get("when", BEFORE), (BEFORE, AFTER))
    if target.storage is not None and (kinds == ["disconnect"] or "when" in given):
        raise FaultError("disconnect and when go with api, not with storage")
    if error is not None and when == AFTER and target.api != "Produce":
        raise FaultError("an error after the request was served: only of Produce")
    return FaultEffect(error, delay_ms, kinds == ["disconnect"], when == AFTER)


def _trigger(given: Mapping[str, Any]) -> FaultTrigger:
    times, probability = given.get("times"), given.get("probability", 1)
    if not isinstance(probability, int | float) or not 0 < probability <= 1:
        raise FaultError(f"probability={probability!r}: expected a number above 0, at most 1")
    seed = given.get("seed")
    if seed is not None and probability == 1:
        raise FaultError("seed goes with a probability below 1")
    return FaultTrigger(
        None if times is None else _integer("times", times, 1),
        _integer("skip", given.get("skip", 0), 0),
        probability,
        random.getrandbits(31) if seed is None else _integer("seed", seed, 0),
    )


def served_apis() -> tuple[str, ...]:
    """Returns the names of the APIs that this broker serves, as Kafka spells them."""
    return tuple(api.name for api in message.served_apis())


def errno_of(name: str) -> int:
    """Returns the number of a system error's name."""
    return _ERRNOS[name]


def _integer(name: str, value: Any, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise FaultError(f"{name}={value!r}: expected an integer, {least} or more")
    return value


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> str:
    if value in known:
        return str(value)
    if len(known) > 20:
        raise FaultError(f"{name}={value!r}: there is none of that name{_meant(value, known)}")
    raise FaultError(f"{name}={value!r}: expected {', '.join(known)}")


def _meant(value: Any, known: Iterable[str]) -> str:
    by_letters = {name.upper(): name for name in known}
    close = closest(str(value).upper(), by_letters)
    return f"; did you mean {by_letters[close]}?" if close else ""
