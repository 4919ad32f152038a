"""The runs of the jobs: what a job of `pipeline.jobs` does after its options are parsed.

Begin with the job in `pipeline/jobs/`; the module of the same name with `_run` does its work.
Nothing here imports a job.
"""

from typing import Final

ARCHIVE: Final = "archive"
RESTORE: Final = "restore"
