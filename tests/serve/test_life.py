"""A server's life: voices that are added, a full disk, SIGTERM, WebSockets of growing texts."""

from __future__ import annotations

import asyncio
import ctypes
import io
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from nanospeech.release.user_voices import save_voice
from nanospeech.release.voices import user_voices
from nanospeech.serve.errors import ApiError
from nanospeech.serve.run import few_arenas, hang_up, listen
from nanospeech.serve.service import SpeechService, Wish
from nanospeech.serve.uploads import BY_CLIENT
from tests.conftest import needs, tone
from tests.serve.conftest import TEXT, speech
from tests.serve.test_limits import settled

LONG = TEXT * 40
ROOT = Path(__file__).parents[2]


def test_voices_are_taken_with_consent_where_that_is_allowed(server, serve, caplog):
    sound = io.BytesIO()
    soundfile.write(sound, tone(3.5), 24_000, format="FLAC")
    fields = {"name": "anna", "text": "Hello there, general, how are you?", "consent": "true"}

    def add(server, content=sound.getvalue(), **more):
        files = {"audio_sample": ("../../x.wav", content)}
        url = server.url + "/v1/audio/voices"
        return httpx.post(url, data={**fields, **more}, files=files, timeout=30)

    assert add(server).status_code == 403
    with serve({"max_voices": 1}, allow_voices=True) as server:
        assert add(server, consent="no").json()["error"]["code"] == "consent_required"
        form = {"content-type": "Multipart/Form-Data; boundary=x"}  # whose case means nothing
        url = server.url + "/v1/audio/voices"
        empty = httpx.post(url, content=b"--x--\r\n", headers=form, timeout=30)
        assert empty.json()["error"]["code"] == "consent_required"
        for name in ("../evil", "a/b", "", "tone", "alloy"):
            refused = add(server, name=name)
            assert 400 <= refused.status_code < 500 and refused.json()["error"]["param"] == "name"
        error = add(server, b"no sound").json()["error"]
        assert error["param"] == "audio_sample" and "WAV, FLAC, MP3" in error["message"]
        assert "object at" not in error["message"]
        hum = io.BytesIO()
        low = 0.1 * np.sin(2 * np.pi * 30 * np.arange(96_000) / 24_000)
        soundfile.write(hum, low, 24_000, format="FLAC")
        assert add(server, hum.getvalue()).json()["error"]["message"] == "the recording is silent"
        assert add(server, text="...").json()["error"]["param"] == "text"
        made = add(server, text="Hm.")
        assert made.status_code == 201, made.text
        assert "text of 3 characters does not go with" in " ".join(made.json()["notes"])
        listed = [v["id"] for v in httpx.get(server.url + "/v1/audio/voices").json()["data"]]
        assert listed == ["tone", "anna"]
        first = speech(server, voice="anna", seed=1)
        assert first.status_code == 200
        about = {"consent": BY_CLIENT}
        save_voice("anna", tone(4.0, 90.0), "hello there.", about, overwrite=True)
        second = speech(server, voice="anna", seed=1)
        assert second.content != first.content
        path = user_voices()["anna"]
        path.with_suffix(".txt").write_text("hello there, all of you.\n", encoding="utf-8")
        assert speech(server, voice="anna", seed=1).content != second.content
        path.write_bytes(b"damaged")
        broken = speech(server, voice="anna")
        assert broken.status_code == 500 and broken.json()["error"]["param"] == "voice"
        assert str(path) in caplog.text and str(path.parent) not in broken.text
        marked = {"input": "Hello [voice: anna]there[/voice].", "markup": True}
        for broken in (speech(server, **marked), words_gone(server, path, marked)):
            assert broken.status_code == 500 and broken.json()["error"]["param"] == "voice"
            assert str(path.parent) not in broken.text
        assert "'anna' cannot be spoken: cannot read" in caplog.text
        assert f"of voice 'anna', {path.with_suffix('.txt')}: " in caplog.text
        assert add(server, name="other").json()["error"]["code"] == "too_many_voices"


