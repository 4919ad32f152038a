"""Backfill in this process: small files become the records that Spark would make of them, byte for byte.

`choice.py` is the rule that decides, `files.py` finds the files, `parquet.py`, `csv_lines.py` and
`json_lines.py` read them, `kinds.py` names types as Spark does, `texts.py` writes values as Spark
does, `numbers.py` numbers as Java does, `staging.py` counts the rows and stages them in order. What
is not known to come out the same raises NeedsSpark, and Spark is started.
"""
