"""Sockets, frames and the dispatch of requests to handlers, and HTTP.

Promises that responses leave in the order of their requests, and that a connection's memory is
bounded. Begin with `connection.py` (frames in, ordered responses out) and `dispatch.py` (the
handler of each request). `http.py` serves /metrics and health, `http_api.py` and
`http_explain.py` the routes below /v1.
"""
