"""Faults of the server's own, and texts that it refuses: what is told, and what is counted."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from nanospeech.errors import NanospeechError
from nanospeech.release.user_voices import save_voice
from nanospeech.release.voices import PACKAGED, find_voice
from nanospeech.serve.voices import recorded
from tests.conftest import tone
from tests.serve.conftest import TEXT, Server, speech
from tests.serve.test_limits import bound_as, settled
from tests.serve.test_readers import eventually

WORDS = {"Anna": "AA1 N AH0"}
ASKED = {"model": "tts-1", "input": TEXT}


@pytest.fixture
def single(serve):
    """A server that takes one text at a time."""
    with serve({"active": 1, "queue": 0}) as found:
        yield found


def counted(server: Server) -> dict[str, float]:
    """Texts by outcome, as /metrics tells them."""
    lines = httpx.get(server.url + "/metrics").text.splitlines()
    told = [line.split() for line in lines if line.startswith("nanospeech_texts_total")]
    return {name.split('"')[1]: float(value) for name, value in told}


def test_a_lexicon_of_the_servers_own_that_is_wrong_is_a_fault_without_its_path(
    server, user_data, caplog
):
    assert speech(server, lexicon=WORDS).status_code == 400  # the model has no phonemes
    user_data.mkdir(parents=True, exist_ok=True)
    (user_data / "lexicon.txt").write_text("no tab", encoding="utf-8")
    answer = speech(server, lexicon=WORDS)
    error = answer.json()["error"]
    assert answer.status_code == 500 and error["param"] == "lexicon"
    assert str(user_data) not in answer.text and "tab" not in answer.text
    assert str(user_data / "lexicon.txt") in caplog.text


def test_words_that_the_owner_writes_down_hold_from_the_next_text_on(serve, user_data):
    user_data.mkdir(parents=True, exist_ok=True)
    ask = {"input": "A cat.", "voice": None, "seed": 1, "response_format": "pcm"}
    with serve(release=PACKAGED / "default") as server:
        before = speech(server, **ask).content
        (user_data / "lexicon.txt").write_text("cat\tT AH0 M EY1 T OW0\n", encoding="utf-8")
        after = speech(server, **ask).content
        assert after != before
        # a lexicon of the client's is beside those words
        assert speech(server, **ask, lexicon=WORDS).content == after
        (user_data / "lexicon.txt").unlink()
        assert speech(server, **ask).content == before


def test_few_voices_are_kept_ready(serve, monkeypatch):
    monkeypatch.setattr("nanospeech.serve.service.PROMPTS", 1)
    with serve(release=PACKAGED / "default") as server:
        names = server.service.voices()[:2]
        for voice in names:
            assert speech(server, input="A cat.", voice=voice).status_code == 200
        assert len(names) == 2 and len(server.service._speakers) == 1


def test_a_voice_is_read_anew_where_any_of_its_files_was_written(user_data):
    folder = user_data / "voices"
    folder.mkdir(parents=True)
    (folder / "anna.txt").write_text("Hi.")
    known = [recorded("anna")]
    for suffix in ("wav", "txt", "json"):
        for age in (100, 200):  # a copy that is older than what it replaces, too
            (folder / f"anna.{suffix}").write_text("{}")
            os.utime(folder / f"anna.{suffix}", ns=(age, age))
            known.append(recorded("anna"))
    os.utime(folder / "anna.txt", ns=(300, 300))
    known.append(recorded("user/anna"))
    assert all(one not in known[:i] for i, one in enumerate(known))


def test_a_voice_that_is_removed_while_it_is_read_is_one_that_is_not_there(
    server, user_data, monkeypatch
):
    found, marked = find_voice, {"input": "Hi [voice: anna]there[/voice].", "markup": True}

    def removed_since(name, *folder):
        voice = found(name, *folder)
        for file in (user_data / "voices").glob("anna.*"):
            file.unlink()
        return voice

    for module, asked in (("speaker", {"voice": "anna"}), ("marked", marked)):
        save_voice("anna", tone(4.0, 90.0), "hello there.", {})
        with monkeypatch.context() as patched:
            patched.setattr(f"nanospeech.speech.{module}.find_voice", removed_since)
            answer = speech(server, **asked)
        assert answer.status_code == 400 and "'anna' not found; choose" in answer.text
    assert list((user_data / "voices").iterdir()) == []


def test_a_text_that_is_sent_whole_is_counted_as_spoken(single):
    for _ in range(8):
        ask = {"input": "Hello."}
        assert speech(single, **ask, response_format="flac").status_code == 200
        assert speech(single, **ask, response_format="mp3", stream=False).status_code == 200
    assert settled(single)
    assert counted(single) == {"ok": 16}


def test_a_full_queue_is_counted_as_refused_and_a_fault_as_failed(single):
    engine, go, fails = single.service.engine, threading.Event(), []
    taken = engine.sample

    def sample(*args, **more):
        go.wait(20)
        if fails:
            raise NanospeechError("a fault of the test")
        return taken(*args, **more)

    engine.sample = bound_as(engine, "sample", sample)
    try:
        first = threading.Thread(target=speech, args=(single,))
        first.start()
        assert eventually(lambda: single.service.open)
        assert speech(single).status_code == 429
        assert counted(single) == {"refused": 1}
        go.set()
        first.join(20)
        assert settled(single) and counted(single) == {"refused": 1, "ok": 1}
        fails.append(True)
        assert speech(single).status_code == 500
        assert settled(single) and counted(single) == {"refused": 1, "ok": 1, "failed": 1}
        fails.clear()
        assert speech(single, lexicon=WORDS).status_code == 400
        assert settled(single) and counted(single) == {"refused": 2, "ok": 1, "failed": 1}
    finally:
        go.set()
        del engine.sample


def test_a_text_that_is_not_made_in_time_is_counted_as_failed_also_before_it_begins(serve):
    with serve({"active": 1, "queue": 1, "start_deadline": 2}) as server:
        engine, go = server.service.engine, threading.Event()
        taken = engine.sample

        def sample(*args, **more):
            go.wait(20)
            return taken(*args, **more)

        engine.sample = bound_as(engine, "sample", sample)
        try:
            with ThreadPoolExecutor(2) as pool:
                answers = list(pool.map(lambda _: speech(server), range(2)))
            assert [answer.status_code for answer in answers] == [503, 503]
            with pytest.raises(httpx.ReadTimeout):  # its reader leaves
                httpx.post(f"{server.url}/v1/audio/speech", json=ASKED, timeout=0.5)
            go.set()
            assert settled(server) and counted(server) == {"failed": 2, "cancelled": 1}
        finally:
            go.set()
            del engine.sample


def test_a_whole_answer_sounds_when_its_turn_has_come_not_when_it_is_levelled(server):
    engine, left = server.service.engine, []
    taken = engine.sample

    def sample(*args, **more):
        found = taken(*args, **more)
        (one,) = server.service._open
        one.began -= server.service.limits.start_deadline
        left.append(one._left())
        return found

    engine.sample = bound_as(engine, "sample", sample)
    try:
        assert speech(server, input="Hello.", stream=False).status_code == 200
        assert len(left) == 1 and left[0] > 0
        assert speech(server, input="Hello.").status_code == 200
        assert left[1] <= 0  # a stream has to be heard by then
    finally:
        del engine.sample
