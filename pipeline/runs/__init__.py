"""The runs of the jobs: the work of `tidelog pipeline JOB` after its options are parsed.

Example: `pipeline/jobs/mirror.py` has the options of `mirror`, `pipeline/runs/mirror_run.py` does the
work. A module here imports no job. What mirror, restore and backfill share, writing records to a
topic exactly once, is in `pipeline/replay/`.
"""

from typing import Final

ARCHIVE: Final = "archive"
MIRROR: Final = "mirror"
RESTORE: Final = "restore"
