"""The `tidelog` command: one file a subcommand, named as it.

Begin with `parser.py`, which declares every subcommand. Commands talk to brokers over TCP and HTTP
only; what they share (addresses, tables, mistakes) is in `shared.py`.
"""

from tidelog.cli.parser import main

__all__ = ["main"]
