"""Runs each test that failed in the last run of pytest once more, alone, with the random seed of that run.

    python .ci/run_again.py UNSTEADY

A test that passes now is unsteady: a line with its name and the seed is appended to the file UNSTEADY. Exits
with 1 if a test fails again, if pytest's cache names no failed test, or if UNSTEADY would name over three.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST_UNSTEADY = 3
CACHE = Path(".pytest_cache/v")


def main(unsteady: Path) -> int:
    """Runs the tests that failed; returns the exit status."""
    failed_file = CACHE / "cache" / "lastfailed"
    failed = list(json.loads(failed_file.read_text())) if failed_file.exists() else []
    seed = (CACHE / "randomly_seed").read_text()
    known = unsteady.read_text().splitlines() if unsteady.exists() else []
    if not failed or len(known) + len(failed) > MOST_UNSTEADY:
        print(f"{len(failed)} tests failed, {len(known)} were unsteady before: none is run again")
        return 1
    for name in failed:
        print(f"run again, alone: {name}", flush=True)
        how = ["-q", "-p", "no:cacheprovider", "--timeout", "1800", f"--randomly-seed={seed}"]
        if subprocess.run([sys.executable, "-m", "pytest", *how, name], check=False).returncode:
            print(f"failed again with --randomly-seed={seed}: {name}")
            return 1
        with unsteady.open("a") as file:
            file.write(f"{name} (--randomly-seed={seed})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
