"""Which transactions hold back consumers of committed data for good, by what all brokers say.

Pure functions: `findings` takes what `brokers.gathering.gathered` returns. Brokers say what is open in the
partitions that they lead, and which producer ids have a transaction open that they coordinate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.brokers.diagnosis import Finding
from tidelog.cli.output import span_of
from tidelog.text import are, first_of

if TYPE_CHECKING:
    from collections.abc import Sequence

HANGS = "transactions hang"
LATE = "transactions not ended"


class _Open(NamedTuple):
    """A transaction that is open in a partition that a broker leads."""

    broker: int
    place: str
    producer_id: int
    idle_ms: int
    is_late: bool
    """Whether nothing was heard of its producer for longer than any transaction may be open."""


def findings(answer: dict[str, Any]) -> list[Finding]:
    """Returns the transactions that nobody is going to end, and those that should have been ended.

    A broker that could not be asked may coordinate those that no other one has: then only late ones count.
    """
    owns = [(each["broker"], each.get("own")) for each in answer["brokers"]]
    coordinated = [None if own is None else own.get("open_producers") for _, own in owns]
    known = {producer_id for ids in coordinated for producer_id in ids or ()}
    opened = [
        _Open(
            broker,
            f"{each['topic']}-{each['partition']}",
            each["producer_id"],
            each["idle_ms"],
            each["idle_ms"] > own["transaction_max_timeout_ms"],
        )
        for broker, own in owns
        if own is not None
        for each in own.get("open_transactions") or ()
    ]
    is_complete = None not in coordinated
    hanging = [
        each for each in opened if each.producer_id not in known and (is_complete or each.is_late)
    ]
    late = [each for each in opened if each.producer_id in known and each.is_late]
    found = []
    if hanging:
        found.append(
            _finding(
                HANGS,
                hanging,
                "that no coordinator has: nobody ends them, and consumers of committed data wait",
                "`tidelog transactions find-hanging` names each, and the command that ends it",
            )
        )
    if late:
        found.append(
            _finding(
                LATE,
                late,
                "that their coordinators should have ended, and consumers of committed data wait",
                "see in the log of the coordinator why markers are not written; `tidelog transactions list "
                "--open-for 15m` names it",
            )
        )
    return found


def _finding(name: str, opened: Sequence[_Open], what: str, remedy: str) -> Finding:
    places = sorted({each.place for each in opened})
    idle_ms = max(each.idle_ms for each in opened)
    return Finding(
        name,
        f"{are(len(opened), 'transaction')} open in {first_of(places)} {what}. Nothing was heard "
        f"of the producer for up to {span_of(idle_ms)}",
        remedy,
        sorted({each.broker for each in opened}),
        places,
    )
