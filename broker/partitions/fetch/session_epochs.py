"""The epochs of fetch sessions (KIP-227): a session counts its fetches, whoever has it."""

from __future__ import annotations

SESSIONLESS = -1  # the epoch of a fetch that has no session, and closes the one it names
FIRST = 0  # the epoch of a fetch that begins a session
NO_SESSION = 0  # the id in answers without one
_LAST = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """Returns the epoch that the next fetch of a session must have."""
    return 1 if epoch == _LAST else epoch + 1
