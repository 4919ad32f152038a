"""`tidelog cluster doctor`: what is wrong with a running cluster, and what helps.

Exit status: 0 if nothing was found, 1 if something was, 2 if the broker could not be asked, or for a
mistake in the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cli.brokers.diagnosis import findings
from tidelog.cli.brokers.gathering import gathered
from tidelog.cli.output import print_folded, print_json, print_lines
from tidelog.cli.shared import USAGE
from tidelog.cli.transactions.diagnosis import findings as of_transactions
from tidelog.text import some

if TYPE_CHECKING:
    import argparse
    from typing import Any

    from tidelog.cli.brokers.diagnosis import Finding

FOUND, UNKNOWN = 1, USAGE


def run_doctor(options: argparse.Namespace) -> int:
    """Runs `tidelog cluster doctor`; returns the exit status. Raises CommandError."""
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
        print_folded(f"{each.finding}: {each.sentence}.")
        print_folded(f"what helps: {each.help}.", indent="  ")
        print_lines("")
    brokers, partitions = len(answer["brokers"]), len(answer["partitions"])
    number = some(len(found), "finding") if found else "nothing found"
    print_lines(
        f"{some(brokers, 'broker')} and {some(partitions, 'partition')} examined: {number}."
    )
