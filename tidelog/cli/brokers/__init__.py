"""The commands about brokers: to run them, to see how they are, and to take one out of the cluster.

`serve.py` runs one or several. `status.py` shows who leads what, and what is wrong
(`diagnosis.py` finds it in what `gathering.py` was told). `roll.py` restarts all of them, one after
another. `rebalance.py` (by `rebalance_plan.py`) and `remove.py` move partitions (`assignments.py` asks
the brokers for that).
"""
