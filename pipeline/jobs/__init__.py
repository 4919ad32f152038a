"""The jobs: one module for each `tidelog pipeline JOB`, which is also a function of `tidelog.jobs`.

A module has a class of options (`OPTIONS`, see `pipeline/declaring.py`), from which the parser, the
function and the page of options follow, and `run(options, session)`. That checks the options, asks the
modules of `pipeline/runs/` whose names begin with that of the job, and decides the exit status. It
imports them itself, because they need libraries that parsing options does not need.
"""
