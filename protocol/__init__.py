"""Encoding and decoding of the Kafka protocol, without side effects.

This package uses no clock, file, socket or event loop. A time is an int of milliseconds that the
caller decides. Begin with `message`, the only way to the schemas in `api/`. `errors` declares every
error code once. `records/` reads and writes the message formats.
"""
