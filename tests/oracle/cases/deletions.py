"""Records deleted on request (DeleteRecords, KIP-107), in every version and at every kind of offset.

After each deletion the records around it are fetched and looked up in every version. Why tidelog finds
more by time than Kafka then is told here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracle.cases.matrix import record_set, records
from tests.oracle.differences import looked_up, partitions, reason
from tests.oracle.scenario import Case, ask, fetch, lookup, produce

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.oracle.scenario import Context, Difference, Step

FOREVER = 2**63 - 1
FORMATS = (
    (2, 0, 9),
    (2, 1, 9),
    (1, 0, 2),
    (1, 1, 2),
    (0, 0, 2),
    (0, 1, 2),
)  # magic, codec, version
BATCHES, SIZE = 8, 4


def delete(
    offset: int, version: int = 2, *, topic: str | None = None, partition: int | None = None
) -> Step:
    """Delete the case's records before an offset."""

    def fields(context: Context) -> dict[str, Any]:
        index = context.partition if partition is None else partition
        wanted = [{"partition_index": index, "offset": offset}]
        named = [{"name": topic or context.topic, "partitions": wanted}]
        return {"topics": named, "timeout_ms": 60_000}

    return ask(f"delete records v{version} before {offset}", "DeleteRecords", version, fields)


def look(around: int, base_ms: int) -> list[Step]:
    """What there is, near an offset, by offset and by time."""
    steps = [
        fetch(version, offset)
        for version in (1, 3, 4, 11, 13)
        for offset in (max(around - 1, 0), around, around + 1)
    ]
    times = (0, base_ms - 1, base_ms + around, base_ms + 2 * around, FOREVER)
    steps += [lookup(version, time) for version in (1, 4, 7) for time in (-2, -1, *times)]
    steps += [lookup(0, -1), lookup(0, -2), lookup(0, base_ms), lookup(7, -3)]
    return steps


def records_deleted(base_ms: int) -> Iterator[Case]:
    """Formats and codecs; offsets at, within, before and behind batches; one segment and many."""
    for kind in ("create", "create-segments"):
        for magic, codec, version in FORMATS:
            steps: list[Step] = []
            for number in range(BATCHES):
                stamps = [base_ms + number * SIZE + n for n in (1, 0, 3, 2)]
                steps.append(
                    produce(version, record_set(magic, codec, records(stamps)), name=f"#{number}")
                )
            for number, offset in enumerate((0, SIZE, SIZE + 2, 3, 3 * SIZE - 1, 3 * SIZE)):
                steps += [delete(offset, number % 3), *look(offset, base_ms)]
            end = BATCHES * SIZE
            steps += [delete(wrong) for wrong in (end + 1, -2, -(2**63), FOREVER)]
            steps += [delete(-1), *look(end, base_ms)]
            steps += [produce(version, record_set(magic, codec, records([base_ms, base_ms + 5])))]
            steps += [*look(end, base_ms), delete(end + 1), *look(end + 1, base_ms)]
            title = f"records deleted, format {magic}, codec {codec}, {kind}"
            tags = {"deletions": True, "segments": kind == "create-segments"}
            yield Case(title, kind, tuple(steps), tags)


def refused(base_ms: int) -> Iterator[Case]:
    """Where there is nothing to delete, or no policy that allows it."""
    written = produce(9, record_set(2, 0, records([base_ms] * 3)))
    steps = [written]
    for version in (0, 1, 2):
        steps += [delete(0, version, topic="no-such-topic"), delete(0, version, partition=77)]
        steps += [delete(0, version, partition=-1)]
    yield Case("records deleted nowhere", "create", tuple(steps), {"deletions": True})
    keyed = produce(9, record_set(2, 0, [one._replace(key=b"k") for one in records([base_ms] * 3)]))
    steps = [keyed, *(delete(offset) for offset in (0, 1, -1, 99, -2)), fetch(12, 0), lookup(1, -2)]
    yield Case("records deleted from a compacted topic", "create-compact", tuple(steps))


def deletions(base_ms: int) -> list[Case]:
    """All of the above."""
    return [*records_deleted(base_ms), *refused(base_ms)]


# --- reasons -------------------------------------------------------------------------------------


def _offsets(d: Difference) -> tuple[int | None, int | None]:
    """What a lookup of a case of this file found: (ours, Kafka's)."""
    if not d.case.tags.get("deletions") or looked_up(d) is None:
        return None, None
    ours, theirs = (next(partitions(one), {}) for one in (d.tidelog_answer, d.kafka_answer))
    return ours.get("offset"), theirs.get("offset")


@reason(
    "the largest time is that of a record that is there",
    "DESIGN 3, MAX_TIMESTAMP (KIP-734)",
    "Kafka answers an offset before the log's start, of a record that was deleted",
)
def largest_of_the_deleted(d: Difference) -> bool:
    ours, theirs = _offsets(d)
    if looked_up(d) != -3 or ours is None or theirs is None:
        return False
    return theirs < BATCHES * SIZE and (ours == -1 or ours >= BATCHES * SIZE)


@reason(
    "deleted records hide nothing behind them",
    "DESIGN 3, lookup: the first record from the log's start on",
    "Kafka chooses the segment by times of deleted records, finds none in it, and stops there",
)
def behind_the_deleted(d: Difference) -> bool:
    ours, theirs = _offsets(d)
    if (looked_up(d) or 0) < 0 or ours is None:
        return False
    return theirs == -1 and ours >= BATCHES * SIZE


@reason(
    "ListOffsets v0 names an offset once",
    "DESIGN 3, ListOffsets v0: where segments begin, and the end",
    "Kafka names the log's start for every segment that lies before it",
)
def named_once(d: Difference) -> bool:
    theirs, ours = d.kafka, d.tidelog
    if not d.case.tags.get("deletions") or not d.path.endswith("old_style_offsets"):
        return False
    return len(theirs) > len(ours) and sorted(set(theirs), reverse=True) == ours
