"""The replicas of this broker: the machines of `broker/replication` around real logs.

Promises that what a machine returns is carried out in order, that one partition changes its role
one step at a time, and that nothing is answered as leader while it does. It decides nothing about
replication itself. Where no log has another replica, `broker/partitions/sole_replicas.py` is in its place.

    all partitions here, by the image of the metadata             replicas.py
    one partition: its role, and the change of it                 local_replica.py
    leading: appends, acknowledgements, changes of the ISR        led.py, acknowledgements.py, isr_changes.py
    answering followers' fetches, and parking them                serving/
    from which replica consumers read                             consumers.py
    following: appending what a leader sent, truncating           followed.py
    fetching: one connection to each leader                       fetcher.py
    which requests are of other brokers, and proofs of one's own  senders.py
    how fast replicas that are not in sync are copied             quotas.py, serving/throttled.py
    logs and fetches as the machines see them                     views.py
"""
