"""A log as one of several replicas: its role, a leader's batches, truncation, restart.

Promises that a crash during a truncation leaves the log as it was, or that the next start completes
the truncation, and that replicas stamp, judge and look up alike: what a leader knows of its log's
times comes with its batches.

    leading or following from now on                               roles.py
    what a leader tells of its log, and how it is taken over       leader_state.py
    storing a leader's batches, its high watermark and log start   replica.py
    parsing and checking what a leader sends                       received.py
    truncating a log, or restarting it empty at an offset          truncater.py
    leader epochs, and where each ended                            ../epochs.py
    gaps that the leader's compaction made                         replica.py, ../recovery/gaps.py
"""
