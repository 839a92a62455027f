"""Speaking by models of latents: a recording becomes the speaker's latents, lengths have room."""

from __future__ import annotations

import copy
import dataclasses
import sys
from weakref import ref

import numpy as np
import pytest
import soundfile

from nanospeech import Speaker
from nanospeech.audio.wave import SAMPLE_RATE
from nanospeech.commands import main
from nanospeech.config import ModelConfig
from nanospeech.engine.echo_sampling import FLAT_STD
from nanospeech.errors import CheckpointError
from nanospeech.evaluate.items import Item, Prompt, Recording
from nanospeech.evaluate.worker import Settings, Task, Worker
from nanospeech.generate import build_parser, load_speaker, read_options
from nanospeech.latent_architectures import EchoOptions
from nanospeech.load import load_engine
from nanospeech.release.folder import CODEC
from nanospeech.speech.latents import LEAST, latents_of, sample_latents
from nanospeech.text.markup import read_markup
from tests.conftest import tone

from . import tiny

RATE, HOP = 48_000, 96  # of the tiny codec: 500 latents a second
SAID = "a tone that is held"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Echo's network with a codec; speech of at most 1,200 latents."""
    made = tiny.write_with_codec(tmp_path_factory.mktemp("speech"))
    config = ModelConfig.load(made / "config.json")
    echo = dataclasses.replace(config.echo, max_latents=1200)
    dataclasses.replace(config, echo=echo, echo_sampling=EchoOptions(steps=2)).save(
        made / "config.json"
    )
    return made


@pytest.fixture(scope="module")
def engine(folder):
    return load_engine(folder, "torch", "cpu", "float32")


def recording() -> np.ndarray:
    return tone(1.0)  # 24 kHz, as samples are given


@pytest.mark.parametrize("backend", ["torch", "mlx"])
def test_the_command_speaks(folder, tmp_path, backend):
    pytest.importorskip("mlx.core" if backend == "mlx" else backend)
    soundfile.write(tmp_path / "me.wav", recording(), SAMPLE_RATE)
    options = ["--model", folder, "--backend", backend, "--device", "cpu", "--seed", 1]
    reference = ["--ref-audio", tmp_path / "me.wav", "--ref-text", SAID]
    text = ["--text", "one two three", "--output", tmp_path / "out.wav", "--duration", 0.5]
    assert main([str(o) for o in ["speak", *text, *options, *reference]]) == 0
    wave, rate = soundfile.read(tmp_path / "out.wav")
    assert rate == RATE and len(wave) == RATE // 2 and np.abs(wave).max() > 0


def test_samples_are_the_recording_that_a_file_of_them_is(engine, tmp_path):
    """Samples are at 24 kHz, whatever the model's rate is: its pitch is kept."""
    soundfile.write(tmp_path / "me.wav", recording(), SAMPLE_RATE, "FLOAT")
    of_samples, of_file = (
        Speaker(engine, ref_audio=given, ref_text=SAID, seed=3).prompt
        for given in (recording(), tmp_path / "me.wav")
    )
    assert of_samples.rate == of_file.rate and len(of_samples.mel) >= RATE // HOP
    np.testing.assert_allclose(of_samples.mel, of_file.mel, atol=1e-5)


def test_an_evaluation_is_after_all_that_a_recording_has(folder, engine, tmp_path):
    """Also what lies above 12 kHz, as --ref-audio of nanospeech speak is."""
    path = tmp_path / "me.wav"
    soundfile.write(path, 0.1 * np.random.default_rng(0).standard_normal(RATE), RATE, "FLOAT")
    where = str(folder), "torch", "cpu", "float32"
    worker = Worker(Settings(tmp_path, ("rtf",), *where))
    prompt = Prompt(Recording(path), SAID)
    speaker = worker.speaker(Task("me", Item("000", "one two"), 2, 0, None, prompt))
    wanted = Speaker(engine, ref_audio=path, ref_text=SAID, seed=3).prompt
    np.testing.assert_array_equal(speaker.prompt.mel, wanted.mel)


