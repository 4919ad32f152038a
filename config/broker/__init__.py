"""The settings of a broker, each declared once.

Begin with `settings.py`: `BrokerConfig` holds one part for each subject that has many settings, and the
others itself. The parts are `connections.py`, `limits.py`, `fetches.py`, `http.py`, `groups.py`,
`transactions.py`, `replication.py`, and `cluster.py`, which says which broker this is and which cluster it
belongs to. Rules between settings, and parsers of single ones, are in `checks.py`; listeners and their
addresses in `listeners.py`; the address of etcd that metadata.store may hold in `etcd_address.py`. The
defaults of topics are declared in `config/topic.py`.
"""
