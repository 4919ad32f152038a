"""Which requests come from other brokers of the cluster: proofs of this one's, verdicts on the others'.

What is not genuine by the metadata makes this broker catch up with them once, because a broker may have
registered anew before the watch shows it. What it names then is judged, and nothing else is done for it.
However many ask so, the metadata are read at most once in `_CATCH_UP_EVERY_S`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from tidelog.broker.lifecycle.proof import Verdict, judge, proof_of
from tidelog.protocol.errors import BrokerError, NotLeaderOrFollower
from tidelog.protocol.sender import NO_TAGS, Sender, written_tags

if TYPE_CHECKING:
    from tidelog.broker.lifecycle.cluster import Cluster
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.network.context import Context
    from tidelog.broker.partitions.services import Services
    from tidelog.protocol.api.fetch import ReplicaState
    from tidelog.protocol.message import RequestHeader

log = logging.getLogger("tidelog.replicas")

_CATCH_UP_EVERY_S: Final = 0.1
_CATCH_UP_WAIT_S: Final = 2.0
GENUINE: Final = (Verdict.PROVEN, Verdict.BELIEVED)


class Senders:
    """The brokers that send requests to this one, and this one as the sender of requests to them."""

    def __init__(self, services: Services, cluster: Cluster) -> None:
        self._services, self._cluster, self._metadata = services, cluster, services.metadata
        self._expected: dict[int, tuple[int, bytes]] = {}  # by sender: its epoch, and the proof
        self._tags: dict[int, bytes] = {}  # of this broker's requests, by the receiver
        self._tags_epoch = cluster.epoch
        self._without_secret: frozenset[tuple[int, int]] = frozenset()
        self._reading = asyncio.Lock()
        self._reads: set[asyncio.Task[bool]] = set()
        self._next_read: asyncio.Task[bool] | None = None  # which has not begun yet
        self._read_at_s = 0.0

    # --- requests of this broker ------------------------------------------------------------------

    def tags_for(self, receiver: int) -> bytes:
        """Returns the tags of this broker's requests to another one; none while it has no session."""
        epoch = self._cluster.epoch
        if self._tags_epoch != epoch:
            self._tags, self._tags_epoch = {}, epoch
        found = self._tags.get(receiver)
        if found is not None:
            return found
        me = self._cluster.me
        live = self._metadata.image.brokers.get(me)
        if live is None or live.epoch != epoch or not live.record.secret:
            return NO_TAGS
        proof = proof_of(live.record.secret, me, epoch, receiver)
        made = self._tags[receiver] = written_tags(Sender(me, epoch, proof))
        return made

    # --- requests of others -----------------------------------------------------------------------

    def judge(self, broker: int, epoch: int, sender: Sender | None) -> Verdict:
        """Returns what the claim is worth that a request is of a broker in its session of `epoch`."""
        live = self._metadata.image.brokers.get(broker)
        expected = b""
        if live is not None and live.record.secret:
            known = self._expected.get(broker)
            if known is None or known[0] != live.epoch:
                proof = proof_of(live.record.secret, broker, live.epoch, self._cluster.me)
                known = self._expected[broker] = live.epoch, proof
            expected = known[1]
        return judge(live, epoch, sender, expected)

    def is_proven(self, header: RequestHeader) -> bool:
        """Returns whether the header of a request proves that another broker sends it."""
        sender = header.sender
        if sender is None:
            return False
        return self.judge(sender.broker, sender.epoch, sender) is Verdict.PROVEN

    def believes(self, claim: ReplicaState) -> bool:
        """Returns whether a fetch for a replica is believed without proof: that of an older tidelog."""
        verdict = self.judge(claim.replica_id, claim.replica_epoch, None)
        return verdict is Verdict.BELIEVED

    async def judge_again(self, broker: int, epoch: int, sender: Sender | None) -> Verdict:
        """Catches up with the metadata once, and returns what the claim is worth then."""
        await self.catch_up()
        return self.judge(broker, epoch, sender)

    def refusal(self, verdict: Verdict, context: Context, broker: int) -> BrokerError:
        """Counts a request that is not of the broker it names, in a session of now; returns its error.

        A broker whose session is over, or not known here yet, is asked to come again.
        """
        if verdict is Verdict.FORGED:
            return self._services.impostors.refuse(context, broker)
        self._services.metrics.broker_requests_refused[verdict.name.lower()] += 1
        return NotLeaderOrFollower(f"broker {broker} has no such session, as far as is known here")

    def observe(self, image: Image) -> None:
        """Warns of sessions that have no secret, each once."""
        found = frozenset(
            (broker, live.epoch)
            for broker, live in image.brokers.items()
            if not live.record.secret and broker != self._cluster.me
        )
        for broker, _ in sorted(found - self._without_secret):
            log.warning(
                "requests of a broker of an older version accepted without proof",
                extra={"broker": broker},
            )
        self._without_secret = found

    async def catch_up(self) -> bool:
        """Updates the image, together with all who ask for that at the same time.

        Returns whether it shows what is stored since the call.
        """
        if self._next_read is None:
            self._next_read = asyncio.get_running_loop().create_task(self._read())
            self._reads.add(self._next_read)
            self._next_read.add_done_callback(self._reads.discard)
        done, _ = await asyncio.wait([self._next_read], timeout=_CATCH_UP_WAIT_S)
        return any(not read.cancelled() and read.result() for read in done)

    async def close(self) -> None:
        """Ends what is under way."""
        for task in self._reads:
            task.cancel()
        if self._reads:
            await asyncio.wait(self._reads)

    async def _read(self) -> bool:
        loop = asyncio.get_running_loop()
        async with self._reading:
            await asyncio.sleep(self._read_at_s + _CATCH_UP_EVERY_S - loop.time())
            self._read_at_s = loop.time()
            self._next_read = None  # who comes from here on needs what is stored from here on
            try:
                await self._metadata.catch_up()
            except BrokerError as error:
                log.debug("metadata not read: %s", error.message)
                return False
        return True
