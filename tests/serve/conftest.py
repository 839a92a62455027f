"""A server on loopback, with real sockets: a tiny random model, and clients of others."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from nanospeech.load import load_engine
from nanospeech.serve.run import listen, make_server
from nanospeech.serve.service import SpeechService
from nanospeech.serve.settings import Limits, ServeSettings

TEXT = "The boat left at dawn, and nobody saw it go. It came back late, with fish."


class Server:
    """A server that runs in a thread of this process."""

    def __init__(self, load, settings: ServeSettings):
        self.settings = settings
        self.service = SpeechService(load, settings.limits)
        self.service.warm()
        self.listening = listen(settings.host, settings.port)
        self.port = self.listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = make_server(self.service, settings)
        serving = self.server.serve([self.listening])
        self.thread = threading.Thread(target=asyncio.run, args=(serving,), daemon=True)
        self.thread.start()
        for _ in range(200):
            try:
                httpx.get(self.url + "/health/live", timeout=1)
                return
            except httpx.TransportError:
                pass
        raise RuntimeError("the server did not start")

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture(scope="session")
def serve(make_release):
    """serve(**fields of ServeSettings, limits) -> a context with a Server of a tiny model."""
    folder = make_release(text_upsampling="aligned", patch_size=2, aligner_dim=24)

    @contextmanager
    def made(limits: dict | None = None, release: Path = folder, **fields):
        settings = ServeSettings(port=0, limits=Limits(**(limits or {})), **fields)
        server = Server(lambda: load_engine(release, "torch", "cpu", "float32"), settings)
        try:
            yield server
        finally:
            server.stop()

    return made


@pytest.fixture(scope="module")
def server(serve):
    """A server with the usual limits."""
    with serve() as found:
        yield found


def speech(server: Server, **fields) -> httpx.Response:
    """POST /v1/audio/speech."""
    body = {"model": "tts-1", "voice": "tone", "input": TEXT, **fields}
    body = {k: v for k, v in body.items() if v is not None}
    return httpx.post(server.url + "/v1/audio/speech", json=body, timeout=30)
