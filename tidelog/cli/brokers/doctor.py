"""`tidelog cluster doctor`: what is wrong with a running cluster, and what helps.

Exit status: 0 if nothing was found, 1 if something was, 2 if the broker could not be asked, or for a
mistake in the command line.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from tidelog.cli.brokers.diagnosis import findings
from tidelog.cli.brokers.gathering import gathered
from tidelog.cli.shared import USAGE, print_json, print_lines, run
from tidelog.cli.transactions.diagnosis import findings as of_transactions
from tidelog.text import some

if TYPE_CHECKING:
    import argparse
    from typing import Any

    from tidelog.cli.brokers.diagnosis import Finding

FOUND, UNKNOWN = 1, USAGE
_WIDTH = 100


def run_doctor(options: argparse.Namespace) -> int:
    """Runs `tidelog cluster doctor`; returns the exit status."""
    statuses: list[int] = []
    failed = run("cluster doctor", lambda given: statuses.append(_doctor(given)), options)
    return UNKNOWN if failed else statuses[0]


def _doctor(options: argparse.Namespace) -> int:
    """Prints what was found; returns the exit status. Raises CommandError."""
    answer = gathered(options.http)
    found = [*findings(answer), *of_transactions(answer)]
    if options.json:
        told = [each._asdict() for each in found]
        print_json({"cluster_id": answer["cluster_id"], "findings": told})
    else:
        _print(answer, found)
    return FOUND if found else 0


def _print(answer: dict[str, Any], found: list[Finding]) -> None:
    for each in found:
        print_lines(
            *_folded(f"{each.finding}: {each.sentence}."),
            *_folded(f"what helps: {each.help}.", indent="  "),
            "",
        )
    examined = " and ".join(
        (
            some(len(answer["brokers"]), "broker"),
            some(len(answer["partitions"]), "partition"),
        )
    )
    number = some(len(found), "finding") if found else "nothing found"
    print_lines(f"{examined} examined: {number}.")


def _folded(text: str, *, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
