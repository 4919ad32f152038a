"""The data source `timelog`: what Spark asks of it, and the options of a user.

Open `data_source.py` first, and `data_sink.py` for writes. `options.py` parses the options, `names.py`
has their names and `spark_options.py` those of Spark's own source and sink, `bounds.py` finds where
reading starts and ends, `triggers.py` when a micro-batch is due, `pushing.py` uses filters. Reading
itself is in `pipeline/source/`, writing in `pipeline/sink/`.
"""
