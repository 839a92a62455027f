"""What finetuning starts from, what it holds back, and what it says of the result."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from nanospeech.audio import wave as audio
from nanospeech.audio.mel import log_mel
from nanospeech.audio.recording import RUMBLES, clipping, rumble
from nanospeech.errors import DataError, InputError
from nanospeech.evaluate.prompts import degraded
from nanospeech.release.folder import DEFAULT, Release, open_release
from nanospeech.release.sharded import write_whole
from nanospeech.speech.speaker import Speaker
from nanospeech.text.tokenizer import Tokenizer
from nanospeech_torch.finetune import __main__ as finetune
from nanospeech_torch.finetune import recordings as data
from nanospeech_torch.finetune.hearing import Ears, Heard, compare, worse
from nanospeech_torch.finetune.prompts import choose_prompt
from nanospeech_torch.finetune.start import (
    Start,
    base_of,
    candidates,
    choose_start,
    described,
    misfit,
    same_run,
    settle,
)
from nanospeech_torch.finetune.trainer import save
from tests.conftest import tone
from tests.training import SHARD, samples

LIBRITTS = Path(__file__).parents[1] / "fixtures" / "libritts"


@pytest.fixture
def kathleen(tmp_path) -> list[data.Recording]:
    """Four of her recordings, prepared."""
    found, _ = data.find_samples([SHARD])
    data.write_voice(found, tmp_path / "data", open_release(None).config, None, "kathleen")
    return data.read_recordings(sorted((tmp_path / "data").glob("voice-*.tar")))


@pytest.fixture
def two(tmp_path) -> Release:
    """The model that ships, with two of its voices."""
    folder = tmp_path / "two"
    (folder / "voices").mkdir(parents=True)
    for path in DEFAULT.iterdir():
        if path.is_file():
            (folder / path.name).symlink_to(path)
    for path in (DEFAULT / "voices").iterdir():
        if path.name.startswith(("kathleen.", "kumo.")):
            (folder / "voices" / path.name).symlink_to(path)
    return open_release(folder)


def arguments(*more: str) -> argparse.Namespace:
    words = ["--data", "d", "--voice", "anna", "--output", "o"]
    return finetune.build_parser().parse_args([*words, *more])


def test_a_run_starts_from_the_voice_whose_weights_fit_the_recordings_best(two, kathleen, tmp_path):
    run = tmp_path / "run"
    start = choose_start(None, two, kathleen, run)
    assert list(start.losses) == ["kathleen", "kumo"]
    assert start.losses["kathleen"] < 0.9 * start.losses["kumo"]
    assert start.voice == "kathleen" and start.weights is not None
    assert start.weights.name == "kathleen.safetensors"
    assert "starting from kathleen, which fits" in start.describe()
    settle(arguments(), two, start, run)
    assert choose_start(None, two, [], run) == start  # a run that is gone on with


def test_a_run_starts_from_what_speaks_after_recordings_where_there_is_such(tiny_release, tmp_path):
    release, run = open_release(None), tmp_path / "run"
    imitator = base_of(release, None, run)
    assert imitator.folder == DEFAULT / "imitator" and imitator.beside is release
    start = choose_start(None, imitator, [], run)
    assert (start.voice, start.weights) == (None, None)
    assert "speaks after recordings" in start.describe(imitator=True)
    settle(arguments(), imitator, start, run)
    assert base_of(release, None, run).folder == imitator.folder  # a run that is gone on with
    for asked in "kathleen", "none":
        assert base_of(release, asked, run) is release
    (run / "start.json").write_text('{"voice": "kathleen", "losses": {}}')
    assert base_of(release, None, run) is release  # it began with her
    plain = open_release(tiny_release)
    assert base_of(plain, None, tmp_path / "other") is plain


def test_the_start_can_be_chosen(two, tmp_path):
    release = open_release(None)
    assert len(candidates(release)) == 2 and candidates(release)["kumo"] is None
    for asked, voice in ("Kathleen", "kathleen"), ("kumo", "kumo"), ("none", None):
        own = choose_start(asked, release, [], tmp_path)
        assert own.voice == voice and not own.losses
        assert (own.weights is None) == (asked != "Kathleen")
    for name in ("anna", "heart"):
        said = (
            f"no voice '{name}' of its own that its model speaks; choose from kathleen, kumo, none$"
        )
        with pytest.raises(InputError, match=said):
            choose_start(name, release, [], tmp_path)


def test_a_model_with_weights_for_no_voice_leaves_no_choice(tiny_release, kathleen, tmp_path):
    release = open_release(tiny_release)
    assert candidates(release) == {"tone": None}
    start = choose_start(None, release, kathleen, tmp_path / "run")
    assert (start.voice, start.weights, start.losses) == ("tone", None, {})
    assert start.describe() == "starting from tone"
    bare = shutil.copytree(tiny_release, tmp_path / "bare")
    shutil.rmtree(bare / "voices")
    start = choose_start(None, open_release(bare), kathleen, tmp_path / "other")
    assert start.voice is None and start.describe() == "starting from the model's own weights"
    assert misfit(release, None, []) == math.inf


def folder_of(path: Path, count: int) -> Path:
    """X.wav and X.txt, the fixture's recordings again and again."""
    path.mkdir()
    for i in range(count):
        sample = samples()[i % 4]
        wave = audio.read(sample["mp3"]["bytes"])
        audio.write(path / f"{i:02d}.wav", wave)
        (path / f"{i:02d}.txt").write_text(sample["json"]["text"])
    return path


