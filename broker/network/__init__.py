"""Sockets, frames and the dispatch of requests to handlers.

Promises that responses leave in the order of their requests, and that a connection's memory is
bounded. Begin with `connection.py`, which cuts frames, limits their size
(socket.request.max.bytes) and sends responses in order, and `dispatch.py`, which finds the handler
of each request. `listener.py` accepts connections, `connections.py` counts and limits them.
`per_partition.py` turns errors into codes.
"""
