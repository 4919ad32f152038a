"""Plays rounds of faults under transactional load: `python -m tests.nemesis.transactions --rounds 500`.

Lives of one broker and of three take turns, of 50 rounds each at most. Each round prints one line. The
exit status is 1 if anything is wrong; then the directory is kept, with the brokers' logs and the history.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from itertools import cycle
from pathlib import Path

from tests.nemesis.transactions.life import TransactionalLife

_ROUNDS_OF_A_LIFE = 50


def main() -> int:
    """Plays lives until something is wrong, or all rounds are played."""
    parser = argparse.ArgumentParser(prog="python -m tests.nemesis.transactions")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--brokers", default="1,3", help="how many brokers the lives have, in turn")
    parser.add_argument("--kinds", default="", help="only these faults, such as kill,pause")
    given = parser.parse_args()
    kinds = list(filter(None, given.kinds.split(",")))
    left, committed, hung = given.rounds, 0, 0
    for seed, brokers in enumerate(cycle(map(int, given.brokers.split(","))), given.seed):
        if not left:
            break
        rounds = min(left, _ROUNDS_OF_A_LIFE)
        directory = Path(tempfile.mkdtemp(prefix="tidelog-nemesis-"))
        with TransactionalLife(directory, seed, brokers) as life:
            found = life.play(rounds, kinds)
        if found:
            life.history.write(directory / "history.jsonl")
            print(*found, f"kept: {directory}", sep="\n")
            return 1
        shutil.rmtree(directory)
        committed += sum(worker.committed for worker in life.workers)
        hung += life.hung
        left -= rounds
    print(f"{given.rounds} rounds, {committed} transactions committed: no anomaly")
    print(f"{hung} processes of librdkafka hung and were killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
