"""The broker's own log: lines on standard error that never hold up who logs.

Promises that a line of one event has one form, that no reader of standard error blocks the broker, and
that neither a client nor a failing disk fills it: what repeats is counted. Begin with `structured_log.py`,
the form of a line. `log_output.py` writes lines, `repeats.py` decides which of them are logged, and
`folded_log.py` makes one line of the same event of many partitions.
"""
