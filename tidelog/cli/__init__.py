"""The `tidelog` command. Commands talk to brokers only over TCP and HTTP.

Begin with `parser.py`, which declares every subcommand; each is in the module of its name, or in
`command.py` of the folder of its name. Those about time are in `times/`, those about a cluster's brokers in
`brokers/`. The others are helpers:
- how a command runs and fails, and asks a broker over HTTP: `shared.py`
- options that several commands have, and their values: `arguments.py`; tables, JSON and lines: `output.py`
- how a command connects to a broker, and says a client's errors: `connecting.py`
- requests over Kafka's protocol: `cluster.py`
- what came from the wire, made fit for a terminal: `escaping.py`
- examples, groups of commands, completion in a shell: `help/`; the parser: `tidelog/command_line.py`
- records as text: `records.py`
"""

from tidelog.cli.parser import main

__all__ = ["main"]
