"""The command line: it speaks; bad input is one line on stderr, exit code 2 and no file."""

import dataclasses
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

import nanospeech
from nanospeech.audio import wave as audio
from nanospeech.config import ModelConfig
from nanospeech.generate import main
from nanospeech.load import installed

RATE = 24_000
BACKENDS = [name for name in ("torch", "mlx") if installed(name)]
BACKEND = BACKENDS[0] if BACKENDS else "torch"
# processes find the package under test from any folder, installed or not
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(nanospeech.__file__).parents[1])}
FAST = ["--steps", "2", "--cfg", "0", "--device", "cpu", "--quiet"]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty current folder."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def speech_like(seconds: float, rate: int = RATE) -> np.ndarray:
    t = np.arange(int(seconds * rate)) / rate
    return (0.2 * np.sin(2 * np.pi * 200 * t) * (1 + np.sin(9 * t))).astype("f4")


def speak(release, *flags: str, text: str | None = "hello there.", backend=BACKEND) -> int:
    given = [] if text is None else ["--text", text]
    return main(["--model", str(release), "--backend", backend, *FAST, *given, *flags])


def run(*args: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        timeout=120,
        env=ENVIRONMENT,
        **options,
    )


def test_help_and_import_load_nothing_heavy():
    heavy = "{'numpy', 'torch', 'mlx', 'mlx.core', 'soundfile', 'tqdm', 'huggingface_hub'}"
    code = (
        "import sys, nanospeech, nanospeech.generate as g\n"
        "try: g.main(['--help'])\n"
        f"except SystemExit as e: print('code', e.code, sorted({heavy} & set(sys.modules)))"
    )
    done = run("-c", code)
    assert done.stdout.endswith("code 0 []\n"), done.stderr
    flags = "model text voice ref-audio ref-text output steps method cfg sway-coef speed seed"
    flags += " stream batch overwrite batch-size file encoding"
    for flag in f"{flags} duration backend device dtype list-voices quiet version".split():
        assert f"--{flag} " in done.stdout or f"--{flag}]" in done.stdout
    both = run(
        "-c", "import nanospeech.speech.speaker, sys; print({'torch', 'mlx'} & set(sys.modules))"
    )
    assert both.stdout == "set()\n", both.stderr


def test_help_is_quick():
    took = []
    for _ in range(3):
        began = time.perf_counter()
        run("-m", "nanospeech.generate", "--help")
        bare = time.perf_counter()
        run("-c", "pass")
        took.append(bare - began - (time.perf_counter() - bare))
    assert min(took) < 0.3


def test_defaults_come_from_the_dataclass():
    from nanospeech.generate import FLAGS, build_parser

    args = build_parser().parse_args([])
    options = nanospeech.SampleOptions()
    assert {name: getattr(args, name) for name in FLAGS} == {
        name: getattr(options, name) for name in FLAGS
    }
    assert build_parser().parse_args(["--sway-coef", "none"]).sway_sampling_coef is None


def test_exports_and_version(capsys):
    assert all(hasattr(nanospeech, name) for name in nanospeech.__all__)
    with pytest.raises(AttributeError, match="nothing_such"):
        nanospeech.nothing_such  # noqa: B018
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"nanospeech {nanospeech.__version__}\n"


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_speaks_and_the_same_seed_says_the_same(tiny_release, here, backend):
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        flags = ["--output", f"{name}.wav", "--seed", seed]
        assert speak(tiny_release, *flags, backend=backend) == 0
    a, b, c = (audio.read(here / f"{name}.wav") for name in "abc")
    assert len(a) > 0.3 * RATE
    assert np.array_equal(a, b)
    assert len(a) == len(c) and not np.array_equal(a, c)
    assert sorted(os.listdir(here)) == ["a.wav", "b.wav", "c.wav"]


