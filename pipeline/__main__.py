"""`python -m pipeline JOB ...`, from a checkout; `tidelog pipeline JOB ...` works from anywhere."""

import sys

from pipeline.cli import main

sys.exit(main())
