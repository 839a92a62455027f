"""POST /v1/audio/speech: formats, fields, errors, lists, as OpenAI's clients see them."""

from __future__ import annotations

import base64
import gzip
import io
import json
import zlib
from urllib.parse import unquote

import httpx
import numpy as np
import pytest
import soundfile

from nanospeech.audio.sinks import pcm16
from nanospeech.config import SampleOptions
from nanospeech.serve.encoders import FORMATS, check_format, encode, encode_whole
from nanospeech.serve.errors import ApiError
from nanospeech.serve.request import SEEDS, integer, number, read_json, read_lexicon, read_wish
from nanospeech.speech.speaker import Speaker
from tests.serve.conftest import TEXT, speech


def decoded(data: bytes, name: str) -> np.ndarray:
    if name == "pcm":
        return np.frombuffer(data, "<i2") / 2**15
    if name == "aac":
        av = pytest.importorskip("av")
        with av.open(io.BytesIO(data)) as file:
            return np.concatenate([f.to_ndarray()[0] for f in file.decode(audio=0)])
    wave, rate = soundfile.read(io.BytesIO(data))
    assert rate in (24_000, 48_000)
    return wave if rate == 24_000 else wave[::2]


@pytest.mark.parametrize("name", ["wav", "pcm", "flac", "opus", "mp3", "aac"])
def test_each_format_holds_the_same_sound(server, name):
    whole = {"stream": False} if name == "flac" else {}
    plain = decoded(speech(server, seed=3, response_format="pcm", **whole).content, "pcm")
    answer = speech(server, seed=3, response_format=name)
    assert answer.status_code == 200
    media = {"mp3": "audio/mpeg", "opus": "audio/ogg"}.get(name, f"audio/{name}")
    assert answer.headers["content-type"] == media
    wave = decoded(answer.content, name)
    assert abs(len(wave) - len(plain)) <= 0.1 * 24_000  # mp3 and aac add their delay
    if name in ("wav", "flac"):
        assert np.abs(wave - plain).max() * 2**15 <= 1.01  # libsndfile rounds flac otherwise
    assert np.sqrt(np.mean(wave**2)) == pytest.approx(np.sqrt(np.mean(plain**2)), rel=0.1)


def test_a_seed_gives_the_same_bytes_and_is_told(server):
    first, second = (speech(server, seed=5, response_format="wav") for _ in range(2))
    assert first.content == second.content and first.headers["x-seed"] == "5"
    drawn = speech(server, response_format="wav")
    again = speech(server, response_format="wav", seed=int(drawn.headers["x-seed"]))
    assert again.content == drawn.content != first.content
    assert speech(server, seed=5, response_format="wav", steps=3).content != first.content
    assert speech(server, seed=5, response_format="wav", cfg=0).content != first.content


def test_words_that_cannot_be_spoken_are_named(server):
    for stream in (True, False):
        answer = speech(server, input="Hello 你好 there, Привет.", stream=stream)
        assert unquote(answer.headers["x-left-out"]) == "你好 Привет"
    told = speech(server, input="Hello 你好.", response_format="json").json()
    assert told["left_out"] == ["你好"]
    late = f"{TEXT} " * 4 + "Привет."  # is read when the header is sent already
    events = speech(server, input=late, response_format="pcm", stream_format="sse").text
    assert json.loads(events.split("data: ")[-1])["left_out"] == ["Привет"]
    assert "x-left-out" not in speech(server).headers
    long = speech(server, input=f"Hello {'你好' * 500} there, {'Привет ' * 3}. {'é中 ' * 40}.")
    assert long.status_code == 200 and len(long.headers["x-left-out"]) <= 1024
    assert unquote(long.headers["x-left-out"]).split()[:2] == ["你好" * 15 + "你…", "Привет"]


def test_pauses_have_an_end(server):
    def asked(count: int, seconds: float):
        marked = f"[pause {seconds:g}s] Hi." * count
        return speech(server, input=marked, markup=True, response_format="json")

    assert asked(1, 9).status_code == 200
    error = asked(31, 10).json()["error"]
    assert (
        error["param"] == "input" and "pauses are 310 s in all; at most 300 s" in error["message"]
    )


