"""One life of a cluster: three brokers, a load, rounds of faults, and the judgement of the history.

After each fault the cluster has to become healthy: every broker serves, every partition has all its
replicas in sync, every producer is acknowledged and every consumer gets records. A round that does not
end so is a problem like a lost record, and the last one.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from tests.nemesis import view
from tests.nemesis.brokers import Unhealthy, end, started, stop
from tests.nemesis.checker import Kind, Problem, has_got_everything, problems
from tests.nemesis.consumers import Alone, Member, read_everything
from tests.nemesis.etcd_faults import EtcdFaults
from tests.nemesis.faults import Faults
from tests.nemesis.forger import Forger, topic_ids
from tests.nemesis.history import Failed, History, Place
from tests.nemesis.producers import KafkaPython, Librdkafka
from tests.nemesis.staying import ASKED
from tests.nemesis.stored import wrong_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from tests.broker.metadata.etcd.server import Etcd
    from tests.nemesis.consumers import Reading
    from tests.nemesis.producers import Writing

BROKERS = 3
PARTITIONS = 2
GROUP = "group"
SETTINGS = {
    "broker.session.timeout.ms": 3_000,
    "replica.lag.time.max.ms": 2_000,
    "offsets.topic.num.partitions": 3,
    "log.retention.ms": -1,
    "min.insync.replicas": 2,
}
TOPICS = {
    "created": {"message.timestamp.type": "CreateTime", "segment.bytes": "300000"},
    "flushed": {"message.timestamp.type": "CreateTime", "flush.messages": "1"},
    "stamped": {"message.timestamp.type": "LogAppendTime", "segment.bytes": "300000"},
}
PLACES = [Place(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
HEALTHY_WITHIN_S = 60.0
MEMBERS = 0.2  # of the rounds have a member that leaves and another that joins
_MORE = 10  # records that each client has to get through after a fault
_POLL_S = 0.05
_DRAINED_AFTER_S = 60


class Life:
    """A cluster under load, for a `with` block."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        say: Callable[[str], None] = print,
        *,
        etcd: Etcd | None = None,
    ) -> None:
        """Starts the brokers; their clocks run with the machine's until a fault moves them.

        Their metadata are in `etcd`, which has faults too then, or without one in a file.
        """
        self._etcd = etcd
        self.directory = directory
        self.seed = seed
        self._say = say
        self._random = random.Random(seed)
        self.history = History(
            topic
            for topic, settings in TOPICS.items()
            if settings["message.timestamp.type"] == "LogAppendTime"
        )
        settings = SETTINGS if etcd is None else {**SETTINGS, "metadata.store": etcd.url()}
        topics = TOPICS if etcd is None else {**TOPICS, ASKED.topic: {}}
        self.cluster = started(directory / "data", BROKERS, settings, topics, PARTITIONS)
        self._is_ill = False
        self.producers: list[Writing] = []
        self.readers: list[Reading] = []
        self._left: list[Reading] = []  # members that were told to leave, and may not have yet
        self._members = 0
        self._forger = Forger(
            self.history,
            [broker.bootstrap for broker in self.cluster],
            PLACES,
            topic_ids(self.cluster.bootstrap, list(TOPICS)),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        is_broken = self._is_ill or error is not None
        for client in (*self.producers, *self.readers, *self._left, self._forger):
            client.finish(abandon=is_broken)
        end(self.cluster, is_broken=is_broken)

    # --- the load ---------------------------------------------------------------------------------

    def start_load(self) -> None:
        """Starts the clients."""
        history, bootstrap = self.history, self.cluster.bootstrap
        self.producers = [
            Librdkafka("plain", history, bootstrap, PLACES, **{"max.in.flight": 1}),
            Librdkafka("packed", history, bootstrap, PLACES[-1:], **{"compression.type": "lz4"}),
            KafkaPython("python", history, bootstrap, PLACES),
        ]
        self.readers = [
            Alone("alone", history, bootstrap, PLACES),
            self._next_member(),
            self._next_member(),
        ]
        for client in (*self.producers, *self.readers, self._forger):
            client.start()

    def _next_member(self) -> Member:
        self._members += 1
        return Member(GROUP, str(self._members), self.history, self.cluster.bootstrap, list(TOPICS))

    def _replace_member(self) -> None:
        """Lets the group's oldest member leave, and another one join."""
        leaves = next(each for each in self.readers if isinstance(each, Member))
        leaves.leave()
        self.readers.remove(leaves)
        self._left.append(leaves)
        joins = self._next_member()
        self.readers.append(joins)
        joins.start()

    def wait_until_healthy(self, within_s: float = HEALTHY_WITHIN_S) -> float:
        """Waits until all is well and goes on; returns how long that took. Raises Unhealthy."""
        began_s = time.monotonic()
        deadline_s = began_s + within_s
        while ill := list(view.illnesses(self.cluster, PLACES)):
            self._look_at_the_time(deadline_s, ill)
        before = self._progress()
        while slow := [
            f"{who} is at {now}, after {before[who]} when the cluster was well"
            for who, now in self._progress().items()
            if now < before[who] + _MORE
        ]:
            self._look_at_the_time(deadline_s, slow)
        return time.monotonic() - began_s

    def _progress(self) -> dict[str, int]:
        """Returns how many records each producer, the lone reader and the group have got through."""
        polled = dict(self.history.polled)
        return {
            **{each.name: self.history.acknowledged[each.name] for each in self.producers},
            "alone": polled.get("alone", 0),
            GROUP: sum(many for who, many in polled.items() if who.startswith(f"{GROUP}/")),
        }

    def _look_at_the_time(self, deadline_s: float, reasons: list[str]) -> None:
        ended = [each.name for each in (*self.producers, *self.readers) if each.has_ended]
        if ended or time.monotonic() > deadline_s:
            what = [f"{each} has ended" for each in ended] + reasons
            raise Unhealthy("; ".join(what[:5]))
        time.sleep(_POLL_S)

    # --- the rounds -------------------------------------------------------------------------------

    def play(self, rounds: int, kinds: Sequence[str] = ()) -> list[Problem]:
        """Plays rounds of these faults, or of all, under load; returns what is wrong afterwards."""
        self.start_load()
        faults = Faults(self.cluster, PLACES, self._random)
        if self._etcd is not None:
            lease_s = SETTINGS["broker.session.timeout.ms"] / 1000
            of_etcd = EtcdFaults(self._etcd, self.cluster, lease_s, self.history, self._random)
            faults.kinds |= of_etcd.kinds
        try:
            self.wait_until_healthy()
            for number, kind in enumerate(faults.order(rounds, kinds), 1):
                self._round(f"seed {self.seed}, round {number}/{rounds}", faults, kind)
        except Unhealthy as ill:
            self._is_ill = True
            return [Problem(Kind.FAILED, f"the cluster did not become healthy: {ill}")]
        return self.judge()

    def _round(self, name: str, faults: Faults, kind: str) -> None:
        lasts_s = faults.lasts_s()
        acknowledged = sum(self.history.acknowledged.values())
        began_s = time.monotonic()
        with faults.kinds[kind]() as what:
            time.sleep(lasts_s / 2)
            if self._random.random() < MEMBERS:
                self._replace_member()
                what += ", a member leaves and another joins"  # noqa: PLW2901
            time.sleep(lasts_s / 2)
            during = sum(self.history.acknowledged.values()) - acknowledged
            ended_s = time.monotonic()
        healed_s = time.monotonic()
        try:
            took_s = self.wait_until_healthy()
        except Unhealthy as ill:
            self._say(f"{name}: {what} for {lasts_s:.1f} s: {ill}")
            raise
        self._say(
            f"{name}: {what} for {ended_s - began_s:.1f} s, {during} acknowledged meanwhile; "
            f"over after {healed_s - ended_s:.1f} s, well after {took_s:.1f} s; "
            f"{sum(self.history.acknowledged.values())} acknowledged"
        )

    def judge(self) -> list[Problem]:
        """Ends the load, reads everything back, stops the brokers and returns what is wrong."""
        history = self.history
        for client in (*self.producers, self._forger):
            client.finish()
        if not self._forger.refused:
            history.add(Failed(self._forger.name, "no broker has refused anything"))
        read_everything(history, self.cluster.bootstrap, PLACES)
        self._drain()
        for reader in (*self.readers, *self._left):
            reader.finish()
        for failed in stop(self.cluster):
            history.add(failed)
        for what in wrong_files([broker.log_dir for broker in self.cluster], PLACES):
            history.add(Failed("replicas", what))
        return problems(history, groups=[GROUP])

    def _drain(self) -> None:
        """Waits until the group has got everything, or has got nothing more for a minute.

        A member that is gone is missed after its session; until then the others get nothing.
        """
        got, until_s = -1, 0.0
        while not has_got_everything(self.history, GROUP):
            if (now := self._progress()[GROUP]) != got:
                got, until_s = now, time.monotonic() + _DRAINED_AFTER_S
            elif time.monotonic() > until_s:
                return
            time.sleep(1)
