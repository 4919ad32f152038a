"""What the controller decides: pure functions on an image of the metadata.

Begin with `controller.py`, which goes through the partitions and returns transactions. Who leads,
and who stays in the ISR, is in `election.py` (also which replica is preferred; when leaders move back to
it: `controller.py`); on which brokers new replicas go in `placement.py`
(KIP-36); how replicas come and go in `reassignment.py` (KIP-455); creations of topics that a broker
began and did not finish in `unfinished.py`. The shell is `broker/cluster/controller_loop.py`.
"""