def test_figures_go_to_stderr_and_quiet_is_quiet(tiny_release, here, capsys):
    assert speak(tiny_release, "--output", "a.wav") == 0
    assert capsys.readouterr() == ("", "")
    loud = ["--model", str(tiny_release), "--steps", "2", "--backend", BACKEND, "--device", "cpu"]
    assert main([*loud, "--text", "hello.", "--output", "a.flac"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "s of audio in" in err and "RTF" in err and "seed" in err and "a.flac" in err


@pytest.mark.parametrize("flags", [[], ["--text", "-"]])
def test_text_comes_from_standard_input(tiny_release, here, monkeypatch, flags):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("héllo “there”.".encode())))
    assert speak(tiny_release, "--output", "a.ogg", *flags, text=None) == 0
    assert sf.info(here / "a.ogg").samplerate == RATE


WORDS = "hello there, café général."


@pytest.mark.parametrize(
    "encoding, flags",
    [
        ("utf-8", []),
        ("utf-8-sig", ["--encoding", "UTF8"]),
        ("latin-1", ["--encoding", "latin-1"]),
        ("utf-16", ["--encoding", "utf-16"]),
    ],
)
def test_a_file_is_spoken_in_any_encoding(tiny_release, here, monkeypatch, capsys, encoding, flags):
    sound = ["--seed", "1", *flags, "--output"]
    assert speak(tiny_release, *sound[:2], "--output", "told.wav", text=WORDS) == 0
    (here / "words.txt").write_text(WORDS, encoding=encoding)
    assert speak(tiny_release, "--file", "words.txt", *sound, "file.wav", text=None) == 0
    (here / "lines.txt").write_text(f"one|{WORDS}\n", encoding=encoding)
    assert speak(tiny_release, "--batch", "lines.txt", *sound, "lines", text=None) == 0
    for name, more in (("in", []), ("dash", ["--file", "-"]), ("early", ["--stream"])):
        source = io.TextIOWrapper(io.BytesIO(WORDS.encode(encoding)))
        monkeypatch.setattr("sys.stdin", source)
        assert speak(tiny_release, *more, *sound, f"{name}.wav", text=None) == 0
    told = audio.read("told.wav")
    for name in ("file", "in", "dash", "lines/one"):
        assert np.array_equal(audio.read(f"{name}.wav"), told), name
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "encoding, flags, offer",
    [
        ("latin-1", [], "add --encoding latin-1"),
        ("utf-16", [], "add --encoding utf-16"),
        ("latin-1", ["--encoding", "ascii"], "not ASCII text"),
        ("utf-8", ["--encoding", "klingon"], "encoding 'klingon' not known; choose utf-8, latin-1"),
        ("utf-8", ["--encoding", "rot13"], "encoding 'rot13' not known"),
    ],
)
def test_another_encoding_is_named_with_what_to_do(
    tiny_release, here, monkeypatch, capsys, encoding, flags, offer
):
    (here / "words.txt").write_text(WORDS, encoding=encoding)
    ways = [["--file", "words.txt"], ["--batch", "words.txt"], ["--file", "-"], ["--stream"]]
    for way in ways:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(WORDS.encode(encoding))))
        assert speak(tiny_release, *way, *flags, "--output", "out.wav", text=None) == 2, way
        err = capsys.readouterr().err
        assert offer in err and err.count("\n") == 1, way
    assert os.listdir(here) == ["words.txt"]


def test_a_text_that_names_a_file_is_spoken_with_a_hint(tiny_release, here, capsys):
    (here / "chapter.txt").write_text(WORDS)
    assert speak(tiny_release, "--output", "a.wav", text="chapter.txt") == 0
    assert "to speak what the file holds: --file chapter.txt" in capsys.readouterr().err
    for text in ("no such file.txt", "hello. " * 100):
        assert speak(tiny_release, "--output", "a.wav", text=text) == 0
        assert capsys.readouterr().err == ""
    assert speak(tiny_release, "--file", "gone.txt", "--output", "b.wav", text=None) == 2
    assert "cannot read gone.txt" in capsys.readouterr().err and not (here / "b.wav").exists()


def test_opus_is_opus(tiny_release, here):
    assert speak(tiny_release, "--output", "a.opus") == 0
    assert (sf.info("a.opus").format, sf.info("a.opus").subtype) == ("OGG", "OPUS")
    assert len(audio.read("a.opus")) > 0.3 * RATE


