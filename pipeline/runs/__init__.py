"""The runs of the jobs: the work of `tidelog pipeline JOB` after its options are parsed.

Example: `pipeline/jobs/mirror.py` has the options of `mirror`, `pipeline/runs/mirror_run.py` does the
work. A module here knows a job by the type of its options alone. What mirror, restore and backfill
share, writing records to a topic exactly once, is in `pipeline/replay/`.
"""

from typing import Final

ARCHIVE: Final = "archive"
MIRROR: Final = "mirror"
RESTORE: Final = "restore"
TIMESTAMP_TYPE: Final = "message.timestamp.type"
"""The setting of a topic whose records get the time of their appending (LogAppendTime)."""

OF_REPLICAS: Final = frozenset(
    {
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "remote.storage.enable",
    }
)
"""Settings about the replicas of a topic, which do not apply to a copy of it."""
