"""nanospeech voices: recordings that a user keeps as voices, for every command and backend."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from nanospeech.audio import wave as audio
from nanospeech.commands import main
from nanospeech.config import ModelConfig, SampleOptions
from nanospeech.errors import InputError
from nanospeech.evaluate.plan import find_voice as evaluated
from nanospeech.generate import build_parser, load_speaker, read_options
from nanospeech.measure import transcription
from nanospeech.release.folder import DEFAULT
from nanospeech.release.user_voices import data_folder, remove_voice, save_voice
from nanospeech.release.voice_facts import load_facts
from nanospeech.release.voices import (
    _by_name,
    find_voice,
    list_voices,
    user_voices,
    warn_of_strangers,
)
from nanospeech.speech.speaker import Speaker
from tests.conftest import add_voice, tone

TEXT = "hello there, general, and good morning to you all."


@pytest.fixture(autouse=True)
def unheard(monkeypatch):
    """No recogniser that happens to be here compares a text with its recording."""
    monkeypatch.setitem(sys.modules, "faster_whisper", None)


@pytest.fixture
def recording(tmp_path) -> Path:
    path = tmp_path / "me.wav"
    audio.write(path, np.pad(tone(4.0), 24_000))
    return path


@pytest.fixture
def anna(recording, capsys) -> str:
    """A voice of the user's."""
    assert main(["voices", "add", "anna", str(recording), "--text", TEXT]) == 0
    return capsys.readouterr().out


def test_a_recording_is_kept_listed_shown_and_removed(anna, user_data, capsys):
    assert "kept 4." in anna and "as the voice anna" in anna and "consent" in anna
    assert "does not imitate" not in anna
    assert sorted(p.name for p in (user_data / "voices").iterdir()) == [
        "anna.flac",
        "anna.json",
        "anna.txt",
    ]
    assert main(["voices"]) == 0
    listed = capsys.readouterr().out
    assert "added by you:\nanna " in listed and f"samples: {user_data}/voices/NAME.flac" in listed
    assert main(["--list-voices"]) == 0
    assert capsys.readouterr().out.split() == [*list_voices(DEFAULT), "anna"]
    assert main(["voices", "show", "Anna"]) == 0
    shown = capsys.readouterr().out
    assert f"words: {TEXT}" in shown and "origin: yours" in shown
    assert main(["voices", "remove", "ANNA"]) == 0
    assert "removed" in capsys.readouterr().out and not user_voices()
    assert main(["voices", "remove", "anna"]) == 2
    assert "you have no voice 'anna'" in capsys.readouterr().err


@pytest.mark.parametrize("tool", [["add", "bea", "RECORDING"], ["remove", "anna"]])
def test_a_voice_of_the_users_is_of_no_model(tool, anna, recording, tiny_release, capsys):
    tool = [str(recording) if word == "RECORDING" else word for word in tool]
    assert main(["voices", "--model", str(tiny_release), *tool]) == 2
    assert f"what you {tool[0]} is your own, for every model" in capsys.readouterr().err
    assert main(["voices", *tool, "--model", str(tiny_release)]) == 2
    assert "--model is of list, show" in capsys.readouterr().err
    assert [*user_voices()] == ["anna"]


