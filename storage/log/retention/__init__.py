"""How segments of a log are deleted, and when each will be.

The rules are in `storage/time/retention.py`, and broker/logs/maintenance says when a round is due.
Begin with `retainer.py`: one log's round of retention, DeleteRecords, and `explain`.
`deletion.py` renames the files of a segment and logs why. `pending_deletes.py` removes the renamed
files when they are due; those who delete segments add file.delete.delay.ms. `explanation.py` puts
into words what each policy does to each segment, and `diagnosis.py` what is wrong with a log's
times; what it may find is in `findings.py`. `known_times.py` gives the metrics what is known without reading.
"""
