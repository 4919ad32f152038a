"""Backfill: the rows of a table as records of a topic.

`run.py` counts before and writes afterwards. `wanted.py` says what the options make of the columns. Who
makes records of the rows is one of two: Spark (`tables.py` opens the table, `staging.py` counts the rows
and stages them in order) or this process (`in_process/`, for small files). Both use `rows.py` (with
`local_times.py` and `avro_values.py`) for times, partitions and Avro; `avro.py` is the schema.
"""
