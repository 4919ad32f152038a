"""What clients that have quotas have taken, and how long they have to wait.

One bucket counts for all connections of a user, of a client id, or of both, as the entity says whose quota
it is. Clients choose their ids, so what is kept of them is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.quotas.entity import (
    CLIENT_QUOTAS,
    MUTATION,
    NO_QUOTAS,
    REQUEST,
    limit_of,
)
from tidelog.broker.quotas.rates import Rate, Tokens, Windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.broker.quotas.entity import Entity, Limit, Quotas

MOST_BUCKETS: Final = 10_000
MOST_CLIENTS: Final = 10_000
UNUSED_MS: Final = 3_600_000
"""For how long a bucket is kept that nobody uses, as in Kafka."""


class Limits(NamedTuple):
    """The quotas that hold for one client; None where it has none."""

    produce: Limit | None
    fetch: Limit | None
    request: Limit | None
    mutation: Limit | None


class Used(NamedTuple):
    """What one bucket shows to those who watch."""

    key: str
    entity: Entity
    per_second: float  # of MUTATION the tokens that are left
    throttled_ms: int  # for how long in all its clients were told to wait


class _Bucket:
    """What was taken from one bucket, when it was used last, and whose quota it counts for."""

    __slots__ = ("counted", "limit", "throttled_ms", "used_ms")

    def __init__(self, counted: Rate | Tokens, limit: Limit, now_ms: int) -> None:
        self.counted, self.limit = counted, limit
        self.used_ms, self.throttled_ms = now_ms, 0


class ClientQuotas:
    """The buckets of a broker. Times are monotonic, in ms."""

    def __init__(self, windows: Windows, mutation_windows: Windows) -> None:
        self.windows, self._mutation_windows = windows, mutation_windows
        self._quotas: Quotas = NO_QUOTAS
        self._limits: dict[tuple[str, str], Limits | None] = {}
        self._buckets: dict[tuple[str, tuple[str, str]], _Bucket] = {}  # the last used is the last

    def of(self, quotas: Quotas, user: str, client_id: str) -> Limits | None:
        """Returns the quotas of a client; None if it has none at all."""
        if quotas is not self._quotas:
            self._quotas = quotas
            self._limits.clear()
        client = user, client_id
        if client in self._limits:
            return self._limits[client]
        found = Limits(*(limit_of(quotas, key, user, client_id) for key in CLIENT_QUOTAS))
        if len(self._limits) >= MOST_CLIENTS:
            self._limits.clear()
        limits = self._limits[client] = found if any(found) else None
        return limits

    def take(self, key: str, limit: Limit, size: float, now_ms: int) -> int:
        """Counts what a client has taken; returns for how many ms it has to wait, 0 if not at all.

        The time of requests, in s, is taken as 100 for each: of REQUEST the wait is one window at most.
        """
        rate = self._rate(key, limit, now_ms)
        rate.record(size, now_ms)
        wait_ms = rate.wait_ms(limit.value, now_ms)
        return min(wait_ms, self.windows.size_ms) if key == REQUEST else wait_ms

    def give_back(self, key: str, limit: Limit, size: float, now_ms: int) -> None:
        """Takes back what was counted, because the client has not got it."""
        self._rate(key, limit, now_ms).record(-size, now_ms)

    def is_idle(self, key: str, limit: Limit, now_ms: int) -> bool:
        """Returns whether nothing was taken in the windows."""
        return self._rate(key, limit, now_ms).is_idle(now_ms)

    def most_bytes(self, limit: Limit) -> int:
        """Returns how many bytes may be taken at once by who has taken none: those of all windows but one."""
        return int(limit.value * (self.windows.number - 1) * self.windows.size_ms / 1000)

    def change(self, limit: Limit, partitions: int, now_ms: int) -> int:
        """Counts changes of partitions; returns for how many ms the client has to wait."""
        tokens = self._tokens(limit, now_ms)
        tokens.take(partitions, limit.value, now_ms)
        return tokens.wait_ms(limit.value, now_ms)

    def change_wait_ms(self, limit: Limit, now_ms: int) -> int:
        """Returns for how many ms a client has to wait before it may change partitions."""
        return self._tokens(limit, now_ms).wait_ms(limit.value, now_ms)

    def throttled(self, key: str, limit: Limit, wait_ms: int) -> None:
        """Counts that a client was told to wait."""
        bucket = self._buckets.get((key, limit.bucket))
        if bucket is not None:
            bucket.throttled_ms += wait_ms

    def used(self, now_ms: int) -> Iterator[Used]:
        """Yields what the buckets show now."""
        for (key, _), bucket in dict(self._buckets).items():
            counted, limit = bucket.counted, bucket.limit
            rate = (
                counted.left(limit.value, now_ms)
                if isinstance(counted, Tokens)
                else counted.per_second(now_ms)
            )
            yield Used(key, limit.entity, rate, bucket.throttled_ms)

    def _rate(self, key: str, limit: Limit, now_ms: int) -> Rate:
        counted = self._bucket(key, limit, now_ms).counted
        assert isinstance(counted, Rate)
        return counted

    def _tokens(self, limit: Limit, now_ms: int) -> Tokens:
        counted = self._bucket(MUTATION, limit, now_ms).counted
        assert isinstance(counted, Tokens)
        return counted

    def _bucket(self, key: str, limit: Limit, now_ms: int) -> _Bucket:
        """Returns a bucket, a new one if there is none, and forgets those that nobody uses."""
        name = key, limit.bucket
        bucket = self._buckets.pop(name, None)
        if bucket is None:
            self._forget(now_ms)
            counted = Tokens(self._mutation_windows) if key == MUTATION else Rate(self.windows)
            bucket = _Bucket(counted, limit, now_ms)
        bucket.limit, bucket.used_ms = limit, now_ms
        self._buckets[name] = bucket
        return bucket

    def _forget(self, now_ms: int) -> None:
        while self._buckets:
            name, oldest = next(iter(self._buckets.items()))
            if len(self._buckets) < MOST_BUCKETS and now_ms - oldest.used_ms < UNUSED_MS:
                return
            del self._buckets[name]
