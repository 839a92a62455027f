"""Settings: what a server listens on, whom it answers, and its limits. Numbers and names alone."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from dataclasses import dataclass

from nanospeech.config import option
from nanospeech.errors import InputError

LOOPBACK_NAMES = ("localhost", "localhost.localdomain")
SHORTEST_TOKEN = 16  # characters
TOKEN = re.compile(rf"[!-~]{{{SHORTEST_TOKEN},}}")
NAME = re.compile(r"\*|[\w-]+(\.[\w-]+)*\.?|\[?(?=.*:.*:)[\dA-Fa-f:.]+\]?", re.ASCII)
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+")
BODY = 262_144  # bytes
ESCAPED = 6  # bytes of a character as \uXXXX, which many clients send
FROM_ZERO = ("max_body", "queue", "drain", "max_voices", "first_steps")


@dataclass(frozen=True)
class Limits:
    """What a client may take. Bytes, characters, counts, and seconds."""

    max_chars: int = option(4096, "characters of a text; OpenAI's bound")
    max_steps: int = option(64, "solver steps that a request may ask for")
    max_body: int = option(
        0, "bytes of a request's body, uploads of voices aside; 0 takes what max_chars needs"
    )
    max_upload: int = option(10_000_000, "bytes of a voice's recording")
    max_voices: int = option(64, "voices that clients may add")
    connections: int = option(128, "open connections; more are answered 503")
    sockets: int = option(16, "open WebSockets, and open Wyoming connections")
    active: int = option(16, "texts that take turns on the engine")
    queue: int = option(32, "texts that wait for that; more are answered 429")
    header_deadline: float = option(10.0, "seconds in which a request's headers must be there")
    body_deadline: float = option(30.0, "seconds in which its body must be there")
    start_deadline: float = option(60.0, "seconds until the first sound, else 503")
    deadline: float = option(900.0, "seconds for all of a text; then the connection is cut")
    idle_deadline: float = option(60.0, "seconds that a client may read nothing, or write no text")
    drain: float = option(30.0, "seconds that running work is given after SIGTERM")
    chunk_seconds: float = option(10.0, "about the longest turn, of speech; less waits less")
    first_steps: int = option(5, "most steps of a stream's first chunk; 0 makes it like the others")
    batch: int = option(1, "most chunks of concurrent texts in one batch; seeded ones go alone")
    batch_frames: int = option(8192, "most mel frames in a batch")

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in FROM_ZERO else 1
            if not least <= value:
                raise InputError(f"{field.name} is {value}; choose {least} or more")

    @property
    def body(self) -> int:
        """Bytes of a request's body: max_body, or enough for max_chars and a lexicon."""
        return self.max_body or max(BODY, ESCAPED * self.max_chars + BODY // 2)


@dataclass(frozen=True)
class ServeSettings:
    """Where a server listens, and whom it answers.

    Attributes:
        host: address to listen on.
        port: 0 takes a free one.
        token: that clients must send (Authorization: Bearer TOKEN); None asks for none.
        insecure: whether a server that others can reach may go without a token.
        hosts: names by which clients may call it beside its own address and loopback; "*" is any.
        origins: of web pages on other sites that may use it, as https://example.org; "*" is any.
        allow_voices: whether clients may add voices.
        limits: see Limits.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    insecure: bool = False
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    allow_voices: bool = False
    limits: Limits = Limits()

    def __post_init__(self):
        if not 0 <= self.port <= 65_535:
            raise InputError(f"port is {self.port}; choose 0 (a free one) to 65535")
        if self.token is not None and not TOKEN.fullmatch(self.token):
            raise InputError(
                f"the token has {len(self.token)} characters; choose {SHORTEST_TOKEN} or more of"
                " ASCII without spaces, such as: python -c 'import secrets;"
                " print(secrets.token_urlsafe())'"
            )
        for host in self.hosts:
            if not NAME.fullmatch(host):
                raise InputError(
                    f"{host!r} is no host's name; give it whole, as speech.example.org, without a"
                    " scheme, a port or a path, or * for any"
                )
        for origin in self.origins:
            if origin not in ("*", "null") and not ORIGIN.fullmatch(origin):
                raise InputError(
                    f"{origin!r} is no origin; give the scheme and the name, as"
                    " https://example.org, without a path"
                )
        if self.token is None and not self.insecure and not is_loopback(self.host):
            raise InputError(
                f"{self.host} can be reached from other machines: set a token by --token-file or"
                " the environment variable NANOSPEECH_TOKEN, or waive it by --insecure"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() in LOOPBACK_NAMES
