"""The runs of the jobs: what a job of `pipeline.jobs` does after its options are parsed.

Begin with the job in `pipeline/jobs/`; a module of its name with `_run` does its work. A mirror and
a backfill run in `pipeline/replay/` instead. Nothing here imports a job.
"""

from typing import Final

ARCHIVE: Final = "archive"
RESTORE: Final = "restore"
