"""The remarks on a partition in the report of a failover."""

from __future__ import annotations

from dataclasses import asdict

from tidelog.pipeline.engine.failover.proofs import Proof
from tidelog.pipeline.report.failover import sentences


def test_a_second_copy_is_not_called_absent_from_the_source():
    """The comparison counts a record of the source once, so its second copy has none left."""
    said = sentences({"search_ms": None, "proof": asdict(Proof(foreign=2)), "notes": ()})
    (one,) = said
    assert one == (
        "2 records ahead in the target that no record of the source accounts for: written by others, or a"
        " second copy; the group reads them too"
    )