def test_what_is_logged_of_a_text_names_its_request(server, caplog):
    body = {"model": "tts-1", "voice": "tone", "input": "Hello 你好."}
    headers = {"x-request-id": "mine-1"}
    answer = httpx.post(f"{server.url}/v1/audio/speech", json=body, headers=headers, timeout=30)
    assert answer.headers["x-request-id"] == "mine-1"
    (told,) = (r.getMessage() for r in caplog.records if "你" in r.getMessage())
    assert told.startswith("[mine-1] the model has no ")


def test_a_stream_is_chunked_and_a_whole_has_its_length(server):
    streamed, whole = (
        speech(server, seed=1, response_format="wav", stream=s) for s in (None, False)
    )
    assert streamed.headers["transfer-encoding"] == "chunked"
    assert streamed.content[4:8] == b"\xff" * 4
    assert int(whole.headers["content-length"]) == len(whole.content)
    assert int.from_bytes(whole.content[4:8], "little") == len(whole.content) - 8


def test_a_whole_answer_is_made_as_a_file_is_in_as_few_chunks_as_can_be(server, monkeypatch):
    sizes = []
    monkeypatch.setattr(server.service.scheduler, "on_batch", sizes.append)
    ask = {"seed": 1, "steps": 1, "response_format": "pcm"}
    whole = speech(server, **ask, stream=False).content
    assert len(sizes) == 1
    speaker = Speaker(server.service.engine, "tone", None, None, SampleOptions(steps=1), seed=1)
    assert whole == pcm16(speaker.speak(TEXT).wave)
    said = speech(server, **{**ask, "response_format": "json"}).json()
    assert base64.b64decode(said["audio"])[44:] == whole and said["words"][-1]["word"] == "fish."
    sizes.clear()
    assert speech(server, **ask).content != whole and len(sizes) > 1  # for a first sound soon
    monkeypatch.setattr("nanospeech.speech.streaming.PORTION", len(TEXT) // 2 - 1)
    assert speech(server, **ask, stream=False).content != whole  # a long text, read by and by


def test_speed_changes_the_length(server):
    slow, fast = (
        len(speech(server, response_format="pcm", seed=1, speed=s).content) for s in (1, 4)
    )
    assert fast < 0.6 * slow


def test_events_carry_the_bytes_of_the_stream(server):
    answer = speech(server, seed=2, response_format="pcm", stream_format="sse")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line]
    *deltas, done = events
    assert {e["type"] for e in deltas} == {"speech.audio.delta"} and len(deltas) > 1
    sound = b"".join(base64.b64decode(e["audio"]) for e in deltas)
    assert sound == speech(server, seed=2, response_format="pcm").content
    usage = done["usage"]
    assert done["type"] == "speech.audio.done"
    assert usage["input_tokens"] == len(TEXT)
    assert usage["output_tokens"] == pytest.approx(len(sound) / 512, abs=1)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


@pytest.mark.parametrize("rate", [16_000, 22_050, 44_100, 48_000])
def test_a_format_is_made_at_the_models_rate_or_refused_beforehand(rate):
    wave = 0.1 * np.sin(np.arange(rate, dtype=np.float32) / 9)
    refused = []
    for name in FORMATS:
        try:
            check_format(name, rate)
        except ApiError as e:
            assert e.code == "format_not_available" and "wav" in e.message
            refused.append(name)
        else:
            for made in (encode([wave, wave], name, rate), encode_whole([wave], name, rate)):
                assert len(b"".join(made)) > 1000
    assert ("opus" in refused) == (rate in (22_050, 44_100)) and "mp3" not in refused


def test_a_seed_gives_the_same_bytes_in_each_format_and_sounds_can_be_chained(server):
    for name in FORMATS:
        if name == "aac":
            pytest.importorskip("av")
        for whole in ({}, {"stream": False}):
            ask = {"input": "Hello there.", "response_format": name, **whole}
            assert speech(server, seed=3, **ask).content == speech(server, seed=3, **ask).content
    ask = {"response_format": "opus", "stream": False}
    parts = [speech(server, input=text, seed=3, **ask).content for text in ("Hello.", "Hi there.")]
    lengths = [len(decoded(part, "opus")) for part in parts]
    assert parts[0][14:18] != parts[1][14:18]  # the numbers of their streams
    av = pytest.importorskip("av")
    with av.open(io.BytesIO(b"".join(parts))) as file:
        samples = sum(frame.samples for frame in file.decode(audio=0))
    assert samples == pytest.approx(2 * sum(lengths), abs=2000)  # at 48 kHz


