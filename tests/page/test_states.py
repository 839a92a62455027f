"""The page where something is not as it should be, or was changed meanwhile."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from nanospeech.load import load_engine
from nanospeech.serve.settings import ServeSettings
from tests.serve.conftest import Server

from .conftest import ROOT, download, say, until

CLIP = ROOT / "tests/fixtures/ljspeech/wavs/LJ001-0008.wav"
LONG = "A long story of the sea, and of all who went there. "
ERROR = "document.querySelector('#error').textContent"
SAVE = "[...document.querySelectorAll('[data-save]')].filter((b) => !b.disabled).length"


def test_a_text_that_is_too_long_is_counted_and_refused_not_cut(page):
    text = LONG * 80
    page.get_by_label("Text", exact=True).fill("")
    page.keyboard.insert_text(text)  # as pasted: fill() goes round a maxlength
    assert page.get_by_label("Text", exact=True).input_value() == text
    assert f"{len(text):,} of 4,096" in page.locator("#count").text_content()
    page.get_by_role("button", name="Speak").click()
    assert "4,096" in page.evaluate(ERROR)
    assert page.complaints == []  # it was not sent
    page.get_by_label("Text", exact=True).fill("😀" * 4096)
    assert "4,096 of 4,096" in page.locator("#count").text_content()


def test_speech_of_another_rate_is_played_and_saved_at_it(opened, tiny_aligned, tmp_path):
    folder = tmp_path / "slow"
    shutil.copytree(tiny_aligned, folder)
    config = json.loads((folder / "config.json").read_text())
    config["audio"]["sample_rate"] = 16_000
    (folder / "config.json").write_text(json.dumps(config))
    server = Server(lambda: load_engine(folder, "torch", "cpu", "float32"), ServeSettings(port=0))
    try:
        page = opened(server.url)
        say(page, "The boat left.")
        until(page, f"made?.done && {SAVE} > 0")
        assert {h["rate"] for h in page.evaluate("window.heard")} == {16_000}
        head = np.frombuffer(download(page, "WAV", tmp_path).read_bytes()[:44], "<u4")
        assert head[6] == 16_000
    finally:
        server.stop()


def test_words_that_are_not_spoken_are_named(page):
    say(page, "Hello 你好 there, Привет, and " + "世界" * 40 + ".")
    told = page.locator("#unsaid")
    until(page, "made?.done")
    assert told.inner_text().endswith("left out of 你好, Привет, " + "世界" * 15 + "世….")
    say(page, "Hello there.")
    until(page, "document.querySelector('#unsaid').textContent === ''")
    assert page.complaints == []


def test_what_was_chosen_is_there_when_one_comes_back(page):
    page.get_by_label("Speed").fill("1.5")
    page.get_by_label("Voice", exact=True).select_option("sora")
    page.goto("about:blank")
    page.go_back()
    until(page, "document.querySelector('#voice').value === 'sora'")
    assert page.get_by_label("Speed").input_value() == "1.5"
    assert page.locator("#pace").text_content() == "1.50"
    page.get_by_label("Text", exact=True).fill("Typed.\nTwice.")
    page.get_by_label("Markup").select_option("ssml")
    page.get_by_label("Seed", exact=True).fill("7")
    page.reload()
    until(page, "document.querySelector('#voice').value === 'sora'")
    found = page.evaluate("KEPT.map((id) => $(id).value)")
    assert found == ["Typed.\nTwice.", "sora", "1.5", "ssml", "7"]
    assert page.locator("#pace").text_content() == "1.50"
    assert "<speak>" in page.locator("#marks").text_content()


def test_a_text_that_is_refused_leaves_the_speech_before_it_to_be_saved(page, tmp_path):
    say(page, "Hello.")
    until(page, "made && made.done")
    say(page, "...")
    until(page, ERROR)
    assert page.evaluate(SAVE) == 3
    assert len(download(page, "WAV", tmp_path).read_bytes()) > 10_000


def test_what_has_come_of_a_speech_that_was_stopped_is_saved(page, tmp_path):
    say(page, LONG * 60)
    until(page, "made && made.words.length > 2")
    page.keyboard.press("Escape")
    length = page.evaluate("made.length")
    assert len(download(page, "WAV", tmp_path).read_bytes()) == 44 + 2 * length
    assert "A long" in download(page, "SRT", tmp_path).read_text(encoding="utf-8")
    assert page.get_by_role("button", name="MP3").is_disabled()  # it would be all of the text


def test_a_file_that_is_no_sound_takes_the_recording_before_it_away(page, tmp_path):
    page.get_by_text("Add a voice from a recording").click()
    page.get_by_label("or choose a file").set_input_files(str(CLIP))
    until(page, "document.querySelector('#added').textContent.includes('ready')")
    (tmp_path / "bad.wav").write_bytes(b"no sound")
    page.get_by_label("or choose a file").set_input_files(str(tmp_path / "bad.wav"))
    until(page, "document.querySelector('#refused').textContent")
    assert page.locator("#added").text_content() == ""
    assert page.locator("#sample").is_hidden() and page.evaluate("sample === null")


def test_a_microphone_that_the_browser_withholds_is_explained(page):
    # what Chromium has on an address that is neither localhost nor HTTPS
    page.evaluate("() => Object.defineProperty(navigator, 'mediaDevices', { value: undefined })")
    page.get_by_text("Add a voice from a recording").click()
    page.get_by_role("button", name="Record").click()
    until(page, "document.querySelector('#refused').textContent.includes('HTTPS')")


def test_a_token_is_asked_for_in_plain_words(opened, serve):
    token = "sixteen-or-more-of-them"
    with serve(token=token) as server:
        page = opened(server.url)
        say(page, "Hello.")
        until(page, ERROR)
        assert page.evaluate(ERROR) == "This server asks for a token."
        for wrong in ("wrong", "ключ"):
            page.evaluate("() => { document.querySelector('#error').textContent = ''; }")
            page.get_by_label("Token").fill(wrong)
            page.get_by_label("Token").press("Enter")
            until(page, ERROR)
            assert page.evaluate(ERROR) == "This is not the token of this server."
        page.get_by_label("Token").fill(token)
        page.get_by_label("Token").press("Enter")
        until(page, "made && made.done")
        assert page.evaluate(ERROR) == ""


def test_only_the_text_scrolls_to_the_word_that_is_heard(page):
    page.set_viewport_size({"width": 360, "height": 500})
    page.evaluate("() => { document.querySelector('#said').style.maxHeight = '3em'; }")
    say(page, "One.\nTwo.\nThree.\nFour.\nFive.\nSix.\nSeven.")
    page.evaluate("scrollTo(0, 0)")  # the press had scrolled to its button
    until(page, "document.querySelector('#said').scrollTop > 0")
    assert page.evaluate("scrollY") == 0


def test_a_voice_that_is_gone_leaves_the_list(page, address):
    page.evaluate("() => document.querySelector('#voice').append(new Option('gone', 'gone'))")
    page.get_by_label("Voice", exact=True).select_option("gone")
    say(page, "Hello.")
    until(page, ERROR)
    assert "'gone' not found" in page.evaluate(ERROR)
    until(page, "document.querySelector('#voice').value === 'kathleen'")
    assert page.locator("#voice option[value=gone]").count() == 0


def test_voices_that_could_not_be_listed_are_listed_when_one_speaks(page, address):
    page.evaluate("() => document.querySelector('#voice').replaceChildren()")
    say(page, "Hello.")
    until(page, "made && made.done")
    assert page.get_by_label("Voice", exact=True).input_value() == "kathleen"


def test_an_mp3_that_is_being_made_is_told(page, tmp_path):
    say(page, "Hello.")
    until(page, "made && made.done")
    page.evaluate(
        """() => {
  window.told = [];
  new MutationObserver(() => window.told.push(document.querySelector('#saved').textContent))
    .observe(document.querySelector('#saved'), { childList: true });
}"""
    )
    download(page, "MP3", tmp_path)
    assert page.evaluate("window.told")[0] == "Making the MP3 …"
    assert page.locator("#saved").text_content() == ""


@pytest.mark.parametrize(
    ("kind", "text", "wrong"),
    [
        ("markup", "Hello [pause 200ms] there, [slow]my friend[/slow].", "Hello [pause 1x]."),
        ("ssml", "<speak>Hello <break time='200ms'/> there, my friend.</speak>", "<speak>Hello"),
    ],
)
def test_markup_is_read_and_its_mistakes_are_told(page, kind, text, wrong):
    page.get_by_label("Markup").select_option(kind)
    assert text[6:12] in page.locator("#marks").text_content()  # how it is written is told
    say(page, wrong)
    until(page, ERROR)
    assert "line 1" in page.evaluate(ERROR)
    say(page, text)
    until(page, "made && made.done && document.querySelector('#said span')")
    until(page, "made.shown === made.words.length")
    words = page.locator("#said span").all_text_contents()
    assert [w.strip(".,") for w in words] == ["Hello", "there", "my", "friend"]
    assert page.locator("#said").text_content() == text


def test_arrows_go_by_a_second(page):
    say(page, LONG)
    until(page, "made && made.done")
    page.get_by_role("button", name="Pause", exact=True).click()
    until(page, "context.state === 'suspended'")
    page.evaluate("() => { go = (seconds) => { window.gone = seconds; }; }")
    now = page.evaluate("made.position()")
    page.get_by_label("Place in the speech").press("ArrowRight")
    assert page.evaluate("window.gone") == pytest.approx(now + 1, abs=0.05)


def test_words_are_lit_when_they_are_heard_not_when_they_are_handed_over(page):
    # as over Bluetooth, where loudspeakers are late
    page.evaluate(
        "() => Object.defineProperty(AudioContext.prototype, 'outputLatency', { get: () => 0.5 })"
    )
    say(page, LONG)
    until(page, "made && made.runs.length && context.currentTime > made.runs[0].at + 0.6")
    late = page.evaluate("context.currentTime - made.runs[0].at - made.position()")
    assert late == pytest.approx(0.5, abs=0.1)


def test_what_is_not_heard_is_not_lit(page):
    say(page, "Hello 😀 there.")
    until(page, "window.lit.at(-1) === 'there.'")
    assert page.evaluate("window.lit") == ["Hello", "there."]


@pytest.mark.parametrize("width", [360, 1280])
def test_what_is_told_moves_nothing_and_is_there_before_it_is_told(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    height = "document.querySelector('#ask').offsetHeight"
    before = page.evaluate(height)
    for region in page.locator("#ask [role], #result [role=status], #add [role]").all():
        # screen readers do not hear of one that comes into being with its words
        assert region.evaluate("(e) => getComputedStyle(e).display") != "none"
    say(page, "Hello.")
    until(page, "document.querySelector('#status').textContent")
    assert page.evaluate(height) == before
    until(page, "made && made.done && !made.playing")
    assert page.evaluate(height) == before


def test_a_file_that_is_dropped_beside_the_box_does_not_take_the_place_of_the_page(page):
    assert not page.evaluate(
        """() => {
  const data = new DataTransfer();
  data.items.add(new File(["x"], "x.wav"));
  return ["dragover", "drop"].some((kind) => document.body.dispatchEvent(
    new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true })));
}"""
    )


def test_words_that_come_leave_those_before_them_in_place(page):
    text = f"One,\n\n  two: {LONG}\nThe end."
    say(page, text)
    until(page, "made && made.shown > 2")
    page.evaluate("() => { window.first = document.querySelector('#said span'); }")
    shown = page.evaluate("made.shown")
    until(page, "made.done && made.shown === made.words.length")
    assert page.evaluate("made.shown") > shown and page.evaluate("window.first.isConnected")
    assert page.locator("#said").text_content() == text
    assert page.locator("#said span").all_text_contents() == text.split()


def test_a_pause_is_told_as_one_while_more_is_being_made(page):
    say(page, LONG * 3)
    until(page, "made && made.length > 0")
    page.get_by_role("button", name="Pause", exact=True).click()
    until(page, "context.state === 'suspended'")
    had = page.evaluate("made.length")
    until(page, f"made.length > {had} || made.done")
    assert page.evaluate("made.length") > had
    assert page.locator("#status").text_content() == "Paused"


def test_of_presses_in_a_row_the_last_one_speaks(page):
    say(page, "Hello.")
    until(page, "made && made.done")
    page.evaluate(
        """() => {
  window.spoken = new Set();
  const add = Speech.prototype.add;
  Speech.prototype.add = function (part) { window.spoken.add(this); add.call(this, part); };
}"""
    )
    page.evaluate("() => { for (const press of [1, 2]) document.querySelector('#speak').click(); }")
    until(page, "made && made.done && !made.playing && !asking")
    page.wait_for_timeout(300)  # for the other one, if there is one
    assert page.evaluate("[...window.spoken].length") == 1


def test_why_a_speech_broke_off_is_told(opened, serve):
    with serve({"deadline": 2, "start_deadline": 20}) as server:
        page = opened(server.url)
        say(page, LONG * 60)
        until(page, ERROR)
        assert "not made within 2 s" in page.evaluate(ERROR)
        assert page.evaluate("made.length") > 0
