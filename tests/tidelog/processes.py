"""What tests of broker processes look at from outside."""

from __future__ import annotations

import os
import select
import socket

WITHIN_S = 60


def connects(address):
    """Whether something listens at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=WITHIN_S).close()
    except ConnectionRefusedError:
        return False
    return True


def ended(pid):
    """Whether a process that is no child of ours ends in time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], WITHIN_S)[0])
    finally:
        os.close(handle)
