"""Limits the memory of requests, and makes them wait until there is enough.

`memory.limit.bytes` is one budget. `memory.py` divides it into shares, one for each use: frames that
arrive, records that are decompressed or converted, answers that nobody has read yet, and replication.
`share.py` reserves the bytes of one share, first come, first served. A share uses no socket, no clock and no
event loop, and only the event loop's thread uses it.

No request waits for a share while it holds bytes of the same share that others wait for. Requests reserve in
one order: the frame of a request, then the work on it, then its answer. So there are no deadlocks.

`heap.py` and `garbage.py` set when the C library and Python release memory that is free.
"""
