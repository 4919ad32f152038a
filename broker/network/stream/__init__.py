"""The bytes of one connection: frames out of what arrives, and answers on their way to the peer.

Promises that a frame's memory is reserved before it is read, and that a peer that does not read its
answers holds little. Begin with `frames.py`, which knows no socket. `incoming.py` says where bytes go
and when the socket is read, `held.py` what the connection holds of the memory, `outgoing.py` sends, and
`ahead.py` serves requests to produce behind one that waits for replicas.
"""
