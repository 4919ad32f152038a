"""Bytes to values and back: the Kafka protocol, pure.

No clock, no file, no socket and no event loop live below this package; a time is
an int of milliseconds that somebody else decided. `message` is the only door to the
schemas in `api/`, `errors` declares every error code once, and `records/` reads and
writes the message formats.
"""