def test_a_users_voices_are_below_the_heads_of_their_columns(anna, tiny_release, tmp_path, capsys):
    folder = Path(shutil.copytree(tiny_release, tmp_path / "model"))
    for end in ("wav", "txt"):
        (folder / f"voices/tone.{end}").rename(folder / f"voices/Anna.{end}")
    assert main(["--list-voices", "--model", str(folder)]) == 0
    assert capsys.readouterr().out.split() == ["Anna", "user/anna"]
    assert main(["voices", "--model", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    (mine,) = (line for line in lines if line.startswith("user/anna"))
    assert mine.index("yours") == lines[0].index("origin")  # below the head of its column
    assert f"samples: {folder}/voices/NAME.wav" in lines  # those of both folders


def test_a_damaged_voice_hides_no_others(anna, user_data, capsys):
    (user_data / "voices" / "anna.json").write_text('{"about": ', encoding="utf-8")
    assert main(["voices"]) == 0
    said = capsys.readouterr()
    assert "kathleen" in said.out and "\nanna " in said.out
    assert said.err.startswith("warning: cannot read ") and "anna.json: " in said.err


def test_others_folders_say_nothing_to_the_terminal_itself(tiny_release, tmp_path, capsys):
    folder = Path(shutil.copytree(tiny_release, tmp_path / "model"))
    (folder / "voices/tone.txt").write_text("hello \x1b[31mthere.\n")
    (folder / "voices/tone.license.txt").write_bytes(b"CC0 1.0\n\x1b]0;title\x07mine \xff\n")
    assert main(["voices", "show", "tone", "--model", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert not any(ord(c) < 32 and c != "\n" for c in shown)
    assert "words: hello [31mthere." in shown and "licence: CC0 1.0\n]0;titlemine" in shown


def test_figures_are_those_of_the_model_that_speaks(tiny_release, tmp_path, capsys):
    folder = Path(shutil.copytree(tiny_release, tmp_path / "model"))
    shutil.rmtree(folder / "voices")
    for argv in (["show", "default/heart"], ["show", "heart"], ["list"]):
        assert main(["voices", *argv, "--model", str(folder)]) == 0
        shown = capsys.readouterr().out
        assert "synthetic" in shown and " %" not in shown and "imitator" not in shown
    assert main(["voices", "show", "heart"]) == 0
    assert "WER: 3.0" in (shown := capsys.readouterr().out) and "weights: the imitator's" in shown


def test_settings_of_a_voice_are_shown(capsys):
    assert main(["voices", "show", "kathleen"]) == 0
    settings = "settings: pace 1.006, speed 0.95, cfg_strength 2, loudness -31\n"
    assert settings in capsys.readouterr().out
    assert main(["voices", "show", "bella"]) == 0  # of what is as usual nothing
    assert "settings: loudness -21.5\n" in capsys.readouterr().out


def test_a_voice_speaks_as_its_recording_does_in_both_backends(
    anna, tiny_release, engine_of, backend
):
    engine, options = engine_of(tiny_release, backend), SampleOptions(steps=2)

    def spoken(**voice) -> np.ndarray:
        return Speaker(engine, options=options, seed=1, **voice).speak("hello.").wave

    mine, other = spoken(voice="Anna"), spoken(voice="tone")
    n = min(len(mine), len(other))
    assert np.abs(mine[:n] - other[:n]).max() > 1e-3
    recording = find_voice("anna", tiny_release).audio
    assert np.array_equal(mine, spoken(ref_audio=recording, ref_text=TEXT))


def test_an_offset_of_a_recording_is_not_imitated(recording, tiny_release, engine_of, backend):
    engine, wave = engine_of(tiny_release, backend), audio.read(recording)

    def spoken(offset: float) -> np.ndarray:
        moved = wave - wave.mean() + np.float32(offset)
        soundfile.write(recording, moved, audio.SAMPLE_RATE, subtype="FLOAT")
        few = SampleOptions(steps=1)
        speaker = Speaker(engine, options=few, ref_audio=recording, ref_text=TEXT, seed=1)
        return speaker.speak("hello.").wave

    plain, moved = spoken(0.0), spoken(0.05)
    assert len(plain) == len(moved) and np.abs(plain - moved).max() < 1e-3


@pytest.mark.parametrize("imitates", [True, None, False])
def test_a_model_that_does_not_imitate_says_so(anna, tiny_release, imitates, caplog):
    config = dataclasses.replace(ModelConfig.load(tiny_release / "config.json"), imitates=imitates)
    warn_of_strangers(config, tiny_release, find_voice("anna", tiny_release))
    assert ("does not imitate" in caplog.text) == (imitates is False)
    assert "of its own: its model is given" not in caplog.text  # it is not one that ships


def test_every_command_that_names_voices_finds_it(anna, tiny_release):
    for folder in (None, DEFAULT, tiny_release):
        for name in ("anna", "user/anna"):
            found = evaluated(name, folder)
            assert found.is_users and found.weights is None and found.text == TEXT
    with pytest.raises(InputError, match="user/anna"):
        find_voice("bert", DEFAULT)
    with pytest.raises(InputError, match="not found"):
        find_voice("default/anna", DEFAULT)


def test_the_default_that_is_listed_is_the_one_that_speaks(tiny_release, tmp_path, capsys):
    folder = tmp_path / "model"
    shutil.copytree(tiny_release, folder)
    config = ModelConfig.load(folder / "config.json")
    for named in ("tone", "kathleen"):  # the latter is the package's alone
        dataclasses.replace(config, default_voice=named).save(folder / "config.json")
        assert main(["voices", "--model", str(folder)]) == 0
        assert "default: tone\n" in capsys.readouterr().out


def test_no_voice_hides_another_in_silence(anna, tmp_path, recording, caplog, capsys):
    for name in ("kathleen", "Kumo"):
        assert main(["voices", "add", name, str(recording), "--text", TEXT]) == 2
        assert "is a voice that ships; choose another name" in capsys.readouterr().err
    add_voice(tmp_path)
    for path in list((tmp_path / "voices").iterdir()):
        path.rename(path.with_stem("anna"))
    own = find_voice("anna", tmp_path)
    assert own.audio.parent == tmp_path / "voices"
    again = find_voice("anna", tmp_path)  # as when a voice is published
    assert again == own
    assert caplog.text.count("anna is the model's own voice of that name; yours is user/anna") == 1
    assert find_voice("user/anna", tmp_path).is_users
    assert main(["voices", "add", "ANNA", str(recording), "--text", TEXT]) == 2
    assert "pass --overwrite" in capsys.readouterr().err
    assert main(["voices", "add", "ANNA", str(recording), "--text", "hm.", "--overwrite"]) == 0
    assert list(user_voices()) == ["ANNA"] and find_voice("anna").text == "hm."
    assert main(["voices", "remove", "user/anna"]) == 0 and not user_voices()
    assert find_voice("anna", tmp_path) == own


@pytest.mark.parametrize(
    "name",
    [
        "../up",
        "a.b",
        "",
        "a/b",
        "-x",
        "x" * 65,
        "user/x",
        "user/a/b",
        pytest.param("e" + "\u0301" * 100, id="long"),
    ],
)
def test_names_that_lead_elsewhere_are_refused(name, recording, user_data, capsys):
    for words in (["add", name, str(recording), "--text", TEXT], ["remove", name]):
        try:
            code = main(["voices", *words])
        except SystemExit as e:  # a name like a flag
            code = e.code
        assert code == 2 and not user_data.exists()
        err = capsys.readouterr().err
        why = "you have no voice 'x'" if words == ["remove", "user/x"] else "at most 64"
        assert "error: " in err and (why in err or name == "-x")


def test_no_voice_gets_a_name_that_windows_has_for_a_device(recording, user_data, capsys):
    """Its files would be lost there; one that was made before can be removed."""
    for name in ("con", "Aux", "COM1"):
        assert main(["voices", "add", name, str(recording), "--text", TEXT]) == 2
        assert "a device's name on Windows" in capsys.readouterr().err
    assert not user_data.exists()
    (user_data / "voices").mkdir(parents=True)
    shutil.copy(recording, user_data / "voices" / "con.flac")
    assert main(["voices", "remove", "con"]) == 0


def test_a_voice_keeps_its_name_in_writing_of_any_kind(recording, user_data, tmp_path, capsys):
    words = [str(recording), "--text", TEXT]
    composed, apart = "Jos\u00e9", "Jose\u0301"  # as macOS may write it, or an archive of it
    for name in (apart, "\u0939\u093f\u0928\u094d\u0926\u0940"):
        assert main(["voices", "add", name, *words]) == 0
    assert main(["voices", "add", composed, *words]) == 2 and len(user_voices()) == 2
    for path in (user_data / "voices").glob("Jos*"):  # brought from another machine
        path.rename(path.with_name(apart + path.suffix))
    assert find_voice(composed, DEFAULT) == find_voice("user/" + apart, DEFAULT)
    assert main(["voices", "remove", composed]) == 0 and len(user_voices()) == 1


def save_when_both_are_there(number: int, barrier) -> None:
    barrier.wait()
    save_voice("anna", np.full(48_000, number / 4, np.float32), str(number), {}, overwrite=True)


def test_two_recordings_kept_at_once_do_not_become_one_voice(user_data):
    forks = multiprocessing.get_context("fork")
    for _ in range(8):
        barrier = forks.Barrier(2)
        both = [forks.Process(target=save_when_both_are_there, args=(n, barrier)) for n in (1, 2)]
        for one in both:
            one.start()
        for one in both:
            one.join()
            assert one.exitcode == 0  # one waits for the other's files
        path = user_voices()["anna"]
        assert round(4 * audio.read(path)[99]) == int(find_voice("anna").text)
        assert len(list(path.parent.iterdir())) == 3


def test_a_voice_is_replaced_where_that_is_asked_for_alone(user_data):
    save_voice("anna", tone(1.0), "one", {})
    with pytest.raises(InputError, match="you have a voice 'Anna'; pass --overwrite"):
        save_voice("Anna", tone(1.0), "two", {})
    for name in ("Anna", "Anna"):
        path = save_voice(name, tone(1.0), "two", {"by": "José"}, overwrite=True)
        files = {file.name: file.read_bytes() for file in path.parent.iterdir()}
        assert sorted(files) == ["Anna.flac", "Anna.json", "Anna.txt"]
        assert files["Anna.txt"] == b"two\n" and "José".encode() in files["Anna.json"]
    (path.parent / "anna.old").mkdir()
    with pytest.raises(InputError, match="cannot remove the voice 'anna'"):
        remove_voice("anna")


@pytest.mark.skipif(os.name == "nt", reason="modes are those of Unix")
def test_the_users_recordings_are_for_the_user_alone(tmp_path, user_data, monkeypatch):
    """Not in a folder that the environment names, which several may share, as it was made."""
    path = save_voice("anna", tone(1.0), "one", {})
    assert path.parent.stat().st_mode & 0o077 == user_data.stat().st_mode & 0o077 != 0
    monkeypatch.delenv("NANOSPEECH_HOME")
    monkeypatch.setattr("platformdirs.user_data_path", lambda *_, **__: tmp_path / "mine" / "of it")
    folder = save_voice("anna", tone(1.0), "one", {}).parent
    assert folder.is_relative_to(tmp_path / "mine") and folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)  # as its owner wants it
    save_voice("anna", tone(1.0), "two", {}, overwrite=True)
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_licence_in_several_lines_is_kept_in_one(recording, user_data, capsys):
    words = ["voices", "add", "anna", str(recording), "--text", TEXT, "--licence", "CC0\n\nmine"]
    assert main(words) == 0 and main(["voices", "show", "anna"]) == 0
    assert "\nlicence: CC0 mine\n" in capsys.readouterr().out
    facts = next(user_data.rglob("anna.json")).read_text(encoding="utf-8")
    assert json.loads(facts)["about"]["licence"] == "CC0 mine"


def test_a_bad_recording_or_folder_ends_in_one_line(tmp_path, recording, monkeypatch, capsys):
    (tmp_path / "silent.wav").write_bytes(audio.wav_bytes(np.zeros(24_000, np.float32)))
    for file, said in ("silent.wav", "is silent"), ("none.wav", "no file"):
        assert main(["voices", "add", "anna", str(tmp_path / file), "--text", "x"]) == 2
        err = capsys.readouterr().err
        assert said in err and err.count("\n") == 1
    monkeypatch.setenv("NANOSPEECH_HOME", str(recording))  # a file: nothing can be made below it
    assert main(["voices", "add", "anna", str(recording), "--text", TEXT]) == 2
    assert "NANOSPEECH_HOME" in capsys.readouterr().err


@pytest.mark.parametrize("below", ["", "new/folder"])
def test_a_folder_that_cannot_be_written_is_found_before_whisper_listens(
    recording, tmp_path, monkeypatch, capsys, below
):
    def listener(*_, **__):
        raise AssertionError("it was asked to listen")

    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setattr(transcription, "whisper_listener", listener)
    monkeypatch.setenv("NANOSPEECH_HOME", str(home / below))
    may = os.access  # root may write to folders of any mode
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != home and may(path, mode))
    assert main(["voices", "add", "anna", str(recording)]) == 2
    err = capsys.readouterr().err
    assert f"{home} cannot be written to" in err and "NANOSPEECH_HOME" in err
    monkeypatch.setenv("NANOSPEECH_HOME", str(recording / below))  # a file
    assert main(["voices", "add", "anna", str(recording)]) == 2
    assert f"{recording} is no folder" in capsys.readouterr().err
    assert not list(home.iterdir())


def test_words_that_are_no_text_are_refused(recording, user_data, tmp_path, capsys):
    said = "caf\udce9 hello there, good morning."  # of a terminal or a file in Latin-1
    assert main(["voices", "add", "anna", str(recording), "--text", said]) == 2
    assert not user_data.exists()
    words = ["speak", "--text", "hi.", "--ref-audio", str(recording), "--ref-text", said]
    assert main([*words, "--output", str(tmp_path / "out.wav")]) == 2
    assert capsys.readouterr().err == 2 * "error: the text is not valid UTF-8\n"


def test_a_voice_stays_where_another_cannot_be_written(
    anna, recording, user_data, monkeypatch, capsys
):
    def full(path: Path, *_):
        if path.name.endswith(".txt.part"):  # the last of three
            raise OSError(28, "No space left on device")
        return written(path, *_)

    written = Path.write_bytes
    files = {p: p.read_bytes() for p in (user_data / "voices").iterdir()}
    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(["voices", "add", "Anna", str(recording), "--text", "x", "--overwrite"]) == 2
    assert "No space left" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in (user_data / "voices").iterdir()} == files
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("own", "given", "heard"),
    [(None, "de-AT", "de"), (None, "", "en"), ("ja", "", "ja"), ("ja", "de", "de")],
)
def test_a_recording_is_heard_in_the_language_of_the_text(
    recording, monkeypatch, tmp_path, tiny_aligned, own, given, heard
):
    """That of the flag, else the model's own."""
    asked: list[str | None] = []

    def listener(name: str, language: str | None = "en", say=None):
        asked.append(language)
        raise InputError("enough")

    monkeypatch.setattr(transcription, "whisper_listener", listener)
    words = ["speak", "--text", "hallo.", "--ref-audio", str(recording)]
    words += ["--language", given] if given else []
    if own:
        model = tmp_path / "model"
        shutil.copytree(tiny_aligned, model)
        config = json.loads((model / "config.json").read_text()) | {"language": own}
        (model / "config.json").write_text(json.dumps(config))
        words += ["--model", str(model)]
    assert main([*words, "--output", str(tmp_path / "out.wav")]) == 2
    assert asked == [heard]


