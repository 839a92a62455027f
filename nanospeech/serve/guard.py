"""Guard: what every request passes before any handler: host, origin, token, body.

Plain ASGI. Its answers are OpenAI's errors of four keys, like those of the handlers.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import re
from typing import Any

from nanospeech.speech.reference import KEPT

from .errors import ApiError, Broken
from .metrics import Metrics
from .settings import ServeSettings, is_loopback
from .tracing import CURRENT, HEADER, request_id

log = logging.getLogger("nanospeech.serve")
# read without a token: Open WebUI sends none with these, and they tell names alone
OPEN = ("/", "/health/live", "/health/ready", "/favicon.ico")
OPEN_LISTS = ("/audio/voices", "/audio/models", "/v1/audio/voices", "/v1/audio/models")
UPLOADS = ("/v1/audio/voices", "/audio/voices")
HEADERS = re.compile(rb"(?=.{1,2000}\Z)[\w!#$%&'*+.^`|~-]+(?: ?, ?[\w!#$%&'*+.^`|~-]+)*")
URL = re.compile(r"(?:http|ws)s?://([^/]*)(/.*)?", re.I | re.S)
SLASHES = re.compile("//+")
FAULT = ApiError(500, "the server failed; its log says why", "internal")
SAFE = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Guard:
    """Wraps an ASGI application.

    Args:
        app: what answers.
        settings: whom it answers, and the limits.
        metrics: counts the answers.
    """

    def __init__(self, app: Any, settings: ServeSettings, metrics: Metrics):
        self.app, self.settings, self.metrics = app, settings, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {k.lower(): v for k, v in scope["headers"]}
        scope, headers = as_meant(scope, headers)
        name = request_id(headers)
        more = [*self._cors(headers), (HEADER, name.encode())]
        answer = Answer(scope, send, more, self.metrics)
        CURRENT.set(name)
        try:
            self._admit(scope, headers)
            if scope["type"] == "websocket":
                await self.app(scope, receive, send)
                return
            if scope["method"] == "OPTIONS" and len(more) > 1:
                await answer.empty(204)
                return
            limits, what = self.settings.limits, ("body", "")
            most = limits.body
            if scope["path"] in UPLOADS:
                most = limits.max_upload
                what = "recording", "; send {:g} to {:g} seconds of speech".format(*KEPT)
            body = Body(receive, most, limits.body_deadline, headers, what)
            await self.app(scope, body, answer)
        except ApiError as e:
            await answer.error(e)
        except Broken:
            raise
        except Exception:
            log.exception("%s failed", scope["path"])
            if answer.whole:
                return
            if answer.started:
                raise Broken("a handler failed") from None
            await answer.error(FAULT)

    def _admit(self, scope: Any, headers: dict[bytes, bytes]) -> None:
        """
        Raises:
            ApiError: a host, an origin or a token that is not one of ours.
        """
        host = headers.get(b"host", b"").decode("latin-1")
        name = host_name(host)
        mine = {self.settings.host.strip("[]").lower(), *map(str.lower, self.settings.hosts)}
        known = name in mine or is_loopback(name) or is_address(name) or "*" in mine
        if not known and b"host" in headers and self.settings.token is None:
            # a page of another site may have its name lead here (DNS rebinding); browsers always
            # send a host, and some health checks none
            message = f"this server is not called {name[:64]!r}; allow the name by --allow-host"
            raise ApiError(421, message, "unknown_host")
        origin = headers.get(b"origin")
        if origin is not None and not self._same(scope, origin, host) and not self._allowed(origin):
            message = f"pages of {origin[:80].decode('latin-1')} may not use this server"
            raise ApiError(403, message + "; allow them by --allow-origin", "unknown_origin")
        if not self._needs_token(scope):
            return
        given = headers.get(b"authorization", b"")
        kind, _, token = given.partition(b" ")
        if kind.lower() != b"bearer" or not self.is_token(token.strip()):
            what = "a wrong token" if token else "no token"
            message = f"{what} was sent; send the header Authorization: Bearer TOKEN"
            raise ApiError(401, message, "invalid_api_key")

    def is_token(self, given: bytes) -> bool:
        """Compares in a time that tells nothing of where they differ."""
        wanted = (self.settings.token or "").encode()
        return hmac.compare_digest(given, wanted)

    def _needs_token(self, scope: Any) -> bool:
        if self.settings.token is None or scope["type"] == "websocket":
            return False  # browsers cannot send headers with these: the first message has it
        if scope["method"] == "OPTIONS":
            return False
        reads = scope["method"] in ("GET", "HEAD")
        return not (reads and scope["path"] in (*OPEN, *OPEN_LISTS))

    def _same(self, scope: Any, origin: bytes, host: str) -> bool:
        """Whether a page is this server's own; behind a proxy the scheme may be another."""
        return origin.decode("latin-1").lower() in (
            f"http://{host}".lower(),
            f"https://{host}".lower(),
        )

    def _allowed(self, origin: bytes) -> bool:
        allowed = [one.lower() for one in self.settings.origins]  # as browsers send them
        return "*" in allowed or origin.decode("latin-1").lower() in allowed

    def _cors(self, headers: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        """Headers for a page of another site that may use the server; never with credentials."""
        origin = headers.get(b"origin")
        if origin is None or not self.settings.origins or not self._allowed(origin):
            return []
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
            (b"access-control-allow-headers", asked_headers(headers)),
            (b"access-control-expose-headers", b"x-seed, x-left-out, x-request-id, retry-after"),
            (b"vary", b"origin"),
        ]


