"""One segment of a partition: its log file, the indexes beside it, and its append times.

A segment takes whole batches that already have offsets and stamps, finds them by position, offset
or time, and rebuilds missing indexes. It knows nothing of its partition. Begin with `segment.py`:
append, read, cut; it is composed of the next four. `log_file.py`: the `.log`, batch by batch.
`log_indexes.py`: both indexes. `log_times.py`: what is known of its times, and its append times.
`segment_files.py`: the files, synced, renamed and removed together.
`searching.py`: find by offset. `time_search.py`: find by time. `batch_headers.py`: single fields of a header.
`offset_index.py`: `.index`. `time_index.py`: `.timeindex`, `.negativetimes`. `sparse_index.py`: what
both indexes share.
`append_times.py`: `.appendtimes`, and which times are known; `appended/`: its entries.
`transaction_index.py`: `.txnindex`. `survey.py` reads a log to learn its times.
`named_file.py`: a file that is renamed while others read it. `segment_line.py`: what
`partition.times` says of a segment.
"""
