"""What every request passes before a handler: names, origins, tokens and sizes, without sockets."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from nanospeech.commands import serve
from nanospeech.errors import InputError
from nanospeech.serve.guard import OPEN, OPEN_LISTS, Guard
from nanospeech.serve.metrics import Metrics
from nanospeech.serve.settings import Limits, ServeSettings

pytest.importorskip("prometheus_client", reason="it is of the extra serve")
METRICS = Metrics()
TOKEN = "sixteen-or-more-of-them"
SITE = "https://good.example"
ODD_IDS = ("", "a b", "a\r\nb", "%s", "ä", "x" * 129)


async def answers(scope: Any, receive: Any, send: Any) -> None:
    """What the guard stands before: reads a body and says how long it is."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message["body"]), message["more_body"]
    headers = [(b"path", scope["path"].encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": str(size).encode()})


def ask(
    settings: ServeSettings,
    method: str = "GET",
    path: str = "/v1/models",
    size: int = 0,
    **headers: str | None,
) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers and the body of an answer.

    Args:
        size: bytes of the body, in parts of a thousand.
        headers: in the place of the usual host.
    """
    given = {k: v for k, v in {"host": "localhost:8000", **headers}.items() if v is not None}
    said: list[dict[str, Any]] = []
    parts = [1000] * (size // 1000) + [size % 1000]

    async def receive() -> dict[str, Any]:
        body = bytes(parts.pop(0))
        return {"type": "http.request", "body": body, "more_body": bool(parts)}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    scope = {"type": "http", "method": method, "path": path}
    scope["headers"] = [(k.encode(), v.encode()) for k, v in given.items()]
    asyncio.run(Guard(answers, settings, METRICS)(scope, receive, send))
    start, body = said
    found = {k.decode(): v.decode() for k, v in start["headers"]}
    assert found["x-content-type-options"] == "nosniff"
    assert found["referrer-policy"] == "no-referrer"
    assert found["cross-origin-resource-policy"] == "same-origin"
    assert found["x-request-id"]
    return start["status"], found, body["body"]


OURS = ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "[fe80::1]", "192.168.1.5:80"]
OTHERS = ["evil.example", "evil.speech.lan", "127.0.0.1.evil.example", "speech.lan.evil", "", ":80"]


def test_a_name_that_is_not_the_servers_is_refused():
    for hosts, known in (((), OURS), (("Speech.LAN",), [*OURS, "speech.lan:8000", "SPEECH.lan"])):
        settings = ServeSettings(hosts=hosts)
        for host in known:
            assert ask(settings, host=host)[0] == 200, host
        for host in [*OTHERS, *(["speech.lan"] if not hosts else [])]:
            status, _, body = ask(settings, host=host)
            assert status == 421 and json.loads(body)["error"]["code"] == "unknown_host", host
    assert ask(ServeSettings(), host=None)[0] == 200  # as health checks of HTTP/1.0 send it
    # any name, where that is asked for or a token is; a page of another site has no token
    for settings in (ServeSettings(hosts=("*",)), ServeSettings(token=TOKEN)):
        for host in OTHERS:
            assert ask(settings, host=host, authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_path_is_found_behind_a_whole_url_and_with_slashes_too_many():
    def asked(path: str, host: str = "localhost") -> tuple[int, str]:
        status, headers, body = ask(ServeSettings(), path=path, host=host)
        return status, body.decode() if status != 200 else headers["path"]

    for path in ("//v1/models", "/v1//models", "/v1/models/", "http://localhost:8000/v1/models"):
        assert asked(path) == (200, "/v1/models"), path
    for path in ("HTTPS://127.0.0.1//v1/models", "ws://[::1]:8000/v1/models"):
        assert asked(path, "evil.example") == (200, "/v1/models"), path  # the URL's host counts
    assert asked("http://localhost") == asked("//") == asked("/") == (200, "/")
    status, body = asked("http://evil.example/v1/models")
    assert status == 421 and "evil.example" in body
    locked = ServeSettings(token=TOKEN)
    assert ask(locked, path="//v1/models")[0] == ask(locked, path="http://a/v1/models")[0] == 401
    assert ask(locked, path="//audio/voices")[0] == 200


def test_a_page_of_another_site_is_refused_unless_it_is_allowed():
    plain = ServeSettings()
    for origin in ("http://localhost:8000", "https://LOCALHOST:8000"):  # behind a proxy
        status, headers, _ = ask(plain, origin=origin)
        assert status == 200 and "access-control-allow-origin" not in headers
    for origin in ("http://localhost", "http://localhost:8001", "null", SITE, ""):
        assert ask(plain, origin=origin)[0] == 403
        assert ask(plain, "OPTIONS", origin=origin)[0] == 403
    assert ask(plain, "OPTIONS")[0] == 200  # of no page: the handler's
    for origins in ((SITE,), ("https://Good.Example",), ("*",)):
        settings = ServeSettings(origins=origins, token=TOKEN)
        # a browser asks beforehand, and sends no token then
        for method, wanted in (("OPTIONS", 204), ("POST", 401)):
            status, headers, _ = ask(settings, method, origin=SITE)
            assert status == wanted
            assert headers["access-control-allow-origin"] == SITE and headers["vary"] == "origin"
            assert "authorization" in headers["access-control-allow-headers"]
            assert "access-control-allow-credentials" not in headers
        wanted = 401 if origins == ("*",) else 403
        assert ask(settings, "POST", origin=f"{SITE}.evil")[0] == wanted


def test_a_page_that_is_allowed_may_send_the_headers_that_it_asks_for():
    settings = ServeSettings(origins=(SITE,))
    stainless = "authorization,content-type,x-stainless-arch,x-stainless-lang, x-stainless-os"
    usual = "authorization, content-type, x-request-id"
    for asked, wanted in (
        (stainless, stainless),  # OpenAI's client in a browser
        (None, usual),
        ("", usual),
        ("a b", usual),
        ("a\r\nset-cookie: b", usual),
        ("a,,b", usual),
        ("x" * 2001, usual),
    ):
        headers = {"access-control-request-headers": asked, "origin": SITE}
        found = ask(settings, "OPTIONS", **headers)[1]["access-control-allow-headers"]
        assert found == wanted, asked


@pytest.mark.parametrize(
    "name", ["a.lan:8000", "a:80", "http://a.lan", "a.lan/", "*.a.lan", "", "ä.lan"]
)
def test_a_name_that_no_request_can_have_is_no_setting(name):
    with pytest.raises(InputError, match=f"{re.escape(repr(name))} is no host's name"):
        ServeSettings(hosts=("::1", "[fe80::1]", "192.168.1.5", "my_pc", name))


@pytest.mark.parametrize("origin", ["example.org", "https://", "https://a.b/c", "", "https://a b"])
def test_an_origin_that_no_page_has_is_no_setting(origin):
    with pytest.raises(InputError, match="is no origin"):
        ServeSettings(origins=(origin,))


@pytest.mark.parametrize(
    "token", ["short", "sixteen of letters", "sixteen-letters\nmore", "ü" * 20]
)
def test_a_token_that_no_header_can_carry_is_no_setting(token):
    with pytest.raises(InputError, match="choose 16 or more"):
        ServeSettings(token=token)


def test_what_surrounds_a_token_and_an_origin_is_not_theirs(monkeypatch, tmp_path):
    monkeypatch.setenv("NANOSPEECH_TOKEN", f"{TOKEN}\n")  # as of a file by way of a shell
    args = serve.build_parser().parse_args(["--allow-origin", f"{SITE}/"])
    settings = serve.read_settings(args)
    assert settings.token == TOKEN and settings.origins == (SITE,)
    file = tmp_path / "token.txt"
    file.write_text(f"{TOKEN}\r\n", encoding="utf-8-sig")  # as Windows writes it
    args = serve.build_parser().parse_args(["--token-file", str(file)])
    assert serve.read_settings(args).token == TOKEN


def test_a_token_is_asked_for_but_of_what_tells_names_alone():
    settings = ServeSettings(token=TOKEN)
    for path in (*OPEN, *OPEN_LISTS, "/v1/models", "/v1/audio/speech", "/metrics", "/v1"):
        for method in ("GET", "HEAD", "POST", "DELETE", "PUT"):
            free = path in (*OPEN, *OPEN_LISTS) and method in ("GET", "HEAD")
            assert ask(settings, method, path)[0] == (200 if free else 401), (method, path)
    for given in (f"Bearer {TOKEN}", f"bearer  {TOKEN} "):
        assert ask(settings, authorization=given)[0] == 200
    for given in ("", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}"):
        status, headers, _ = ask(settings, authorization=given)
        assert status == 401 and headers["www-authenticate"] == "Bearer", given


def test_a_body_has_room_for_the_characters_that_may_be_sent():
    for chars in (1, 4096, 300_000):
        size = len(json.dumps({"input": "é" * chars}))  # 6 bytes each, as \\u00e9
        assert ask(ServeSettings(limits=Limits(max_chars=chars)), "POST", size=size)[0] == 200
    assert Limits().body == 262_144 and Limits(max_chars=300_000, max_body=5000).body == 5000


def test_a_request_keeps_its_id_or_is_given_one():
    def answer(given: str, **headers):
        told: dict[str, Any] = {"x-request-id": given, **headers}
        return ask(ServeSettings(), **told)

    for given in ("a1", "req_0f-3.b", "Root=1-67891233-abc", "x" * 128):
        assert answer(given)[1]["x-request-id"] == given
    made = {answer(odd)[1]["x-request-id"] for odd in ODD_IDS}
    assert len(made) == 6 and all(name.startswith("req_") and len(name) == 28 for name in made)
    refused = answer("a1", host="evil.example")
    assert refused[0] == 421 and refused[1]["x-request-id"] == "a1"


def test_a_recording_may_be_larger_than_other_bodies():
    settings = ServeSettings(limits=Limits(max_body=2500, max_upload=5000))
    recording = "the recording has more than 5000 bytes; send 3 to 12 seconds of speech"
    for path, most, why in (
        ("/v1/audio/speech", 2500, "the body has more than 2500 bytes"),
        ("/v1/audio/voices", 5000, recording),  # the page shows it to whoever chose a long file
    ):
        for size in (0, most):
            for told in ({}, {"content-length": str(size)}):
                assert ask(settings, "POST", path, size, **told)[::2] == (200, str(size).encode())
        for size, told in ((most + 1, {}), (0, {"content-length": str(most + 1)})):
            status, headers, body = ask(settings, "POST", path, size, **told)
            assert status == 413 and headers["connection"] == "close"
            assert json.loads(body)["error"]["message"] == why
