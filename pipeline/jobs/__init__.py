"""One module per job: `arguments(parser)` and `run(options, session)`; see `pipeline/cli.py`."""
