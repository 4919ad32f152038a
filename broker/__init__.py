"""The running broker: the only package with an event loop, sockets and a clock."""
