"""Sockets, frames and the dispatch of requests to handlers.

Promises that responses leave in the order of their requests, and that a connection's memory is
bounded. Begin with `connection_state.py`, the states of a connection and the events that change them.
`connection.py` is one client's connection. `stream/` cuts frames out of what arrives, serves requests in
order and sends answers; `dispatch.py` calls the handler that `routes.py` finds. Handlers know a request by
its `context.py`, and may answer what `answers.py` says. `accepting/` says who may connect, `scheduler.py`
shares the event loop, and `memory/` the memory. `per_partition.py` turns errors into codes. `impostors.py`
counts and logs requests that claim to come from a broker.
"""
