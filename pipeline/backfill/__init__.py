"""Backfill: the rows of a table as records of a topic.

`tables.py` opens the table, `staging.py` makes records of its rows and stages them in order, `avro.py`
is the schema of Avro values, `run.py` counts before and writes afterwards.
"""
