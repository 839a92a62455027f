"""App: the server as an ASGI application, which uvicorn or Ray Serve runs.

Routes of OpenAI's speech interface, lists of models and voices, health, metrics and the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from nanospeech.errors import require

from .answers import speech_answer
from .errors import ApiError, bad
from .guard import FAULT, Guard
from .request import MODELS, is_model, read_json, read_speech
from .service import SpeechService
from .settings import ServeSettings
from .socket import Sockets
from .tracing import trace_logs
from .uploads import add_voice, read_upload

PAGE = Path(__file__).parent / "page" / "index.html"
NOTHING = "'none'"
INLINE = re.compile(r"<(script|style)\b[^>]*>(.*?)</\1>", re.S | re.I)


def create_app(
    service: SpeechService, settings: ServeSettings = ServeSettings(), closes: bool = True
) -> Any:
    """The ASGI application.

    Args:
        service: the engine that speaks.
        settings: whom it answers, and the limits.
        closes: whether the service ends with the application.

    Raises:
        BackendError: starlette is not installed.
    """
    require("starlette", "serve")
    from starlette.applications import Starlette
    from starlette.routing import Route, WebSocketRoute

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        if closes:
            service.close()

    trace_logs()
    handlers = Handlers(service, settings)
    routes = [
        Route("/health/live", handlers.live),
        Route("/health/ready", handlers.ready),
        Route("/metrics", handlers.metrics),
        Route("/", handlers.page),
        WebSocketRoute("/v1/audio/stream", Sockets(service, settings).answer),
    ]
    for base in ("/v1", ""):  # clients' bases differ
        routes += [
            Route(f"{base}/audio/speech", handlers.speech, methods=["POST"]),
            Route(f"{base}/audio/voices", handlers.voices, methods=["GET", "POST"]),
            Route(f"{base}/audio/models", handlers.models),
            Route(f"{base}/models", handlers.models),
            Route(f"{base}/models/{{name:path}}", handlers.model),
        ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=_handlers())
    app.router.redirect_slashes = False
    return Guard(app, settings, service.metrics)


class Handlers:
    """Answers to requests."""

    def __init__(self, service: SpeechService, settings: ServeSettings):
        self.service, self.settings = service, settings
        self.html, self.policy = read_page()
        self.adding = asyncio.Lock()

    async def speech(self, request: Any) -> Any:
        """POST /v1/audio/speech."""
        if request.headers.get("content-type", "").lower().startswith("multipart/"):
            message = "send JSON, not a form; a recording is sent once, to /v1/audio/voices"
            raise bad(message, code="invalid_json")
        coding = request.headers.get("content-encoding", "")
        wanted = read_speech(read_json(await request.body(), coding), self.service)
        return await speech_answer(self.service, wanted)

    async def models(self, _: Any) -> Any:
        """Models, in OpenAI's shape ("data") and in Open WebUI's ("models")."""
        found = [self._model(name) for name in (self.service.model, *MODELS)]
        return answer({"object": "list", "data": found, "models": found})

    async def model(self, request: Any) -> Any:
        """A model by its name."""
        name = request.path_params["name"]
        if not is_model(name, self.service):
            message = f"model {name[:64]!r} not found; choose {self.service.model}"
            raise ApiError(404, message, "model_not_found", "model")
        return answer(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        created, owner = self.service.created, "nanospeech"
        return {"id": name, "object": "model", "created": created, "owned_by": owner}

    async def add_voice(self, request: Any) -> Any:
        """A voice of a client's recording, where that is allowed."""
        from starlette.concurrency import run_in_threadpool

        if not self.settings.allow_voices:
            message = "this server takes no voices; its owner may start it with --allow-voices"
            raise ApiError(403, message, "uploads_not_allowed")
        limits = self.settings.limits
        fields = await read_upload(request, limits.max_upload)
        # one after another: what is checked stays so until it is written
        async with self.adding:
            made = await run_in_threadpool(add_voice, fields, self.service, limits.max_voices)
        return answer(made, 201)

    async def voices(self, request: Any) -> Any:
        """Voices, by both of the keys that clients read, and what OpenAI's names stand for."""
        if request.method == "POST":
            return await self.add_voice(request)
        first, names = self.service.default(), self.service.voices()
        found = [{"id": n, "name": n, "default": n == first} for n in names]
        aliases = self.service.aliases()
        more = {"aliases": aliases, "uploads": self.settings.allow_voices}
        more["max_chars"] = self.settings.limits.max_chars
        more["sample_rate"] = self.service.sample_rate
        return answer({"object": "list", "data": found, "voices": found, **more})

    async def live(self, _: Any) -> Any:
        """Whether the process answers."""
        return answer({"status": "live"})

    async def ready(self, _: Any) -> Any:
        """Whether it takes texts."""
        if not self.service.ready or self.service.draining:
            raise ApiError(503, "not ready", "not_ready", retry=1)
        model, voices = self.service.model, len(self.service.voices())
        return answer({"status": "ready", "model": model, "voices": voices})

    async def metrics(self, _: Any) -> Any:
        """Figures for Prometheus."""
        from starlette.responses import Response

        return Response(self.service.metrics.text(), media_type="text/plain; version=0.0.4")

    async def page(self, _: Any) -> Any:
        """The page, with a policy that lets it load nothing from elsewhere."""
        from starlette.responses import HTMLResponse

        if not self.html:
            raise ApiError(404, "this build has no page; see /v1/models", "not_found")
        headers = {"content-security-policy": self.policy, "cache-control": "no-cache"}
        return HTMLResponse(self.html, headers=headers)


