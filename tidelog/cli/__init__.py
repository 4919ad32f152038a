"""The `tidelog` command: one module for each subcommand, with the same name.

Begin with `parser.py`, which declares every subcommand. Commands talk to brokers only over TCP and
HTTP. What they share (addresses, tables, errors) is in `shared.py`.
"""

from tidelog.cli.parser import main

__all__ = ["main"]
