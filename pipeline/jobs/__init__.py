"""One module per job: `arguments(parser)` and `run(options, session)`; see `pipeline/cli.py`.

`run` imports the module that does the work (`archive` has `archiving`, `restore` `restoring`), which needs
libraries that reading options does not.
"""

from typing import Final

ARCHIVE: Final = "archive"
RESTORE: Final = "restore"