def as_meant(scope: Any, headers: dict[bytes, bytes]) -> tuple[Any, dict[bytes, bytes]]:
    """A scope whose path is that of a route, and its headers.

    Proxies may send a whole URL, whose host then counts instead of the header's (RFC 9112, 3.2.2).
    Clients join a base that ends in a slash and a path that begins with one, or end with one.
    """
    path = scope["path"]
    if found := URL.fullmatch(path):
        headers, path = {**headers, b"host": found[1].encode("latin-1", "replace")}, found[2] or "/"
    return {**scope, "path": SLASHES.sub("/", path).rstrip("/") or "/"}, headers


def asked_headers(headers: dict[bytes, bytes]) -> bytes:
    """The headers that a preflight asks for, of which none does harm; else those that are read.

    OpenAI's client in a browser sends some of its own.
    """
    asked = headers.get(b"access-control-request-headers", b"")
    return asked if HEADERS.fullmatch(asked) else b"authorization, content-type, x-request-id"


def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def is_address(name: str) -> bool:
    """Whether a host is an address, which no foreign name server decides on."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Body:
    """A request's receive, with an end to the body's size and time.

    Args:
        what: the body is, and what to send in the place of one that is too large.

    Raises, when called:
        ApiError: 413, or 408.
    """

    def __init__(
        self,
        receive: Any,
        most: int,
        seconds: float,
        headers: dict[bytes, bytes],
        what: tuple[str, str],
    ):
        self.receive, self.most, self.had, self.done = receive, most, 0, False
        self.what = what
        self.seconds, self.until = seconds, asyncio.get_running_loop().time() + seconds
        said = headers.get(b"content-length", b"0")
        if said.isdigit() and int(said[:20]) > most:
            raise self.too_large()

    def too_large(self) -> ApiError:
        name, instead = self.what
        message = f"the {name} has more than {self.most} bytes{instead}"
        return ApiError(413, message, "body_too_large")

    async def __call__(self) -> Any:
        if self.done:
            return await self.receive()
        left = self.until - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(self.receive(), max(0.01, left))
        except asyncio.TimeoutError:
            raise ApiError(
                408, f"no whole body within {self.seconds:g} s", "body_deadline"
            ) from None
        self.had += len(message.get("body", b""))
        if self.had > self.most:
            raise self.too_large()
        self.done = not message.get("more_body", False)
        return message


class Answer:
    """A request's send, which adds headers and counts, and can answer with an error."""

    def __init__(self, scope: Any, send: Any, more: list[tuple[bytes, bytes]], metrics: Metrics):
        self.scope, self.send, self.more, self.metrics = scope, send, more, metrics
        self.started = self.whole = False

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            own = [*SAFE, *self.more]
            message = {**message, "headers": [*message.get("headers", []), *own]}
            self.metrics.answers.labels(str(message["status"])).inc()
        await self.send(message)
        last = not message.get("more_body", False)
        self.whole = self.whole or (message["type"] == "http.response.body" and last)

    async def error(self, e: ApiError) -> None:
        """Answers with an error; a WebSocket is refused with it."""
        body = e.encoded()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *((k.encode(), v.encode()) for k, v in e.headers.items()),
        ]
        if e.status in (408, 413):
            headers.append((b"connection", b"close"))
        if self.scope["type"] == "websocket":
            await self.send({"type": "websocket.close", "code": 1008, "reason": e.message[:100]})
            return
        if self.started:
            raise Broken(e.message)
        await self({"type": "http.response.start", "status": e.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})

    async def empty(self, status: int) -> None:
        await self({"type": "http.response.start", "status": status, "headers": []})
        await self({"type": "http.response.body", "body": b""})
