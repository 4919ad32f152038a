"""How handlers use partitions without blocking the event loop.

Promises that no handler blocks the loop on a file (`offload.py`, `openings.py`), that appends to
one partition keep their order (`appends.py`), and that whoever waits for a log's offsets waits in
one place (`waiting.py`). `lookup.py` finds a log, and whether this broker leads it. `group_sync.py` runs
one fsync for the acknowledgements of many producers. `conversion.py` down-converts for older Fetch
versions and says when that is too much for the loop; `offload.py` chooses the pool; `fetch_parts.py` is
what all fetches share; `sole_replicas.py` is the replication of logs that have no
other replica. Begin with `appends.py`.
"""
