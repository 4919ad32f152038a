"""How handlers use partitions without blocking the event loop.

Promises that no handler blocks the loop on a file (`offload.py`, `openings.py`), that appends to
one partition keep their order (`appends.py`, `commits.py`), and that fetches which wait are woken
(`waiting.py`). `admission.py` decides who may produce and commit. Begin with `appends.py`.
"""