def test_a_model_that_needs_words_and_says_no_language_has_them_in_any(
    recording, monkeypatch, tmp_path, tiny_release
):
    pytest.importorskip("ctranslate2")
    asked: list[str | None] = []

    def transcribe(wave, language, **_):
        asked.append(language)
        word = SimpleNamespace(word=" hallo", start=0.0, end=1.0, probability=1.0)
        return [SimpleNamespace(words=[word])], None

    model = SimpleNamespace(supported_languages=["en", "de"], transcribe=transcribe)
    monkeypatch.setattr(transcription, "load_whisper", lambda *_, **__: model)
    words = ["speak", "--text", "hallo.", "--ref-audio", str(recording)]
    words += ["--model", str(tiny_release), "--output", str(tmp_path / "out.wav")]
    assert main(words) == 0 and main([*words, "--language", "de"]) == 0
    assert asked == [None, "de"]


def test_a_recording_for_once_is_prepared_as_one_that_is_kept(recording, tiny_aligned):
    noise = np.random.default_rng(0).normal(0, 0.01, 144_000).astype(np.float32)
    audio.write(recording, audio.read(recording) + noise)
    assert main(["voices", "add", "anna", str(recording), "--text", TEXT]) == 0
    given = ["--text", "hi.", "--model", str(tiny_aligned), "--backend", "torch"]
    voices = ["--voice", "anna"], ["--ref-audio", str(recording), "--ref-text", TEXT]
    made = [build_parser().parse_args([*given, *voice]) for voice in voices]
    kept, once = (load_speaker(args, read_options(args)[0], None).prompt for args in made)
    assert (kept.tokens == once.tokens).all() and kept.rate == once.rate
    assert np.abs(np.exp(kept.mel) - np.exp(once.mel)).max() < 0.01  # kept in 16 bits


