"""Records the usage of clients that have quotas, and returns their throttle times.

One bucket counts all connections of a user, of a client id, or of both, as the entity of the quota has them.
Clients choose their ids, so the number of buckets is limited.
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
from tidelog.broker.quotas.rates import Rate, TokenBucket, Windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.broker.quotas.entity import Entity, Limit, Quotas

MOST_BUCKETS: Final = 10_000
MOST_CLIENTS: Final = 10_000
UNUSED_MS: Final = 3_600_000
"""An unused bucket is dropped after this time, as in Kafka."""


class ClientLimits(NamedTuple):
    """The quotas that hold for one client; None where it has none."""

    produce: Limit | None
    fetch: Limit | None
    request: Limit | None
    mutation: Limit | None


class Used(NamedTuple):
    """The state of one bucket, for metrics."""

    key: str
    entity: Entity
    per_second: float  # of MUTATION the tokens that are left
    throttled_ms: int  # the sum of the throttle times of its clients


class _Bucket:
    """One bucket: its rate or tokens, its quota, and when it was last used."""

    __slots__ = ("counted", "limit", "throttled_ms", "used_ms")

    def __init__(self, counted: Rate | TokenBucket, limit: Limit, now_ms: int) -> None:
        self.counted, self.limit = counted, limit
        self.used_ms, self.throttled_ms = now_ms, 0


class ClientQuotas:
    """What each quota entity has used: a rate, or a token bucket. Times are monotonic, in ms."""

    def __init__(self, windows: Windows, mutation_windows: Windows) -> None:
        self.windows, self._mutation_windows = windows, mutation_windows
        self._quotas: Quotas = NO_QUOTAS
        self._limits: dict[tuple[str, str], ClientLimits | None] = {}
        self._buckets: dict[tuple[str, tuple[str, str]], _Bucket] = {}  # the last used is the last

    def of(self, quotas: Quotas, user: str, client_id: str) -> ClientLimits | None:
        """Returns the quotas of a client; None if it has none at all."""
        if quotas is not self._quotas:
            self._quotas = quotas
            self._limits.clear()
        client = user, client_id
        if client in self._limits:
            return self._limits[client]
        found = ClientLimits(*(limit_of(quotas, key, user, client_id) for key in CLIENT_QUOTAS))
        if len(self._limits) >= MOST_CLIENTS:
            self._limits.clear()
        limits = self._limits[client] = found if any(found) else None
        return limits

    def record(self, key: str, limit: Limit, size: float, now_ms: int) -> int:
        """Records the usage of a client; returns its throttle time in ms, 0 if it is below the quota.

        `size` is in bytes, or for REQUEST in percent-seconds: 100 for each second of request time. The
        throttle time of REQUEST is at most one window.
        """
        rate = self._rate(key, limit, now_ms)
        rate.record(size, now_ms)
        wait_ms = rate.wait_ms(limit.value, now_ms)
        return min(wait_ms, self.windows.size_ms) if key == REQUEST else wait_ms

    def unrecord(self, key: str, limit: Limit, size: float, now_ms: int) -> None:
        """Subtracts recorded usage again, because the client did not get the response."""
        self._rate(key, limit, now_ms).record(-size, now_ms)

    def is_idle(self, key: str, limit: Limit, now_ms: int) -> bool:
        """Returns whether no usage was recorded in the windows."""
        return self._rate(key, limit, now_ms).is_idle(now_ms)

    def max_burst_bytes(self, limit: Limit) -> int:
        """Returns how many bytes an idle client may use at once: those of all windows but one."""
        return int(limit.value * (self.windows.number - 1) * self.windows.size_ms / 1000)

    def record_mutations(self, limit: Limit, partitions: int, now_ms: int) -> int:
        """Records created or deleted partitions; returns the throttle time of the client in ms."""
        tokens = self._token_bucket(limit, now_ms)
        tokens.record(partitions, limit.value, now_ms)
        return tokens.wait_ms(limit.value, now_ms)

    def mutation_wait_ms(self, limit: Limit, now_ms: int) -> int:
        """Returns the time in ms until a client may create or delete partitions again."""
        return self._token_bucket(limit, now_ms).wait_ms(limit.value, now_ms)

    def throttled(self, key: str, limit: Limit, wait_ms: int) -> None:
        """Counts a throttle time that was sent to a client."""
        bucket = self._buckets.get((key, limit.bucket))
        if bucket is not None:
            bucket.throttled_ms += wait_ms

    def used(self, now_ms: int) -> Iterator[Used]:
        """Yields the state of each bucket."""
        for (key, _), bucket in dict(self._buckets).items():
            counted, limit = bucket.counted, bucket.limit
            rate = (
                counted.remaining(limit.value, now_ms)
                if isinstance(counted, TokenBucket)
                else counted.per_second(now_ms)
            )
            yield Used(key, limit.entity, rate, bucket.throttled_ms)

    def _rate(self, key: str, limit: Limit, now_ms: int) -> Rate:
        counted = self._bucket(key, limit, now_ms).counted
        assert isinstance(counted, Rate)
        return counted

    def _token_bucket(self, limit: Limit, now_ms: int) -> TokenBucket:
        counted = self._bucket(MUTATION, limit, now_ms).counted
        assert isinstance(counted, TokenBucket)
        return counted

    def _bucket(self, key: str, limit: Limit, now_ms: int) -> _Bucket:
        """Returns a bucket, a new one if there is none, and drops unused ones."""
        name = key, limit.bucket
        bucket = self._buckets.pop(name, None)
        if bucket is None:
            self._forget(now_ms)
            counted = TokenBucket(self._mutation_windows) if key == MUTATION else Rate(self.windows)
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
