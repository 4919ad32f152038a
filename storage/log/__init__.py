"""One partition: append, read, look up, flush, delete, compact, follow a leader, truncate.

The log numbers and stamps what is produced, knows what is durable and what may be read, and lets go
of what its policies delete. Errors are raised as `protocol.errors.BrokerError`; what failed leaves
the log as it was. Begin with `partition.py`. How a log is opened after a crash is in `recovery/`,
what is known of producers in `producers/`, why a segment is deleted and when in `retention/`.
"""