def test_recordings_are_held_back_and_nothing_is_trained_on_them(tiny_release, tmp_path):
    config = open_release(tiny_release).config
    found, _ = data.find_samples([folder_of(tmp_path / "recordings", 18)])
    count = data.held_back_count(None, len(found))
    assert count == 2 and data.held_back_count(None, 15) == 0 and data.held_back_count(5, 8) == 5
    assert data.held_back_count(None, 400) == data.MOST_HELD
    data.write_voice(found, tmp_path / "out", config, None, "anna", held_back=count)
    voice, held = (
        {r.key for r in data.read_recordings(sorted((tmp_path / "out").glob(f"{name}-*.tar")))}
        for name in ("voice", "held")
    )
    assert len(held) == 2 and len(voice) == 16 and not voice & held


def test_a_sentence_or_two_is_held_back_and_minutes_are_of_the_rest(tiny_release, tmp_path):
    folder, config = tmp_path / "recordings", open_release(tiny_release).config
    folder.mkdir()
    lengths = {"short": 1.4, "least": 1.6, "most": 11.9, "long": 12.1, "few": 5.0}
    for name, seconds in lengths.items():
        audio.write(folder / f"{name}.wav", tone(seconds))
        text = "only three words" if name == "few" else "here are four words"
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    found, _ = data.find_samples([folder])

    def keys(out: Path, name: str) -> set[str]:
        return {r.key for r in data.read_recordings(sorted(out.glob(f"{name}-*.tar")))}

    data.write_voice(found, out := tmp_path / "all", config, None, None, held_back=9)
    assert keys(out, "held") == {"least", "most"} and keys(out, "voice") == {"short", "long", "few"}
    data.write_voice(found, out := tmp_path / "some", config, 14 / 60, None)
    voice, rest = keys(out, "voice"), keys(out, "rest")
    assert voice | rest == lengths.keys() and rest and not voice & rest
    assert sum(lengths[k] for k in voice) >= 14 > sum(sorted(lengths[k] for k in voice)[:-1])
    loud = dataclasses.replace(config.audio, prompt_rms=0.05)
    config = dataclasses.replace(config, audio=loud)
    data.write_voice(found, out := tmp_path / "loud", config, None, "anna")
    for r in data.read_recordings(out.glob("voice-*.tar")):
        assert r.speaker == "anna" and audio.rms(r.wave()) == pytest.approx(0.05, rel=0.01)


