"""A server on loopback, with real sockets: a tiny random model, and clients of others."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from nanospeech.config import ModelConfig
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
                time.sleep(0.01)
        raise RuntimeError("the server did not start")

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture(scope="package", autouse=True)
def no_certificates(tmp_path_factory):
    """Nobody is called by https: clients, made for each request, read no roots of trust."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("certificates")))
        yield


@pytest.fixture(scope="session")
def serve(tiny_aligned, tmp_path_factory):
    """serve(**fields of ServeSettings, limits) -> a context with a Server of a tiny model.

    The model takes two steps where no number is asked for, as those that ship.
    """
    folder = shutil.copytree(tiny_aligned, tmp_path_factory.mktemp("served") / "random")
    config = ModelConfig.load(folder / "config.json")
    dataclasses.replace(config, steps=2).save(folder / "config.json")

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
