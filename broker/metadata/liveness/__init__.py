"""Which brokers of one machine, over one metadata file, are alive.

Promises that the death of a process is detected at once and never assumed: a lock that the kernel has
released proves it. A process that hangs keeps its lock; its lease ends. Only brokers that share a
metadata file import this package. Begin with `registration.py`. The other questions:
- the lock that a broker holds on its id: `broker_lock.py`
- which processes hold the locks of the metadata file, and whether they are stopped: `lock_holders.py`
- how brokers notice that another one has died or committed: `peers.py`
"""
