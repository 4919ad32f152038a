"""Why a cell of the table may be answered otherwise than by Apache Kafka: one predicate for each reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.oracle.differences import Reason, register
from tests.oracle.transactions.table import LEVEL_2, PREPARED

if TYPE_CHECKING:
    from tests.oracle.transactions.table import Cell

REASONS: list[Reason] = []
UNEXPECTED = -1
OUT_OF_ORDER, EPOCH, MAPPING, CONCURRENT, FENCED, NOT_ENOUGH = 45, 47, 49, 51, 90, 19


class Different(NamedTuple):
    """What Apache Kafka of a release and tidelog make of a cell."""

    release: str
    cell: Cell
    kafka: dict[str, Any]
    tidelog: dict[str, Any]

    @property
    def codes(self) -> tuple[int, int]:
        """The error code of each, the first one where there are several."""
        return code_of(self.kafka["answer"]), code_of(self.tidelog["answer"])

    @property
    def is_old(self) -> bool:
        """Whether the release follows transaction.version 0 by itself."""
        return self.release != LEVEL_2

    def __str__(self) -> str:
        return f"{self.release} {self.cell.state} x {self.cell.call}: {self.kafka}, tidelog {self.tidelog}"


def code_of(answer: Any) -> int:
    """The error code in an answer."""
    code: int = answer[0] if isinstance(answer, list | tuple) else answer
    return code


def reason(name: str, source: str, why: str, **flags: bool) -> Any:
    """Register the decorated predicate."""
    return register(REASONS, name, source, why, **flags)


@reason(
    "the start of a transaction that has ended is not told",
    "Kafka 4.1.1 tells none either",
    "3.9.1 keeps it when InitProducerId comes after the end",
)
def kept_start(d: Different) -> bool:
    kafka, tidelog = d.kafka["after"], d.tidelog["after"]
    same = kafka | {"is begun": False} == tidelog and d.kafka["answer"] == d.tidelog["answer"]
    return d.is_old and same and d.cell.call.startswith("InitProducerId")


@reason(
    "a transaction that ends says so before it judges who asks",
    "facts 2: the order of 4.1 (KAFKA-18464)",
    "3.9.1 judges the producer id and the epoch first",
)
def pending_first(d: Different) -> bool:
    kafka, tidelog = d.codes
    is_add = d.cell.call.startswith(("AddPartitionsToTxn", "AddOffsetsToTxn"))
    judged = kafka in (EPOCH, MAPPING, FENCED) and tidelog == CONCURRENT
    return d.is_old and d.cell.state in PREPARED and is_add and judged


@reason(
    "who was fenced by a time-out or an heir may ask for the next epoch",
    "facts 2, time-outs: they follow the broker's transaction.version, which is 2 here",
    "with version 0 the old producer is fenced for good",
)
def fenced_for_good(d: Different) -> bool:
    asks = d.cell.call.startswith("InitProducerId") and d.cell.call.endswith(" current")
    is_fenced = d.cell.state in ("CompleteAbort, fenced", "CompleteAbort, timed out")
    given = d.tidelog["answer"] == (0, ("same", 1))
    return d.is_old and asks and is_fenced and d.codes[0] in (EPOCH, FENCED) and given


@reason(
    "an epoch that is over is refused before the coordinator is asked",
    "KAFKA-19690, as 4.1.1",
    "3.9.1 asks first: NOT_ENOUGH_REPLICAS while the transaction ends, or the coordinator knows nobody",
)
def epoch_first(d: Different) -> bool:
    ends = d.cell.state in PREPARED and d.codes == (NOT_ENOUGH, EPOCH)
    # The partition knows a later epoch where another cell has written a marker for the producer.
    is_produce = d.cell.call.startswith("Produce") and d.cell.call.endswith(" older")
    nobody = d.cell.state == "unknown" and is_produce and d.codes == (MAPPING, EPOCH)
    return d.is_old and (ends or nobody)


@reason(
    "only the epoch that a transaction was begun with goes on without the coordinator",
    "4.1.1 asks the coordinator, too",
    "3.9.1 takes another epoch of the producer for one whose transaction is open",
)
def open_for_any_epoch(d: Different) -> bool:
    is_sent = d.cell.state in ("Ongoing, sent", "Ongoing, last epoch")
    is_newer = d.cell.call.endswith(" newer")
    produce = d.cell.call.startswith("Produce") and d.codes == (OUT_OF_ORDER, EPOCH)
    offsets = d.cell.call.startswith("TxnOffsetCommit") and d.codes == (0, EPOCH)
    return d.is_old and is_sent and is_newer and (produce or offsets)


@reason(
    "an epoch below zero is that of no producer",
    "DESIGN 2: bad input gets a clear error",
    "Kafka fails inside when it builds the batch",
)
def negative_epoch(d: Different) -> bool:
    builds = d.cell.call.startswith(("WriteTxnMarkers", "TxnOffsetCommit"))
    return builds and d.codes == (UNEXPECTED, EPOCH)


@reason(
    "another epoch than the last one is judged as any other",
    "facts 2, InitProducerId: epoch = last is a retry, else PRODUCER_FENCED",
    "Kafka fails inside when the epochs are used up and the producer names another one",
)
def used_up(d: Different) -> bool:
    if not (d.cell.call.startswith("InitProducerId") and "last epoch" in d.cell.state):
        return False
    told = d.tidelog["answer"]
    is_judged = told[0] in (EPOCH, FENCED) or told == (0, ("same", 0))
    return d.codes[0] == UNEXPECTED and is_judged


@reason(
    "a transaction that is fenced at the last epoch goes on with a new producer id",
    "facts 8, KAFKA-20090: Kafka's id can then never be used again",
    "Kafka aborts with epoch 32767, which is not a producer's",
)
def fenced_at_the_last(d: Different) -> bool:
    is_fence = d.cell.call.startswith("InitProducerId") and d.cell.state == "Ongoing, last epoch"
    kafka, tidelog = d.kafka["after"], d.tidelog["after"]
    moved = kafka | {"given": ("new", 0)} == tidelog and kafka["given"] == ("same", 1)
    return is_fence and d.kafka["answer"] == d.tidelog["answer"] and moved
