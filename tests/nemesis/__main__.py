"""Plays rounds of faults against three brokers: `python -m tests.nemesis --rounds 200 --seed 1`.

Each round prints one line. The exit status is 1 if anything is wrong; then the directory is kept,
with the brokers' logs and the history.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from pathlib import Path

from tests.broker.metadata.etcd.server import running_etcd
from tests.nemesis.life import Life


def main() -> int:
    """Plays one life."""
    parser = argparse.ArgumentParser(prog="python -m tests.nemesis", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="", help="only these, such as kill,pause")
    parser.add_argument("--keep", action="store_true", help="keep the directory in any case")
    parser.add_argument(
        "--etcd", action="store_true", help="keep the metadata in an etcd of three members"
    )
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="tidelog-nemesis-"))
    with contextlib.ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(3)) if given.etcd else None
        life = stack.enter_context(Life(directory, given.seed, etcd=etcd))
        found = life.play(given.rounds, list(filter(None, given.kinds.split(","))))
    life.history.write(directory / "history.jsonl")
    for problem in found:
        print(problem)
    if found or given.keep:
        print(f"kept: {directory}")
    if found:
        return 1
    total = sum(life.history.acknowledged.values())
    print(f"{given.rounds} rounds, {total} acknowledged: nothing lost, doubled or out of order")
    if not given.keep:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
