"""Errors of the client that reads and writes brokers, as a program that uses tidelog sees them.

    except tidelog.jobs.JobError as error:
        if isinstance(error.__cause__, tidelog.errors.ClusterUnreachable):
            ...

A function of `tidelog.jobs` raises JobError, and one of these is its cause where a broker was. The
sources and sinks of `tidelog.spark` raise them by these names in the messages of Spark.
"""

from __future__ import annotations

from tidelog.client.errors import (
    AuthenticationFailed,
    ClientError,
    ClusterUnreachable,
    ConnectionBroken,
    Fenced,
    HandshakeBroken,
    NoListener,
    PartitionRefused,
    RequestError,
    SecuritySettingsError,
    SequenceGap,
    UnsupportedByBroker,
    VersionMismatch,
)

__all__ = [
    "AuthenticationFailed",
    "ClientError",
    "ClusterUnreachable",
    "ConnectionBroken",
    "Fenced",
    "HandshakeBroken",
    "NoListener",
    "PartitionRefused",
    "RequestError",
    "SecuritySettingsError",
    "SequenceGap",
    "UnsupportedByBroker",
    "VersionMismatch",
]
