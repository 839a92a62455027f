"""Replicas: the same application on Ray Serve (extra "cluster"), on one machine or many.

Each replica is a process with a warm engine, whose service takes turns and batches chunks, counted
in frames, as a single server does. Ray's proxy takes the connections and gives each request to the
replica with fewest; Ray starts those again that died. The deadlines of connections (run.py) are
uvicorn's alone: put a proxy before a cluster that strangers can reach.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from nanospeech.cli import say
from nanospeech.config import option
from nanospeech.errors import InputError, reason, require

from .app import create_app
from .service import SpeechService
from .settings import ServeSettings


@dataclass(frozen=True)
class Replicas:
    """What a cluster needs to know beside the flags: the keys of --ray's YAML file."""

    replicas: int = option(1, "processes; the least of them where max_replicas is more")
    max_replicas: int = option(0, "most of them; 0 keeps as many as replicas")
    texts: float = option(4.0, "texts at once of a replica from which on another one is started")
    cpus: float = option(1.0, "processors of a replica")
    gpus: float = option(0.0, "GPUs of a replica; 0.5 puts two on one")
    waiting: int = option(64, "requests that wait at the proxy for a replica; more are refused")

    def __post_init__(self):
        if self.replicas < 1:
            raise InputError(f"replicas is {self.replicas}; choose 1 or more")
        if self.max_replicas and self.max_replicas < self.replicas:
            raise InputError(f"max_replicas is {self.max_replicas}; replicas are {self.replicas}")
        for name in ("texts", "cpus", "waiting"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}; choose more than 0")
        if self.gpus < 0:
            raise InputError(f"gpus is {self.gpus}; choose 0 or more")


def read_replicas(path: Path) -> Replicas:
    """Reads a YAML file.

    Raises:
        InputError: it cannot be read, or has a key or a value that cannot be.
    """
    yaml = require("yaml", "cluster")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        why = " ".join(reason(e).split())
        raise InputError(f"cannot read {path}: {why}; it should hold lines as: replicas: 2") from e
    known = {field.name: type(field.default) for field in fields(Replicas)}
    if not isinstance(values, dict) or (wrong := [k for k in values if k not in known]):
        what = repr(wrong[0]) if isinstance(values, dict) else "no key"
        raise InputError(f"{path} has {what}; it takes {', '.join(known)}")
    for key, value in values.items():
        if not isinstance(value, (int, known[key])) or isinstance(value, bool):
            raise InputError(f"{key} of {path} is {value!r}; it should be a number")
    return Replicas(**values)


class Application:
    """The ASGI application of a replica, made where it runs.

    Args:
        where: arguments of load_engine.
        settings: whom it answers, and the limits.
    """

    def __init__(self, where: tuple[Any, ...], settings: ServeSettings):
        self.where, self.settings, self.app = where, settings, None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.app is None:  # "lifespan", which comes before any request
            self.app = await asyncio.to_thread(self.make)
        await self.app(scope, receive, send)

    def make(self) -> Any:
        """Loads and warms the engine."""
        from nanospeech.load import load_engine

        service = SpeechService(lambda: load_engine(*self.where), self.settings.limits)
        service.warm()
        return create_app(service, self.settings)


def start(where: tuple[Any, ...], settings: ServeSettings, replicas: Replicas) -> None:
    """Starts the replicas on the cluster of ray.init(), and waits until they are ready.

    Args:
        where: arguments of load_engine; a model's folder has the same path on all machines.
    """
    serve = require("ray.serve", "cluster")
    limits = settings.limits
    scaling: dict[str, Any] = {"num_replicas": replicas.replicas}
    if replicas.max_replicas > replicas.replicas:
        low, high = replicas.replicas, replicas.max_replicas
        scaling = {
            "autoscaling_config": {
                "min_replicas": low,
                "max_replicas": high,
                "target_ongoing_requests": replicas.texts,
            }
        }

    @serve.deployment(
        name="speech",
        # beyond active + queue the replica itself answers 429 with Retry-After
        max_ongoing_requests=limits.active + limits.queue + 8,
        max_queued_requests=replicas.waiting,
        graceful_shutdown_timeout_s=limits.drain,
        ray_actor_options={"num_cpus": replicas.cpus, "num_gpus": replicas.gpus},
        **scaling,
    )
    @serve.ingress(Application(where, settings))
    class Speech:
        """A replica."""

    serve.start(http_options={"host": settings.host, "port": settings.port})
    serve.run(Speech.bind(), name="nanospeech", route_prefix="/")


def run_replicas(where: tuple[Any, ...], settings: ServeSettings, path: Path) -> None:
    """Serves until SIGTERM or Ctrl-C, on the cluster of RAY_ADDRESS or on this machine alone."""
    replicas = read_replicas(path)
    ray, serve = require("ray", "cluster"), require("ray.serve", "cluster")
    over = threading.Event()
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "include_dashboard": False}
    try:
        ray.init(**quiet)
        for number in (signal.SIGTERM, signal.SIGINT):  # after Ray, whose own end at once
            signal.signal(number, lambda *_: over.set())
        start(where, settings, replicas)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        n = replicas.replicas
        who = "1 replica speaks" if n == 1 else f"{n} replicas speak"
        say(f"{who} at http://{host}:{settings.port}/")
        over.wait()
    finally:
        serve.shutdown()
        ray.shutdown()
