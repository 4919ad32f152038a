"""TLS below a connection: bytes are decrypted as they arrive, and encrypted as the peer reads them.

Promises that answers which a peer does not read are counted as without TLS, that no call encrypts more than a
slice of them, and that handshakes, by however many peers, use at most a part of the event loop. Begin with
`stream.py`: it is a protocol to its socket, and the transport of its connection. `handshakes.py` shares the
loop among handshakes by address, `contexts.py` reads keys, and `listeners.py` puts it together.
"""
