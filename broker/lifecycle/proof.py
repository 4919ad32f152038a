"""How a broker proves that a request is its own, and how another one judges that (decision 44).

Each session has a random secret, in `live/ID`. A proof is an HMAC of the sender, its broker epoch and the
receiver under the sender's secret: it holds for one session of the sender, and at one receiver. Who cannot
read the metadata, or the connections of brokers, can make none.
"""

from __future__ import annotations

import hmac
from enum import Enum, auto
from struct import Struct
from typing import TYPE_CHECKING, Final

from tidelog.protocol.sender import PROOF_BYTES

if TYPE_CHECKING:
    from tidelog.broker.metadata.brokers.members import LiveBroker
    from tidelog.broker.metadata.brokers.records import Secret
    from tidelog.protocol.sender import Sender

_PROVEN: Final = Struct(">16siqi")
_PURPOSE: Final = b"tidelog request\0"


class Verdict(Enum):
    """What a claim to be a broker in a session is worth."""

    PROVEN = auto()
    BELIEVED = auto()  # without a proof: the session is that of an older tidelog, which makes none
    OVER = auto()  # it names a session that another one of this broker has followed
    UNKNOWN = auto()  # it names a session that the metadata do not show, perhaps not yet
    FORGED = auto()


def proof_of(secret: Secret, sender: int, epoch: int, receiver: int) -> bytes:
    """Returns the proof that a request to `receiver` is the sender's, in its session of this epoch."""
    proven = _PROVEN.pack(_PURPOSE, sender, epoch, receiver)
    return hmac.digest(secret.encode(), proven, "sha256")[:PROOF_BYTES]


def judge(live: LiveBroker | None, epoch: int, sender: Sender | None, expected: bytes) -> Verdict:
    """Returns what the claim is worth that a request is of a broker in its session of `epoch`.

    `live` is the broker's session in the metadata, `sender` what the request's header says, and
    `expected` the proof of the session `live`. A session with a secret is never believed without proof,
    and its epoch makes no difference then: nobody finds it by trying.
    """
    if live is None:
        return Verdict.UNKNOWN
    if sender is None and live.record.secret:
        return Verdict.FORGED
    if epoch != live.epoch:
        return Verdict.UNKNOWN if epoch > live.epoch else Verdict.OVER
    if sender is None or not live.record.secret:
        return Verdict.BELIEVED
    is_proven = (sender.broker, sender.epoch) == (live.broker, epoch) and hmac.compare_digest(
        sender.proof, expected
    )
    return Verdict.PROVEN if is_proven else Verdict.FORGED
