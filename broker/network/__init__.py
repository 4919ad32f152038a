"""Sockets, frames and the dispatch of requests to handlers, and HTTP.

Promises that responses leave in the order of their requests, and that a connection's memory is
bounded. Begin with `connection.py`, which cuts frames, limits their size
(socket.request.max.bytes) and sends responses in order, and `dispatch.py`, which finds the handler
of each request. `listener.py` accepts connections, `connections.py` counts and limits them.
`per_partition.py` turns errors into codes. `http.py` serves /metrics and health, `http_api.py` the
routes below /v1. `http_explain.py` makes the JSON that explains retention, with sentences from
`storage/log/retention/explanation.py`, `http_doctor.py` the JSON of a diagnosis, and
`http_clock.py` that of the clock. `http_changes.py` has the changes, and who may request one.
"""
