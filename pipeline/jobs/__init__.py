"""One module for each job, with `arguments(parser)` and `run(options, session)`.

`pipeline/cli.py` calls them. `run` imports the module that does the work (`archiving` for
`archive`, `restoring` for `restore`), because that module needs libraries that parsing options does
not need.
"""

from typing import Final

ARCHIVE: Final = "archive"
RESTORE: Final = "restore"
