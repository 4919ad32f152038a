"""The metadata in etcd, for brokers of several machines.

Implements the contract of `broker/metadata/store.py` over etcd's own guarantees: strictly serializable
transactions, leases, and an ordered watch. Begin with `store.py`. The other questions:
- which member gets a request, its deadline, and the meaning of its errors: `members.py`
- contract and etcd's messages: `wire.py`; reading many keys in pages: `reading.py`
- the watch, and the changes that are kept in this process: `etcd_watch.py`, `change_log.py`
- user, password and token: `login.py`
- the event loop of its own, in which all of gRPC runs: `loop_thread.py`

Imported only by a broker whose `metadata.store` names an etcd; needs the extra `tidelog[etcd]`.
"""