def test_a_dash_writes_wav_to_standard_output(tiny_release, here, capfdbinary):
    assert speak(tiny_release, "--output", "-") == 0
    assert len(audio.read(capfdbinary.readouterr().out)) > 0.3 * RATE
    assert not os.listdir(here)


def test_a_stream_goes_to_a_file_or_a_pipe_and_is_the_same(tiny_release, here, capfdbinary):
    text = "hello there, this is one sentence. and this is one more."
    assert speak(tiny_release, "--output", "a.wav", "--seed", "1", "--stream", text=text) == 0
    assert capfdbinary.readouterr() == (b"", b"")
    assert speak(tiny_release, "--output", "-", "--seed", "1", "--stream", text=text) == 0
    piped = audio.read(capfdbinary.readouterr().out)
    assert np.array_equal(piped, audio.read(here / "a.wav"))
    assert os.listdir(here) == ["a.wav"]
    loud = ["--model", str(tiny_release), "--steps", "2", "--backend", BACKEND, "--device", "cpu"]
    assert main([*loud, "--text", text, "--output", "a.wav", "--stream"]) == 0
    assert re.search(
        r"the first of it after \d+\.\d\d s, RTF", capfdbinary.readouterr().err.decode()
    )


def test_a_long_text_is_written_as_it_is_spoken_and_is_what_a_speaker_says(tiny_release, here):
    text = "hello there, general. this is a long story of a boat. " * 8
    assert speak(tiny_release, "--output", "a.wav", "--seed", "1", text=text) == 0
    options = nanospeech.SampleOptions(steps=2, cfg_strength=0)
    engine = nanospeech.load_engine(tiny_release, BACKEND, "cpu")
    spoken = nanospeech.Speaker(engine, options=options, seed=1).speak(text)
    assert len(spoken.chunks) > 1
    assert np.abs(audio.read(here / "a.wav") - np.clip(spoken.wave, -1, 1)).max() < 1e-4


def test_standard_input_is_spoken_as_it_comes_in(tiny_release, here, monkeypatch):
    for text, code in (("héllo there. bye!", 0), ("?! ...", 2)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert speak(tiny_release, "--output", f"{code}.wav", "--stream", text=None) == code
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"h\xe9llo there.")))
    assert speak(tiny_release, "--output", "3.wav", "--stream", text="-") == 2
    assert os.listdir(here) == ["0.wav"]


def test_without_output_it_plays_or_says_where_it_writes(tiny_release, here, capsys):
    if audio.player() is not None:
        pytest.skip("this machine would play it")
    args = ["--model", str(tiny_release), "--backend", BACKEND, "--steps", "1", "--device", "cpu"]
    assert main([*args, "--text", "hello."]) == 0
    assert "no player here" in (err := capsys.readouterr().err) and "nanospeech.wav" in err
    assert os.listdir(here) == ["nanospeech.wav"]


@pytest.mark.parametrize(
    "name, rate, channels",
    [("a.wav", 8_000, 1), ("a.flac", 44_100, 2), ("a.ogg", 48_000, 1), ("a.mp3", 22_050, 2)],
)
def test_references_of_any_kind_are_taken(tiny_release, here, name, rate, channels):
    sf.write(name, np.repeat(speech_like(2.0, rate)[:, None], channels, 1), rate)
    flags = ["--ref-audio", name, "--ref-text", "this is a test.", "--output", "b.wav"]
    assert speak(tiny_release, *flags) == 0
    assert len(audio.read(here / "b.wav")) > 0.3 * RATE


def test_a_wanted_duration_and_a_speed_are_met(tiny_release, here):
    assert speak(tiny_release, "--duration", "3", "--output", "a.wav") == 0
    assert audio.check_length("a.wav", 60) == pytest.approx(3, abs=0.1)
    text = "a longer sentence, so that its length can be scaled."
    lengths = []
    for speed in ("1", "0.5"):
        assert speak(tiny_release, "--speed", speed, "--output", "s.wav", text=text) == 0
        lengths.append(audio.check_length("s.wav", 60))
    assert lengths[1] / lengths[0] == pytest.approx(2, rel=0.1)


