"""The directories of a Kafka cluster become those of a tidelog cluster with the same broker ids.

It has two steps, and no broker runs meanwhile. `inventory.py` looks at the directories of one broker,
on its machine, and opens their logs as a start does. `plan.py` decides on all inventories who leads
what, or refuses; `apply.py` writes that into metadata that are new. Begin with `plan.py`.
`kafka_metadata.py` reads Kafka's own metadata log, `written.py` the file of an inventory.

A broker that is alone adopts the logs that it finds by itself: `broker/topics/adoption.py`.
"""
