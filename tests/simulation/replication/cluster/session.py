"""A broker's registration: the product's transactions, sent to a coordinator that may not answer.

A process reads all metadata, leaves what it may no longer be in, registers, catches up, and ends
its fencing. Its lease is renewed beside the data loop. When the lease is gone it steps down from
everything and registers anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.replication.cluster.coordinator import LEASE_ENDED, UNKNOWN
from tests.simulation.replication.cluster.governing import LEASE_MS, rules_of
from tidelog.broker.membership import clean_start, controlled_shutdown, registration
from tidelog.broker.membership.registration import DuplicateBrokerError, Start
from tidelog.broker.replication.lease import Lease
from tidelog.storage.directory import registration_file

if TYPE_CHECKING:
    from tests.simulation.replication.cluster.broker import Broker
    from tidelog.broker.metadata.brokers.records import OfflineRecord
    from tidelog.broker.replication.transactions import Transaction

RENEW_MS = LEASE_MS // 4
TIMEOUT_MS = 2_000
RETRY_MS = 300


class Session:
    """From a start, or the loss of a lease, to the loss of the lease or the end of the process."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.world = broker.world
        self.epoch = -1
        self.lease: Lease | None = None
        self.lease_id: int | None = None
        self.start: Start | None = None
        self.incarnation = ""
        self.is_asking = False
        self.is_stopping = False
        self.renewed_ms = 0  # when the last renewal was sent that was confirmed
        self._was_valid = False
        self._is_full_reported = False

    @property
    def is_current(self) -> bool:
        """Whether this is still the session of a running process."""
        return self.broker.is_up and self.broker.session is self

    # --- registration -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Begins to register."""
        broker = self.broker
        self.incarnation = f"{broker.id}-{broker.life}-{broker.next_number()}"
        self.lease_id, self.lease, self.start = None, None, None
        self.is_asking = False
        self.world.coordinator.watch(broker.id, self._hear)
        self._read()
        self._repeat()

    def _hear(self, pushed: Any) -> None:
        if self.is_current:
            self.broker.run(self.broker.life, self.broker.hear, pushed)

    def _repeat(self) -> None:
        if self.is_current and self.epoch < 0:
            self.look()
            self.world.after(self.broker, RETRY_MS, self._repeat)

    def _ask(self, call: Any, take: Any) -> None:
        """Asks the coordinator; the answer is dropped if the session has ended meanwhile."""
        life, incarnation = self.broker.life, self.incarnation

        def guarded(result: Any) -> None:
            if self.is_current and self.incarnation == incarnation:
                take(result)

        self.world.coordinator.ask(
            self.broker.id,
            call,
            lambda result: self.broker.run(life, guarded, result),
            TIMEOUT_MS,
        )

    def _read(self) -> None:
        def take(found: Any) -> None:
            if found == UNKNOWN:
                self._read()
            else:
                self.broker.load(*found)

        self._ask(lambda store: store.read(), take)

    def look(self) -> None:
        """Does what comes next, by the image and by what was answered."""
        image = self.broker.image
        if image is None or self.is_asking:
            return
        if self.epoch >= 0:
            self._look_registered()
            return
        live = image.brokers.get(self.broker.id)
        if live is not None and live.record.incarnation == self.incarnation:
            self._registered(live.epoch)
            return
        if self.lease_id is None:
            self._grant()
            return
        self.start = self._start()  # anew: an older process may have registered meanwhile
        try:
            found = registration.next_transactions(
                image, self.start, rules_of, has_ended=self.world.has_locks
            )
        except DuplicateBrokerError:
            return
        if len(found) == 1 and found[0].why.endswith("start") and not self._write_file():
            return  # the disk is full
        self._send(found)

    def _start(self) -> Start:
        broker, disk = self.broker, self.broker.disk
        is_clean = clean_start.is_clean(
            broker.image,
            broker.id,
            [broker.failed.marked(disk.registration)],
            f"boot-{broker.boot}",
        )
        assert self.lease_id is not None
        return Start(broker.id, self.incarnation, self.lease_id, (disk.directory,), is_clean)

    def _write_file(self) -> bool:
        """Writes the registration file; returns whether it is there."""
        disk, start = self.broker.disk, self.start
        if disk.registration is not None and disk.registration.incarnation == self.incarnation:
            return True
        registered = self.broker.image.registrations.get(self.broker.id)
        before = registered.record.incarnation if registered and start.is_clean else ""
        try:
            begun = registration_file.begun(
                disk.registration,
                disk.directory,
                self.incarnation,
                before,
                f"boot-{self.broker.boot}",
            )
            disk.registration = self.broker.failed.marked(begun)
        except OSError as error:
            self.world.say("refused", self.broker, error.strerror)
            return False
        return True

    def _grant(self) -> None:
        self.is_asking = True
        sent_ms = self.broker.now_ms

        def take(result: Any) -> None:
            self.is_asking = False
            if result != UNKNOWN:
                self.lease_id, self.renewed_ms = result, sent_ms
                self.lease = Lease(LEASE_MS, sent_ms)
                self._renew_again(result)
                self.look()

        self._ask(lambda store: store.grant(LEASE_MS), take)

    def _send(self, found: list[Transaction]) -> None:
        """Sends transactions one after another, then asks what has changed."""
        if not found:
            return
        self.is_asking = True
        first, *others = found

        def take(result: Any) -> None:
            self.is_asking = False
            if result == LEASE_ENDED:
                self.lease_id, self.start = None, None
            elif result not in (UNKNOWN, None) and others:
                self._send(others)
                return
            self.broker._resync()

        self.world.say("register", self.broker, first.why)
        self._ask(lambda store: store.transact(first.compares, first.operations), take)

    def _registered(self, epoch: int) -> None:
        broker = self.broker
        if self.lease is None or self.lease.is_lost(broker.now_ms):
            self.lost("it ended before the broker knew")
            return
        self.epoch = epoch
        broker.must_confirm = False
        self.world.say("registered", broker, epoch)
        broker._apply()

    def _look_registered(self) -> None:
        image, broker = self.broker.image, self.broker
        live = image.brokers.get(broker.id)
        if live is None or live.epoch != self.epoch:
            if image.revision >= self.epoch:
                self.lost("another session has its place, or none")
            return
        if self.is_stopping:
            self._look_stopping()
        elif not self.is_asking:
            transaction = registration.unfence(image, broker.id, self.epoch, self.lease_id)
            if transaction is not None:
                self._write_one(transaction)

    def _write_one(self, transaction: Transaction) -> None:
        self.is_asking = True

        def take(result: Any) -> None:
            self.is_asking = False
            if result == LEASE_ENDED:
                self.lost("the lease has ended")

        self._ask(lambda store: store.transact(transaction.compares, transaction.operations), take)

    # --- the lease --------------------------------------------------------------------------------

    def _renew_again(self, lease_id: int) -> None:
        """Renews the lease beside the data loop: a loop that hangs does not stop it at once."""
        broker, life = self.broker, self.broker.life
        if not self.is_current or broker.life != life or self.lease_id != lease_id:
            return
        is_frozen = broker.paused_since is not None and not broker.is_hung
        if not is_frozen and self.lease.may_renew(broker.now_ms):
            sent_ms, lease = broker.now_ms, self.lease
            self.world.coordinator.ask(
                broker.id,
                lambda store: store.keep_alive(lease_id),
                lambda result: self._renewed(life, lease, sent_ms, result),
                TIMEOUT_MS,
            )
        self.world.timeline.after(RENEW_MS, self._renew_in, life, lease_id)

    def _renew_in(self, life: int, lease_id: int) -> None:
        if self.broker.life == life:
            self._renew_again(lease_id)

    def _renewed(self, life: int, lease: Lease, sent_ms: int, result: Any) -> None:
        if result == UNKNOWN or self.lease is not lease or self.broker.life != life:
            return
        if result:
            lease.on_renewed(sent_ms)
            self.renewed_ms = max(self.renewed_ms, sent_ms)
        else:
            lease.on_lost()
            self.broker.run(life, self.lost, "the coordinator says so")

    def lost(self, why: str) -> None:
        """Steps down from everything, and registers anew."""
        broker = self.broker
        if not self.is_current or broker.image is None:
            return
        self.world.say("lost", broker, self.epoch, why)
        self.epoch = -1
        for replica in broker.replicas.values():
            replica.stop("the session has ended")
        broker.must_confirm = False
        self.is_stopping = False
        self.begin()

    def note_pause(self) -> None:
        """Remembers, before a pause, whether the lease was valid in truth."""
        live = self.world.checker.stored.live.get(self.broker.id)
        self._was_valid = live is not None and live[0] == self.epoch

    def is_over_after(self, paused_ms: int) -> bool:
        """Returns whether, in truth, the lease ran out during a pause that could be noticed."""
        live = self.world.checker.stored.live.get(self.broker.id)
        is_gone = live is None or live[0] != self.epoch
        is_over = self.broker.now_ms - self.renewed_ms >= LEASE_MS
        return self._was_valid and is_gone and is_over and paused_ms >= LEASE_MS // 3

    # --- leaving ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Begins a controlled shutdown."""
        if self.epoch >= 0 and not self.is_stopping:
            self.is_stopping = True
            self.world.say("stopping", self.broker)
            self._look_stopping()

    def _look_stopping(self) -> None:
        image, broker = self.broker.image, self.broker
        if self.is_asking:
            return
        transaction = controlled_shutdown.begin(image, broker.id, self.epoch, self.lease_id)
        if transaction is not None:
            self._write_one(transaction)
            return
        seen = {
            other.id: other.image.revision
            for other in self.world.brokers.values()
            if other.is_up and other.image is not None
        }
        if controlled_shutdown.may_stop(image, broker.id, seen):
            if broker.disk.close():
                broker.disk.registration = broker.disk.registration._replace(
                    boot_id=f"boot-{broker.boot}", is_stopped=True
                )
            end = controlled_shutdown.end(image, broker.id, self.epoch)
            self.world.coordinator.ask(
                broker.id,
                lambda store: store.transact(end.compares, end.operations),
                lambda result: None,
                TIMEOUT_MS,
            )
            broker.stop("in order")

    def report(self, offline: OfflineRecord) -> None:
        """Says what this broker cannot lead."""
        if self.epoch < 0 or self.broker.image is None or self.is_asking:
            return
        transaction = registration.report_offline(
            self.broker.image, self.broker.id, self.epoch, offline
        )
        if transaction is not None:
            self._write_one(transaction)
