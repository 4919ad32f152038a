"""Adopts the log directories of a Kafka cluster as those of a tidelog cluster with the same broker ids.

An adoption has two steps, and no broker runs meanwhile. `inventory.py` reads the directories of one broker,
on its machine, and opens their logs as a start does. `plan.py` chooses the leaders and the ISRs from all
inventories, or refuses; `apply.py` writes the plan into new metadata. Begin with `plan.py`.
`kafka_metadata.py` reads Kafka's own metadata log, `written.py` the file of an inventory.

A broker that is alone adopts the logs that it finds by itself: `broker/logs/found_logs.py`.
"""
