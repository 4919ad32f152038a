"""Archives: topics as Parquet files by event date, with manifests that list the files in force.

Begin with `layout.py`, which says what is where. `manifests.py` are the lists, `store.py` the
directory or object store, `writing.py` and `reading.py` the Parquet files. `iceberg.py` is an archive as
an Iceberg table, `iceberg_files.py` reads its files.
"""