def test_what_cannot_be_sent_as_it_is_made_is_one_event(server):
    """Clients that always ask for events, such as LiveKit's, may want flac as well."""
    fields = {"seed": 2, "response_format": "flac"}
    answer = speech(server, **fields, stream_format="sse", timestamps=True)
    delta, done = (json.loads(line[6:]) for line in answer.text.split("\n\n") if line)
    assert base64.b64decode(delta["audio"]) == speech(server, **fields).content
    assert [word["word"] for word in delta["words"]] == TEXT.split()
    assert done["type"] == "speech.audio.done" and done["usage"]["output_tokens"] > 0


JSON_EVENTS = {"response_format": "json", "stream_format": "sse"}
ERRORS = [
    ({"voice": "../../etc/passwd"}, 400, "voice", "voice_not_found"),
    ({"voice": {"id": "nobody"}}, 400, "voice", "voice_not_found"),
    ({"voice": 3}, 400, "voice", "invalid_value"),
    ({"voice": {"name": "tone"}}, 400, "voice", "invalid_value"),
    ({"voice": {"id": None}}, 400, "voice", "invalid_value"),
    ({"ref_audio": "/etc/passwd", "ref_text": "Hi."}, 400, "ref_audio", "voice_required"),
    ({"speaker_wav": "http://127.0.0.1/"}, 400, "speaker_wav", "voice_required"),
    ({"references": [{"audio": "UklGRg==", "text": "Hi."}]}, 400, "references", "voice_required"),
    ({"reference_id": "54e3a85ac9594ffa83264b8a494b901b"}, 400, "reference_id", "voice_required"),
    ({"model": "other"}, 404, "model", "model_not_found"),
    ({"model": None}, 400, "model", "model_required"),
    ({"input": None}, 400, "input", "input_required"),
    ({"input": ""}, 400, "input", "input_empty"),
    ({"input": " ... \n"}, 400, "input", "input_empty"),
    ({"input": "语"}, 400, "input", "invalid_value"),
    ({"input": "a" * 4097}, 400, "input", "string_above_max_length"),
    ({"speed": 5}, 400, "speed", "invalid_value"),
    ({"speed": True}, 400, "speed", "invalid_value"),
    ({"speed": 10**400}, 400, "speed", "invalid_value"),
    ({"seed": -1}, 400, "seed", "invalid_value"),
    ({"seed": 1.5}, 400, "seed", "invalid_value"),
    ({"seed": True}, 400, "seed", "invalid_value"),
    ({"seed": 2**53 + 1}, 400, "seed", "invalid_value"),
    ({"steps": 10_000}, 400, "steps", "invalid_value"),
    ({"cfg": "much"}, 400, "cfg", "invalid_value"),
    ({"lexicon": "/etc/passwd"}, 400, "lexicon", "invalid_value"),
    ({"lexicon": {"boat": 3}}, 400, "lexicon", "invalid_value"),
    ({"lexicon": {"boat": "no phoneme"}}, 400, "lexicon", "invalid_value"),
    ({"lexicon": {f"w{i}": "AA1" for i in range(501)}}, 400, "lexicon", "invalid_value"),
    ({"markup": "yes"}, 400, "markup", "invalid_value"),
    ({"markup": True, "ssml": True, "input": "<speak>Hi</speak>"}, 400, "ssml", "invalid_value"),
    ({"markup": True, "input": "Hi [pause x]."}, 400, "input", "invalid_markup"),
    ({"markup": True, "input": "[slow]...[/slow]"}, 400, "input", "invalid_markup"),
    ({"markup": True, "input": "[voice: ../../etc]Hi[/voice]"}, 400, "voice", "voice_not_found"),
    ({"ssml": True, "input": "<speak>Hi"}, 400, "input", "invalid_markup"),
    ({"ssml": True, "input": "<speak><audio src='a'/></speak>"}, 400, "input", "invalid_markup"),
    ({"language": 1}, 400, "language", "invalid_value"),
    ({"language": "high german"}, 400, "language", "invalid_value"),
    ({"response_format": "exe"}, 400, "response_format", "invalid_value"),
    (JSON_EVENTS, 400, "response_format", "invalid_value"),
    ({"stream_format": "smoke"}, 400, "stream_format", "invalid_value"),
]


