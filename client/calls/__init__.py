"""Requests and how their answers are read: one function a question, which returns a `Call`.

Nothing here sends anything: a shell performs a call. `topics.py`, `settings.py`, `records.py`,
`producers.py` and `groups.py` hold what their names say.
"""
