"""Client quotas of users, client ids and addresses on this broker (KIP-13, 124, 546, 599).

Begin with `entity.py`: the entities, and which quota holds for a client. `rates.py` measures rates,
`checks.py` validates changes, and `clients.py` has the sensors that the connections of a client share. All
of it is pure: times are arguments. The quotas are metadata (`broker/metadata/client_quotas.py`), and
`broker/network/throttling.py` mutes connections.
"""