def test_a_recording_with_a_loud_sound_is_trained_on_softer_not_clipped(tiny_release, tmp_path):
    """A laugh in quiet speech is far above the level, which the whole is brought to."""
    folder, config = tmp_path / "recordings", open_release(tiny_release).config
    folder.mkdir()
    wave = 0.01 * tone(4.0) / np.abs(tone(4.0)).max()
    wave[43_760:44_240] *= 50  # where a syllable is loudest
    audio.write(folder / "laugh.wav", wave)
    (folder / "laugh.txt").write_text("here are four words", encoding="utf-8")
    loud = dataclasses.replace(config, audio=dataclasses.replace(config.audio, prompt_rms=0.07))
    data.write_voice(data.find_samples([folder])[0], tmp_path / "out", loud, None, "anna")
    (made,) = data.read_recordings([tmp_path / "out" / "voice-000000.tar"])
    assert clipping(made.audio.read()) == clipping(folder / "laugh.wav") == 0.0
    quiet = np.abs(made.wave()[12_000:24_000]).max() / np.abs(made.wave()).max()
    assert quiet == pytest.approx(0.02, rel=0.05)  # what is loud stays so beside the rest


def test_a_recording_that_is_too_long_is_named_and_takes_no_minutes(tiny_release, tmp_path):
    config = open_release(tiny_release).config
    folder = folder_of(tmp_path / "recordings", 3)
    audio.write(folder / "00.wav", np.resize(audio.read(folder / "01.wav"), 60 * 24_000))
    found, _ = data.find_samples([folder])
    skips = data.write_voice(found, tmp_path / "out", config, 0.5, "anna", longest=12.0)
    assert [(s.name, s.reason) for s in skips] == [("00", "too long")]
    assert "60.0 s: cut it into sentences, or raise --max-seconds 12" in skips[0].detail
    voice = data.read_recordings([tmp_path / "out" / "voice-000000.tar"])
    assert sorted(r.key for r in voice) == ["01", "02"]
    with pytest.raises(DataError, match=r"none of 1 recordings can be used.*cut it into sentences"):
        data.write_voice(found[:1], tmp_path / "none", config, None, "anna", longest=12.0)
    with pytest.raises(DataError, match="name one by --prompt"):
        long = [dataclasses.replace(r, seconds=60.0) for r in voice]
        choose_prompt(long, config, open_release(tiny_release).tokenizer, warn=pytest.fail)


def test_recordings_are_those_of_the_command_and_a_run_tells_when_they_change(
    tiny_aligned, tmp_path, capsys
):
    release, run = open_release(tiny_aligned), tmp_path / "run"
    one, two = folder_of(tmp_path / "one", 3), folder_of(tmp_path / "two", 2)
    (two / "00.txt").write_bytes("schön".encode("latin-1"))

    def texts(folder: Path) -> int:
        words = ["--data", str(folder), "--voice", "anna", "--output", "o"]
        args = finetune.build_parser().parse_args(words)
        return len(finetune.gather(args, 12.0, release, run)["voice"])

    assert texts(one) == 3
    assert texts(two) == 1  # the first command ended before there was a run
    err = capsys.readouterr().err
    assert "left out 1: unreadable text, for example 00 (" in err and "save it as UTF-8" in err
    assert "00,unreadable text," in (run / "data" / "skipped.csv").read_text()
    (run / "finetune.json").write_text("{}")
    assert texts(two) == 1 and not capsys.readouterr().err
    (two / "00.txt").write_text("now it is read")
    (two / "01.txt").write_text("other words")
    assert texts(two) == 1
    assert "1 came, 0 went and 1 changed" in capsys.readouterr().err


