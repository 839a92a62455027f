"""Run: the application on uvicorn, with the deadlines that uvicorn lacks, and a quiet end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from typing import Any

from nanospeech.errors import InputError, require

from .app import create_app
from .errors import ApiError, Broken
from .service import SpeechService
from .settings import Limits, ServeSettings

SEND_BUFFER = 131_072  # bytes: some seconds of sound
KEPT = 5  # seconds that an idle connection is kept


class QuietlyBroken(logging.Filter):
    """One line for a response that was cut on purpose, in the place of a traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Broken):
            record.msg, record.args, record.exc_info = f"a response was cut: {error}", (), None
        return True


def protocol(limits: Limits) -> type:
    """uvicorn's HTTP protocol with a deadline for headers and for readers that stop."""
    require("uvicorn", "serve")
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Guarded(H11Protocol):
        """Cuts connections that send half a request's headers, or read nothing."""

        header_timer: Any = None
        read_timer: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            # what the kernel does not take at once shows a reader that stopped
            transport.set_write_buffer_limits(high=0)
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
                self.stop_timers()
            busy = self.cycle is not None and not self.cycle.response_complete
            if not busy and self.header_timer is None:
                self.header_timer = self.loop.call_later(limits.header_deadline, self.cut)

        def handle_websocket_upgrade(self, event: Any) -> None:
            self.stop_timers()
            super().handle_websocket_upgrade(event)
            self.header_timer = NEVER  # the WebSocket's own deadlines go on

        def stop_timers(self) -> None:
            for timer in (self.header_timer, self.read_timer):
                if timer is not None and timer is not NEVER:
                    timer.cancel()
            self.header_timer = self.read_timer = None

        def pause_writing(self) -> None:
            super().pause_writing()
            self.read_timer = self.loop.call_later(limits.idle_deadline, self.cut)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self.read_timer is not None:
                self.read_timer.cancel()
                self.read_timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self.stop_timers()

    return Guarded


NEVER = object()
M_ARENA_MAX = -8  # of malloc.h


def few_arenas() -> None:
    """Lets glibc's malloc share two pools: one for each thread would keep what it once held."""
    import ctypes

    if sys.platform == "win32":  # where no name is no library
        return
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 2)


def listen(host: str, port: int, flag: str = "--port") -> socket.socket:
    """A listening socket.

    Args:
        flag: by which another port is chosen, for the message.

    Raises:
        InputError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # named TCP, else asyncio leaves Nagle's algorithm on, which holds answers back by 40 ms
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if sys.platform != "win32":  # there a second server could take the port from the first
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # a large buffer of the kernel would hide a reader that has stopped
    found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    try:
        found.bind((host.strip("[]"), port))
    except OSError as e:
        found.close()
        message = f"cannot listen on {host} port {port}: {e.strerror or e}; choose another {flag}"
        raise InputError(message) from e
    found.listen(256)
    found.set_inheritable(False)
    return found


def make_server(service: SpeechService, settings: ServeSettings) -> Any:
    """A uvicorn server of the application; its serve() is awaited with sockets of listen()."""
    uvicorn = require("uvicorn", "serve")

    class Server(uvicorn.Server):
        """Lets running speech end before connections are closed."""

        async def shutdown(self, sockets: Any = None) -> None:
            for server in self.servers:
                server.close()
            await service.drain(settings.limits.drain)
            await super().shutdown(sockets)

    config = uvicorn.Config(
        create_app(service, settings),
        http=protocol(settings.limits),
        ws="websockets-sansio" if has_sansio() else "auto",
        ws_max_size=settings.limits.body,
        ws_max_queue=16,
        ws_per_message_deflate=False,
        loop="asyncio",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=KEPT,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=16_384,
    )
    logging.getLogger("uvicorn.error").addFilter(QuietlyBroken())
    return Server(config)


def has_sansio() -> bool:
    """Whether this uvicorn has the WebSocket protocol without deprecated parts."""
    from importlib.util import find_spec

    return find_spec("uvicorn.protocols.websockets.websockets_sansio_impl") is not None


async def run(
    service: SpeechService, settings: ServeSettings, listening: socket.socket, more: Any = ()
) -> None:
    """Serves until SIGTERM or Ctrl-C.

    Args:
        listening: of listen().
        more: coroutines that run beside it, such as Wyoming's server.
    """
    beside = [asyncio.ensure_future(one) for one in more]
    try:
        await make_server(service, settings).serve([listening])
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        service.close()
