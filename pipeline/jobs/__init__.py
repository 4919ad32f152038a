"""One module for each job, with `arguments(parser)` and `run(options, session)`.

`pipeline/cli.py` calls them. `run` imports the module of `pipeline.runs` that does the work,
because that module needs libraries that parsing options does not need.
"""
