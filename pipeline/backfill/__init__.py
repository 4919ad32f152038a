"""Backfill: the rows of a table as records of a topic.

`tables.py` opens the table, `rows.py` makes records of its rows (without Spark; `local_times.py`,
`avro_values.py`), `staging.py` lets Spark do so and stages them in order, `avro.py`
is the schema of Avro values, `run.py` counts before and writes afterwards.
"""
