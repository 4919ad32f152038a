"""The replay engine: columns from a source become batches in a topic, each record once and in order.

Begin with `replay.py`. `delivery.py` says how often a record arrives, `targets.py` makes and checks
the topics written to, `offset_map.py` keeps where each record went, and `conclusion.py` writes what
a run leaves behind.
"""
