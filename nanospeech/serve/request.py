"""Requests: the body of POST /v1/audio/speech, checked by field. Opens no file or address."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from nanospeech.config import SampleOptions
from nanospeech.errors import InputError
from nanospeech.release.voices import PACKAGED
from nanospeech.speech.script import SPEEDS
from nanospeech.text.languages import base_code
from nanospeech.text.markup import Marked, read_markup
from nanospeech.text.sentences import fold, is_speakable, whole_characters
from nanospeech.text.ssml import read_ssml

from .encoders import FORMATS, check_format
from .errors import ApiError, bad
from .service import SpeechService, Wish
from .settings import Limits

MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")  # OpenAI's; each stands for the model
DATED = re.compile(r"-\d{4}(-\d\d-\d\d)?\Z")  # behind such a name, as in tts-1-1106
SILENCE = 300.0  # seconds of the pauses of a text, as of a long text's speech
SEEDS = 2**53  # integers that JavaScript can write
# fields in which clients of other projects send a recording to imitate, its words or its name
RECORDING = re.compile(
    r"(input_)?ref(er)?(_|ence)|(clone|prompt|spk)_|audio_prompt"
    r"|(speaker|voice)_(audio|embedding|file|url|wav)"
)
NUMBER = re.compile(r" *\d{1,6}(\.\d{0,20})? *", re.ASCII)
LEXICON, ENTRIES = 65_536, 500  # characters, and words, of a request's lexicon


@dataclass(frozen=True)
class SpeechRequest:
    """What is asked of POST /v1/audio/speech.

    Attributes:
        text: what to say; with markup, where that is asked for.
        wish: how; whole of what waits for the end, for a header with the right lengths. Of events
            there is one of sound then.
        format: of FORMATS, or json.
        events: whether server-sent events are wanted instead of the bytes alone.
    """

    text: str | Marked
    wish: Wish
    format: str
    events: bool


def read_json(body: bytes, coding: str = "") -> dict[str, Any]:
    """A JSON object of a client.

    Args:
        body: what was sent.
        coding: the request's Content-Encoding.

    Raises:
        ApiError: it is none.
    """
    try:
        values = json.loads(body.decode("utf-8-sig"))  # a BOM, as Windows writes it
    except (ValueError, RecursionError) as e:
        why = other_coding(body, coding.strip().lower()) or str(e)[:100]
        raise bad(f"the body is no JSON in UTF-8: {why}", code="invalid_json") from None
    if not isinstance(values, dict):
        raise bad("the body should be a JSON object", code="invalid_json")
    return values


def other_coding(body: bytes, coding: str) -> str:
    """What to send in the place of a body that is compressed or UTF-16; "" where it is neither."""
    if coding not in ("", "identity") or body[:2] == b"\x1f\x8b":
        return f"it is compressed ({coding[:40] or 'gzip'}); send it as it is"
    if body[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in body[:2]:
        return "it is UTF-16, as PowerShell's Out-File writes by default; send UTF-8"
    return ""


def read_speech(values: dict[str, Any], service: SpeechService) -> SpeechRequest:
    """Checks a request; unknown fields are ignored.

    Raises:
        ApiError: a field that cannot be; with its name.
    """
    check_model(values.get("model"), service)
    text = check_markup(values, check_text(values.get("input"), service.limits), service)
    wish = read_wish(values, service)
    name = check_format(format_of(values, "mp3"), service.sample_rate, ("json",))
    stream_format = values.get("stream_format") or "audio"
    if stream_format not in ("audio", "sse"):
        raise bad(
            f"stream_format should be audio or sse, got {short(stream_format)}", "stream_format"
        )
    events = stream_format == "sse"
    if events and name == "json":
        raise bad("events carry audio; choose another response_format than json", "response_format")
    whole = name == "json" or not FORMATS[name].streams
    if flag(values, "stream", True) is False and not events:
        whole = True
    return SpeechRequest(text, replace(wish, whole=whole), name, events)


def read_wish(values: dict[str, Any], service: SpeechService) -> Wish:
    """Voice, speed, seed and the like.

    Raises:
        ApiError: a field that cannot be.
    """
    if given := next((n[:64] for n, x in values.items() if x and RECORDING.match(n)), None):
        raise bad(
            f"{given} is not taken with a text: add the recording as a voice, by POST"
            " /v1/audio/voices where the server is started with --allow-voices, or by nanospeech"
            " voices add on its machine, and give the name as voice",
            given,
            "voice_required",
        )
    voice = values.get("voice")
    if isinstance(voice, dict):
        voice = voice.get("id") or ()  # an object that names none is not the default
    if voice is not None and not isinstance(voice, str):
        raise bad('voice should be a name, or an object {"id": name}', "voice")
    if isinstance(voice, str) and not voice.strip():  # a field that was left empty
        voice = None
    speed = number(values, "speed", *SPEEDS)
    seed = integer(values, "seed", 0, SEEDS)
    steps = integer(values, "steps", 1, service.limits.max_steps)
    cfg = number(values, "cfg", 0, 100)
    return Wish(
        voice=service.find(voice),
        speed=1.0 if speed is None else speed,
        seed=seed,
        options=SampleOptions(steps=steps, cfg_strength=cfg),
        lexicon=read_lexicon(values.get("lexicon")),
        words=flag(values, "timestamps", format_of(values, "") == "json"),
        language=read_language(values.get("language"), service),
    )


def read_lexicon(given: Any) -> dict[str, str] | None:
    """Phonemes by word: an object, or lines of a word, a tab and its phonemes; never a path.

    Raises:
        ApiError: it is neither, or too large.
    """
    if given is None or given == "" or given == {}:
        return None
    if isinstance(given, str) and len(given) <= LEXICON:
        lines = [x.split("\t") for x in given.splitlines() if x.strip() and not x.startswith("#")]
        if any(len(line) < 2 for line in lines):
            message = "lexicon should be an object, or lines of a word, a tab and its phonemes"
            raise bad(message, "lexicon")
        given = {line[0]: line[1] for line in lines}
    found: dict[str, str] = given if isinstance(given, dict) else {"": given}
    plain = "" not in found and all(isinstance(v, str) for v in found.values())
    if not plain or sum(len(k) + len(v) for k, v in found.items()) > LEXICON:
        message = f"lexicon should be phonemes by word, of at most {LEXICON} characters"
        raise bad(message, "lexicon")
    if len(found) > ENTRIES:
        raise bad(f"lexicon has {len(found)} words; at most {ENTRIES} are taken", "lexicon")
    return found


def read_language(given: Any, service: SpeechService) -> str | None:
    """The code of a text's language; the model that ships speaks English, others take any.

    Raises:
        ApiError: another language is asked of it, or none by its code.
    """
    if given is None or given == "":
        return None
    if not isinstance(given, str):
        raise bad(f"language should be such as en, got {short(given)}", "language")
    if service.engine.folder == PACKAGED / "default":
        if given.lower().replace("_", "-").split("-")[0] in ("en", "english"):
            return None
        message = f"the model {service.model} speaks English, not {short(given)}; name it en"
        raise bad(message, "language", "language_not_available")
    try:
        return base_code(given)
    except InputError as e:
        raise bad(str(e)[:200], "language") from None


def check_model(model: Any, service: SpeechService) -> None:
    """
    Raises:
        ApiError: no name of a model, or of one that is not here.
    """
    if not isinstance(model, str) or not model:
        raise bad(f"model should be a name such as {service.model}", "model", "model_required")
    if not is_model(model, service):
        message = f"model {model[:64]!r} not found; choose {service.model}"
        raise ApiError(404, message, "model_not_found", "model")


def is_model(name: str, service: SpeechService) -> bool:
    """Whether a name stands for the model."""
    return name == service.model or DATED.sub("", name) in MODELS


def check_text(text: Any, limits: Limits) -> str:
    """A text to speak.

    Raises:
        ApiError: there is none, it is too long, or nothing can be said of it.
    """
    if not isinstance(text, str):
        raise bad("input should be the text to speak", "input", "input_required")
    if len(text) > limits.max_chars:
        message = f"input has {len(text)} characters; at most {limits.max_chars} are taken"
        raise bad(message, "input", "string_above_max_length")
    text = whole_characters(text)
    if not is_speakable(fold(text)):
        raise bad(f"there is no text to speak in {text[:40]!r}", "input", "input_empty")
    return text


def check_markup(values: dict[str, Any], text: str, service: SpeechService) -> str | Marked:
    """The text with its markup read, where `markup` or `ssml` is true; voices by listed name alone.

    Raises:
        ApiError: both are true, markup that is wrong, with its place, or a voice that is not there.
    """
    ssml, brackets = flag(values, "ssml", False), flag(values, "markup", False)
    if ssml and brackets:
        raise bad("markup and ssml are both true; an input is one or the other", "ssml")
    if not ssml and not brackets:
        return text
    try:
        read = (read_ssml if ssml else read_markup)(text)
    except InputError as e:
        raise bad(str(e)[:500], "input", "invalid_markup") from None
    silence = read.silence
    if silence > SILENCE:
        message = f"the pauses are {silence:g} s in all; at most {SILENCE:g} s are made"
        raise bad(message, "input", "invalid_markup")
    return read.with_voices(service.find)


def format_of(values: dict[str, Any], default: str) -> Any:
    """The response_format that is asked for, in whichever case; the default if none is."""
    name = values.get("response_format")
    if name is None or name == "":
        return default
    return name.lower() if isinstance(name, str) else name


def flag(values: dict[str, Any], name: str, default: bool) -> bool:
    """A field that is true or false."""
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad(f"{name} should be true or false, got {short(value)}", name)
    return value


def number(values: dict[str, Any], name: str, low: float, high: float) -> float | None:
    """A field that is a number within bounds, as text too, or is not there."""
    value = values.get(name)
    if value is None:
        return None
    if NUMBER.fullmatch(str(value)):  # a text that was typed into a client, too
        value = float(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:  # false for nan
        raise bad(f"{name} should be a number of {low:g} to {high:g}, got {short(value)}", name)
    return float(value)


def integer(values: dict[str, Any], name: str, low: int, high: int) -> int | None:
    """A field that is a whole number within bounds, or is not there."""
    value = values.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise bad(f"{name} should be a whole number of {low} to {high}, got {short(value)}", name)
    return value


def short(value: Any) -> str:
    """A client's value, cut for a message."""
    return ascii(value)[:60]