def test_recordings_of_several_speakers_are_warned_of(tiny_aligned, tmp_path, capsys):
    release = open_release(tiny_aligned)
    for name, folder in {"several": LIBRITTS, "one": folder_of(tmp_path / "one", 2)}.items():
        words = ["--data", str(folder), "--voice", "anna", "--output", "o"]
        args = finetune.build_parser().parse_args(words)
        finetune.gather(args, 12.0, release, tmp_path / "runs" / name)
        told = "of 2 speakers, 9001 (1 recordings), 9002 (1 recordings)" in capsys.readouterr().err
        assert told == (name == "several")


def test_clipped_recordings_are_warned_of_by_name(tiny_release, tmp_path, capsys):
    folder = folder_of(tmp_path / "recordings", 4)
    loud = audio.read(folder / "02.wav")
    loud = np.clip(audio.resample(loud / np.abs(loud).max(), 24_000, 44_100) * 8, -1, 1)
    soundfile.write(folder / "02.wav", loud, 44_100)  # to 24 kHz it has no two samples alike
    assert clipping(folder / "02.wav") > 1e-3 and clipping((folder / "01.wav").read_bytes()) == 0
    found, _ = data.find_samples([folder])
    data.write_voice(found, tmp_path / "out", open_release(tiny_release).config, None, "anna")
    err = capsys.readouterr().err
    assert "1 of 4 recordings are clipped" in err and "of 02: " in err and "lower level" in err


def test_rumble_is_not_trained_on(tiny_release, tmp_path):
    """A model takes what lies below all voices for a part of the voice."""
    folder = folder_of(tmp_path / "recordings", 2)
    poor = degraded(audio.read(folder / "01.wav"), "rumble")
    audio.write(folder / "01.wav", poor)
    hum = 0.1 * np.sin(2 * np.pi * 30 * np.arange(48_000) / 24_000)
    audio.write(folder / "02.wav", hum.astype(np.float32))
    (folder / "02.txt").write_text("Nothing is said.", "utf-8")
    found, _ = data.find_samples([folder])
    config = open_release(tiny_release).config
    gone = data.write_voice(found, tmp_path / "out", config, None, "anna", held_back=0)
    assert [(g.name[-2:], g.reason, g.detail) for g in gone] == [
        ("02", "silent", "nothing but rumble")
    ]
    made = {r.key[-2:]: r.wave() for r in data.read_recordings((tmp_path / "out").glob("voice-*"))}
    assert rumble(poor) > RUMBLES > rumble(made["01"])
    as_it_was = audio.trim(audio.centred(audio.read(folder / "00.wav")), keep_seconds=0.08)
    assert abs(len(made["00"]) - len(as_it_was)) < 2


def test_texts_that_do_not_go_with_their_recordings_are_warned_of(tiny_release, tmp_path, capsys):
    folder = folder_of(tmp_path / "recordings", 4)
    seconds = len(audio.trim(audio.read(folder / "03.wav"), keep_seconds=0.08)) / 24_000
    texts = {"00": "é" * int(30 * seconds)}  # of two bytes each
    texts |= {"01": "hello " * 30, "02": "so", "03": "a" * int(20 * seconds)}
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    found, _ = data.find_samples([folder])
    data.write_voice(found, tmp_path / "out", open_release(tiny_release).config, None, "anna")
    err = capsys.readouterr().err
    assert "the texts of 3 of 4 recordings do not go with their lengths" in err
    assert "01 (179 characters in" in err and "02 (2 characters in" in err and "03 (" not in err
    assert "00 (" in err


def test_what_is_too_short_to_be_speech_is_left_out(tiny_release, tmp_path):
    """One of two samples lasts 0.0001 s, by which its text's length was divided."""
    folder, out = folder_of(tmp_path / "recordings", 2), tmp_path / "out"
    audio.write(folder / "01.wav", np.array([0.5, -0.5], np.float32))
    found, _ = data.find_samples([folder])
    skips = data.write_voice(found, out, open_release(tiny_release).config, None, "anna")
    assert [(s.name, s.reason) for s in skips] == [("01", "too short")]
    assert [r.key for r in data.read_recordings(out.glob("voice-*.tar"))] == ["00"]


