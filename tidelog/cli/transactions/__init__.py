"""`tidelog transactions`: what coordinators and partitions know of transactions, and ending some.

Begin with `command.py`, which has the options, and lists and describes; `ending.py` shows what hangs and
aborts it. `asking.py` asks the cluster over Kafka's protocol; `hanging.py` finds the transactions that
nobody is going to end, and `diagnosis.py` what `tidelog cluster doctor` says of them.
"""
