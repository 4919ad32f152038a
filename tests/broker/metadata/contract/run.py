"""Runs schedules by seed, on one kind of store.

    python -m tests.broker.metadata.contract.run KIND [SEEDS [FROM [BUG]]]

KIND is memory, sqlite (two stores of one process on a file), processes (three on a file, with kill
-9), etcd (two stores in one etcd, which has one member), troubled-etcd (the same, while it is killed
and loses answers) or troubled-etcd-3 (three members). A violation is printed with the trace of its
seed, and the exit status is 1.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, nullcontext
from pathlib import Path

from tests.broker.metadata.contract.engines import Memory, Sqlite
from tests.broker.metadata.contract.injected import injected
from tests.broker.metadata.contract.model import BrokenContract
from tests.broker.metadata.contract.processes import Nursery, Processes
from tests.broker.metadata.contract.schedule import Schedule
from tests.broker.metadata.etcd.server import Etcd

STEPS = {"troubled-etcd": 12, "troubled-etcd-3": 12}


def run_all(kind, seeds, *, inject=""):
    """Runs each seed; returns what happened, counted. Raises BrokenContract."""
    # In memory where there is such a file system: no schedule loses the power.
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        return _run_all(kind, Path(folder), seeds, inject)


def _run_all(kind, folder, seeds, inject):
    counts = Counter()
    with _service(kind, inject) as service:
        make = {
            "memory": Memory,
            "sqlite": Sqlite,
            "processes": lambda path, _: Processes(service, path),
            "etcd": lambda *_: _in_etcd(service),
            "troubled-etcd": lambda *_: _in_etcd(service, is_troubled=True),
            "troubled-etcd-3": lambda *_: _in_etcd(service, is_troubled=True),
        }[kind]

        async def every_seed():
            for seed in seeds:
                path = folder / f"{seed}.sqlite"
                counts.update(await Schedule(seed, make(path, seed), STEPS.get(kind, 25)).run())
                counts["schedules"] += 1
                for file in folder.glob(f"{seed}.*"):
                    file.unlink()

        with injected("" if kind == "processes" else inject):
            asyncio.run(every_seed())
    return counts


def _service(kind, inject):
    """What the stores of a kind need for as long as they are tried."""
    if kind == "processes":
        return closing(Nursery(inject=inject))
    if "etcd" in kind:
        return closing(Etcd(3 if kind.endswith("3") else 1).start())
    return nullcontext()


def _in_etcd(etcd, *, is_troubled=False):
    from tests.broker.metadata.contract.etcd_engine import InEtcd, Troubled  # loads gRPC

    return Troubled(etcd) if is_troubled else InEtcd(f"etcd://{','.join(etcd.endpoints)}")


def main(kind, seeds=1_000, first=1, inject=""):
    """Prints what happened, and how long it took. Returns the exit status."""
    begun = time.monotonic()
    try:
        counts = run_all(kind, range(int(first), int(first) + int(seeds)), inject=inject)
    except BrokenContract as error:
        print(error)
        return 1
    print(f"{kind}: {dict(sorted(counts.items()))}, {time.monotonic() - begun:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