@pytest.mark.parametrize(("fields", "status", "param", "code"), ERRORS)
def test_a_wrong_field_is_named_before_any_sound(server, fields, status, param, code):
    answer = speech(server, **fields)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["param"], error["code"]) == (param, code)
    assert error["type"] == "invalid_request_error" and error["message"]


def test_a_recording_is_refused_in_whatever_field_of_another_project_it_comes(server):
    for name in (
        *("ref_audio_path", "refer_wav_path", "reference_audio_filename", "reference_audio_base64"),
        *("input_references", "audio_prompt", "prompt_wav", "prompt_text", "spk_audio_prompt"),
        *("speaker_embedding", "speaker_audio", "voice_url", "voice_wav", "clone_url"),
    ):
        with pytest.raises(ApiError) as refused:
            read_wish({name: "x"}, server.service)
        assert (refused.value.param, refused.value.code) == (name, "voice_required")
        assert "/v1/audio/voices" in refused.value.message
        read_wish({name: None}, server.service)
        read_wish({name: []}, server.service)
    harmless = ("instructions", "referrer", "refine_text", "speaker_id", "prompt", "voice_settings")
    assert read_wish(dict.fromkeys(harmless, "x"), server.service).voice == "tone"


def test_a_field_whose_name_is_no_text_is_refused_as_any_other(server):
    body = json.dumps({"model": "tts-1", "input": "Hi.", "ref_\ud800": "x"})
    answer = httpx.post(server.url + "/v1/audio/speech", content=body, timeout=30)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "ref_?"


def test_a_body_of_a_file_that_windows_wrote_is_read():
    assert read_json(b'\xef\xbb\xbf{"input": "caf\xc3\xa9"}') == {"input": "café"}


def test_a_body_in_another_coding_is_told_so(server):
    text = '{"model": "tts-1", "input": "Hi."}'
    for body, coding, told in (
        (gzip.compress(text.encode()), "gzip", "compressed (gzip); send it as it is"),
        (gzip.compress(text.encode()), "", "compressed (gzip); send it as it is"),
        (zlib.compress(text.encode()), "deflate", "compressed (deflate); send it as it is"),
        (text.encode("utf-16"), "", "is UTF-16, as PowerShell"),
        (text.encode("utf-16-be"), "", "is UTF-16, as PowerShell"),
        (b'{"input": "caf\xe9"}', "identity", "can't decode byte 0xe9"),
    ):
        headers = {"content-encoding": coding} if coding else {}
        url = server.url + "/v1/audio/speech"
        answer = httpx.post(url, content=body, headers=headers, timeout=30)
        assert answer.status_code == 400 and told in answer.json()["error"]["message"]


def test_a_form_with_a_recording_is_told_where_voices_are_made(server):
    files = {"ref_audio": ("x.wav", b"RIFF")}
    url = server.url + "/v1/audio/speech"
    answer = httpx.post(url, data={"model": "tts-1", "input": "Hi."}, files=files, timeout=30)
    assert answer.status_code == 400 and "/v1/audio/voices" in answer.json()["error"]["message"]


def test_a_number_may_be_written_as_text():
    for text, wanted in (("1", 1.0), (" 1.5", 1.5), ("0.25 ", 0.25), ("4.", 4.0)):
        assert number({"speed": text}, "speed", 0.25, 4) == wanted
    for text in ("", "fast", "nan", "1e0", "1_0", "-1", "0.2", "9" * 400):
        with pytest.raises(ApiError, match="speed should be a number of"):
            number({"speed": text}, "speed", 0.25, 4)


def test_each_line_of_a_lexicon_is_a_word_and_each_seed_of_javascript_one():
    lines = "boat\tB OW1 T\n# a remark\n\ndawn\tD AO1 N\tof a day"
    assert read_lexicon(lines) == {"boat": "B OW1 T", "dawn": "D AO1 N"}
    assert read_lexicon("") is read_lexicon({}) is read_lexicon(None) is None
    assert integer({"seed": 2**53}, "seed", 0, SEEDS) == 2**53


