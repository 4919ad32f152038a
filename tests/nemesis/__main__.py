"""Plays rounds of faults under load: `python -m tests.nemesis --rounds 200 --seed 1`.

Runs have 50 rounds at most; those of transactions are of one broker and of three in turn, the others of
three. Each round prints one line. The exit status is 1 if anything is wrong; then the directory is kept,
with the brokers' logs and the history.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from itertools import cycle
from pathlib import Path

from tests.broker.metadata.etcd.server import running_etcd
from tests.nemesis.life import Life
from tests.nemesis.plain import Plain
from tests.nemesis.transactions.load import Transactions

_ROUNDS_OF_A_LIFE = 50


def main() -> int:
    """Plays runs until something is wrong, or all rounds are played."""
    parser = argparse.ArgumentParser(prog="python -m tests.nemesis", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="", help="only these, such as kill,pause")
    parser.add_argument("--transactions", action="store_true", help="the load is of transactions")
    parser.add_argument("--brokers", help="how many brokers the runs have, in turn, such as 1,3")
    parser.add_argument("--keep", action="store_true", help="keep the directory in any case")
    parser.add_argument(
        "--etcd", action="store_true", help="keep the metadata in an etcd of three members"
    )
    given = parser.parse_args()
    load = Transactions if given.transactions else Plain
    brokers = given.brokers or ("1,3" if given.transactions and not given.etcd else "3")
    kinds = list(filter(None, given.kinds.split(",")))
    left, count = given.rounds, 0
    for seed, many in enumerate(cycle(map(int, brokers.split(","))), given.seed):
        if not left:
            break
        rounds = min(left, _ROUNDS_OF_A_LIFE)
        left -= rounds
        directory = Path(tempfile.mkdtemp(prefix="tidelog-nemesis-"))
        with contextlib.ExitStack() as stack:
            etcd = stack.enter_context(running_etcd(3)) if given.etcd else None
            life = stack.enter_context(Life(directory, seed, load, many, etcd=etcd))
            found = life.play(rounds, kinds)
        if found or given.keep:
            life.history.write(directory / "history.jsonl")
            print(*found, f"kept: {directory}", sep="\n")
        else:
            shutil.rmtree(directory)
        if found:
            return 1
        count += life.load.count
    print(
        f"{given.rounds} rounds, {count} {load.verb}: nothing lost, doubled, torn or out of order"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
