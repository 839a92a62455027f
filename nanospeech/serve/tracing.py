"""Tracing: the id of a request, in its answer (x-request-id) and in what is logged of it."""

from __future__ import annotations

import logging
import re
import secrets
from contextvars import ContextVar

HEADER = b"x-request-id"
SANE = re.compile(rb"[\w.:/+=-]{1,128}", re.ASCII)
CURRENT: ContextVar[str] = ContextVar("request_id", default="")


def request_id(headers: dict[bytes, bytes]) -> str:
    """The id that a client or a proxy gave, where it is fit for a line of a log; else a new one."""
    given = headers.get(HEADER, b"")
    return given.decode() if SANE.fullmatch(given) else f"req_{secrets.token_hex(12)}"


class Traced(logging.Filter):
    """Puts the request's id before what is logged for it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if (name := CURRENT.get()) and not hasattr(record, "request_id"):
            record.request_id = name
            record.msg = f"[{name}] {record.msg}"
        return True


TRACED = Traced()


def trace_logs() -> None:
    """Has the loggers of this project name requests; calling it again changes nothing."""
    for name in ("nanospeech", "nanospeech.serve"):
        logging.getLogger(name).addFilter(TRACED)
