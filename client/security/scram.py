"""SCRAM-SHA-256 and SCRAM-SHA-512 without I/O (RFC 5802, RFC 7677).

`exchange` yields the client's messages and receives the broker's. Both sides prove that they know
the password, and neither sends it: the client checks the broker's signature too. What the broker
sends is checked before it is used: its nonce must extend ours, and its number of iterations has
bounds, so that nobody gets a hash that is cheap to guess from, or one that takes minutes. As in
Kafka, names and passwords are UTF-8 without normalization (SASLprep), and there is no channel
binding.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Final

from tidelog.client.errors import AuthenticationFailed
from tidelog.client.security.options import SCRAM_256, SCRAM_512

if TYPE_CHECKING:
    from collections.abc import Generator

    from tidelog.client.security.secret import HiddenValue

DIGESTS: Final = {SCRAM_256: "sha256", SCRAM_512: "sha512"}
MIN_ITERATIONS: Final = 4096  # RFC 7677, and the least that Kafka stores
MAX_ITERATIONS: Final = 1_000_000  # about a second
_GS2_HEADER: Final = "n,,"  # no channel binding, no other identity
_SERVER_FIRST: Final = re.compile(
    r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,10})(,.*)?"
)
_SERVER_FINAL: Final = re.compile(r"v=([A-Za-z0-9+/=]+)(,.*)?")


def exchange(
    mechanism: str, user: str, password: HiddenValue, nonce: str
) -> Generator[bytes, bytes, None]:
    """Yields the client's messages and receives the broker's; ends when both have proved themselves.

    `nonce` is printable, without commas, and never used before. Raises AuthenticationFailed.
    """
    digest = DIGESTS[mechanism]
    first_bare = f"n={_escaped(user)},r={nonce}"
    first = _text((yield (_GS2_HEADER + first_bare).encode()))
    joined_nonce, salt, iterations = _server_first(first, nonce)
    salted = hashlib.pbkdf2_hmac(digest, password.reveal().encode(), salt, iterations)

    final_bare = f"c={base64.b64encode(_GS2_HEADER.encode()).decode()},r={joined_nonce}"
    signed = f"{first_bare},{first},{final_bare}".encode()
    client_key = hmac.digest(salted, b"Client Key", digest)
    stored_key = hashlib.new(digest, client_key).digest()
    signature = hmac.digest(stored_key, signed, digest)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    final = _text((yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()))

    if final.startswith("e="):
        raise AuthenticationFailed(f"the broker refuses the login ({final[2:80]!r})")
    matched = _SERVER_FINAL.fullmatch(final)
    if matched is None:
        raise _malformed("last")
    server_key = hmac.digest(salted, b"Server Key", digest)
    expected = hmac.digest(server_key, signed, digest)
    if not hmac.compare_digest(expected, _decoded(matched[1], "last")):
        raise AuthenticationFailed(
            "the broker's signature is wrong: it does not know the password, and may be an impostor"
        )


def _server_first(message: str, nonce: str) -> tuple[str, bytes, int]:
    """Returns the joined nonce, the salt and the iterations. Raises AuthenticationFailed."""
    if message.startswith("e="):
        raise AuthenticationFailed(f"the broker refuses the login ({message[2:80]!r})")
    matched = _SERVER_FIRST.fullmatch(message)
    if matched is None:  # a mandatory extension, m=, comes first and does not match
        raise _malformed("first")
    joined, salt, iterations = matched[1], _decoded(matched[2], "first"), int(matched[3])
    if not joined.startswith(nonce) or len(joined) == len(nonce):
        raise AuthenticationFailed("the broker's nonce does not continue the client's")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise AuthenticationFailed(
            f"the broker wants {iterations} iterations of the password's hash: accepted are"
            f" {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    return joined, salt, iterations


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("the broker's SCRAM message is not UTF-8") from None


def _decoded(text: str, which: str) -> bytes:
    try:
        found = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise _malformed(which) from None
    if not found:
        raise _malformed(which)
    return found


def _malformed(which: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"the broker's {which} SCRAM message is malformed")
