"""The command line of the jobs: one module for each `tidelog pipeline JOB`, with its options.

A module has `arguments(parser)` and `run(options, session)`, which `pipeline/cli.py` calls. It checks
options, asks the modules of `pipeline/runs/` whose names begin with that of the job, and decides the
exit status. It imports them in `run`, because they need libraries that parsing options does not need.
"""