def test_a_voice_of_the_owners_is_found_by_the_names_that_commands_know(server, user_data):
    # of which the model has one in other letters, and OpenAI another
    for name in ("linda", "Tone", "Alloy"):
        save_voice(name, tone(4.0, 90.0), "hello there.", {})
    told = httpx.get(server.url + "/v1/audio/voices").json()
    assert [v["id"] for v in told["data"]] == ["tone", "Alloy", "user/Tone", "linda"]
    assert told["aliases"]["ash"] == "tone" and "alloy" not in told["aliases"]
    said = {
        name: speech(server, voice=name, seed=1, response_format="pcm").content
        for name in ("tone", "TONE", "user/tone", "linda", "user/linda", "user/LINDA")
    }
    assert said["user/linda"] == said["linda"] == said["user/LINDA"]
    assert said["tone"] == said["TONE"] != said["user/tone"]
    for name in ("user/user/tone", "user/ash", "user/../linda", "user/"):
        assert speech(server, voice=name).json()["error"]["code"] == "voice_not_found"


def test_a_voice_whose_words_nobody_gave_is_taken_where_the_model_needs_none(serve, make_release):
    sound = io.BytesIO()
    soundfile.write(sound, tone(3.5), 24_000, format="FLAC")

    def added(server, **more):
        files = {"audio_sample": ("x.wav", sound.getvalue())}
        fields = {"name": "anna", "consent": "true", **more}
        return httpx.post(f"{server.url}/v1/audio/voices", data=fields, files=files, timeout=30)

    with serve({}, allow_voices=True) as server:
        made = added(server)
        assert made.status_code == 201, made.text
        told = made.json()  # what OpenAI's clients read of a voice
        assert (told["id"], told["object"]) == ("anna", "audio.voice")
        assert told["type"] == "audio_sample" and abs(told["created_at"] - time.time()) < 60
        assert user_voices()["anna"].with_suffix(".txt").read_text(encoding="utf-8").strip() == ""
        assert speech(server, voice="anna").status_code == 200
    with serve({}, make_release(), allow_voices=True) as server:
        for empty in ({}, {"text": ""}):
            error = added(server, name="bert", **empty).json()["error"]
            assert error["param"] == "text"
        assert speech(server, voice="anna").json()["error"]["param"] == "voice"


def test_of_voices_sent_at_once_under_one_name_one_is_taken(serve):
    sound = io.BytesIO()
    soundfile.write(sound, tone(3.5), 24_000, format="FLAC")

    def added(server, name: str) -> int:
        files = {"audio_sample": ("x.flac", sound.getvalue())}
        fields = {"name": name, "text": "Hello there, general, how are you?", "consent": "true"}
        url = server.url + "/v1/audio/voices"
        return httpx.post(url, data=fields, files=files, timeout=60).status_code

    save_voice("mine", tone(4.0, 90.0), "hello there.", {})  # which no client added
    with serve({"max_voices": 2}, allow_voices=True) as server, ThreadPoolExecutor(6) as pool:
        assert added(server, "\U00020000" * 64) == 400  # more bytes than a file's name may have
        assert sorted(pool.map(lambda _: added(server, "anna"), range(6))) == [201, *[409] * 5]
        assert sorted(pool.map(lambda n: added(server, f"b{n}"), range(6))) == [201, *[409] * 5]
        assert len(user_voices()) == 3
        user_voices()["anna"].with_suffix(".json").write_bytes(b"damaged")  # it counts as before
        assert added(server, "carl") == 409


def words_gone(server, path: Path, fields: dict) -> httpx.Response:
    """The answer where the words of a voice are no text any more."""
    path.with_suffix(".txt").write_bytes(b"\xff")
    return speech(server, **fields)


def served(folder: Path, *more: str, env: dict | None = None) -> tuple:
    """A `nanospeech serve` process that is ready, and its address.

    By ONNX Runtime, which is loaded soonest.
    """
    needs("onnx")
    command = [sys.executable, "-m", "nanospeech", "serve", "--port", "0", "--device", "cpu"]
    command += ["--backend", "onnx"]
    process = subprocess.Popen(
        [*command, "--model", str(folder), *more],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
    )
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        if " speaks at " in line:
            return process, line.split(" speaks at ")[1].strip().rstrip("/")
        said += line
    raise AssertionError(f"the server ended: {said}")


