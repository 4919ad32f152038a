"""The one error of an answer that needs a file which is not in memory: ask again in a thread.

Whoever calls with `may_block=False` gets an answer from memory, or from a short read, or this exception.
"""

from __future__ import annotations

SHORT_UNPACK_BYTES = 4 << 20
"""Records that unpack to more than this are unpacked where nobody waits, whatever their compressed size."""


class WouldBlock(Exception):
    """The answer needs files that are not in memory, or are long; nothing has been changed."""


class NeedsMemory(WouldBlock):
    """The records unpack to more than the caller has allowed; with more memory they may be read."""
