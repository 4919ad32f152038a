"""What goes wrong with the etcd that keeps the metadata of a cluster, and with the way to it.

Members die, hang or lose the majority; a broker is cut off from etcd alone. Each fault is a context manager
as in `faults.py`. All members run again at its end, and have a leader.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.nemesis import view
from tests.nemesis.history import CutOff
from tests.nemesis.staying import ASKED, staying

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tests.broker.metadata.etcd.server import Etcd
    from tests.nemesis.faults import Kinds
    from tests.nemesis.history import History
    from tidelog.cluster import BrokerCluster

# How long the majority is lost: shorter than a session, longer, and a minute.
_LOST_S = (1.0, 10.0, 10.0, 60.0)


class EtcdFaults:
    """The faults of one etcd of three members, and of the brokers that use it."""

    def __init__(
        self,
        etcd: Etcd,
        cluster: BrokerCluster,
        lease_s: float,
        history: History,
        chance: random.Random,
    ) -> None:
        """`lease_s` is how long a session lasts without a renewal; the history gets what is seen."""
        self._etcd = etcd
        self._cluster, self._lease_s, self._history = cluster, lease_s, history
        self._random = chance
        self.kinds: Kinds = {
            "etcd leader paused": self.leader_paused,
            "etcd leader killed": self.leader_killed,
            "etcd member killed": self.member_killed,
            "etcd without a majority": self.majority_lost,
            "etcd restarted": self.restarted,
            "etcd compacted": self.compacted,
            "cut off from etcd alone": self.cut_off,
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

    @contextmanager
    def cut_off(self) -> Iterator[str]:
        """A broker that leads does not reach etcd, until others have led for long; clients stay with it."""
        leaders = view.leaders(self._cluster)
        victim = leaders.get(str(ASKED)) or self._random.choice(sorted(leaders.values()))
        with staying(self._cluster, self._history):
            began_s = time.monotonic()
            self._cluster.cut(victim)
            time.sleep(5 * self._lease_s)
            yield f"cut of broker {victim} from etcd alone"
            ended_s = time.monotonic()
            self._cluster[victim].heal()
        self._history.add(CutOff(victim, began_s, ended_s, self._lease_s))

    def _wait(self) -> None:
        for member in self._etcd.numbers:
            self._etcd.wait(member)
