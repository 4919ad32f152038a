"""Requests and how their answers are read: functions that each return a `Call`.

Nothing here sends anything: a shell performs a call. The modules are `topics.py`, `settings.py`,
`records.py`, `producers.py`, `transactions.py`, `groups.py`, `reassignments.py` and `replication.py`.
"""
