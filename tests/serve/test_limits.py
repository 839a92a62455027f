"""What a client may not do: each limit of the server, over real sockets."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import socket
import threading
import time
import types

import httpx
import pytest

from nanospeech.commands.serve import main as serve_command
from nanospeech.errors import InputError
from nanospeech.load import load_engine
from nanospeech.serve.run import listen
from nanospeech.serve.service import SpeechService
from nanospeech.serve.settings import Limits, ServeSettings
from nanospeech.serve.speech import Wish
from nanospeech.serve.wyoming import listen_wyoming
from tests.serve.conftest import TEXT, speech

TIGHT = {
    "header_deadline": 1,
    "body_deadline": 1,
    "idle_deadline": 1,
    "connections": 12,
    "active": 3,
    "queue": 2,
    "max_body": 20_000,
}
KEYS = {"message", "type", "param", "code"}
LONG = TEXT * 40


@pytest.fixture(scope="module")
def tight(serve):
    """A server with little of everything."""
    with serve(TIGHT) as found:
        yield found


def connect(server) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    return found


def post(body: bytes, length: int | None = None, more: str = "") -> bytes:
    length = len(body) if length is None else length
    head = (
        f"POST /v1/audio/speech HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{more}"
    )
    return head.encode() + b"\r\n" + body


def request(**fields) -> bytes:
    return post(json.dumps({"model": "tts-1", "input": TEXT, **fields}).encode())


def everything(found: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionError):
        while part := found.recv(65_536):
            data += part
    return data


def bound_as(engine, name, function):
    """A function as a method of an engine."""

    def method(self, *args, **more):
        return function(*args, **more)

    method.__name__ = name
    return types.MethodType(method, engine)


def settled(server, seconds: float = 10) -> bool:
    """Whether nothing is spoken and nobody connected, after some time at most."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        idle = not server.service.scheduler.tickets and not server.service.scheduler.calls
        if not server.service.open and idle and not server.server.server_state.tasks:
            return True
        time.sleep(0.02)
    return False


def dripped(found: socket.socket, data: bytes, seconds: float = 0.1) -> bytes:
    """Sends a byte at a time until the other side ends."""
    found.settimeout(10)
    with contextlib.suppress(OSError):
        for i in range(len(data)):
            found.sendall(data[i : i + 1])
            if select.select([found], [], [], seconds)[0]:
                break
    return everything(found)


def test_half_a_header_and_half_a_body_are_not_waited_for(tight):
    with connect(tight) as head, connect(tight) as body, connect(tight) as second:
        body.sendall(post(b"", length=50))
        second.sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        second.sendall(b"GET /health/live HTTP")  # half of another on the same connection
        assert dripped(head, post(b"")[:40]) == b""
        answer = dripped(body, b"x" * 40)
        assert answer.startswith(b"HTTP/1.1 408 ") and b"body_deadline" in answer
        assert everything(second).count(b"HTTP/1.1 200") == 1


def test_a_client_that_leaves_frees_everything(tight):
    assert settled(tight)
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    chance = random.Random(0)
    for i in range(16):
        with connect(tight) as found:
            found.sendall(request(input=LONG, response_format=("wav", "mp3", "opus")[i % 3]))
            wanted = chance.randrange(3000) * (i % 4 > 0)
            while wanted > 0 and (part := found.recv(wanted)):
                wanted -= len(part)
    assert settled(tight)
    assert speech(tight).status_code == 200 and settled(tight)
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    assert threads <= before[0] + TIGHT["active"] and files <= before[1] + 2


def test_work_ends_within_a_step(tight):
    """Many steps are asked for, the client leaves after the first, and few are made."""
    steps = []
    engine = tight.service.engine
    taken = engine.sample

    def counted(*args, on_step, **more):
        def step(done, of):
            steps.append(done)
            if done == 2:
                gone.set()
                time.sleep(0.3)
            on_step(done, of)

        return taken(*args, on_step=step, **more)

    gone = threading.Event()
    engine.sample = bound_as(engine, "sample", counted)
    try:
        with connect(tight) as found:
            found.sendall(request(input=LONG, steps=60))
            assert gone.wait(10)
        assert settled(tight)
        assert steps[-1] <= 4
    finally:
        del engine.sample


def test_more_texts_than_wait_are_told_when_to_come_back(tight):
    held = []
    try:
        for _ in range(5):
            found = connect(tight)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            found.sendall(request(input=LONG, response_format="wav"))
            held.append(found)
        until = time.monotonic() + 10
        while tight.service.open < 5 and time.monotonic() < until:
            time.sleep(0.01)
        answer = speech(tight)
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["type"] == "rate_limit_error"
    finally:
        for found in held:
            found.close()
    assert settled(tight)


