"""From bytes on a socket to a handler and back, and HTTP.

Begin with `connection.py` (frames in, ordered answers out) and `dispatch.py` (which handler serves
what). The HTTP routes are in `http_*.py`.
"""
