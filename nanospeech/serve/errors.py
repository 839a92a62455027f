"""Errors of the server: each is a status and OpenAI's object of four keys."""

from __future__ import annotations

import json
from typing import Any


class ApiError(Exception):
    """An answer that is an error.

    Args:
        status: of HTTP.
        message: what was got, what was wanted, what to do. Half of a surrogate pair, which no
            answer can hold, becomes a question mark, as in param.
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
        self.message, self.param = encodable(message), param and encodable(param)
        super().__init__(self.message)
        self.status, self.code = status, code
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


def encodable(text: str) -> str:
    """A text with a question mark for each half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()


def bad(message: str, param: str | None = None, code: str | None = "invalid_value") -> ApiError:
    """A request that cannot be answered as it is: 400."""
    return ApiError(400, message, code, param)
