"""Quotas of clients: what users, client ids and addresses may take of this broker (KIP-13, 124, 546, 599).

Begin with `entity.py`: what can have a quota, and which quota holds for whom. `rates.py` measures,
`checks.py` says which changes are valid, and `clients.py` has the buckets that clients share. All of it is
pure: times are arguments. The quotas are metadata (`broker/metadata/client_quotas.py`), and connections are
muted by `broker/network/throttling.py`.
"""
