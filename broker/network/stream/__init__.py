"""What one connection sends and gets: frames out of what arrives, requests in order, answers on their way.

Promises that a frame's memory is reserved before it is read, and that a peer that does not read its
answers holds little. Begin with `requests.py`, which serves one request after the other. `frames.py` cuts
frames and knows no socket, `incoming.py` says where bytes go and when the socket is read, `held.py` what the
connection holds of the memory, and `outgoing.py` sends. `ahead.py` serves requests to produce behind one that
waits for replicas; `served.py` is what takes the place of their frames.
"""
