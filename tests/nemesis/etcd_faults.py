"""What goes wrong with the etcd that keeps the metadata of a cluster: members die, hang or lose the majority.

Each fault is a context manager as in `faults.py`. All members run again at its end, and have a leader.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.broker.metadata.etcd.server import Etcd

# How long the majority is lost: shorter than a session, longer, and a minute.
_LOST_S = (1.0, 10.0, 10.0, 60.0)


class EtcdFaults:
    """The faults of one etcd of three members."""

    def __init__(self, etcd: Etcd, chance: random.Random) -> None:
        self._etcd = etcd
        self._random = chance
        self.kinds: dict[str, Callable[[], AbstractContextManager[str]]] = {
            "etcd leader paused": self.leader_paused,
            "etcd leader killed": self.leader_killed,
            "etcd member killed": self.member_killed,
            "etcd without a majority": self.majority_lost,
            "etcd restarted": self.restarted,
            "etcd compacted": self.compacted,
        }

    @contextmanager
    def leader_paused(self) -> Iterator[str]:
        """SIGSTOP of the leader, then SIGCONT: it answers late, and may lead no more."""
        leader = self._etcd.leader()
        self._etcd.pause(leader)
        yield f"pause of etcd's leader {leader}"
        self._etcd.resume(leader)
        self._wait()

    @contextmanager
    def leader_killed(self) -> Iterator[str]:
        """SIGKILL of the leader; started again at the end."""
        leader = self._etcd.leader()
        self._etcd.kill(leader)
        yield f"kill -9 of etcd's leader {leader}"
        self._etcd.restart(leader)

    @contextmanager
    def member_killed(self) -> Iterator[str]:
        """SIGKILL of a member that does not lead; started again at the end."""
        leader = self._etcd.leader()
        member = self._random.choice([each for each in self._etcd.numbers if each != leader])
        self._etcd.kill(member)
        yield f"kill -9 of etcd's member {member}"
        self._etcd.restart(member)

    @contextmanager
    def majority_lost(self) -> Iterator[str]:
        """SIGKILL of two members: nothing can be written, and no session renewed."""
        members = self._random.sample(list(self._etcd.numbers), 2)
        lost_s = self._random.choice(_LOST_S)
        for member in members:
            self._etcd.kill(member)
        time.sleep(lost_s)
        yield f"etcd without members {members[0]} and {members[1]} for {lost_s:.0f} s"
        for member in members:
            self._etcd.restart(member, wait=False)
        self._wait()

    @contextmanager
    def restarted(self) -> Iterator[str]:
        """SIGKILL of all members; all are started again at the end."""
        for member in self._etcd.numbers:
            self._etcd.kill(member)
        yield "kill -9 of all members of etcd"
        for member in self._etcd.numbers:
            self._etcd.restart(member, wait=False)
        self._wait()

    @contextmanager
    def compacted(self) -> Iterator[str]:
        """Everything but the newest revision is forgotten."""
        answer = self._etcd.control("kv/range", {"key": "AA=="})
        revision = int(answer["header"]["revision"])
        self._etcd.compact(revision)
        yield f"compaction of etcd at revision {revision}"

    def _wait(self) -> None:
        for member in self._etcd.numbers:
            self._etcd.wait(member)