def test_a_reader_that_stops_is_cut_off(tight):
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # before it is connected
        found.connect(("127.0.0.1", tight.port))
        fields = {"response_format": "wav", "speed": 0.25, "steps": 1}
        found.sendall(request(input=(TEXT * 60)[:4000], **fields))
        until = time.monotonic() + 20
        while tight.service.open == 0 and time.monotonic() < until:
            time.sleep(0.01)
        assert settled(tight, 40)
        data = everything(found)
    assert not data.endswith(b"0\r\n\r\n")  # no end that would look complete


def test_a_failure_in_the_middle_cuts_the_connection(tight):
    engine, calls = tight.service.engine, []
    taken = engine.vocode

    def fails(*args, **more):
        calls.append(1)
        if len(calls) > 2:
            raise RuntimeError("a fault of the test")
        return taken(*args, **more)

    engine.vocode = bound_as(engine, "vocode", fails)
    try:
        with connect(tight) as found:
            found.sendall(request(input=LONG, response_format="pcm"))
            data = everything(found)
        assert data.startswith(b"HTTP/1.1 200") and not data.endswith(b"0\r\n\r\n")
        with pytest.raises(httpx.RemoteProtocolError):
            calls.clear()
            speech(tight, input=LONG, response_format="pcm")
        calls.clear()
        told = speech(tight, input=LONG, response_format="pcm", stream_format="sse").text
        last = json.loads(told.split("data: ")[-1])  # events can tell why
        assert last["type"] == "error" and set(last["error"]) == KEYS
        calls += [1, 1]
        answer = speech(tight)
        assert answer.status_code == 500 and "fault" not in answer.text
    finally:
        del engine.vocode
    assert settled(tight)


def test_a_client_that_leaves_within_its_body_is_no_fault(tight, caplog):
    with connect(tight) as leaver:
        leaver.sendall(post(b"{", 100))
    with connect(tight) as leaver:
        leaver.sendall(post(b"zz\r\nno chunk", more="transfer-encoding: chunked\r\n"))
        assert everything(leaver).startswith(b"HTTP/1.1 400 ")
    assert speech(tight, input="Hello.").status_code == 200
    assert not [r for r in caplog.records if r.exc_info]


def test_a_fault_of_ours_has_the_four_keys(tight, caplog):
    def faulty():
        raise RuntimeError("a fault")

    tight.service.voices = faulty
    try:
        answer = httpx.get(tight.url + "/v1/audio/voices")
    finally:
        del tight.service.voices
    assert answer.status_code == 500 and answer.json()["error"].keys() == KEYS
    assert "a fault" not in answer.text
    until = time.monotonic() + 10
    while "a fault" not in caplog.text and time.monotonic() < until:  # after the answer
        time.sleep(0.01)
    assert "RuntimeError: a fault" in caplog.text


def test_more_connections_than_there_may_be_are_refused(tight):
    held = [connect(tight) for _ in range(12)]
    try:
        time.sleep(0.1)
        with connect(tight) as one_more:
            answer = everything(one_more)
        assert answer.startswith(b"HTTP/1.1 503 ") and b"too_many_connections" in answer
    finally:
        for found in held:
            found.close()
    time.sleep(0.1)
    assert httpx.get(tight.url + "/health/live").status_code == 200


