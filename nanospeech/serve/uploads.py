"""Uploads: recordings that clients add as voices, where the server's owner allows it."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.audio.recording import bandwidth, clipping
from nanospeech.errors import CheckpointError, InputError
from nanospeech.release.user_voices import check_name, files_of, folded, save_voice
from nanospeech.release.voice_facts import ABOUT, read_settings
from nanospeech.release.voices import user_voices
from nanospeech.speech.reference import KEPT, LEAST, finished, remarks, sounding
from nanospeech.text.sentences import is_speakable

from .errors import ApiError, bad
from .service import SpeechService

log = logging.getLogger("nanospeech.serve")
SAMPLE = "audio_sample"  # OpenAI's name of the recording's field
TEXT = 1000  # characters of a recording's words
CONSENT = ("true", "1", "yes")
BY_CLIENT = "by the client"  # whose consent a NAME.json then tells


async def read_upload(request: Any, most: int) -> dict[str, Any]:
    """The fields of a multipart form: strings, and the recording's bytes.

    Raises:
        ApiError: no such form.
    """
    from starlette.exceptions import HTTPException

    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise bad("send multipart/form-data with name, text, consent and audio_sample")
    try:
        async with request.form(max_files=1, max_fields=8, max_part_size=65_536) as form:
            found: dict[str, Any] = {}
            for name, value in form.items():
                found[name] = value if isinstance(value, str) else await value.read(most + 1)
            return found
    except HTTPException as e:
        raise bad(f"the form cannot be read: {str(e.detail)[:200]}") from None


def add_voice(fields: dict[str, Any], service: SpeechService, most: int) -> dict[str, Any]:
    """Keeps a recording as a voice of the server's user; runs in a thread.

    Args:
        most: voices of clients that there may be.

    Raises:
        ApiError: no consent, a name that is taken, or a recording that cannot be used.
    """
    name, text, sound = (fields.get(n) for n in ("name", "text", SAMPLE))
    if str(fields.get("consent", "")).strip().lower() not in CONSENT:
        message = "consent should be true: that the speaker of the recording agrees to this use"
        raise bad(message, "consent", "consent_required")
    unknown = not text and service.engine.config.hears_alone
    text = "" if unknown else text
    for field, value, kind in (("name", name, str), ("text", text, str), (SAMPLE, sound, bytes)):
        if not isinstance(value, kind):
            message = f"no {field}; give name, text (what is said) and {SAMPLE} (a file)"
            raise bad(message, field)
    assert isinstance(name, str) and isinstance(text, str) and isinstance(sound, bytes)
    if len(text) > TEXT or not (unknown or is_speakable(text)):
        raise bad(f"text should be what is said, of at most {TEXT} characters", "text")
    there = user_voices()
    if (count := sum(map(is_clients, there.values()))) >= most:
        message = f"clients have added {count} voices; no more are taken"
        raise ApiError(409, message, "too_many_voices")
    try:
        check_name(name)
    except InputError as e:
        raise bad(str(e), "name") from None
    # an alias too: whoever asks for it means the model's voice
    if folded(name) in map(folded, (*there, *service.voices(), *service.aliases())):
        raise taken(name)
    try:
        wave, notes = prepared(sound, text)
    except InputError as e:
        raise bad(str(e), SAMPLE) from None
    about = {"bandwidth": round(bandwidth(wave, audio.SAMPLE_RATE)), "consent": BY_CLIENT}
    try:
        save_voice(name, wave, " ".join(text.split()), about)
    except InputError as e:
        if files_of(name):  # by another server
            raise taken(name) from None
        log.error("a voice cannot be stored: %s", e)
        message = "the voice cannot be stored; the server's log says why"
        raise ApiError(507, message, "cannot_store") from None
    if not service.engine.config.takes_recordings:
        notes.append(f"{service.model} does not imitate: it will speak in a voice of its own")
    made = {"object": "audio.voice", "type": "audio_sample", "created_at": int(time.time())}
    return {"id": name, "name": name, **made, "notes": notes}


def is_clients(recording: Path) -> bool:
    """Whether a client added a voice, or may have: where its NAME.json cannot be read."""
    try:
        about = read_settings(recording.with_suffix(".json")).get(ABOUT)
    except CheckpointError:
        return True
    return isinstance(about, dict) and about.get("consent") == BY_CLIENT


def taken(name: str) -> ApiError:
    return ApiError(409, f"there is a voice {name!r}; choose another name", "voice_exists", "name")


def prepared(sound: bytes, text: str) -> tuple[np.ndarray, list[str]]:
    """A recording, trimmed and levelled, and what was found.

    Args:
        text: what is said in it, or nothing.

    Raises:
        InputError: it is no audio, silent, too short or too long.
    """
    wave, heard = sounding(audio.read(sound, max_seconds=4 * KEPT[1]))
    if not heard:
        raise InputError("the recording is silent")
    seconds = len(wave) / audio.SAMPLE_RATE
    if not LEAST <= seconds <= KEPT[1] + 1:
        raise InputError(f"the recording has {seconds:.1f} s; send {KEPT[0]:g} to {KEPT[1]:g} s")
    notes = remarks(clipping(sound), wave, text)
    return finished(wave, notes), notes
