"""Opening a partition's directory after a clean stop, a crash, or its use by another broker.

Promises that nothing acknowledged and durable is cut off, and that nothing damaged is served.

    what happens at a start, step by step       loading.py
    where a torn tail is cut                    torn_tail.py
    which batches are good                      verification.py
    which gaps between batches are valid        gaps.py
    what is trusted after a clean stop          clean_stop.py
    which append times are unknown afterwards   unknown_append_times.py
    interrupted renames and deletions           leftovers.py
    which segments and snapshots there are      listing.py
    building the log's state, checkpoints       opening.py
"""
