"""Who may connect: the broker's ports, the limits of connections, and those that are open.

Promises that a connection is served, served later, or refused with a sentence, and that other brokers
can connect however many clients do. Begin with `connections.py`, which knows those that are open and
asks the other modules. `admission.py` has the limits, `descriptors.py` how many the machine allows,
`silent.py` who leaves first, and `over_limit.py` those beyond the limits, which are for other brokers;
`sockets.py` binds the ports, and `listener.py` says by which address clients reach them.
"""
