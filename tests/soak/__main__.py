"""Soaks a broker: `python -m tests.soak --minutes 60`. The exit status is 1 if anything is wrong."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.soak.soak import Soak


def main() -> int:
    """Soaks a broker."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="tidelog-soak-"))
    soak = Soak(directory)
    found = soak.play(given.minutes * 60)
    if found:
        print(*found, f"kept: {directory}", sep="\n")
        return 1
    shutil.rmtree(directory)
    print(f"{given.minutes:g} minutes, {soak.done}: nothing lost, and level")
    return 0


if __name__ == "__main__":
    sys.exit(main())
