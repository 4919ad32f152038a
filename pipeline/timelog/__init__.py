"""The data source `timelog`: what Spark asks of it, and the options of a user.

Open `data_source.py` first. `options.py` parses the options, `names.py` has their names,
`bounds.py` finds where reading starts and ends, `pushing.py` uses filters. Reading itself is in
`pipeline/source/`.
"""
