"""Other people's clients and a real server: openai (Python, npm), Open WebUI, Home Assistant."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from nanospeech.serve.wyoming import listen_wyoming, serve_wyoming
from tests.serve.conftest import TEXT, speech

TOKEN = "a-token-of-this-test"
pytestmark = pytest.mark.usefixtures("openai")


@pytest.fixture(scope="module")
def openai() -> ModuleType:
    """The package; it takes seconds to import, which one process alone has to."""
    return pytest.importorskip("openai", reason="no openai package here")


@pytest.fixture(scope="module")
def closed(serve):
    """A server with a token, and room for one text."""
    with serve({"active": 1, "queue": 0}, token=TOKEN) as found:
        yield found


def client(server, token: str = TOKEN, retries: int = 0):
    import openai

    return openai.OpenAI(base_url=server.url + "/v1", api_key=token, max_retries=retries)


def create(server, **fields):
    given = {"model": "tts-1", "voice": "alloy", "input": TEXT, "extra_body": {"seed": 4}, **fields}
    return client(server).audio.speech.create(**given)


def test_python_creates_and_streams_to_a_file(closed, tmp_path):
    whole = create(closed, response_format="wav").read()
    assert whole[:4] == b"RIFF" and len(whole) > 24_000
    path = tmp_path / "speech.wav"
    with client(closed).audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts",
        voice="alloy",
        input=TEXT,
        response_format="wav",
        instructions="Be kind.",
        extra_body={"seed": 4},
    ) as answer:
        answer.stream_to_file(path)
    assert path.read_bytes() == whole


def test_python_speaks_where_its_base_lacks_v1(closed):
    import openai

    short = openai.OpenAI(base_url=closed.url, api_key=TOKEN, max_retries=0)
    assert "tts-1" in [model.id for model in short.models.list()]
    made = short.audio.speech.create(model="tts-1", voice="alloy", input="Hello there.")
    assert len(made.read()) > 1000
    wrong = openai.OpenAI(base_url=closed.url, api_key="another-token-than-it", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        wrong.audio.speech.create(model="tts-1", voice="alloy", input="Hello there.")


def test_python_reads_events(closed):
    kinds = []
    with client(closed).audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=TEXT, response_format="pcm", stream_format="sse"
    ) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                kinds.append(json.loads(line[6:])["type"])
    assert kinds[-1] == "speech.audio.done" and set(kinds[:-1]) == {"speech.audio.delta"}


def test_python_lists_models(closed):
    models = [model.id for model in client(closed).models.list()]
    assert "tts-1" in models and client(closed).models.retrieve("tts-1").owned_by == "nanospeech"


def test_python_may_name_a_model_by_its_date(closed):
    for name in ("tts-1-1106", "tts-1-hd-1106", "gpt-4o-mini-tts-2025-12-15"):
        assert client(closed).models.retrieve(name).id == name
        assert len(create(closed, model=name, input="Hello there.").read()) > 1000


@pytest.mark.parametrize(
    ("fields", "error", "code"),
    [
        ({"voice": "nobody"}, "BadRequestError", "voice_not_found"),
        ({"input": ""}, "BadRequestError", "input_empty"),
        ({"input": "a" * 5000}, "BadRequestError", "string_above_max_length"),
        ({"model": "gpt-9"}, "NotFoundError", "model_not_found"),
        ({"model": "gpt-4o-tts-2025-12-15"}, "NotFoundError", "model_not_found"),
        ({"speed": 9}, "BadRequestError", "invalid_value"),
        ({"response_format": "midi"}, "BadRequestError", "invalid_value"),
    ],
)
def test_python_gets_each_error_with_its_code(closed, openai, fields, error, code):
    with pytest.raises(getattr(openai, error)) as caught:
        create(closed, **fields)
    assert caught.value.code == code and caught.value.type == "invalid_request_error"


def test_python_is_told_of_a_wrong_token(closed, openai):
    with pytest.raises(openai.AuthenticationError) as caught:
        client(closed, "another-token-than-it").models.list()
    assert caught.value.code == "invalid_api_key"


def test_python_tries_again_where_the_queue_is_full(closed, openai):
    long = {"model": "tts-1", "input": TEXT * 20, "response_format": "pcm"}
    auth = {"authorization": f"Bearer {TOKEN}"}
    url = closed.url + "/v1/audio/speech"
    with httpx.stream("POST", url, json=long, headers=auth, timeout=30) as busy:
        chunks = busy.iter_raw()
        next(chunks)
        with pytest.raises(openai.RateLimitError) as caught:
            create(closed)
        assert caught.value.code == "queue_full"
        assert int(caught.value.response.headers["retry-after"]) >= 1
    again = client(closed, retries=2)
    done = again.audio.speech.create(model="tts-1", voice="alloy", input="Hello there.")
    assert len(done.read()) > 1000


def test_open_webui_finds_voices_and_models_without_a_token_and_speaks(closed):
    for base in ("", "/v1"):
        voices = httpx.get(closed.url + base + "/audio/voices").json()["voices"]
        assert voices[0]["id"] == voices[0]["name"] == "tone"
        models = httpx.get(closed.url + base + "/audio/models").json()["models"]
        assert models[0]["id"]
    body = {"input": TEXT, "model": "tts-1", "voice": "tone"}
    answer = httpx.post(
        closed.url + "/v1/audio/speech",
        headers={"content-type": "application/json", "authorization": f"Bearer {TOKEN}"},
        content=json.dumps(body),
    )
    assert answer.status_code == 200 and answer.headers["content-type"] == "audio/mpeg"
    assert httpx.post(closed.url + "/v1/audio/speech", json=body).status_code == 401


@pytest.fixture(scope="session")
def npm_openai() -> Path:
    """A folder with the npm package openai: NANOSPEECH_NPM, else installed there for good."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("no node and npm here")
    folder = Path(os.environ.get("NANOSPEECH_NPM", Path.home() / ".cache" / "nanospeech-npm"))
    if not (folder / "node_modules" / "openai").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), "openai@7"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            pytest.skip(f"npm cannot get openai: {done.stderr[-300:]}")
    return folder


