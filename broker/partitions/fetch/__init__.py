"""Fetches of consumers: what each reads, how it waits, and the sessions that many partitions need.

Begin with `fetch_read.py`, which reads once all that a fetch asks for. The usual questions:
- when a fetch is answered: `client_fetch.py`; how it waits for more: `delayed_fetch.py`
- which partitions a session has, and which of them an answer carries (KIP-227), as a pure state
  machine: `session.py`
- how many sessions there are, and which one goes for another, pure too: `sessions.py`
- how logs notify a session, so that a fetch costs what has changed: `incremental.py`
- from which replica a consumer reads (KIP-392): `consumers.py`
- records below the last stable offset: `committed.py`
Followers that are tidelog's have sessions of another kind: `followers/`.
"""
