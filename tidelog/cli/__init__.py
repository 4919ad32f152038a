"""The `tidelog` command. Commands talk to brokers only over TCP and HTTP.

Begin with `parser.py`, which declares every subcommand; each is in the module of its name. Those
about time are in `times/`, that about transactions in `transactions/`. The others are helpers:
- addresses, HTTP requests, tables and errors: `shared.py`
- requests over Kafka's protocol: `cluster.py`; the topics and groups that it returns:
  `cluster_parts.py`
- the lag that `tidelog groups describe` prints: `group_lag.py`
- what came from the wire, made fit for a terminal: `escaping.py`
- records as text: `records.py`; the offsets of `groups reset-offsets`: `reset_offsets.py`
"""

from tidelog.cli.parser import main

__all__ = ["main"]