def read_page(path: Path = PAGE) -> tuple[str, str]:
    """The page, and a content security policy that allows its own inline scripts and styles alone.

    They are allowed by their hashes, so nothing that is written into the page later runs.
    """
    if not path.is_file():
        return "", ""
    html = path.read_text(encoding="utf-8")
    allowed: dict[str, list[str]] = {"script": [], "style": []}
    for kind, text in INLINE.findall(html):
        digest = hashlib.sha256(text.encode()).digest()
        allowed[kind.lower()].append(f"'sha256-{b64encode(digest).decode()}'")
    return html, "; ".join(
        [
            "default-src 'none'",
            *(f"{kind}-src {' '.join(hashes) or NOTHING}" for kind, hashes in allowed.items()),
            "connect-src 'self'",
            "img-src 'self' data: blob:",
            "media-src 'self' blob:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


def answer(values: Any, status: int = 200, headers: dict[str, str] | None = None) -> Any:
    from starlette.responses import JSONResponse

    return JSONResponse(values, status, headers)


async def refused(_: Any, error: Any) -> Any:
    """An ApiError as the answer to a request."""
    return answer(error.body, error.status, error.headers)


async def unknown(request: Any, error: Any) -> Any:
    """Starlette's own errors, such as 404 and 405, with the four keys."""
    codes = {404: "not_found", 405: "method_not_allowed"}
    what = f"{request.method} {request.url.path[:80]}: {error.detail}"
    found = ApiError(error.status_code, what, codes.get(error.status_code, "http_error"))
    return answer(found.body, error.status_code, {**(error.headers or {})})


async def gone(_: Any, __: Any) -> Any:
    """For a client that left before its body was whole: nobody reads this, and it is no fault."""
    return answer(ApiError(400, "the body ended too early", "incomplete_body").body, 400)


async def failed(_: Any, __: Any) -> Any:
    """A fault of ours, with the four keys; the guard writes it into the log."""
    return answer(FAULT.body, FAULT.status)


def _handlers() -> dict[Any, Any]:
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect

    return {ApiError: refused, HTTPException: unknown, ClientDisconnect: gone, Exception: failed}
