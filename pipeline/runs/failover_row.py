"""What a failover knows of one partition: both sides, the chosen offset, and what was proven of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidelog.pipeline.engine.failover.proofs import Proof
    from tidelog.protocol.topic_partition import TopicPartition

MAP: Final = "map"
TIME: Final = "time"
RECORDS: Final = "records"

OK: Final = "ok"
LOST: Final = "lost"
MISSING: Final = "missing"
UNPROVEN: Final = "unproven"
REFUSED: Final = "refused"


@dataclass(slots=True)
class Row:
    """One partition: its state on both sides, the chosen offset, and what was proven about it."""

    topic: str
    partition: int
    target_topic: str
    target_partition: int
    committed: int
    metadata: str = ""
    committed_on_target: int | None = None
    source_start: int = 0
    source_end: int = 0
    target_start: int = 0
    target_end: int = 0
    offset: int | None = None
    status: str = UNPROVEN
    by: str = MAP
    next_offset: int | None = None
    next_ms: int | None = None
    margin_ms: int | None = None
    margin_from: str | None = None
    search_ms: int | None = None
    proven_by: str | None = None
    proof: Proof | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def source(self) -> TopicPartition:
        """The partition in the source."""
        return self.topic, self.partition

    @property
    def target(self) -> TopicPartition:
        """The partition in the target."""
        return self.target_topic, self.target_partition

    def as_dict(self) -> dict[str, Any]:
        """Returns the row in the form of report.json."""
        return asdict(self)
