"""How much memory requests may take, and who waits until there is some.

`memory.limit.bytes` is one budget. `memory.py` divides it into shares, one for each use: frames that
arrive, records that are decompressed or converted, answers that nobody has read yet, and replication.
`share.py` is the accountant of one share: it reserves first come, first served. It knows no socket, no
clock and no event loop, and is used by the event loop's thread alone.

Nobody waits for one share while holding what others of the same share wait for. The shares are taken in
one order: the frame of a request, then the work on it, then its answer. So there are no deadlocks.
"""
