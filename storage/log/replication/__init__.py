"""Changes that a follower makes to its log: appends of the leader's batches, truncation, restart.

Promises that a crash during a truncation leaves the log as it was, or that the next start completes
the truncation. Begin with `replica.py`. `received.py` parses and checks what a leader sends, and
`truncater.py` truncates a log. Only tests append as a follower until
brokers replicate.
"""
