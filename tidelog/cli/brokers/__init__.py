"""The commands about brokers: to run them, to see how they are, and to take one out of the cluster.

`serve.py` runs one or several. `status.py` shows who leads what, and `remove.py` moves partitions away.
"""