def test_voices_are_listed_on_stdout(tiny_release, here, capsys):
    assert main(["--model", str(tiny_release), "--list-voices"]) == 0
    out, err = capsys.readouterr()
    assert out == "tone\n" and err == ""  # its own, none of the package's
    assert speak(tiny_release, "--voice", "TONE", "--output", "a.wav") == 0


def test_a_recording_for_a_model_that_does_not_imitate_is_answered_plainly(tiny_release, here):
    folder = here.parent / "own voices alone"
    shutil.copytree(tiny_release, folder)
    sf.write("a.wav", speech_like(2.0), RATE)
    told = ModelConfig.load(folder / "config.json")
    given = ["--ref-audio", "a.wav", "--ref-text", "this is a test.", "--output", "b.wav", *FAST]
    for imitates in (False, None):
        dataclasses.replace(told, imitates=imitates).save(folder / "config.json")
        command = ["-m", "nanospeech.generate", "--model", str(folder), "--backend", BACKEND]
        done = run(*command, "--text", "hello there.", *given)
        assert done.returncode == 0 and done.stdout == ""
        assert ("does not imitate" in done.stderr) == (imitates is False)
    assert audio.check_length("b.wav", 60) > 0.3


def test_voices_of_a_folder_without_any_are_said_to_be_lent(tiny_release, here, capsys):
    folder = here.parent / "mute"
    shutil.copytree(tiny_release, folder, ignore=shutil.ignore_patterns("voices"))
    assert main(["--model", str(folder), "--list-voices"]) == 0
    out, err = capsys.readouterr()
    assert "kathleen" in out.splitlines() and "no voices of its own" in err


def bad_references(folder: Path) -> None:
    sf.write(folder / "good.wav", speech_like(2.0), RATE)
    sf.write(folder / "silent.wav", np.zeros(2 * RATE, "f4"), RATE)
    sf.write(folder / "empty.wav", np.zeros(0, "f4"), RATE)
    sf.write(folder / "short.wav", speech_like(0.1), RATE)
    (folder / "text.wav").write_text("these are words")
    (folder / "nothing.wav").write_bytes(b"")
    (folder / "film.m4a").write_bytes(b"\0\0\0\x18ftypM4A ")
    with sf.SoundFile(folder / "long.flac", "w", 8000, 1) as f:
        for _ in range(600):
            f.write(speech_like(1.0, 8000))


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
        (ref("film.m4a"), "libsndfile does not read these: convert it, as by ffmpeg"),
        (ref("short.wav"), "at least"),
        (ref("long.flac"), "lasts 600.0 s; at most 60 s"),
        (ref("good.wav")[:2], "no text"),
        (ref("good.wav")[2:], "no audio"),
        ([*ref("good.wav")[:2], "--ref-text", ""], "text is empty"),
        ([*ref("good.wav"), "--voice", "tone"], "not both"),
        (["--output", "no/such/folder/a.wav"], "no folder"),
        (["--output", "a.doc"], "extension should be one of .wav"),
        (["--output", "a.m4a"], "needs an encoder that libsndfile lacks; write .wav"),
        (["--file", "../text.wav"], "not both"),
        (["--output", ".."], "cannot write"),
        (["--model", "no-such-model"], "'no-such-model' not found"),
        (["--model", ".."], "has no model.safetensors"),
        (["--steps", "0"], "steps is 0"),
        (["--steps", "many"], "invalid int"),
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
        (["--voic", "tone"], "unrecognized arguments: --voic"),
        (["--stre"], "unrecognized arguments: --stre"),
    ],
    ids=lambda v: " ".join(v)[:40].encode("ascii", "replace").decode() if type(v) is list else "",
)
def test_bad_input_is_one_line_and_leaves_nothing(tiny_release, here, capsys, flags, message):
    bad_references(here.parent)
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
    command = ["-m", "nanospeech.generate", "--model", str(tiny_release), "--backend", BACKEND]
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
