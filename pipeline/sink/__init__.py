"""Writing a DataFrame to topics: `df.write.format("timelog")` and `df.writeStream`.

Tasks of Spark stage their rows as Arrow files, each with its target partition (`staging.py`). When
all are there, the driver's commit records a plan and replays the files with the writer of the jobs
(`committing.py`, `pipeline/replay/`). A commit that was interrupted is continued from its plan, so
what was staged first is written exactly once, whatever the tasks of a second attempt have staged.
`sink_options.py` has the options, `rows.py` the columns.
"""