def test_what_is_worse_than_before_is_said():
    before = Heard(0.64, 1, 66)
    assert worse(before, Heard(0.71, 2, 66)) == []
    assert worse(before, Heard(0.6372, 1, 66)) == []  # 0.64 as well
    (said,) = worse(before, Heard(0.55, 2, 66))
    assert "less like the recordings (0.55) than what it began with (0.64)" in said
    assert "--strength" not in said  # all of what was trained is there
    (said,) = worse(before, Heard(0.55, 2, 66), 0.5)
    assert "a higher --strength" in said
    (said,) = worse(before, Heard(0.70, 7, 66))
    assert "6 words more are misheard" in said
    assert worse(before, Heard(None, None, 0)) == [] == worse(Heard(None, None, 0), before)
    assert before.describe() == "similarity 0.64, 1 of 66 words misheard"
    assert Heard(0.5, None, 0).describe() == "similarity 0.50"


def embed(wave: np.ndarray) -> np.ndarray:
    """A little of how a wave sounds."""
    found = log_mel(wave).mean(0)
    return found / np.linalg.norm(found)


def test_voices_are_measured_before_and_after_on_what_was_held_back(
    tiny_aligned, kathleen, monkeypatch, capsys
):
    pytest.importorskip("whisper_normalizer")
    ears = Ears(embed=embed, transcribe=lambda wave: "nothing of it")
    assert ears.similarity([r.wave() for r in kathleen], kathleen) == pytest.approx(1, abs=0.2)
    assert ears.similarity([kathleen[0].wave()[:100]], kathleen) is None  # too short to tell
    monkeypatch.setattr("nanospeech_torch.finetune.hearing.Ears", lambda *_: ears)
    args = argparse.Namespace(whisper="base", output=tiny_aligned, voice="anna", seed=1)
    compare(kathleen[:1], open_release(tiny_aligned), "tone", kathleen[1], args)
    before, after = capsys.readouterr().out.splitlines()
    assert before.startswith("before, as tone: ") and before.endswith(
        "words misheard (1 held back)"
    )
    figures = before.removeprefix("before, as tone: ").removesuffix(" (1 held back)")
    assert after == f"after, as anna: {figures}"  # the same model here, and the same seed
    compare(kathleen[:2], open_release(tiny_aligned), "tone", kathleen[1], args)
    told, *again = capsys.readouterr().out.splitlines()
    assert "the prompt was held back too" in told and again == [before, after]
    compare([], open_release(tiny_aligned), "tone", kathleen[1], args)
    assert "no recordings were held back" in capsys.readouterr().out


def test_what_a_run_began_with_is_heard_as_it_speaks(tiny_aligned, kathleen, monkeypatch, capsys):
    heard = []

    def hear(ears: Ears, speaker: Speaker, held: object) -> Heard:
        heard.append(speaker.network)
        return Heard(None, None, 0)

    monkeypatch.setattr(Ears, "hear", hear)
    ears = Ears(embed=embed, transcribe=lambda wave: "")
    monkeypatch.setattr("nanospeech_torch.finetune.hearing.Ears", lambda *_: ears)
    args = argparse.Namespace(whisper="base", output=tiny_aligned, voice="anna", seed=1)
    release, tiny = open_release(None), open_release(tiny_aligned)
    again = dataclasses.replace(tiny, config=dataclasses.replace(tiny.config, imitates=True))
    begun = [(release.imitator(), None), (release, None), (again, "tone")]
    for base, voice in begun:
        compare(kathleen[:1], base, voice, kathleen[1], args)
    assert heard[::2] == ["imitator", "model", "model"]
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("before")]
    named = [line.partition(":")[0] for line in told]
    alone = "before, as the recording alone"
    assert named == [alone, "before, as the model", alone]