def test_a_server_starts_on_windows_and_leaves_another_its_port(monkeypatch):
    def library(name: str | None) -> object:
        return "/" in name  # type: ignore[operator]  # as ctypes looks there for a path

    monkeypatch.setattr(ctypes, "CDLL", library)
    monkeypatch.setattr(sys, "platform", "win32")
    few_arenas()
    with listen("127.0.0.1", 0) as found:
        assert not found.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)


def test_sigterm_ends_what_runs_and_a_full_disk_is_told(tiny_release):
    process, url = served(tiny_release, "--allow-voices")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1000, 1000))  # no file grows: a full disk
    files = {"audio_sample": ("x.flac", wav())}
    fields = {"name": "anna", "text": "Hello there, general.", "consent": "true"}
    answer = httpx.post(url + "/v1/audio/voices", data=fields, files=files, timeout=30)
    assert answer.status_code == 507 and answer.json()["error"]["code"] == "cannot_store"
    assert "/" not in answer.json()["error"]["message"]  # nor where it would be
    body = {"model": "tts-1", "input": TEXT * 3, "response_format": "pcm", "seed": 1}
    whole = httpx.post(url + "/v1/audio/speech", json=body, timeout=60).content
    with httpx.stream("POST", url + "/v1/audio/speech", json=body, timeout=60) as running:
        parts = running.iter_raw()
        data = next(parts)
        process.send_signal(signal.SIGTERM)
        refused = False
        until = time.monotonic() + 10
        while not refused and time.monotonic() < until:
            try:
                refused = httpx.get(url + "/health/ready", timeout=5).status_code == 503
            except httpx.TransportError:
                refused = True
        data += b"".join(parts)
    assert refused and data == whole
    assert process.wait(20) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    assert process.stderr is not None and "Traceback" not in process.stderr.read()


