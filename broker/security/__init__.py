"""Access control: the principal of a client, and its rights.

A connection has a `Session` (session.py): a principal, its address, and its listener. `authorizer.py` decides
for every request whether the principal has the right to it. Requests of other brokers are authenticated in
`broker/lifecycle/proof.py`.
"""
