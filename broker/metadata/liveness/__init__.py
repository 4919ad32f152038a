"""Which brokers of one machine, over one metadata file, are alive.

Promises that the death of a process is seen at once and never assumed: a lock that the kernel gives
back proves it. A process that hangs keeps its lock; its lease ends. Only brokers that share a
metadata file import this package. Begin with `registration.py`. The other questions:
- the lock that a broker holds on its id: `broker_lock.py`
- who holds the locks of the metadata file, and is stopped: `lock_holders.py`
- how its peers notice that it has died or committed: `peers.py`
"""
