"""The page in a real browser: a text is typed, a button pressed, sound heard and words seen."""

from __future__ import annotations

import re
import wave

import numpy as np
import pytest

from nanospeech.audio.wave import read
from nanospeech.serve.app import PAGE

from .conftest import ROOT, download, until

CLIP = ROOT / "tests/fixtures/ljspeech/wavs/LJ001-0008.wav"
TEXT = "Seventeen boats left at dawn — nobody knew why. 😀 “They came back late,” she said."


def test_a_text_is_typed_and_heard_while_it_is_made_and_its_words_are_seen(page, tmp_path):
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.get_by_label("Speed").fill("2")
    page.get_by_label("Seed").fill("7")
    page.get_by_label("Text", exact=True).press("Control+Enter")
    until(page, "window.lit.length > 2")
    assert page.get_by_role("status").first.text_content() == "Speaking"
    until(page, "!document.querySelector('[data-save=wav]').disabled")
    heard = page.evaluate("window.heard")
    assert {h["rate"] for h in heard} == {24_000}
    assert not heard[0]["complete"]  # the first sound began before the last had come
    samples = np.concatenate([h["samples"] for h in heard])
    path = download(page, "WAV", tmp_path)
    with wave.open(str(path)) as f:
        assert (f.getnchannels(), f.getsampwidth(), f.getframerate()) == (1, 2, 24_000)
        saved = np.frombuffer(f.readframes(f.getnframes()), "<i2") / 32768
    assert len(saved) == len(samples) and np.array_equal(saved, samples)
    assert np.abs(saved).max() > 0.05 and len(saved) > 24_000
    until(page, "window.lit.at(-1) === 'said.'")
    words = page.evaluate("window.lit")
    in_order = iter(TEXT.split())
    assert all(word in in_order for word in words) and len(words) >= 10
    assert page.locator("#said").text_content() == TEXT
    subtitles = download(page, "SRT", tmp_path).read_text(encoding="utf-8")
    assert subtitles.startswith("1\n00:00:00,") and "“They came back late,”" in subtitles
    mp3 = read(download(page, "MP3", tmp_path))
    assert len(mp3) == pytest.approx(len(saved), abs=2400)
    assert page.complaints == []


def test_where_frames_are_slow_the_last_word_is_seen_and_does_not_stay(page):
    page.evaluate("() => { requestAnimationFrame = (draw) => setTimeout(draw, 2000); }")
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.get_by_label("Speed").fill("2")
    page.get_by_label("Text", exact=True).press("Control+Enter")
    until(page, "window.lit.at(-1) === 'said.'")
    until(page, "!document.querySelector('#said .now')")
    assert page.complaints == []


def test_stopping_ends_the_sound_and_errors_are_told(page):
    page.get_by_label("Text", exact=True).fill("A long story. " * 60)
    page.get_by_role("button", name="Speak").click()
    until(page, "window.heard.length > 0")
    page.keyboard.press("Escape")
    count = page.evaluate("window.heard.length")
    page.wait_for_timeout(300)
    assert page.evaluate("window.heard.length") == count
    assert page.get_by_role("button", name="Stop", exact=True).is_disabled()
    page.get_by_label("Text", exact=True).fill("...")
    page.get_by_role("button", name="Speak").click()
    until(page, "document.querySelector('#error').textContent")
    assert "no text to speak" in page.get_by_role("alert").first.text_content()


def test_what_has_come_of_a_speech_that_was_stopped_is_played_to_its_end(page):
    page.get_by_label("Text", exact=True).fill("A long story. " * 60)
    page.get_by_label("Speed").fill("2")
    page.get_by_role("button", name="Speak").click()
    until(page, "made && made.seconds > 3")  # enough that it is not over before Pause is pressed
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Play", exact=True).click()
    page.get_by_role("button", name="Pause", exact=True).click()
    until(page, "context.state === 'suspended'")
    page.evaluate("() => go(made.seconds - 0.3)")
    assert page.get_by_role("button", name="Pause", exact=True).is_enabled()  # not "Go on"
    until(page, "!made.playing")
    assert page.locator("#status").text_content() == ""
    assert page.get_by_role("button", name="Stop", exact=True).is_disabled()
    assert page.complaints == []


