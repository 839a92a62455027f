"""Metrics of a server for Prometheus; names begin with nanospeech_."""

from __future__ import annotations

from collections.abc import Callable

from nanospeech.errors import require

FIRST = (0.05, 0.1, 0.15, 0.25, 0.5, 1, 2, 5, 10, 30, 60)
WHOLE = (0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 900)
LONGEST_WAIT = 30  # seconds that a client is told to wait at most


class Metrics:
    """What a service counts."""

    def __init__(self):
        prometheus = require("prometheus_client", "serve")
        self.registry = prometheus.CollectorRegistry()
        own = {"registry": self.registry, "namespace": "nanospeech"}
        self.texts = prometheus.Counter(
            "texts", "texts by outcome: ok, refused, cancelled, failed", ["outcome"], **own
        )
        self.audio = prometheus.Counter("audio_seconds", "seconds of speech made", **own)
        self.latency = prometheus.Histogram(
            "first_audio_seconds", "seconds from a text to its first sound", buckets=FIRST, **own
        )
        self.whole = prometheus.Histogram(
            "text_seconds", "seconds from a text to its last sound", buckets=WHOLE, **own
        )
        self.batches = prometheus.Histogram(
            "batch_chunks", "chunks in a batch", buckets=(1, 2, 4, 8, 16, 32), **own
        )
        self.open = prometheus.Gauge("open_texts", "texts that are spoken or wait", **own)
        self.answers = prometheus.Counter("http_responses", "answers by status", ["status"], **own)
        self.mean = 1.0  # seconds of a text, of the last ones

    def watch(self, count: Callable[[], int]) -> None:
        """Reads the number of open texts when it is asked for."""
        self.open.set_function(count)

    def batched(self, size: int) -> None:
        self.batches.observe(size)

    def first(self, seconds: float) -> None:
        self.latency.observe(seconds)

    def ended(self, outcome: str, seconds: float, audio: float) -> None:
        """Counts a text that is over."""
        self.texts.labels(outcome).inc()
        self.audio.inc(audio)
        if outcome == "ok":
            self.whole.observe(seconds)
            self.mean += 0.1 * (seconds - self.mean)

    def wait(self, texts: int) -> int:
        """Seconds after which a client may try again, with so many texts before it."""
        return round(min(max(self.mean * min(texts, 8) / 8, 1), LONGEST_WAIT))

    def text(self) -> bytes:
        """All of it as Prometheus reads it."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)
