"""The HTTP protocol of all servers: uvicorn's protocol with h11, and bounds that hold before a client is authenticated (D36).

h11 reads one request at a time and at most `HEAD_BYTES` of its head; uvicorn reads at most 64 KiB of a body before the application
requests it. httptools, the other parser of uvicorn, bounds neither: 12 MB of header fields took 125 MB, and 12 MB of pipelined
requests 490 MB. h11 costs 85 us of processor time for each request more.
"""

import asyncio
import fcntl
import termios
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_BYTES = 64 * 1024
REQUEST_SECONDS = 30.0
"""The time in which a request arrives whole, counted from its first byte, or from the start of a connection for the first request."""
UNREAD_BYTES = 64 * 1024  # the part of a response that is buffered for a client before its source waits
UNREAD_SECONDS = 30.0  # the time for which a client may read nothing of its response, such as a watch
_LINGER_SECONDS = 1.0  # the time in which a client receives a response before its connection is cut


class BoundedProtocol(H11Protocol):
    """One connection. `since` is when the server began to wait for the client's current or next request."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.since = self.loop.time()
        self._unread_since: float | None = None

    @property
    def awaits_client(self) -> bool:
        """Whether no response is due: no request has arrived, or its body is incomplete."""
        return self._is_idle or self.cycle.more_body

    @property
    def _is_idle(self) -> bool:
        cycle: RequestResponseCycle | None = vars(self)["cycle"]  # uvicorn's type omits that it begins with None
        return cycle is None or cycle.response_complete

    def close_overdue(self, now: float) -> None:
        """Close the connection if its client sends its request, or reads the response, too slowly."""
        late = self.awaits_client and self.timeout_keep_alive_task is None and now - self.since > REQUEST_SECONDS
        stalled = self._unread_since is not None and now - self._unread_since > UNREAD_SECONDS
        if late or stalled:
            self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Bound what the transport buffers: with TLS it would buffer 512 KiB."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=UNREAD_BYTES)

    def data_received(self, data: bytes) -> None:
        """Note when a request begins on a connection that was idle."""
        if self.timeout_keep_alive_task is not None:
            self.since = self.loop.time()
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Note when the wait for the next request begins. A closing connection ends even if the client reads nothing."""
        self.since = self.loop.time()
        if self.transport.is_closing():
            self.loop.call_later(_LINGER_SECONDS, self.transport.abort)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP. If a response has begun, only close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
            self.loop.call_later(_LINGER_SECONDS, self.transport.abort)
        else:
            self.transport.abort()
        if self.cycle is not None:  # the application reads and writes no more
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def shutdown(self) -> None:
        """Close the connection when no request is due. A response to one that has begun to arrive says that the connection closes."""
        if not (self._is_idle and self._has_begun_request()):
            super().shutdown()

    def _has_begun_request(self) -> bool:
        """Return whether bytes of a request have arrived: the event loop may not have read them yet."""
        if self.transport.is_closing():
            return False
        if self.conn.trailing_data[0]:
            return True
        return any(fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.FIONREAD, bytes(4)))

    def pause_writing(self) -> None:
        """Note when the client has stopped reading."""
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client reads."""
        self._unread_since = None
        super().resume_writing()
