"""Mistakes on the command line: one line on stderr, exit code 2 and no file."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from nanospeech.generate import main
from nanospeech.load import installed
from tests.commands.test_speak import BACKEND, BACKENDS, ENVIRONMENT, RATE, run, speak, speech_like


@pytest.fixture(scope="module")
def references(tmp_path_factory) -> Path:
    """A folder with one good recording and many that are none."""
    folder = tmp_path_factory.mktemp("references")
    sf.write(folder / "good.wav", speech_like(2.0), RATE)
    sf.write(folder / "silent.wav", np.zeros(2 * RATE, "f4"), RATE)
    sf.write(folder / "empty.wav", np.zeros(0, "f4"), RATE)
    sf.write(folder / "short.wav", speech_like(0.1), RATE)
    (folder / "text.wav").write_text("these are words")
    (folder / "nothing.wav").write_bytes(b"")
    (folder / "film.m4a").write_bytes(b"\0\0\0\x18ftypM4A ")
    (folder / "noise.mp3").write_bytes(bytes(range(7, 250)) * 40)
    with sf.SoundFile(folder / "long.flac", "w", 8000, 1) as f:
        for _ in range(600):
            f.write(speech_like(1.0, 8000))
    return folder


def ref(name: str) -> list[str]:
    return ["--ref-audio", f"../{name}", "--ref-text", "this is a test."]


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--text", ""], "no text"),
        (["--text", " \n"], "no text"),
        (["--text", "?!..."], "no text"),
        (["--text", "bad \udcff"], "UTF-8"),
        (["--voice", "nobody"], "voice 'nobody' not found; choose from "),
        (["--voice", "../voices/tone"], "not found"),
        (ref("missing.wav"), "there is no file ../missing.wav"),
        (ref("silent.wav"), "silent"),
        (ref("empty.wav"), "no audio"),
        (ref("nothing.wav"), "cannot read"),
        (ref("text.wav"), "cannot read"),
        (ref("film.m4a"), "film.m4a as audio: Invalid data"),
        (ref("noise.mp3"), "noise.mp3 as audio: Format not recognised"),
        (ref("short.wav"), "at least"),
        (ref("long.flac"), "lasts 600.0 s; at most 60 s"),
        ([*ref("good.wav")[:2], "--whisper", "none-such"], "hisper"),  # that should listen
        (ref("good.wav")[2:], "no audio"),
        ([*ref("good.wav")[:2], "--ref-text", ""], "text is empty"),
        ([*ref("good.wav"), "--voice", "tone"], "not both"),
        (["--output", "no/such/folder/a.wav"], "no folder"),
        (["--output", "a.doc"], "extension should be one of .wav"),
        (["--output", "a.m4a"], "needs an encoder that libsndfile lacks; write .wav"),
        (["--file", "../text.wav"], "not both"),
        (["--subtitle-words"], "add --subtitles FILE"),
        (["--whisper", "small"], "add --ref-audio FILE"),
        (["--overwrite"], "or add --batch FILE"),
        (["--output", ".."], "cannot write"),
        (["--model", "no-such-model"], "'no-such-model' not found"),
        (["--model", ".."], "release folder with: nanospeech convert"),
        # before Whisper, which is downloaded
        (["--model", "..", *ref("good.wav")[:2], "--whisper", "none-such"], "has no model.safe"),
        (["--steps", "0"], "steps is 0"),
        (["--steps", "many"], "--steps: 'many' should be a whole number; see nanospeech speak"),
        (["--speed", "fast\nor so"], "--speed: 'fast\\nor so' should be a number;"),
        (["--cfg", "more"], "--cfg: 'more' should be a number or none;"),
        (["--loudness", "loud"], "--loudness: 'loud' should be a number or off;"),
        (["--method", "magic"], "choose from"),
        (["--cfg", "-1"], "cfg_strength"),
        (["--sway-coef", "9"], "sway_sampling_coef"),
        (["--speed", "0"], "speed"),
        (["--speed", "nan"], "speed"),
        (["--duration", "-3"], "duration"),
        (["--seed", "-1"], "seed"),
        (["--dtype", "int4"], "dtype"),
        (["--device", "abacus"], "abacus"),
        (["--backend", "abacus"], "abacus"),
        (["--no-such-flag"], "--no-such-flag"),
        (["--voic", "tone"], "unrecognized arguments: --voic (did you mean --voice?)"),
        (["--voic=tone"], "(did you mean --voice?)"),
        (["--voic", "tone", "--qqq"], "--qqq (did you mean --voice?)"),
        (["--stre"], "unrecognized arguments: --stre"),
        (["--ref_audio", "a.wav"], "(did you mean --ref-audio?)"),
        (["--gen_text", "Hello."], "unrecognized arguments: --gen_text (here: --text)"),
        (["--speaker_id", "3"], "unrecognized arguments: --speaker_id (here: --voice)"),
        (["--data-dir", "voices"], "unrecognized arguments: --data-dir (here: --model FOLDER)"),
        (["--length_scale=1.2", "-m", "a.onnx"], "(here: --speed, which is 1 divided by it)"),
        (["-m", "en.onnx", "-f", "a.wav"], "arguments: -m -f a.wav (here: --model, or --voice "),
        (["--voices"], "unrecognized arguments: --voices (here: --list-voices)"),
        (["-v", "af_heart"], "unrecognized arguments: -v (here: --voice)"),
        (["-outptu", "a.wav"], "(did you mean --output?)"),
    ],
    ids=lambda v: " ".join(v)[:40].encode("ascii", "replace").decode() if type(v) is list else "",
)
def test_bad_input_is_one_line_and_leaves_nothing(
    tiny_release, references, here, capsys, flags, message
):
    shutil.copytree(references, here.parent, dirs_exist_ok=True)
    assert speak(tiny_release, "--output", "out.wav", *flags) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and message in err
    assert err.count("\n") == 1 and "Traceback" not in err
    assert os.listdir(here) == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("damage", ["truncated", "emptied", "no vocab", "bad config", "garbage"])
def test_a_broken_checkpoint_is_one_line(tiny_release, here, capsys, damage, backend):
    broken = here.parent / "broken"
    shutil.copytree(tiny_release, broken)
    model = broken / "model.safetensors"
    if damage == "truncated":
        model.write_bytes(model.read_bytes()[: model.stat().st_size // 2])
    elif damage == "emptied":
        model.write_bytes(b"")
    elif damage == "garbage":
        model.write_bytes(os.urandom(1000))
    elif damage == "no vocab":
        (broken / "vocab.txt").unlink()
    else:
        (broken / "config.json").write_text('{"dit": {"dpeth": 3}}')
    assert speak(broken, "--output", "out.wav", backend=backend) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and err.count("\n") == 1 and out == ""
    assert os.listdir(here) == []


def test_no_text_and_a_terminal_is_an_error(here):
    done = run("-m", "nanospeech.generate", "--output", "a.wav", stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "no text" in done.stderr
    assert os.listdir(here) == []


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
def test_an_interrupt_leaves_nothing(tiny_release, here):
    backend = "onnx" if installed("onnx") else BACKEND  # that which is imported soonest
    command = ["-m", "nanospeech.generate", "--model", str(tiny_release), "--backend", backend]
    command += ["--text", "hello there. " * 200, "--steps", "1000", "--output", "a.wav"]
    with subprocess.Popen(
        [sys.executable, *command], stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        seen = b""
        while b"step" not in seen and process.poll() is None:  # the progress bar has begun
            seen += process.stderr.read1(4096)  # type: ignore[union-attr]
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 130, seen + rest
    assert b"interrupted" in rest and b"Traceback" not in rest
    assert os.listdir(here) == []


def test_a_mistake_is_one_line_without_an_output_too(tiny_release, here, capsys):
    assert main(["--model", str(tiny_release), "--text", "hello", "--voice", "bob"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "'bob'" in err and not os.listdir(here)


def test_a_file_that_is_read_is_not_written_over(tiny_release, here, capsys):
    sf.write("me.wav", speech_like(2.0), RATE)
    (here / "words.srt").write_text("hello there.")
    (here / "sub").mkdir()
    recording, text = (Path(name).read_bytes() for name in ("me.wav", "words.srt"))
    of_recording = ["--ref-audio", "me.wav", "--ref-text", "this is a test.", "--output"]
    of_text = ["--file", "words.srt", "--output", "a.wav", "--subtitles", "words.srt"]
    assert speak(tiny_release, *of_recording, "sub/../me.wav") == 2
    assert speak(tiny_release, *of_text, text=None) == 2
    assert capsys.readouterr().err.count("is read, and would be written over") == 2
    assert (Path("me.wav").read_bytes(), Path("words.srt").read_bytes()) == (recording, text)
    assert not Path("a.wav").exists()
    assert speak(tiny_release, *of_recording, "b.wav") == 0
