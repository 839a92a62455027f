"""Run: the application on uvicorn, with few pools of memory, and a quiet end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from nanospeech.errors import InputError, require

from .app import create_app
from .errors import Broken
from .protocols import http_protocol, socket_protocol
from .service import SpeechService
from .settings import ServeSettings

SEND_BUFFER = 131_072  # bytes: some seconds of sound
KEPT = 5  # seconds that an idle connection is kept
M_ARENA_MAX = -8  # of malloc.h


class QuietlyBroken(logging.Filter):
    """One line for a response that was cut on purpose, in the place of a traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Broken):
            record.msg, record.args, record.exc_info = f"a response was cut: {error}", (), None
        return True


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
        elsewhere = isinstance(e, socket.gaierror) or e.errno == errno.EADDRNOTAVAIL
        other = "--host" if elsewhere else flag  # no port will do where the address is not ours
        message = f"cannot listen on {host} port {port}: {e.strerror or e}; choose another {other}"
        raise InputError(message) from e
    found.listen(256)
    found.set_inheritable(False)
    return found


def make_server(service: SpeechService, settings: ServeSettings) -> Any:
    """A uvicorn server of the application; its serve() is awaited with sockets of listen()."""
    uvicorn = require("uvicorn", "serve")

    class Server(uvicorn.Server):
        """Lets running speech end before connections are closed, where its terminal is, too."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            with super().capture_signals(), hang_up(self.handle_exit):
                yield

        async def shutdown(self, sockets: Any = None) -> None:
            for server in self.servers:
                server.close()
            until = time.monotonic() + settings.limits.drain
            ending = asyncio.ensure_future(service.drain(settings.limits.drain))
            while not self.force_exit and (
                not ending.done() or (self.unread() and time.monotonic() < until)
            ):
                await asyncio.sleep(0.05)
            if self.force_exit:  # by a second Ctrl-C
                ending.cancel()
                await service.drain(0)
                for transport in self.transports():
                    transport.abort()
                self.force_exit = False  # with it the application is torn apart, with a traceback
            await super().shutdown(sockets)

        def unread(self) -> bool:
            """Whether a client has still to read what it was answered."""
            return any(one.get_write_buffer_size() for one in self.transports())

        def transports(self) -> list[Any]:
            """Those of the open connections."""
            found = (connection.transport for connection in self.server_state.connections)
            return [one for one in found if one is not None]

    config = uvicorn.Config(
        create_app(service, settings),
        http=http_protocol(settings.limits),
        ws=socket_protocol(settings.limits) or "none",
        ws_max_size=settings.limits.body,
        ws_max_queue=16,
        ws_per_message_deflate=False,
        # who plays what it reads has much unread before a ping; protocols.py cuts those that stop
        ws_ping_timeout=None,
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


@contextlib.contextmanager
def hang_up(handle: Any) -> Iterator[None]:
    """Has SIGHUP, of a terminal that closes, handled; not under nohup, which has it ignored."""
    number = getattr(signal, "SIGHUP", None)  # Windows has none
    main = threading.current_thread() is threading.main_thread()
    if number is None or not main or signal.getsignal(number) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(number, handle)
    try:
        yield
    finally:
        signal.signal(number, before)


async def run(
    service: SpeechService, settings: ServeSettings, listening: socket.socket, more: Any = ()
) -> None:
    """Serves until SIGTERM, SIGHUP or Ctrl-C.

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
