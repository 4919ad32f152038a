"""Mistakes to plant in the product's storage, which seeds with real storage have to notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.log.partition import Partition
from storage.log.times.saved_times import SavedTimes
from tests.simulation.replication.planted import Mistake, Patch
from tests.storage.replicas.planted import PLANTED as IN_REPLICAS

if TYPE_CHECKING:
    from storage.time.adoption import Adopted


def to_the_end(partition: Partition) -> int:
    """A log without a role is readable to its end, and a checkpoint says so."""
    return partition.high_watermark


def all_that_is_adopted(times: SavedTimes) -> tuple[Adopted, ...]:
    """What a replica could fetch again is adopted as soon as it is found."""
    return times._state.adoptions.ranges


IN_STORAGE: dict[str, Mistake] = {
    **{f"storage: {name}": Mistake((Patch(*patch),)) for name, patch in IN_REPLICAS.items()},
    "storage: a checkpoint believes a log without a role": Mistake(
        (Patch(Partition, "believed_high_watermark", property(to_the_end)),)
    ),
    "storage: lost append times are adopted before there is a role": Mistake(
        (Patch(SavedTimes, "_adopted", all_that_is_adopted),)
    ),
}