def test_markup_is_read_where_it_is_asked_for(server):
    def said(text: str, **fields) -> dict:
        return speech(server, input=text, seed=1, response_format="json", **fields).json()

    for text, how in (
        ("Hello [pause 900ms] [voice: ALLOY]there[/voice].", "markup"),
        ("<speak>Hello <break time='900ms'/> <voice name='alloy'>there</voice>.</speak>", "ssml"),
    ):
        words = said(text, **{how: True})["words"]
        assert [word["word"] for word in words] == ["Hello", "there."]
        assert words[1]["start"] - words[0]["end"] == pytest.approx(0.9, abs=0.1)
    plain = said("Hello [sic] there.")["words"]
    assert [word["word"] for word in plain] == ["Hello", "[sic]", "there."]


def test_a_text_is_read_in_the_language_that_it_names(server):
    pytest.importorskip("num2words")

    def said(text: str, language: str | None = None) -> bytes:
        return speech(server, input=text, language=language, seed=1, response_format="pcm").content

    german = said("Es sind 3 Boote.", "de-AT")
    assert german == said("Es sind drei Boote.", "de") != said("Es sind 3 Boote.")
    assert said("Es sind 3 Boote.", "") == said("Es sind three Boote.")  # no other's is left


def test_json_has_the_sound_and_its_words(server):
    found = speech(server, seed=2, response_format="json").json()
    wave, rate = soundfile.read(io.BytesIO(base64.b64decode(found["audio"])))
    assert rate == found["sample_rate"] and found["seed"] == 2
    assert found["seconds"] == pytest.approx(len(wave) / rate, abs=1e-3)
    words = found["words"]
    assert [w["word"] for w in words] == TEXT.split()
    assert [TEXT[w["place"] :].startswith(w["word"].rstrip(",.")) for w in words] == [True] * 16
    times = [t for w in words for t in (w["start"], w["end"])]
    assert times == sorted(times) and times[0] >= 0 and times[-1] <= found["seconds"]
    whole = {"response_format": "flac", "stream_format": "sse", "timestamps": True}
    told = json.loads(speech(server, seed=2, **whole).text.split("\n\n")[0][6:])
    assert told["words"] == words


def test_unknown_fields_are_ignored_and_aliases_known(server):
    answer = speech(
        server, voice="alloy", seed=1, instructions="Whisper.", colour="red", ref_audio=""
    )
    assert answer.status_code == 200
    assert answer.content == speech(server, voice=None, seed=1).content
    assert answer.content == speech(server, voice=" TONE", seed=1, model="random").content
    assert answer.content == speech(server, voice="", seed=1, response_format="MP3").content
    wish = read_wish({"response_format": "JSON", "voice": " "}, server.service)
    assert wish.words and wish.voice == "tone"


def test_models_and_voices_have_the_keys_of_all_clients(server):
    for path in ("/v1/models", "/audio/models", "/v1/audio/models"):
        found = httpx.get(server.url + path).json()
        assert found["object"] == "list" and found["data"] == found["models"]
        assert [m["id"] for m in found["data"]][:2] == ["random", "tts-1"]
        assert set(found["data"][0]) == {"id", "object", "created", "owned_by"}
    assert httpx.get(server.url + "/v1/models/tts-1").json()["object"] == "model"
    assert httpx.get(server.url + "/v1/models/x").json()["error"]["code"] == "model_not_found"
    for path in ("/v1/audio/voices", "/audio/voices"):
        found = httpx.get(server.url + path).json()
        assert found["voices"] == found["data"] == [{"id": "tone", "name": "tone", "default": True}]
        assert found["aliases"]["alloy"] == "tone"
        assert (found["max_chars"], found["sample_rate"]) == (4096, 24_000)


def test_health_metrics_and_unknown_paths(server):
    assert httpx.get(server.url + "/health/live").status_code == 200
    assert httpx.get(server.url + "/health/ready").json()["status"] == "ready"
    speech(server)
    text = httpx.get(server.url + "/metrics").text
    for name in ("texts_total", "audio_seconds_total", "first_audio_seconds_count", "open_texts"):
        assert f"nanospeech_{name}" in text
    for method, path, status in (("GET", "/etc", 404), ("GET", "/v1/audio/speech", 405)):
        answer = httpx.request(method, server.url + path)
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
