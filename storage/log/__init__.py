"""One partition: append, read, look up, flush, delete, compact, follow a leader, truncate.

The log gives batches offsets and append times, knows which of them are durable and which may be
read, and deletes what its policies say. Errors are raised as `protocol.errors.BrokerError`; an
operation that fails leaves the log as it was. Begin with `partition.py`. Opening a log after a
crash is in `recovery/`, the state of producers in `producers/`, and the deletion of segments in
`retention/`.
"""
