"""Protocols: uvicorn's HTTP and WebSockets, with the deadlines for clients that uvicorn lacks.

A connection ends that sends half a request's headers, or whose client takes no byte for too long.
"""

from __future__ import annotations

import asyncio
import logging
from importlib.util import find_spec
from typing import Any

from nanospeech.errors import require

from .errors import ApiError
from .settings import Limits

log = logging.getLogger("nanospeech.serve")


def read_watch(limits: Limits) -> type:
    """A class to put before one of uvicorn's protocols: it cuts off readers that stop."""

    class Watched:
        """Aborts a transport that takes nothing; what its buffer loses is progress."""

        transport: Any
        read_timer: Any = None
        paused = 0.0  # when the transport was last full

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)  # type: ignore[misc]
            # what the kernel does not take at once shows a reader that stopped
            transport.set_write_buffer_limits(high=0)

        def pause_writing(self) -> None:
            super().pause_writing()  # type: ignore[misc]
            self.unwatch()
            self.paused = asyncio.get_running_loop().time()
            self.watch()

        def watch(self) -> None:
            left = self.transport.get_write_buffer_size()
            loop = asyncio.get_running_loop()
            self.read_timer = loop.call_later(limits.idle_deadline, self.look, left)

        def look(self, before: int) -> None:
            """Cuts the connection if its client took nothing since, or takes for too long."""
            loop = asyncio.get_running_loop()
            if self.transport.get_write_buffer_size() >= before:
                why = f"read nothing for {limits.idle_deadline:g} s"
            elif loop.time() - self.paused >= limits.deadline:
                why = f"took more than {limits.deadline:g} s for what it was sent"
            else:
                self.watch()
                return
            log.warning("a connection was cut: its client %s", why)
            self.transport.abort()

        def resume_writing(self) -> None:
            super().resume_writing()  # type: ignore[misc]
            self.unwatch()

        def unwatch(self) -> None:
            if self.read_timer is not None:
                self.read_timer.cancel()
                self.read_timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            self.unwatch()
            super().connection_lost(exc)  # type: ignore[misc]

    return Watched


def http_protocol(limits: Limits) -> type:
    """uvicorn's HTTP protocol with a deadline for headers and for readers that stop."""
    require("uvicorn", "serve")
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Guarded(read_watch(limits), H11Protocol):  # type: ignore[misc]
        """Cuts connections that send half a request's headers, or read nothing."""

        header_timer: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                self.refuse()
                return
            self.header_timer = self.loop.call_later(limits.header_deadline, self.cut)

        def refuse(self) -> None:
            """Answers that there are too many connections."""
            body = ApiError(503, "too many connections", "too_many_connections").encoded()
            self.transport.write(
                b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
                b"retry-after: 1\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n%s" % (len(body), body)
            )
            self.transport.close()

        def cut(self) -> None:
            self.transport.abort()

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:  # headers are complete
                self.stop_header_timer()
            busy = self.cycle is not None and not self.cycle.response_complete
            if not busy and self.header_timer is None:
                self.header_timer = self.loop.call_later(limits.header_deadline, self.cut)

        def handle_websocket_upgrade(self, event: Any) -> None:
            self.stop_header_timer()
            self.unwatch()
            super().handle_websocket_upgrade(event)
            self.header_timer = NEVER  # the WebSocket's own deadlines go on

        def stop_header_timer(self) -> None:
            if self.header_timer is not None and self.header_timer is not NEVER:
                self.header_timer.cancel()
            self.header_timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self.stop_header_timer()

    return Guarded


NEVER = object()


def socket_protocol(limits: Limits) -> Any:
    """uvicorn's WebSocket protocol with a deadline for readers that stop; None without one."""
    require("uvicorn", "serve")
    if has_sansio():
        from uvicorn.protocols.websockets.websockets_sansio_impl import (
            WebSocketsSansIOProtocol as Base,
        )
    else:
        from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol as Base
    if Base is None:
        return None

    class GuardedSocket(read_watch(limits), Base):  # type: ignore[misc, valid-type]
        """Cuts connections that read nothing."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if transport.get_write_buffer_size():  # of answers before the WebSocket, unread
                self.pause_writing()

    return GuardedSocket


def has_sansio() -> bool:
    """Whether this uvicorn has the WebSocket protocol without deprecated parts."""
    return find_spec("uvicorn.protocols.websockets.websockets_sansio_impl") is not None