SCRIPT = """
import OpenAI from "openai";
const [,, baseURL, apiKey] = process.argv;
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const given = { model: "tts-1", voice: "alloy", input: "Hello there.", response_format: "wav" };
const found = {};
const speech = await client.audio.speech.create({ ...given, seed: 4 });
found.bytes = (await speech.arrayBuffer()).byteLength;
const events = await client.audio.speech.create(
  { ...given, response_format: "pcm", stream_format: "sse" });
found.events = (await events.text()).match(/speech\\.audio\\.\\w+/g);
for (const bad of [{ voice: "nobody" }, { input: "" }, { model: "x" }]) {
  try { await client.audio.speech.create({ ...given, ...bad }); }
  catch (e) { (found.errors ??= []).push([e.constructor.name, e.status, e.code]); }
}
found.models = (await client.models.list()).data.map((m) => m.id);
console.log(JSON.stringify(found));
"""


def test_npm_creates_streams_and_gets_errors(closed, npm_openai):
    script = npm_openai / "client.mjs"
    script.write_text(SCRIPT)
    command = ["node", str(script), closed.url + "/v1", TOKEN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["bytes"] > 4000 and "tts-1" in found["models"]
    assert found["events"][-1] == "speech.audio.done" and len(found["events"]) > 1
    assert found["errors"] == [
        ["BadRequestError", 400, "voice_not_found"],
        ["BadRequestError", 400, "input_empty"],
        ["NotFoundError", 404, "model_not_found"],
    ]


def test_home_assistant_streams_text_in_and_sound_out(server):
    pytest.importorskip("wyoming", reason="no wyoming package here")
    from wyoming.audio import AudioChunk
    from wyoming.client import AsyncTcpClient
    from wyoming.info import Describe, Info
    from wyoming.tts import (
        Synthesize,
        SynthesizeChunk,
        SynthesizeStart,
        SynthesizeStop,
        SynthesizeVoice,
    )

    async def until(client, last: str) -> list:
        found = []
        while not found or found[-1].type != last:
            found.append(await asyncio.wait_for(client.read_event(), 20))
            assert found[-1] is not None, [e.type for e in found]
        return found

    async def talk() -> tuple:
        listening = listen_wyoming(server.settings, 0)
        port = listening.getsockname()[1]
        serving = asyncio.ensure_future(serve_wyoming(server.service, server.settings, listening))
        async with AsyncTcpClient("127.0.0.1", port) as client:
            await client.write_event(Describe().event())
            info = Info.from_event(await client.read_event())
            voice = SynthesizeVoice(name=info.tts[0].voices[0].name)
            await client.write_event(SynthesizeStart(voice=voice).event())
            for part in (TEXT[:20], TEXT[20:50], TEXT[50:]):
                await client.write_event(SynthesizeChunk(text=part).event())
            await client.write_event(Synthesize(text=TEXT, voice=voice).event())
            await client.write_event(SynthesizeStop().event())
            streamed = await until(client, "synthesize-stopped")
            await client.write_event(Synthesize(text="Hello there.", voice=voice).event())
            alone = await until(client, "audio-stop")
            for _ in range(2):  # the first has no end
                await client.write_event(SynthesizeStart(voice=voice).event())
                await client.write_event(SynthesizeChunk(text="Hello there.").event())
            await client.write_event(SynthesizeStop().event())
            for _ in range(2):
                await until(client, "synthesize-stopped")
            client._writer.write(b'{"type": "x", "data_length": 99999999999}\n')
            ended = await asyncio.wait_for(client.read_event(), 5)
        serving.cancel()
        return info, streamed, alone, ended

    info, streamed, alone, ended = asyncio.run(talk())
    assert info.tts[0].supports_synthesize_streaming and info.tts[0].voices[0].name == "tone"
    kinds = [event.type for event in streamed]
    assert kinds[0] == "audio-start" and kinds[-2:] == ["audio-stop", "synthesize-stopped"]
    assert set(kinds[1:-2]) == {"audio-chunk"}
    sound = b"".join(AudioChunk.from_event(e).audio for e in streamed[1:-2])
    whole = speech(server, response_format="pcm").content  # the text once, not twice
    assert 0.6 < len(sound) / len(whole) < 1.5
    assert [alone[0].type, alone[-1].type] == ["audio-start", "audio-stop"]
    assert ended is None  # a size that nobody has is not waited for