def test_a_recording_that_is_prepared_has_the_rate_of_the_model(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faster_whisper", None)  # its words stay unknown
    soundfile.write(tmp_path / "me.wav", recording(), SAMPLE_RATE)
    given = ["--text", "one two", "--model", str(folder), "--backend", "torch", "--device", "cpu"]
    args = build_parser().parse_args([*given, "--ref-audio", str(tmp_path / "me.wav")])
    prepared = load_speaker(args, read_options(args)[0], None).prompt.mel
    engine = load_engine(folder, "torch", "cpu")
    kinds = tmp_path / "me.wav", (tmp_path / "me.wav").read_bytes(), recording()
    lengths = [len(Speaker(engine, ref_audio=kind).prompt.mel) for kind in kinds]
    assert lengths[0] == lengths[1] == lengths[2] and abs(len(prepared) - lengths[0]) <= 50


def test_streams_and_batches_are_what_is_spoken_at_once(engine):
    speaker = Speaker(engine, ref_audio=recording(), ref_text=SAID, seed=3)
    assert speaker.prompt.mel.shape[1] == 8 and not len(speaker.prompt.tokens)
    text = "one two three."
    whole = speaker.speak(text).wave
    pieces = np.concatenate(list(speaker.stream(text, early=True)))
    (batch,) = speaker.speak_many([text])
    assert len(whole) == len(pieces) == len(batch.wave)
    assert len(whole) % HOP == 0 and len(whole) <= 1200 * HOP
    assert np.abs(whole - batch.wave).max() <= 1e-4


def test_pauses_that_are_asked_for_are_silences_around_latents(engine):
    speaker = Speaker(engine, ref_audio=recording(), ref_text=SAID, seed=3)
    text = read_markup("[pause 200ms]one two.[pause 500ms] three.[pause 300ms]")
    whole = speaker.speak(text).wave
    pieces = np.concatenate(list(speaker.stream(text)))
    (batch,) = speaker.speak_many([text])
    assert len(whole) == len(pieces) == len(batch.wave)
    assert np.abs(whole - batch.wave).max() <= 1e-4
    silent = np.concatenate([[False], np.abs(whole) < 1e-9, [False]])
    edges = np.flatnonzero(np.diff(silent.astype(int))).reshape(-1, 2)
    long = [(b - a) / RATE for a, b in edges if b - a > 0.1 * RATE]
    assert long == pytest.approx([0.2, 0.5, 0.3], abs=0.04)  # cross-faded for 30 ms


def test_there_is_room_for_more_than_the_estimate(engine):
    assert latents_of(engine, 1.0, asked=True) == 500
    assert latents_of(engine, 0.5, asked=False) == (1.5 * 0.5 + 1) * 500
    assert latents_of(engine, 60.0, asked=True) == 1200
    assert latents_of(engine, 0.0, asked=True) == LEAST


def test_speech_that_is_longer_than_the_model_can_is_warned_of(engine, caplog):
    speaker = Speaker(engine, ref_audio=recording(), ref_text=SAID, seed=3)
    assert speaker.speak("one two.", seconds=2.2).seconds == 2.2 and not caplog.records
    assert speaker.speak("one two.", seconds=9).seconds == 2.4
    assert [r.getMessage() for r in caplog.records] == [
        "the text takes at most 2.4 s, not the 9 s asked for"
    ]


def test_a_length_is_met_however_many_chunks_of_latents_there_are(engine):
    speaker = Speaker(engine, ref_audio=recording(), ref_text=SAID, seed=3, chunk_seconds=1)
    spoken = speaker.speak("one two three. " * 10, seconds=4.5)
    assert len(spoken.chunks) > 3
    assert spoken.seconds == pytest.approx(4.5, abs=2 * engine.config.echo.latent_patch / 500)


def other(engine, **options):
    """The engine with other options of its network."""
    made = copy.copy(engine)
    echo = dataclasses.replace(engine.config.echo, **options)
    made.config = dataclasses.replace(engine.config, echo=echo)
    made.voice_engines, made.owner = {}, ref(made)
    return made


LENGTHS = {  # ways in which a network takes the length of its speech, or does not
    "seconds": ({"target_duration": True}, True),
    "places": ({"text_rotary": True}, True),
    "window": ({"text_window": 1.5, "continues": False}, True),
    "none": ({}, False),
}


@pytest.mark.parametrize(("options", "target"), LENGTHS.values(), ids=LENGTHS)
def test_a_speed_is_kept_or_warned_of(engine, caplog, options, target):
    """Latents are not stretched, so the network alone can speak faster.

    One whose tokens have places is given no room: they would be spread over it.
    """
    speaks = other(engine, **options)

    def seconds(speed: float) -> float:
        speaker = Speaker(speaks, ref_audio=recording(), ref_text=SAID, seed=3, speed=speed)
        return speaker.chunk("one two three.", 0).frames / (RATE / HOP)

    slow, usual, fast = map(seconds, (0.8, 1.0, 2.0))
    assert ("its own speed" in caplog.text) is not target
    assert slow > usual
    assert fast == pytest.approx(usual / 2 if target else usual, abs=0.01)
    assert latents_of(speaks, 0.5, asked=False) == (0.5 if target else 1.5 * 0.5 + 1) * 500


@pytest.mark.parametrize("options", [options for options, _ in LENGTHS.values()], ids=LENGTHS)
@pytest.mark.parametrize("speed", [0.8, 1.0, 2.0])
@pytest.mark.parametrize("pace", [0.7, 1.0])
def test_a_chunk_is_no_longer_than_a_sample(engine, options, speed, pace):
    """Else it would be hurried or cut, however long chunks may be."""
    speaks = other(engine, **options, max_latents=6000)  # 12 seconds
    made = {"ref_audio": recording(), "ref_text": SAID, "seed": 3, "chunk_seconds": 60.0}
    speaker = Speaker(speaks, **made, speed=speed)
    settings = dataclasses.replace(speaker.prompt.settings, speed=pace)
    speaker.prompt = dataclasses.replace(speaker.prompt, settings=settings)
    text = 9 * ("one two three four five, six seven eight nine ten; " * 4 + "the end. ")
    chunks = speaker.chunks(text)
    assert len(chunks) > 3
    frames = [speaker.chunk(chunk, 0).frames for chunk in chunks]
    speaker.engine = other(speaks, max_latents=10**6)  # how long they would be
    assert frames == [speaker.chunk(chunk, 0).frames for chunk in chunks]
    assert 3000 < max(frames) <= 6000


class Quiet:
    """An engine whose speech is its noise, then nothing."""

    def __init__(self, engine, end: int):
        self.config, self.end = engine.config, end

    def sample(self, noise, cond, text, options, *, lens_B, prompt_frames_B, on_step):
        assert cond.shape[:2] == (len(noise), prompt_frames_B[0])
        made = noise.copy()
        made[:, self.end :] *= FLAT_STD / 10
        return made


def test_what_is_silent_is_cut_off_but_where_a_length_was_asked_for(engine):
    speaker = Speaker(engine, ref_audio=recording(), ref_text=SAID, seed=3)
    chunk = speaker.chunk("one two three.", 0)
    assert chunk.frames > 100
    asked = dataclasses.replace(chunk, speed=None)
    quiet = Quiet(engine, 40)
    found = sample_latents(quiet, speaker.prompt, [chunk, asked], speaker.options)
    assert [len(row) for row in found] == [40, chunk.frames]
    (least,) = sample_latents(Quiet(engine, 0), speaker.prompt, [chunk], speaker.options)
    assert len(least) == LEAST


def test_a_folder_without_a_codec_says_so(folder, tmp_path):
    for file in folder.iterdir():
        if file.name != CODEC and file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    bare = load_engine(tmp_path, "torch", "cpu", "float32")
    with pytest.raises(CheckpointError, match="codec"):
        Speaker(bare, ref_audio=recording(), ref_text=SAID)
