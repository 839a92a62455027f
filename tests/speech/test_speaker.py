"""Speaker: laws of the way from text to audio, on an engine whose mels are known."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from nanospeech import InputError, Speaker
from nanospeech.audio import wave as audio
from nanospeech.audio.mel import log_mel
from nanospeech.audio.recording import RUMBLES, rumble
from nanospeech.config import STEPS, DiTConfig, ModelConfig
from nanospeech.engine.base import Engine
from nanospeech.engine.sampling import noise
from nanospeech.output import OutputOptions
from nanospeech.release.folder import DEFAULT
from nanospeech.release.voices import VoiceSettings, default_voice, find_voice, list_voices
from nanospeech.speech.durations import MIN_SPEECH, frames
from nanospeech.speech.reference import read_reference
from nanospeech.text.tokenizer import Tokenizer

RATE = 24_000
TEXT = "a quick tone, held for a while."


def sound(seconds: float, level: float = 0.2) -> np.ndarray:
    t = np.arange(int(seconds * RATE)) / RATE
    return (level * np.sin(2 * np.pi * 300 * t) * (1 + 0.3 * np.sin(20 * t))).astype("f4")


class EchoEngine:
    """An engine in NumPy: its speech is its noise, its waves are loudness by frame."""

    backend, device, has_duration, folder = "numpy", "cpu", False, Path("nowhere")
    has_duration_model = False
    dtype, rounding, usual_dtype = "float32", None, Engine.usual_dtype

    def __init__(self, patch_size: int = 1, upsampling: str = "none", seconds_per_token: float = 0):
        dit = DiTConfig(patch_size=patch_size, text_upsampling=upsampling)
        self.config = ModelConfig(dit=dit)
        self.tokenizer = Tokenizer("chars", list(" abcdefghijklmnopqrstuvwxyz.,'!?"))
        self.calls: list[dict] = []
        self.batches: list[int] = []
        self.rests = 0
        self.seconds_per_token = seconds_per_token
        self.has_duration = seconds_per_token > 0

    def with_voice(self, weights, network="model"):
        return self

    @property
    def whole(self):
        """What stands for the release: its config alone."""
        return self

    def duration(self, cond_BNM, text_BT, *, lens_B=None, prompt_tokens_B=None, own=False):
        assert lens_B.tolist() == [cond_BNM.shape[1]]
        prompt = self.config.audio.frame_rate
        new = text_BT.shape[1] - prompt_tokens_B[0]
        return lens_B / prompt + new * self.seconds_per_token

    def sample(self, noise_BNM, cond_BNM, text_BT, options, *, lens_B, prompt_frames_B,
               prompt_tokens_B, on_step):  # fmt: skip
        assert noise_BNM.shape == cond_BNM.shape and max(lens_B) == cond_BNM.shape[1]
        self.batches.append(len(lens_B))
        for x, cond, ids, n, start, known in zip(
            noise_BNM, cond_BNM, text_BT, lens_B, prompt_frames_B, prompt_tokens_B
        ):
            assert np.any(cond[:start] != 0, axis=-1).all() and not cond[start:].any()
            text = "".join(self.tokenizer.vocab[i] for i in ids if i >= 0)
            texts = {"prompt": text[:known], "text": text[known:]}
            self.calls.append({**texts, "start": start, "new": n - start, "noise": x[None, :n]})
        steps = options.steps or STEPS
        for step in range(steps if on_step else 0):
            on_step(step + 1, steps)
        return np.where(cond_BNM != 0, cond_BNM, noise_BNM)

    def align(self, mel_NM, text_T):
        return np.diff(np.linspace(0, len(mel_NM), len(text_T) + 1).astype(int))

    def vocode(self, mel_BNM, lens_B=None):
        lens = [mel_BNM.shape[1]] * len(mel_BNM) if lens_B is None else lens_B
        return [
            np.repeat(mel[1:n, 0] / 10, 256).astype(np.float32) for mel, n in zip(mel_BNM, lens)
        ]

    def clear_cache(self):
        self.rests += 1


def speaker(engine=None, wave=None, **options) -> Speaker:
    options = {"seed": 3, "ref_text": TEXT, **options}
    wave = sound(2.5) if wave is None else wave
    return Speaker(engine or EchoEngine(), ref_audio=wave, **options)


def test_the_prompt_reaches_the_engine_exactly_and_only_new_speech_is_returned():
    engine = EchoEngine()
    spoken = speaker(engine).speak("hello there.")
    call = engine.calls[0]
    assert call["prompt"] == TEXT + " " and call["text"] == "hello there."
    assert call["start"] == len(speaker(engine).prompt.mel)
    assert len(spoken.wave) == (call["new"] - 1) * 256
    assert spoken.sample_rate == RATE and spoken.seconds == len(spoken.wave) / RATE
    assert spoken.rtf == pytest.approx(spoken.elapsed / spoken.seconds) and spoken.elapsed > 0


@pytest.mark.parametrize("kind", [str, Path, Path.read_bytes, lambda path: path.open("rb")])
def test_a_file_is_prepared_as_voices_are(tmp_path, kind):
    """Rumble, silence at its ends and level; floats, and files for other models, stay."""
    clean = np.pad(sound(2.5, 0.02), RATE)
    poor = (clean + 0.01 * np.sin(2 * np.pi * 30 * np.arange(len(clean)) / RATE)).astype("f4")
    path = tmp_path / "me.flac"
    audio.write(path, poor)
    ready = read_reference(path, TEXT, None).wave
    assert len(ready) < 3 * RATE and rumble(ready) < RUMBLES < rumble(audio.read(path))
    aligned, other = EchoEngine(upsampling="aligned"), EchoEngine()
    given = kind(path)
    mel = speaker(aligned, given).prompt.mel
    assert np.array_equal(mel, speaker(aligned, ready).prompt.mel)
    assert len(speaker(aligned, audio.read(path)).prompt.mel) > len(mel) + 90
    assert len(speaker(other, path).prompt.mel) == len(speaker(other, audio.read(path)).prompt.mel)


def test_a_silent_file_is_refused(tmp_path):
    audio.write(tmp_path / "a.flac", np.zeros(RATE, np.float32))
    with pytest.raises(InputError, match="silent"):
        speaker(EchoEngine(upsampling="aligned"), tmp_path / "a.flac")


def test_the_prompt_ends_in_silence_at_a_known_level():
    wave = sound(2.5, level=0.01)
    prompt = speaker(wave=wave).prompt
    assert prompt.gain == pytest.approx(audio.TARGET_RMS / audio.rms(wave), rel=0.1)
    assert np.allclose(prompt.mel[-2], np.log(1e-5))
    loud = log_mel(sound(2.5, level=0.3)).max()
    assert prompt.mel.max() == pytest.approx(loud, abs=1)


@pytest.mark.parametrize("patch_size", [1, 2, 4])
def test_prompt_and_total_are_whole_patches(patch_size):
    engine = EchoEngine(patch_size)
    for seconds in (1.5, 1.51, 1.52):
        speaker(engine, sound(seconds)).speak("hello there.")
    assert all(c["start"] % patch_size == 0 and c["new"] % patch_size == 0 for c in engine.calls)


@pytest.mark.parametrize("patch_size", [1, 2, 4])
def test_each_token_has_a_patch_at_least(patch_size):
    config = EchoEngine(patch_size).config
    for tokens in (0, 1, 40):
        for seconds in (0.0, 0.1, 0.35, 2.004):
            found = frames(config, np.zeros(tokens), seconds)
            assert found % patch_size == 0 and found >= max(1, tokens) * patch_size
            wanted = round(seconds * config.audio.frame_rate)
            assert found >= wanted and found < max(wanted, max(1, tokens) * patch_size) + patch_size


@pytest.mark.parametrize("seconds_per_token", [0, 0.08])
def test_speed_scales_the_new_speech_alone(seconds_per_token):
    new = {}
    text = "a sentence that is long enough to be scaled. "
    for speed in (0.5, 1.0, 2.0):
        engine = EchoEngine(upsampling="aligned", seconds_per_token=seconds_per_token)
        new[speed] = speaker(engine, speed=speed).speak(text).seconds
        assert {c["start"] for c in engine.calls} == {engine.calls[0]["start"]}
    assert new[0.5] / new[1.0] == pytest.approx(2, rel=0.05)
    assert new[1.0] / new[2.0] == pytest.approx(2, rel=0.05)


def test_without_durations_the_prompts_rate_decides():
    """reference frames / bytes of its text, times the bytes of the new text."""
    engine = EchoEngine()
    speaker(engine, sound(2.5)).speak(TEXT)
    assert engine.calls[0]["new"] == pytest.approx(2.5 * 93.75, rel=0.02)


@pytest.mark.parametrize("text", ["Hi.", "a", "Oh?"])
@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_tiny_texts_get_time_to_be_said(text, speed):
    engine = EchoEngine()
    speaker(engine, speed=speed).speak(text)
    assert engine.calls[0]["new"] >= MIN_SPEECH * 93.75 - 1


def test_the_leading_pause_is_before_short_texts_alone():
    plain, led = EchoEngine(2), EchoEngine(2)
    led.config = dataclasses.replace(led.config, leading_pause=0.128)
    for text, options in (("hi.", {}), (TEXT, {}), ("hi.", {"seconds": 0.6})):
        for engine in (plain, led):
            speaker(engine).speak(text, **options)
    assert [b["new"] - a["new"] for a, b in zip(plain.calls, led.calls)] == [12, 0, 0]
    assert [call["text"] for call in led.calls] == [", hi.", TEXT, "hi."]
    assert speaker(led).chunks("hi.") == ["hi."]
    with pytest.raises(InputError, match=r"leading_pause is 1\.5 s"):
        ModelConfig(leading_pause=1.5)


@pytest.mark.parametrize("marks", ["." * 500, ". " * 500, "?!" * 250, ", -" * 200, "…" * 500])
@pytest.mark.parametrize("seconds_per_token", [0, 0.08])
@pytest.mark.parametrize("kind", ["chars", "bytes"])
def test_runs_of_marks_take_no_more_time_than_a_few(marks, seconds_per_token, kind):
    engine = EchoEngine(2, "aligned", seconds_per_token)
    engine.tokenizer = Tokenizer(kind, engine.tokenizer.vocab)
    if kind == "bytes":
        engine.tokenizer.vocab = list(map(chr, range(256)))  # which the engine writes down
    for text in (f"a{marks}", f"a {marks} a sentence follows."):
        few = speaker(engine).speak(text.replace(marks, "........"))
        many = speaker(engine).speak(text)
        assert many.seconds <= few.seconds + 1
    rate = speaker(engine, ref_text=TEXT + marks).prompt.rate  # of the words, not of the marks
    assert rate <= speaker(engine).prompt.rate + 4


def test_tags_reach_the_model_whole_and_are_never_cut():
    engine = EchoEngine()
    tag = "<a very loud laugh. yes, (indeed)>"
    engine.tokenizer = Tokenizer("chars", [*engine.tokenizer.vocab, tag])
    text = f"hello there {tag} general, {tag} how are you? " * 5
    for early in (False, True):
        chunks = speaker(engine, chunk_seconds=1).chunks(text, early)
        assert len(chunks) > 5 and sum(chunk.count(tag) for chunk in chunks) == 10
    speaker(engine, chunk_seconds=1).speak(text)
    assert "".join(call["text"] for call in engine.calls).count(tag) == 10


@pytest.mark.parametrize("seconds_per_token", [100.0, 1e-6, float("nan"), float("inf")])
def test_a_duration_model_that_is_far_off_is_overruled(seconds_per_token):
    engine, plain = EchoEngine(), EchoEngine()
    engine.has_duration, engine.seconds_per_token = True, seconds_per_token
    for each in (engine, plain):
        speaker(each).speak("hello there.")
    assert engine.calls[0]["new"] == plain.calls[0]["new"]


def test_a_wanted_length_is_met():
    text = "One sentence is here. " * 12
    for seconds in (9.0, 30.0):
        spoken = speaker(chunk_seconds=4).speak(text, seconds=seconds)
        assert len(spoken.chunks) > 2
        assert spoken.seconds == pytest.approx(seconds, rel=0.02)
    with pytest.raises(InputError, match="duration"):
        speaker().stream(text, seconds=0)


def test_the_seed_makes_the_noise_and_each_chunk_gets_its_own():
    engine = EchoEngine()
    text = "First comes this sentence here. " * 9
    a = speaker(engine, chunk_seconds=3, seed=5)
    first, again = a.speak(text), a.speak(text)
    assert np.array_equal(first.wave, again.wave) and first.seed == 5
    calls = engine.calls[: len(first.chunks)]
    assert len(calls) > 2
    for index, call in enumerate(calls):
        assert np.array_equal(call["noise"][0], noise(call["noise"].shape[1], 100, 5 + index))
    assert not np.array_equal(first.wave, speaker(seed=6, chunk_seconds=3).speak(text).wave)
    drawn = speaker(seed=None).speak("hello.")
    assert np.array_equal(drawn.wave, speaker(seed=drawn.seed).speak("hello.").wave)


def test_streamed_pieces_are_the_whole_and_nothing_is_left_unsaid():
    engine = EchoEngine()
    text = "Here is a first sentence, Dr. Smith. Here is another one! And a third?\n\nThe end"
    a = speaker(engine, chunk_seconds=2, output=OutputOptions(loudness=None))
    whole = a.speak(text)
    said = " ".join(c["text"] for c in engine.calls)
    assert (
        said == "here is a first sentence, doctor smith. here is another one! and a third? the end"
    )
    steps = []
    pieces = list(a.stream(text, None, lambda *counts: steps.append(counts), early=False))
    assert len(pieces) > len(whole.chunks) > 2
    assert np.array_equal(np.concatenate(pieces), whole.wave)
    total = len(whole.chunks) * STEPS
    assert steps == [(i + 1, total) for i in range(total)]


def test_speech_has_one_loudness_or_the_recordings_own_level():
    for loudness in (None, -35):
        output = OutputOptions(loudness)
        quiet, loud = (speaker(wave=sound(2.5, v), output=output) for v in (0.02, 0.08))
        a, b = quiet.speak("hello there."), loud.speak("hello there.")
        if loudness is None:
            assert np.allclose(a.wave * quiet.prompt.gain, b.wave * loud.prompt.gain, atol=1e-4)
        else:
            assert np.allclose(a.wave, b.wave, atol=1e-3)


@pytest.mark.parametrize("text", ["", "  \n ", "...", "?! -"])
def test_nothing_to_say_is_an_input_error_before_any_work(text):
    engine = EchoEngine()
    with pytest.raises(InputError, match="no text"):
        speaker(engine).stream(text)
    assert not engine.calls


def test_characters_unknown_to_the_model_are_no_crash(caplog):
    assert speaker().speak("Hello 世 there").seconds > 0
    assert "世" in caplog.text
    with pytest.raises(InputError, match="no character"):
        speaker().speak("世界")


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"wave": np.zeros(RATE * 3, "f4")}, "silent"),
        ({"wave": np.zeros(0, "f4")}, "silent"),
        ({"wave": sound(0.2)}, "at least"),
        ({"wave": sound(61)}, "longer than 60"),
        ({"wave": np.full(RATE, np.nan, "f4")}, "finite"),
        ({"wave": np.zeros((RATE, 2), "f4")}, "one channel"),
        ({"wave": (sound(3) * 32768).astype(np.int16)}, "int16, should be floats"),
        ({"ref_text": None}, "no text, only audio"),
        ({"ref_text": " "}, "text is empty"),
        ({"ref_text": "far too many words " * 30}, "cannot be said"),
        ({"voice": "tone"}, "not both"),
        ({"speed": 0.0}, "speed"),
        ({"speed": float("nan")}, "speed"),
        ({"seed": -1}, "seed"),
        ({"chunk_seconds": 0}, "chunk_seconds"),
    ],
)
def test_wrong_wishes_are_input_errors(wrong, message):
    with pytest.raises(InputError, match=message):
        speaker(**wrong)
    with pytest.raises(InputError, match="no audio, only text"):
        Speaker(EchoEngine(), ref_text="x")  # type: ignore[arg-type]


def test_an_offset_of_samples_is_taken_off_as_that_of_a_file():
    plain, moved = (speaker(wave=sound(3) + np.float32(offset)) for offset in (0.0, 0.05))
    assert plain.prompt.mel.shape == moved.prompt.mel.shape
    assert np.abs(plain.prompt.mel - moved.prompt.mel).mean() < 0.01


STRANGER = "does not imitate"


@pytest.mark.parametrize("imitates", [None, True, False])
def test_a_model_that_does_not_imitate_says_so_of_a_recording(imitates, caplog):
    engine = EchoEngine()
    engine.config = dataclasses.replace(engine.config, name="robert", imitates=imitates)
    assert speaker(engine).speak("hello there.").seconds > 0
    assert (STRANGER in caplog.text) == (imitates is False)
    if imitates is False:
        assert "'robert'" in caplog.text and "finetune" in caplog.text


def with_voice(folder: Path, name: str) -> Path:
    (folder / "voices").mkdir(parents=True, exist_ok=True)
    audio.write(folder / "voices" / f"{name}.flac", sound(1.5))
    (folder / "voices" / f"{name}.txt").write_text("hello there.")
    return folder


def test_a_folder_offers_its_own_voices_and_borrows_others_openly(tmp_path, caplog):
    engine = EchoEngine()
    engine.config = dataclasses.replace(engine.config, imitates=False)
    engine.folder = with_voice(tmp_path / "mine", "anna")
    assert list_voices(engine.folder) == ["anna"]
    for name in (None, "anna", "Anna"):
        Speaker(engine, name)
    assert not caplog.text  # its own
    for name in ("kathleen", "Kathleen"):
        with pytest.raises(InputError, match=r"choose from anna; default/kathleen lends"):
            Speaker(engine, name)
    lent = Speaker(engine, "default/kathleen").prompt
    assert "mine has no voice kathleen of its own" in caplog.text and STRANGER in caplog.text
    own = find_voice("kathleen", DEFAULT)
    assert not own.borrowed and own.weights is not None and own.settings != VoiceSettings()
    assert lent.settings == VoiceSettings() and np.array_equal(
        lent.mel, speaker(engine, audio.read(own.audio), ref_text=own.text).prompt.mel
    )
    assert find_voice("default/kathleen", DEFAULT) == own
    with pytest.raises(InputError, match="not found"):
        find_voice("default/anna", engine.folder)


def test_a_folder_without_voices_borrows_the_packages_default_and_says_so(tmp_path, caplog):
    engine = EchoEngine()
    engine.folder = tmp_path
    packaged = ModelConfig.load(DEFAULT / "config.json").default_voice
    assert list_voices(tmp_path) == list_voices(DEFAULT) != []
    assert default_voice(tmp_path).name == packaged != sorted(list_voices(DEFAULT))[0]
    Speaker(engine)
    assert f"has no voice {packaged} of its own" in caplog.text and STRANGER not in caplog.text
    assert find_voice("kumo", tmp_path).borrowed
    # a config that names a voice of the package has it, lent, where there are no others
    engine.config = dataclasses.replace(engine.config, default_voice="kumo")
    Speaker(engine)
    assert "has no voice kumo of its own" in caplog.text
    engine.folder = with_voice(tmp_path, "anna")
    caplog.clear()
    Speaker(engine)
    assert "has no voice kumo, which" in caplog.text and "anna speaks" in caplog.text
    assert "lent" not in caplog.text and not default_voice(tmp_path, "kumo").borrowed
    assert default_voice(tmp_path, "default/kumo").borrowed  # as it was asked for


@pytest.mark.parametrize("text, fits", [("hm.", False), (TEXT, True), (TEXT * 5, False)])
def test_a_reference_text_that_cannot_be_of_its_recording_is_warned_of(text, fits, caplog):
    speaker(wave=sound(2.5), ref_text=text)
    assert ("does not go with its" in caplog.text) == (not fits)


def test_voices_are_found_by_name_inside_their_folder_alone(tmp_path):
    folder = tmp_path / "voices"
    folder.mkdir()
    audio.write(tmp_path / "outside.wav", sound(1))
    (tmp_path / "outside.txt").write_text("x")
    for name in ("zoe", "adam"):
        audio.write(folder / f"{name}.flac", sound(1))
        (folder / f"{name}.txt").write_text(f"words of {name}\n")
    audio.write(folder / "mute.wav", sound(1))  # no words beside it: no voice
    assert {"adam", "zoe"} <= set(list_voices(tmp_path)) and "mute" not in list_voices(tmp_path)
    assert find_voice("zoe", tmp_path).text == "words of zoe"
    assert default_voice(tmp_path).name == "adam" and default_voice(tmp_path, "zoe").name == "zoe"
    for name in ("../outside", "nobody", "", "mute", str(tmp_path / "outside")):
        with pytest.raises(InputError, match=r"choose from .*adam.*zoe"):
            find_voice(name, tmp_path)
    assert find_voice("ZOE", tmp_path).name == "zoe" and find_voice("Adam", tmp_path).name == "adam"
    (folder / "zoe.txt").write_bytes(b"\xff")
    with pytest.raises(InputError, match="words of voice 'zoe'"):
        find_voice("zoe", tmp_path)
