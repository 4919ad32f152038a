"""Sockets, frames and the dispatch of requests to handlers.

Promises that responses leave in the order of their requests, and that a connection's memory is
bounded. Begin with `connection.py`, which serves the frames of one connection and sends responses in
order, and `dispatch.py`, which finds the handler of each request. `accepting/` says who may connect,
`stream/` cuts frames out of what arrives and sends answers, `turns.py` shares the event loop.
`per_partition.py` turns errors into codes. `impostors.py` counts and logs requests that claim to come from a
broker.
"""
