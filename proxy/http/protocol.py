"""HTTP connections whose request heads are bounded in size and time: no key has been seen yet while one arrives."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 64 << 10
"""Bytes of a request line with its headers; common servers take 8 to 32 kB."""

HEAD_SECONDS = 30.0
"""Seconds in which a head arrives; also those that a new connection may say nothing."""


class BoundedProtocol(HttpToolsProtocol):
    """Closes connections whose next request's head is too large (431) or too slow (408)."""

    _arriving = True
    _begun = False
    _bytes = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Await the first head."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Await nothing."""
        self._cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a head that is not complete after them."""
        self._bytes += len(data)
        super().data_received(data)
        if self._arriving and self._bytes > HEAD_BYTES:
            self._refuse(b"431 Request Header Fields Too Large", f"headers of more than {HEAD_BYTES >> 10} kB")

    def on_message_begin(self) -> None:
        """Await the head of a further request."""
        super().on_message_begin()
        self._begun = True
        if not self._arriving:
            self._bytes = 0
            self._await_head()

    def on_headers_complete(self) -> None:
        """Await no head during this request."""
        self._arriving = self._begun = False
        self._cancel()
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._arriving = True
        self._cancel()
        self._timer = self.loop.call_later(HEAD_SECONDS, self._late)

    def _late(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._late)  # an earlier answer still goes this way
        else:
            self._refuse(b"408 Request Timeout", f"no complete headers within {HEAD_SECONDS:g} s")

    def _refuse(self, status: bytes, reason: str) -> None:
        self._cancel()
        if self.transport.is_closing():
            return
        answered = self.cycle is None or self.cycle.response_complete
        if answered and self._begun:
            text = f"{reason}\n".encode()
            head = b"HTTP/1.1 %s\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(head % (status, len(text)) + text)
        self.transport.close()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
