"""One connection's TLS: a protocol to its socket, and the transport of the protocol above it.

It promises, beside what `asyncio.Transport` does:

- What is written is encrypted in slices, `_TURN_BYTES` at most in one step of the loop, and only while the
  peer reads: the rest waits as it is, and counts in `get_write_buffer_size`.
- Nothing is decrypted while reading is paused. `_ARRIVING_BYTES` at most have arrived by then.
- A handshake that takes longer than `HANDSHAKE_S` ends, and one that fails is reported once.
- Bytes that came before the peer closed are delivered, whether or not it has said so by a close_notify.

Python's `SSLObject` over memory is used, and not the TLS of the event loop: docs/decisions/0064 says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from tidelog.broker.network.tls.handshakes import HANDSHAKE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.broker.network.tls.handshakes import Handshakes
    from tidelog.protocol.wire import Buffer

ARRIVING_BYTES: Final = 64 << 10
_SLICE_BYTES: Final = 64 << 10  # that are encrypted by one call
_TURN_BYTES: Final = 256 << 10  # before other connections have their turn
_JOINED_BYTES: Final = 16 << 10  # of parts that are sent in one record
_ANYTHING: Final = -1


class TlsStream(asyncio.BufferedProtocol, asyncio.Transport):
    """The TLS between a socket and the protocol above."""

    __slots__ = (
        "_above",
        "_arriving",
        "_deadline",
        "_decrypted",
        "_encrypted",
        "_failed",
        "_handshakes",
        "_host",
        "_is_closing",
        "_is_encrypting",
        "_is_ended",
        "_is_finished",
        "_is_open",
        "_is_paused_above",
        "_is_read",
        "_is_socket_full",
        "_received",
        "_socket",
        "_ssl",
        "_unsent",
        "_unsent_bytes",
    )

    def __init__(
        self,
        above: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        handshakes: Handshakes,
        arriving: memoryview,
        failed: Callable[[Exception], None],
    ) -> None:
        """`arriving` is where the bytes of all sockets arrive; `failed` is called if the handshake fails."""
        self._above, self._handshakes, self._arriving = above, handshakes, arriving
        self._failed = failed
        self._received, self._encrypted = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._received, self._encrypted, server_side=True)
        self._socket: asyncio.Transport | None = None
        self._host = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._unsent: deque[memoryview] = deque()  # not encrypted yet
        self._unsent_bytes = 0
        self._is_open = False  # the handshake is done
        self._is_ended = False  # the peer has closed its side
        self._is_finished = False  # nothing more is written
        self._is_closing = False
        self._is_encrypting = False  # in a step of the loop that comes
        self._is_read = True
        self._is_socket_full = False
        self._is_paused_above = False

    # -- what the event loop calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Reports the connection to the protocol above, which may close it, and waits for the handshake."""
        self._socket = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._host = str(peer[0]) if peer else ""
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._time_out)
        self._above.connection_made(self)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Returns where the next bytes go."""
        return self._arriving

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypts what has arrived, or goes on with the handshake."""
        self._received.write(self._arriving[:nbytes])
        if self._is_open:
            self._decrypt()
        elif not self._is_closing:
            self._handshakes.run(self._host, self._shake)

    def eof_received(self) -> bool:
        """Reports that the peer has closed its side, if it has not said so by TLS."""
        if self._is_open:
            return self._end()
        self._is_ended = (
            True  # what came before is delivered after the handshake, if that can be finished
        )
        self._handshakes.run(self._host, self._shake)
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """Drops everything, and reports it to the protocol above."""
        self._socket = None
        self._unsent.clear()
        self._unsent_bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()
        self._above.connection_lost(error)

    def pause_writing(self) -> None:
        """Encrypts nothing more: the peer does not read."""
        self._is_socket_full = True
        self._report_paused()

    def resume_writing(self) -> None:
        """Encrypts more: the peer has read."""
        self._is_socket_full = False
        self._encrypt()

    # -- the transport of the protocol above ---------------------------------------------------------

    def write(self, data: Buffer) -> None:
        """Sends bytes, at once if the peer reads and nothing waits."""
        if self._is_closing or self._is_finished or self._socket is None:
            return
        is_free = self._is_open and not (self._unsent or self._is_socket_full)
        if is_free and len(data) <= _JOINED_BYTES:
            self._ssl.write(data)
            self._socket.write(self._encrypted.read())
            return
        self._unsent.append(memoryview(data))
        self._unsent_bytes += len(data)
        self._encrypt()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Sends buffers; short ones in one record."""
        parts = list(list_of_data)
        if sum(map(len, parts)) <= _JOINED_BYTES:
            self.write(b"".join(parts))
        elif not (self._is_closing or self._is_finished or self._socket is None):
            for part in parts:
                self._unsent.append(memoryview(part))
                self._unsent_bytes += len(part)
            self._encrypt()

    def get_write_buffer_size(self) -> int:
        """Returns how many bytes the peer has not read: encrypted, and not yet."""
        below = 0 if self._socket is None else self._socket.get_write_buffer_size()
        return below + self._unsent_bytes

    def write_eof(self) -> None:
        """Closes this side when everything that was written is sent; the peer is still read."""
        self._is_finished = True
        if self._is_open and not self._unsent:
            self._finish()

    def can_write_eof(self) -> bool:
        """Returns True."""
        return True

    def close(self) -> None:
        """Closes when everything that was written is sent."""
        if not self._is_closing:
            self._is_closing = True
            if not (self._unsent and self._is_open):
                self._close_socket()

    def abort(self) -> None:
        """Closes now, and drops what has not been sent."""
        self._is_closing = True
        if self._socket is not None:
            self._socket.abort()

    def is_closing(self) -> bool:
        """Returns whether the connection closes, or is closed."""
        return self._is_closing or self._socket is None or self._socket.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Returns what is known of the socket, or `ssl_object`."""
        if name == "ssl_object":
            return self._ssl
        return default if self._socket is None else self._socket.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Delivers nothing more, and does not read the socket."""
        self._is_read = False
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Delivers what has arrived, then reads the socket again."""
        self._is_read = True
        asyncio.get_running_loop().call_soon(self._read_on)

    # -- handshake -----------------------------------------------------------------------------------

    def _shake(self) -> None:
        """Goes on with the handshake, in its turn."""
        if self._is_closing or self._is_open or self._socket is None:
            return
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._send_encrypted()
            if self._is_ended:
                self.close()
            return
        except (ssl.SSLError, ValueError) as error:
            self._fail(error)
            return
        self._is_open = True
        assert self._deadline is not None
        self._deadline.cancel()
        self._send_encrypted()
        self._decrypt()
        self._encrypt()  # what was written before

    def _time_out(self) -> None:
        if not self._is_open:
            self._fail(TimeoutError("the TLS handshake took too long"))

    def _fail(self, error: Exception) -> None:
        """Sends the alert, closes, and reports why."""
        self._send_encrypted()
        self._is_closing = True
        if self._socket is not None:
            self._socket.close()
            self._failed(error)

    # -- what arrives --------------------------------------------------------------------------------

    def _read_on(self) -> None:
        if self._is_read and self._socket is not None and not self._is_closing:
            if self._is_open:
                self._decrypt()
            if self._is_read and not self._is_ended:
                self._socket.resume_reading()

    def _decrypt(self) -> None:
        """Delivers what can be decrypted, while the protocol above reads."""
        above, received, tls = self._above, self._received, self._ssl
        has_more = True
        while has_more and self._is_read and self._socket is not None and not self._is_closing:
            place = cast("memoryview", above.get_buffer(_ANYTHING))
            size, filled = len(place), 0
            try:
                # An error that says that there is no more takes as long as to decrypt a short request.
                while filled < size and (has_more := bool(received.pending or tls.pending())):
                    # With a buffer it returns a number, which typeshed does not say.
                    nbytes = cast(
                        "int", tls.read(size - filled, place[filled:] if filled else place)
                    )
                    if not nbytes:
                        self._is_ended, has_more = True, False
                        break
                    filled += nbytes
            except ssl.SSLWantReadError:
                has_more = False
            except ssl.SSLError:
                if filled:
                    above.buffer_updated(filled)
                self._send_encrypted()
                self.abort()
                return
            if filled:
                above.buffer_updated(filled)
        if self._encrypted.pending:  # an answer to the peer's own records
            self._send_encrypted()
        if self._is_ended and self._socket is not None:
            self._end()

    def _end(self) -> bool:
        """Reports that the peer has closed its side; closes unless the protocol above still answers."""
        self._is_ended = True
        stays_open = bool(self._above.eof_received())
        if not stays_open:
            self.close()
        return stays_open

    # -- what is sent --------------------------------------------------------------------------------

    def _encrypt(self) -> None:
        """Encrypts and sends slices, until the peer does not read or others have their turn."""
        if not self._is_open:
            return
        unsent, left_bytes = self._unsent, _TURN_BYTES
        socket, is_broken = self._socket, False
        while unsent and left_bytes > 0 and not self._is_socket_full and socket is not None:
            part = unsent[0]
            piece = part[:_SLICE_BYTES]
            try:
                size = self._ssl.write(piece)
            except ssl.SSLError:
                is_broken = True
                break
            socket.write(self._encrypted.read())
            self._unsent_bytes -= size
            left_bytes -= size
            if size == len(part):
                unsent.popleft()
            else:
                unsent[0] = part[size:]
        if is_broken:
            self.abort()
        elif unsent and not self._is_socket_full and not self._is_encrypting:
            self._is_encrypting = True
            asyncio.get_running_loop().call_soon(self._encrypt_more)
        elif not unsent:
            if self._is_closing:
                self._close_socket()
            elif self._is_finished:
                self._finish()
        self._report_paused()

    def _encrypt_more(self) -> None:
        self._is_encrypting = False
        self._encrypt()

    def _report_paused(self) -> None:
        """Reports to the protocol above when the peer stops reading, and when it has read."""
        is_paused = bool(self._unsent) or self._is_socket_full
        if is_paused != self._is_paused_above and self._socket is not None:
            self._is_paused_above = is_paused
            if is_paused:
                self._above.pause_writing()
            else:
                self._above.resume_writing()

    def _send_encrypted(self) -> None:
        if self._encrypted.pending and self._socket is not None:
            self._socket.write(self._encrypted.read())

    def _finish(self) -> None:
        """Closes this side of TLS, and of the socket."""
        self._say_closed()
        if self._socket is not None and not self._socket.is_closing():
            self._socket.write_eof()

    def _say_closed(self) -> None:
        """Sends a close_notify, once."""
        if self._is_open:
            with contextlib.suppress(
                ssl.SSLError
            ):  # it wants the peer's own, which is not waited for
                self._ssl.unwrap()
            self._send_encrypted()

    def _close_socket(self) -> None:
        self._say_closed()
        if self._socket is not None:
            self._socket.close()
