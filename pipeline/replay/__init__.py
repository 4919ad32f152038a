"""The replay engine: columns from a source become batches in a topic, each record once, in order.

Begin with `replay.py`. `delivery.py` has the delivery guarantees, `targets.py` creates and checks
the target topics, `offset_map.py` stores where each record went, and `conclusion.py` writes the
results of a run.
"""