def test_a_voice_is_heard_in_the_language_of_its_model(tiny_aligned, kathleen, monkeypatch):
    release = open_release(tiny_aligned)
    asked: list[str] = []

    def nobody(whisper: str, language: str) -> Ears:
        asked.append(language)
        return Ears(embed=embed, transcribe=lambda wave: "", missing=["enough"])

    monkeypatch.setattr("nanospeech_torch.finetune.hearing.Ears", nobody)
    args = argparse.Namespace(whisper="base", output=tiny_aligned, voice="anna", seed=1)
    for code in ("", "de-AT"):
        config = dataclasses.replace(release.config, language=code)
        german = dataclasses.replace(release, config=config)
        compare(kathleen[:1], german, "tone", kathleen[1], args)
    dutch = [dataclasses.replace(kathleen[0], language="nl")]
    compare(dutch, german, "tone", kathleen[1], args)  # the recordings' own goes before it
    assert asked == ["en", "de", "nl"]


def test_recordings_are_read_in_the_languages_that_they_name(tiny_aligned, tmp_path, capsys):
    pytest.importorskip("num2words", reason="it is of the extra languages")
    folder, run = folder_of(tmp_path / "recordings", 3), tmp_path / "run"
    rows = [
        {"audio": f"{i:02d}.wav", "text": "Am 3. Mai.", "language": language}
        for i, language in enumerate(("de-AT", "", "German"))
    ]
    (table := folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    release = open_release(tiny_aligned)
    config = dataclasses.replace(release.config, language="und")
    vocab = [*" abcdefghijklmnopqrstuvwxyz.,"]
    both = dataclasses.replace(release, config=config, tokenizer=Tokenizer("chars", vocab))
    words = ["--data", str(table), "--voice", "anna", "--output", "o"]
    found = finetune.gather(finetune.build_parser().parse_args(words), 12.0, both, run)["voice"]
    read = {r.key: (r.text, r.language) for r in found}
    assert read == {"00": ("Am dritten Mai.", "de-AT"), "01": ("Am 3. Mai.", None)}
    assert "02.wav,invalid language," in (run / "data" / "skipped.csv").read_text()
    capsys.readouterr()
    data.warn_of_changes([table], run / "data")
    assert not capsys.readouterr().err


def test_a_run_with_other_recordings_held_back_is_another_run(tmp_path):
    one, two = (described(arguments("--held-back", n)) for n in "12")
    assert not same_run(one, tmp_path)
    (tmp_path / "finetune.json").write_text(json.dumps(one))
    assert same_run(one, tmp_path)
    with pytest.raises(InputError, match="holds another run: held_back 1, now 2"):
        same_run(two, tmp_path)


def test_a_full_disk_leaves_no_half_of_a_file_that_the_next_command_would_read(
    tiny_release, tmp_path
):
    resource = pytest.importorskip("resource")
    args, release = arguments(), open_release(tiny_release)
    start = Start("tone", None, {})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))  # the system refuses to write
    try:
        with pytest.raises(OSError):
            settle(args, release, start, tmp_path / "run")
        with pytest.raises(OSError):
            release.tokenizer.save(tmp_path / "run" / "vocab.txt")
        with pytest.raises(OSError, match=r"cannot write .*model.safetensors: "):
            write_whole({"a": np.zeros(100)}, tmp_path / "run" / "model.safetensors")
        with pytest.raises(OSError, match=r"cannot write .*finetuned.pt: "):
            save({"a": torch.zeros(100)}, tmp_path / "finetuned.pt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list((tmp_path / "run").iterdir())
    settle(args, release, start, tmp_path / "run")
    assert same_run(described(args), tmp_path / "run")


def test_without_the_packages_that_measure_their_commands_are_named(monkeypatch):
    monkeypatch.setattr("nanospeech.measure.metrics.importlib.util.find_spec", lambda name: None)
    ears = Ears()
    assert ears.embed is None and ears.transcribe is None
    assert any("similarity" in m and "resemblyzer" in m for m in ears.missing)
    assert any("word errors" in m and "nanospeech-tts[eval]" in m for m in ears.missing)