@pytest.fixture
def hangs_up():
    """SIGHUP is heard by what is started, where these tests run under nohup, too."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_text_that_waits_for_words_is_told_that_the_server_ends_with_its_terminal(
    tiny_release, hangs_up
):
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import connect as join

    process, url = served(tiny_release, "--drain", "0.5")
    last: str | bytes = b""
    with join(url.replace("http", "ws") + "/v1/audio/stream") as socket:
        socket.send(json.dumps({"type": "start"}))
        assert json.loads(socket.recv(30))["type"] == "started"
        socket.send(json.dumps({"type": "text", "text": TEXT * 2}))
        assert isinstance(socket.recv(30), bytes)
        process.send_signal(signal.SIGHUP)
        with pytest.raises(ConnectionClosed):
            while True:
                last = socket.recv(30)
    assert json.loads(last)["error"]["code"] == "stopping"
    assert process.wait(20) in (0, -signal.SIGHUP, 128 + signal.SIGHUP)


def test_a_terminal_that_closes_ends_no_server_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with hang_up(lambda *_: None):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with hang_up(handle := lambda *_: None):
            assert signal.getsignal(signal.SIGHUP) is handle
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def wav() -> bytes:
    from nanospeech.audio.wave import wav_bytes

    return wav_bytes(tone(3.5))


def test_a_websocket_speaks_what_is_still_being_written(server):
    from websockets.asyncio.client import connect as join
    from websockets.typing import Origin

    async def talk() -> None:
        url = server.url.replace("http", "ws") + "/v1/audio/stream"
        async with join(url) as socket:
            await socket.send(json.dumps({"type": "start", "seed": 3, "timestamps": True}))
            assert json.loads(await socket.recv())["sample_rate"] == 24_000
            first = TEXT[:60]
            await socket.send(json.dumps({"type": "text", "text": first}))
            sound = await asyncio.wait_for(socket.recv(), 10)  # before the text is complete
            assert isinstance(sound, bytes)
            await socket.send(json.dumps({"type": "text", "text": TEXT[60:]}))
            await socket.send(json.dumps({"type": "end"}))
            words, done = [], None
            while done is None:
                message = await asyncio.wait_for(socket.recv(), 10)
                if isinstance(message, bytes):
                    sound += message
                elif (told := json.loads(message))["type"] == "words":
                    words += told["words"]
                else:
                    done = told
            assert done["type"] == "done" and done["seconds"] == pytest.approx(
                len(sound) / 48_000, abs=1e-3
            )
            assert done["left_out"] == []
            assert [w["word"] for w in words] == TEXT.split()
            await socket.send(json.dumps({"type": "start"}))
            await socket.recv()
            await socket.send(json.dumps({"type": "text", "text": LONG}))
            await socket.recv()
            await socket.send(json.dumps({"type": "cancel"}))
            while isinstance(message := await asyncio.wait_for(socket.recv(), 10), bytes):
                pass
            assert json.loads(message)["type"] == "cancelled"
            await socket.send("no json")
            assert json.loads(await socket.recv())["error"]["code"] == "invalid_json"
        with pytest.raises(Exception, match="HTTP 403"):
            await join(url, origin=Origin("http://evil.example"))

    asyncio.run(talk())
    assert settled(server)


def test_a_websocket_stays_open_for_what_was_sent_before_the_end_was_known(server):
    from websockets.asyncio.client import connect as join

    async def talk() -> None:
        async with join(server.url.replace("http", "ws") + "/v1/audio/stream") as socket:

            async def send(kind: str, **more) -> None:
                await socket.send(json.dumps({"type": kind, **more}))

            async def until(kind: str) -> None:
                while isinstance(message := await asyncio.wait_for(socket.recv(), 20), bytes):
                    pass
                assert json.loads(message)["type"] == kind, message

            await send("start")
            await until("started")
            await send("text", text="Oh <laugh> no. This is the end of it.")
            await until("error")  # the model knows no tags
            await send("text", text=TEXT)
            await send("end")
            await send("start")
            await until("started")
            await send("text", text="Hello there.")
            await send("end")
            await until("done")
            await send("cancel")
            await until("cancelled")
            await send("start", markup=True)
            assert json.loads(await socket.recv())["error"]["param"] == "markup"
            for name in ("flac", "midi", ["pcm"]):  # the choices are those of a stream
                await send("start", response_format=name)
                error = json.loads(await socket.recv())["error"]
                assert error["param"] == "response_format"
                assert "opus" in error["message"] and "flac" not in error["message"]

    asyncio.run(talk())
    assert settled(server)


def test_an_answer_as_a_whole_has_all_of_a_texts_time_once_it_sounds(server):
    go, sounded, end = threading.Event(), threading.Event(), threading.Event()

    def whole(waves):  # as of a FLAC, which is one item, at its end
        go.wait(30)
        count = len(next(waves))
        sounded.set()
        end.wait(30)
        yield count + sum(map(len, waves))

    async def wait_past_the_start():
        speech = server.service.speak(TEXT, Wish(seed=1), whole)
        speech.began -= server.service.limits.start_deadline - 1
        answer = asyncio.ensure_future(anext(speech))
        await asyncio.sleep(0)  # it waits now, and nothing has sounded
        go.set()
        assert sounded.wait(30)  # the loop stands still: the first sound is before the deadline
        await asyncio.sleep(1.2)
        end.set()
        data = (await answer).data
        speech.cancel()
        return data, speech.seconds

    samples, seconds = asyncio.run(wait_past_the_start())
    assert samples == round(seconds * server.service.sample_rate)


def test_the_end_of_a_server_waits_until_clients_are_told_but_not_for_those_that_never_are(serve):
    async def end(service: SpeechService, leaves: bool) -> float:
        late, gone = (service.speak(LONG, Wish(seed=1)) for _ in range(2))
        await anext(late)
        ending = asyncio.ensure_future(service.drain(0))
        await asyncio.sleep(0.3)
        with pytest.raises(ApiError) as told:
            async for _ in late:
                pass
        assert told.value.code == "stopping"
        late.cancel()
        await asyncio.sleep(0.1)
        assert not ending.done()  # of the other one no one has read
        began = time.monotonic()
        if leaves:
            gone.cancel()
        await asyncio.wait_for(ending, 30)
        gone.cancel()
        return time.monotonic() - began

    for leaves in (True, False):
        with serve() as server:
            assert (asyncio.run(end(server.service, leaves)) < 1) == leaves
