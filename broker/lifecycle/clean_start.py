"""Whether a broker starts with logs that have lost nothing since it registered last.

Each log directory keeps a small file (`storage/directory/registration_file.py`): the directory's
id, the incarnation of the broker that uses it, the boot of the machine, and how the last process
left it. A start is clean if every directory of the last registration is there with its file, the
file names the incarnation that is registered, and

- the last process stopped in order, or
- the machine has not started again since. What a killed process wrote is in the page cache.

It is unclean if a log has failed since: of what a failed sync left, nothing is certain. So a wiped
volume, a lost file system, an older copy of a directory and a power loss are unclean, and `kill -9`
is not. Kafka asks for a clean shutdown instead, so that every killed process leaves all its ISRs.

The files are written before the session begins. They name the incarnation that is registered so
far, too: a process that is killed in between finds one of the two registered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.broker.metadata.brokers.records import RegistrationRecord
    from tidelog.broker.metadata.image import Image
    from tidelog.storage.directory.registration_file import DirectoryState


def is_clean(
    image: Image, broker: int, found: Iterable[DirectoryState | None], boot_id: str
) -> bool:
    """Returns whether a broker's start is clean.

    `found` is what its log directories hold, None for each without a readable file. `boot_id` is
    that of the machine now. A broker that never registered has promised nothing: it is clean.
    """
    registered = image.registrations.get(broker)
    if registered is None:
        return True
    offline = image.offline.get(broker)
    if offline is not None and (offline.record.directories or offline.record.partitions):
        return False
    known = [state for state in found if state is not None]
    intact = {state.directory for state in known if _is_intact(state, registered.record, boot_id)}
    return len(intact) == len(known) and intact.issuperset(registered.record.directories)


def _is_intact(state: DirectoryState, registered: RegistrationRecord, boot_id: str) -> bool:
    """Returns whether a directory has lost nothing since it was used by what is registered."""
    if state.has_failed or registered.incarnation not in (state.incarnation, state.previous):
        return False
    return state.is_stopped or (state.boot_id == boot_id != "")
