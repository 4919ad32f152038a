"""Access control: the principal of a client, and what it may do.

A connection has a `Session` (session.py): a principal, its address, and the listener it came in by.
`authorizer.py` decides for every request whether the principal may do what it asks. How a broker proves
that a request is its own is in `broker/membership/proof.py`.
"""
