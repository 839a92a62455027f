"""A voice is added to a folder: what is written and replaced, and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from nanospeech import SampleOptions, Speaker, load_engine
from nanospeech.publish import add_voice
from nanospeech.release.folder import load_config
from tests.conftest import needs


def spoken(engine, voice: str) -> np.ndarray:
    options = SampleOptions("euler", 2)
    return Speaker(engine, voice, options=options, seed=1).speak("hello there.").wave


def test_a_finetuned_model_becomes_a_voice_of_its_base(tiny_aligned, two_voices, tmp_path, capsys):
    _, alone = two_voices
    folder = tmp_path / "base"
    shutil.copytree(tiny_aligned, folder)
    voices = alone / "voices"
    for path in list(voices.iterdir()):
        path.rename(path.with_stem("anna"))
    command = [str(alone), str(folder), "--voice", "anna", "--megabytes", "0.25"]
    assert add_voice.main(command) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{folder} has the voices anna, tone"
    document = json.loads(said[-1])
    assert (
        document["voice"] == "anna"
        and 0.2 < document["megabytes"] <= 0.25
        and 0.5 < document["kept"] <= 1
    )
    assert {p.name for p in (folder / "voices").glob("anna.*")} == {
        "anna.wav",
        "anna.txt",
        "anna.safetensors",
    }
    needs("torch")
    engine = load_engine(folder, "torch", "cpu", "float32")
    own = spoken(load_engine(alone, "torch", "cpu", "float32"), "anna")
    wave, tone = spoken(engine, "anna"), spoken(engine, "tone")
    n = min(map(len, (wave, own, tone)))
    near, far = (np.abs(w[:n] - own[:n]).mean() for w in (wave, tone))
    assert near < far
    assert add_voice.main(command) == 2
    assert "has a voice 'anna'" in capsys.readouterr().err
    (folder / "voices" / "anna.license.txt").write_text("of the old one")
    assert add_voice.main([*command, "--overwrite"]) == 0
    assert not (folder / "voices" / "anna.license.txt").exists()
    capsys.readouterr()
    assert add_voice.main([str(alone), str(folder), "--voice", "nobody"]) == 2
    assert "not found" in capsys.readouterr().err
    assert add_voice.main([str(alone), str(folder), "--voice", "default/kathleen"]) == 2
    assert "has no voice 'default/kathleen' of its own" in capsys.readouterr().err
    assert add_voice.main([str(alone), str(folder)]) == 2
    assert "required: --voice" in capsys.readouterr().err
    again = [str(folder), str(folder), "--voice", "anna", "--overwrite"]
    before = (folder / "voices" / "anna.safetensors").read_bytes()
    assert add_voice.main(again) == 2
    assert "is both folders" in capsys.readouterr().err
    assert (folder / "voices" / "anna.safetensors").read_bytes() == before


def test_a_voice_is_one_whatever_letters_it_is_asked_for_in(two_voices, tmp_path, capsys):
    both, _ = two_voices
    folder = tmp_path / "folder"
    shutil.copytree(both, folder)
    blob, words = tmp_path / "blob", folder / "voices" / "Other.txt"
    blob.write_text("theirs")
    for file in (folder / "voices").glob("other.*"):
        file.rename(file.with_name(f"O{file.name[1:]}"))
    words.unlink()
    words.symlink_to(blob)  # as in the Hub's cache
    command = [str(both), str(folder), "--voice", "OTHER", "--megabytes", "0.25"]
    assert add_voice.main(command) == 2
    assert "has a voice 'other'" in capsys.readouterr().err
    assert add_voice.main([*command, "--overwrite"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["voice"] == "other"
    here, there = ({f.name for f in (at / "voices").iterdir()} for at in (folder, both))
    assert here == there and blob.read_text() == "theirs"


def test_a_voice_takes_no_file_of_one_that_begins_like_it(two_voices, tmp_path):
    both, _ = two_voices
    tuned, folder = tmp_path / "tuned", tmp_path / "folder"
    for at, others in ((tuned, "other.old"), (folder, "other.v2")):
        shutil.copytree(both, at)
        for file in (at / "voices").glob("other.*"):
            shutil.copy(file, file.with_name(file.name.replace("other.", f"{others}.", 1)))
    kept = {f: f.read_bytes() for f in (folder / "voices").glob("other.v2.*")}
    command = [str(tuned), str(folder), "--voice", "other", "--megabytes", "0.25", "--overwrite"]
    assert add_voice.main(command) == 0
    assert kept == {f: f.read_bytes() for f in (folder / "voices").glob("other.v2.*")} and kept
    assert not list((folder / "voices").glob("other.old.*"))
    for at in (tuned, folder):  # a name that would be a pattern
        for file in (at / "voices").glob("other.*"):
            file.rename(file.with_name(file.name.replace("other", "an[n]a", 1)))
    command[3] = "an[n]a"
    assert add_voice.main(command) == 0
    assert (folder / "voices" / "an[n]a.wav").is_file()


def test_a_voices_weights_go_with_it_and_one_without_gets_none(two_voices, tmp_path, capsys):
    both, _ = two_voices
    folder = tmp_path / "other"
    shutil.copytree(both, folder)
    shutil.rmtree(folder / "voices")
    for name, kept in (("other", 0.5), ("tone", 1)):
        assert add_voice.main([str(both), str(folder), "--voice", name, "--megabytes", "0.25"]) == 0
        figures = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert kept <= figures["kept"] <= 1 and (figures["megabytes"] == 0) == (name == "tone")
    assert not (folder / "voices" / "tone.safetensors").exists()
    needs("torch")
    waves = [spoken(load_engine(at, "torch", "cpu", "float32"), "other") for at in (both, folder)]
    tone = spoken(load_engine(folder, "torch", "cpu", "float32"), "tone")
    n = min(map(len, (*waves, tone)))
    near, far = (np.abs(waves[0][:n] - w[:n]).mean() for w in (waves[1], tone))
    assert near < far


@pytest.mark.parametrize("differs", ["vocab.txt", "config.json"])
def test_a_voice_of_another_tokenizer_or_audio_is_refused(two_voices, capsys, differs):
    both, alone = two_voices
    if differs == "vocab.txt":
        tokens = (alone / differs).read_text(encoding="utf-8").split("\n")
        tokens[3:5] = tokens[4:2:-1]
        (alone / differs).write_text("\n".join(tokens), encoding="utf-8")
    else:
        config = load_config(alone)
        audio = replace(config.audio, mel_mean=config.audio.mel_mean + 1)
        replace(config, audio=audio).save(alone / differs)
    before = {f: f.read_bytes() for f in both.rglob("*") if f.is_file()}
    assert add_voice.main([str(alone), str(both), "--voice", "tone", "--overwrite"]) == 2
    assert "another tokenizer or audio config" in capsys.readouterr().err
    assert before == {f: f.read_bytes() for f in both.rglob("*") if f.is_file()}
