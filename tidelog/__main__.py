"""`python -m tidelog` is the `tidelog` command."""

import sys

from tidelog.cli.parser import main

if __name__ == "__main__":
    sys.exit(main())
