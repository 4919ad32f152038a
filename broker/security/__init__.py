"""Access control: the principal of a client, and what it may do.

A connection has a `Session` (session.py): a principal, its address, and the listener it came in by.
`authorizer.py` decides for every request whether the principal may do what it asks. `impostors.py` counts and
logs requests that claim to come from a broker; `broker/membership/proof.py` has how a broker proves that.
"""
