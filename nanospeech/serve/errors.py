"""Errors of the server: each is a status and OpenAI's object of four keys."""

from __future__ import annotations

import json
from typing import Any


class ApiError(Exception):
    """An answer that is an error.

    Args:
        status: of HTTP.
        message: what was got, what was wanted, what to do.
        code: for programs, such as "voice_not_found".
        param: the field of the request that is wrong.
        retry: seconds after which to try again.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        retry: int | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.headers = {} if retry is None else {"retry-after": str(retry)}
        if status == 401:
            self.headers["www-authenticate"] = "Bearer"

    @property
    def body(self) -> dict[str, Any]:
        """The object that clients read."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        if self.status == 429:
            kind = "rate_limit_error"
        found = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": found}

    def encoded(self) -> bytes:
        return json.dumps(self.body).encode()


class Cancelled(Exception):
    """Work that nobody waits for any more."""


class Broken(Exception):
    """A response that failed after it had begun: its connection is cut, as an end would look
    complete."""


def bad(message: str, param: str | None = None, code: str | None = "invalid_value") -> ApiError:
    """A request that cannot be answered as it is: 400."""
    return ApiError(400, message, code, param)
