"""Sockets, frames and the dispatch of requests to handlers, and HTTP.

Promises that responses leave in the order of their requests, and that a connection's memory is
bounded. Begin with `connection.py` (frames in, ordered responses out) and `dispatch.py` (the
handler of each request). The HTTP routes are in `http_*.py`.
"""
