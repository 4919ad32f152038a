"""The settings of fetches and of their sessions."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.config.setting import INT_MAX, Type, setting


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """A broker's settings of fetches."""

    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        Type.INT,
        55 * 2**20,
        "How many bytes of records a fetch response holds at most; its first batch is returned "
        "whatever its size.",
        low=1024,
        dynamic=False,
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        Type.INT,
        1000,
        "How many sessions of fetches (KIP-227) clients may have. One without a session is answered in "
        "full each time.",
        low=0,
        dynamic=False,
    )
    fetch_session_cache_max_partitions: int = setting(
        "fetch.session.cache.max.partitions",
        Type.INT,
        100_000,
        "How many partitions all sessions of fetches may have in total; each takes about 500 bytes of "
        "memory.",
        low=0,
        high=INT_MAX,
        dynamic=False,
    )