def test_bodies_that_are_too_large_are_not_read(tight):
    for data in (post(b"", length=30_000), post(b"x" * 30_000)):
        with connect(tight) as found:
            found.sendall(data)
            assert found.recv(100).startswith(b"HTTP/1.1 413 ")
    chunked = (
        b"POST /v1/audio/speech HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    with connect(tight) as found:
        found.sendall(chunked)
        with contextlib.suppress(OSError):
            for _ in range(30):
                found.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
        assert found.recv(100).startswith(b"HTTP/1.1 413 ")


def fuzzed(chance: random.Random) -> bytes:
    """A body that is no request that can be answered."""
    base = {"model": "tts-1", "voice": "tone", "input": "Hello."}
    kind = chance.randrange(7)
    if kind == 6:
        entity = "<!DOCTYPE a [<!ENTITY b 'Hello.'>]><speak>&b;</speak>"
        deep = "p>" * chance.randrange(1, 900)
        broken = {"ssml": [entity, f"<speak><{deep.replace('>p', '><p')}", "<speak>\x01</speak>"]}
        broken["markup"] = ["[slow]" * chance.randrange(1, 700), "[say: Hi | XX]", "Hi [/fast]"]
        field = chance.choice(("ssml", "markup"))
        return json.dumps({**base, field: True, "input": chance.choice(broken[field])}).encode()
    if kind == 0:
        return chance.randbytes(chance.randrange(200))
    if kind == 1:
        return b"[" * chance.randrange(1, 5000)
    field = chance.choice(("model", "voice", "input", "speed", "seed", "steps", "cfg", "lexicon"))
    odd = [[], [1], True, "\ud800", "\x00", -1, 1e400, {"id": []}, {"a": 1}, 10**400, "x" * 9000]
    value = chance.choice([x for x in odd if field != "input" or not isinstance(x, str)])
    if field in ("speed", "seed", "steps", "cfg") and isinstance(value, bool):
        value = "much"
    text = json.dumps({**base, field: value})
    if kind == 2:
        text = text[: chance.randrange(len(text) - 1)]
    if kind == 3:
        text = text.replace(field, field + "\\u0000", 1)
        return text.encode()[:-1]
    return text.encode()


def test_no_body_breaks_it(tight, caplog):
    chance = random.Random(1)
    with httpx.Client(base_url=tight.url) as client:
        for _ in range(300):
            body = fuzzed(chance)
            answer = client.post("/v1/audio/speech", content=body)
            assert 400 <= answer.status_code < 500, (answer.status_code, body[:200])
            assert set(answer.json()["error"]) == KEYS
    assert not [r for r in caplog.records if r.exc_info]


def test_a_turn_is_as_long_as_the_limits_say(tiny_aligned):
    limits = Limits(first_steps=3, chunk_seconds=4)
    service = SpeechService(lambda: load_engine(tiny_aligned, "torch", "cpu", "float32"), limits)
    speaker = service.speaker(Wish(), service.scheduler.enter())
    service.close()
    assert speaker.first is not None and speaker.first.steps == 3
    assert speaker.chunk_seconds == 4


def test_hosts_origins_and_tokens(tight, serve):
    live = tight.url + "/health/live"
    assert httpx.get(live, headers={"host": "evil.example"}).status_code == 421
    for origin, status in (("http://evil.example", 403), ("null", 403), (tight.url, 200)):
        answer = httpx.get(live, headers={"origin": origin})
        assert answer.status_code == status and "access-control-allow-origin" not in answer.headers
    token, site = "sixteen-or-more-of-them", "https://good.example"
    with serve(token=token, origins=(site,)) as server:
        for given, status in ((None, 401), ("Bearer x", 401), (f"Bearer {token}x", 401)):
            headers = {"authorization": given} if given else {}
            answer = httpx.get(server.url + "/v1/models", headers=headers)
            assert answer.status_code == status and answer.json()["error"]["code"]
            assert answer.headers["www-authenticate"] == "Bearer"
        headers = {"authorization": f"Bearer {token}", "origin": site}
        answer = httpx.get(server.url + "/v1/models", headers=headers)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == site
        assert "access-control-allow-credentials" not in answer.headers
        asked = httpx.options(server.url + "/v1/audio/speech", headers={"origin": site})
        assert asked.status_code == 204


def test_wyoming_that_cannot_be_served_is_told_before_the_model_is_loaded(capsys):
    pytest.importorskip("wyoming", reason="no wyoming package here")
    start = ["--port", "0", "--model", "/no/such/model", "--wyoming"]
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        assert serve_command([*start, str(taken)]) == 2
        err = capsys.readouterr().err
        assert f"cannot listen on 127.0.0.1 port {taken}" in err and "another --wyoming" in err
    assert serve_command([*start, "99999"]) == 2
    assert "the port of Wyoming is 99999; choose 0" in capsys.readouterr().err
    with pytest.raises(InputError, match="Wyoming has no tokens"):
        listen_wyoming(ServeSettings(host="0.0.0.0", token="x" * 16), 0)


def test_another_address_is_asked_for_where_that_of_the_server_is_not_its_own():
    with pytest.raises(InputError, match="; choose another --host"):
        listen("192.0.2.1", 0)  # of examples, RFC 5737


def test_a_lexicon_that_is_wrong_ends_the_start_in_one_line(user_data, capsys):
    user_data.mkdir(parents=True)
    (user_data / "lexicon.txt").write_text("no tab", encoding="utf-8")
    assert serve_command(["--port", "0", "--backend", "onnx"]) == 2
    err = capsys.readouterr().err
    assert "lexicon.txt, line 1: there is no tab" in err and err.count("\n") == 1


def test_a_server_that_others_reach_needs_a_token():
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.org"):
        with pytest.raises(InputError, match="token"):
            ServeSettings(host=host)
        assert ServeSettings(host=host, insecure=True).token is None
        assert ServeSettings(host=host, token="x" * 16)
    with pytest.raises(InputError, match="characters"):
        ServeSettings(token="short")
    with pytest.raises(InputError, match="active"):
        Limits(active=0)
    assert ServeSettings(host="::1") and ServeSettings(host="localhost")
