"""Backfill: the rows of a table as records of a topic.

`run.py` counts before and writes afterwards. `wanted.py` says what the options make of the columns. Who
reads the table is one of two: Spark (`tables.py` opens it, `staging.py` has the rows) or this process,
for small files (`local_files.py` reads them, `in_process.py` has the rows, `texts.py` writes values as
Spark does). Both use `rows.py` (with `local_times.py` and `avro_values.py`) for times, partitions, Avro
and counts; `avro.py` is the schema, and `places.py` says where in a table something is.
"""
