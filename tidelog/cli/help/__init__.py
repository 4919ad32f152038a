"""What `--help` shows beside the options: commands in groups, and examples (`examples.py`).

It is imported for help alone. `completion.py` has the scripts that complete commands in a shell.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from tidelog.cli.help.examples import EXAMPLES
from tidelog.command_line import with_examples

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.command_line import Parser

_GROUPS: Final = {
    "run brokers": ("serve", "cluster", "broker", "adopt", "configs", "quotas"),
    "topics and records": ("topics", "produce", "consume", "delete-records"),
    "groups and transactions": ("groups", "transactions"),
    "time": ("offsets", "times", "explain", "doctor", "clock"),
    "files": ("dump", "scrub"),
    "jobs and shells": ("pipeline", "completion"),
}
_COLUMN: Final = 17
_WIDTH: Final = 96
_WHERE: Final = (
    "Commands that ask a running broker find it by --broker HOST:PORT or --http HOST:PORT, or by the "
    "variables TIDELOG_BROKER and TIDELOG_HTTP; either address is enough. TIDELOG_COMMAND_CONFIG names "
    "a file of client properties for TLS and SASL."
)


def add_help(parser: Parser) -> None:
    """Puts the commands in groups, and adds examples to the help of every command."""
    with_examples(parser, EXAMPLES)
    parser.description = "\n\n".join(
        [parser.description or "", *_grouped(parser.summaries()), _WHERE]
    )
    parser.hide_parts("tidelog [-h] [--version] COMMAND ...")


def _grouped(described: Mapping[str, str]) -> Iterable[str]:
    """Yields a block of lines for each group; what is in no group is in the last one."""
    named = {name for names in _GROUPS.values() for name in names}
    groups = {**_GROUPS, "more": tuple(name for name in described if name not in named)}
    for title, names in groups.items():
        lines = [
            textwrap.fill(
                f"{name:<{_COLUMN - 3}} {described[name]}",
                _WIDTH,
                initial_indent="  ",
                subsequent_indent=" " * _COLUMN,
            )
            for name in names
            if name in described
        ]
        if lines:
            yield "\n".join([f"{title}:", *lines])
