"""`python -m pipeline JOB ...` for a checkout; `tidelog pipeline JOB ...` works anywhere."""

import sys

from pipeline.cli import main

sys.exit(main())