def test_without_a_recogniser_the_words_stay_unknown(
    recording, user_data, monkeypatch, tmp_path, tiny_aligned, tiny_release, capsys
):
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    out = tmp_path / "out.wav"
    speak = ["speak", "--text", "hi.", "--ref-audio", str(recording), "--output", str(out)]
    aligned = ["--model", str(tiny_aligned)]
    assert main(["voices", "add", "anna", str(recording)]) == 0
    said = capsys.readouterr()
    assert "--text '...'" in said.out + said.err
    assert "pip install 'nanospeech-tts[transcribe]'" in said.out + said.err
    assert user_voices()["anna"].with_suffix(".txt").read_text(encoding="utf-8").strip() == ""
    assert main(["voices", "show", "anna"]) == 0
    assert "words" not in capsys.readouterr().out
    audio.write(long := tmp_path / "long.wav", np.tile(tone(4.0), 5))
    assert main(["voices", "add", "bert", str(long), "--text", TEXT]) == 0
    said = capsys.readouterr()
    assert "to be cut (" in said.out + said.err and "text left out" in said.out + said.err
    assert "--text '...'" not in said.out + said.err  # which was given
    told = ["speak", "--text", "hi.", "--voice", "bert", "--output", str(out)]
    assert main([*told, "--model", str(tiny_release)]) == 2  # the same again would be cut again
    assert "of up to 12 s" in capsys.readouterr().err
    assert main([*speak, *aligned]) == 0 and out.exists()
    assert "--ref-text '...'" in capsys.readouterr().err
    assert main(["speak", "--text", "hi.", "--voice", "anna", "--output", str(out), *aligned]) == 0
    needy = ["--model", str(tiny_release)]
    assert main([*speak, *needy]) == 2
    err = capsys.readouterr().err
    assert "or write down what is said in it: --ref-text '...'" in err
    assert main(["speak", "--text", "hi.", "--voice", "anna", "--output", str(out), *needy]) == 2
    assert "words of voice 'anna' are not known" in capsys.readouterr().err
    assert main([*speak, "--voice", "kumo"]) == 2
    assert "not both" in capsys.readouterr().err


def test_the_data_folder_is_the_users(monkeypatch, user_data):
    assert data_folder() == user_data and not user_voices()
    monkeypatch.setenv("NANOSPEECH_HOME", "~nobody-here/speech")
    with pytest.raises(InputError, match="NANOSPEECH_HOME is ~nobody-here/speech"):
        data_folder()
    monkeypatch.delenv("NANOSPEECH_HOME")
    folder = data_folder()
    assert folder.name == "nanospeech" and folder.is_absolute()
    assert Path(audio.__file__).parents[1] not in folder.parents  # installations may be read-only


def test_what_is_kept_tells_of_itself(anna, recording):
    facts = load_facts(user_voices()["anna"])
    assert facts.origin == "yours" and facts.bandwidth and facts.wer is None


def test_a_voice_is_found_by_its_very_name_before_another_of_other_capitals():
    known = {name: Path(f"{name}.wav") for name in ("Ann", "ann", "Bob")}
    for name in known:
        assert _by_name(name, known) == known[name]
    assert _by_name("BOB", known) == known["Bob"] and _by_name("ANN", known) == known["Ann"]
    assert _by_name("an", known) is None