def test_a_speech_that_breaks_off_can_be_stopped(page):
    page.evaluate(
        """() => {
  const asked = fetch;
  window.fetch = async (path, options) => {
    const answer = await asked(path, options), reader = answer.body.getReader();
    let count = 0;
    const pull = async (to) => count++ ? to.error(new TypeError("cut"))
      : to.enqueue((await reader.read()).value);
    return new Response(new ReadableStream({ pull }), answer);
  };
}"""
    )
    page.get_by_label("Text", exact=True).fill(
        "A long story of the sea, and of all who went there."
    )
    page.get_by_role("button", name="Speak").click()
    until(page, "document.querySelector('#error').textContent.includes('broke off')")
    stop = page.get_by_role("button", name="Stop", exact=True)
    assert page.evaluate("made.playing") == stop.is_enabled()
    until(page, "!made.playing")
    assert stop.is_disabled() and page.locator("#status").text_content() == ""


def test_a_recording_becomes_a_voice(page):
    page.get_by_text("Add a voice from a recording").click()
    page.get_by_label("or choose a file").set_input_files(str(CLIP))
    until(page, "document.querySelector('#added').textContent.includes('ready')")
    page.get_by_label("Name of the voice").fill("linda")
    page.get_by_label("Words that are said").fill("never")
    page.get_by_label("The person who is heard agrees").check()
    page.get_by_role("button", name="Add the voice").click()
    until(page, "document.querySelector('#added').textContent.includes('is there')")
    assert ". Its text of 5 characters" in page.locator("#added").text_content()
    assert page.get_by_label("Voice", exact=True).input_value() == "linda"
    assert page.get_by_label("Name of the voice").input_value() == ""  # that one is taken
    assert page.complaints == []


def test_a_recording_whose_words_nobody_knows_becomes_a_voice(page):
    page.get_by_text("Add a voice from a recording").click()
    page.get_by_label("or choose a file").set_input_files(str(CLIP))
    until(page, "document.querySelector('#added').textContent.includes('ready')")
    page.get_by_label("Name of the voice").fill("laura")
    page.get_by_label("The person who is heard agrees").check()
    page.get_by_role("button", name="Add the voice").click()
    until(page, "document.querySelector('#added').textContent.includes('is there')")
    assert page.get_by_label("Voice", exact=True).input_value() == "laura"


def test_nothing_foreign_is_loaded_or_run(page, address):
    html = PAGE.read_text(encoding="utf-8")
    assert not re.search(r"https?://|\bstyle=|\bon\w+=\"|innerHTML|eval\(", html)
    requests = []
    page.on("request", lambda r: requests.append(r.url))
    answer = page.reload()
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert all(url.startswith((address, "data:", "blob:")) for url in requests)
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'),"
        " {textContent: 'window.foreign = true'}))"
    )
    assert page.evaluate("window.foreign") is None
    assert any("Content Security Policy" in c for c in page.complaints)


@pytest.mark.parametrize("width", [320, 1280])
def test_each_control_has_a_name_and_fits(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.get_by_text("Add a voice from a recording").click()
    for control in page.locator("input, textarea, select, button, canvas, audio").all():
        if control.is_visible():
            name = control.evaluate(
                "e => e.ariaLabel || e.labels?.[0]?.textContent || e.textContent"
            )
            assert name.strip(), control.evaluate("e => e.outerHTML")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tops = page.eval_on_selector_all("#speak, #pause, #stop", "(a) => a.map((e) => e.offsetTop)")
    assert len(set(tops)) == 1
