"""The partitions that have a replica on this broker: who leads, who follows, and who reads and writes.

Promises that no handler blocks the loop on a file (`offload.py`, `log_opener.py`), that whoever waits for a
log's offsets waits in one place (`purgatory.py`; decision 63), that a partition changes its role one step at
a time, and that nothing is answered as leader meanwhile. Begin with `replica_manager.py`.

    what others ask of all partitions here                        replica_manager.py
    which there are, by the image of the metadata                 assigned.py
    one partition: its role, and the change of it                 partition.py, role_transitions.py
    appending in the order of requests, syncs of many producers   produce/
    fetches of consumers and of followers, and their sessions     fetch/
    leading: acknowledgements, changes of the ISR, elections      leading/
    following: one connection to each leader, what it sends       following/
    the rules of both, without clock, socket or file              replication/
    finding a log, and whether this broker leads it               lookup.py
    records in older formats, for old clients and followers       conversion.py
    which requests are of other brokers, and proofs of one's own  senders.py
    where no log has another replica                              sole_replicas.py
"""
