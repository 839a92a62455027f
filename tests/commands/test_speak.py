"""The command line speaks: texts from everywhere, to files, pipes and loudspeakers."""

import dataclasses
import io
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

import nanospeech
from nanospeech.audio import loudspeakers
from nanospeech.audio import wave as audio
from nanospeech.audio.loudness import loudness
from nanospeech.config import ModelConfig
from nanospeech.generate import main
from nanospeech.load import installed
from nanospeech.speech.reading import arriving_text, read_file

RATE = 24_000
BACKENDS = [name for name in ("torch", "mlx") if installed(name)]
BACKEND = BACKENDS[0] if BACKENDS else "torch"
# processes find the package under test from any folder, installed or not
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(nanospeech.__file__).parents[1])}
FAST = ["--steps", "2", "--cfg", "0", "--device", "cpu", "--quiet"]


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
    """Nothing but the package and Python's own library: that is why both are quick."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "import nanospeech, nanospeech.generate as g\n"
        "try: g.main(['--help'])\n"
        "except SystemExit as e: code = e.code\n"
        "roots = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print('code', code, sorted(roots - set(sys.stdlib_module_names) - {'nanospeech'}))"
    )
    done = run("-c", code)
    assert done.stdout.endswith("code 0 []\n"), done.stderr
    flags = "model text voice ref-audio ref-text output steps method cfg sway-coef speed seed"
    flags += " stream batch overwrite batch-size file encoding loudness pause-clause pause-heading"
    for flag in f"{flags} duration backend device dtype list-voices quiet version".split():
        assert f"--{flag} " in done.stdout or f"--{flag}]" in done.stdout
    both = run(
        "-c", "import nanospeech.speech.speaker, sys; print({'torch', 'mlx'} & set(sys.modules))"
    )
    assert both.stdout == "set()\n", both.stderr


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


def test_another_process_says_the_same(tiny_release, here):
    """Sets and hashes have another order there."""
    text = "On 3 May Dr. Smith paid $5.50 for 2 lb; was it 10:30?"
    backend = "onnx" if installed("onnx") else BACKEND
    flags = ["--model", str(tiny_release), "--backend", backend, *FAST, "--seed", "3"]
    for name in "01":
        said = subprocess.run(
            [sys.executable, "-m", "nanospeech.generate", text, *flags, "--output", f"{name}.wav"],
            env={**ENVIRONMENT, "PYTHONHASHSEED": name},
            timeout=120,
        )
        assert said.returncode == 0
    assert (here / "0.wav").read_bytes() == (here / "1.wav").read_bytes()


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
    plain = audio.read("told.wav")
    for name in ("file", "in", "dash", "lines/one"):
        assert np.array_equal(audio.read(f"{name}.wav"), plain), name
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "encoding, flags, offer",
    [
        ("latin-1", [], "add --encoding cp1252"),
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


def test_text_of_any_length_arrives_whole_and_lines_of_files_end_as_everywhere(monkeypatch, here):
    text = "Été.\n" * 20_000
    source = io.BytesIO(text.encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(source))
    assert "".join(arriving_text()) == text
    (here / "lines.txt").write_bytes(b"one\r\ntwo\rthree\n")
    assert read_file("lines.txt") == "one\ntwo\nthree\n"


def test_letters_that_windows_wrote_are_read_as_the_error_says(tiny_release, here, capsys):
    (here / "words.txt").write_bytes("“It’s late” – hello.".encode("cp1252"))
    sound = ["--seed", "1", "--output"]
    assert speak(tiny_release, "--file", "words.txt", *sound, "a.wav", text=None) == 2
    named = capsys.readouterr().err.split("--encoding ")[1].split()[0]
    flags = ["--file", "words.txt", "--encoding", named]
    assert speak(tiny_release, *flags, *sound, "a.wav", text=None) == 0
    assert speak(tiny_release, *sound, "b.wav", text="“It’s late” – hello.") == 0
    assert np.array_equal(audio.read("a.wav"), audio.read("b.wav"))


@pytest.mark.parametrize(
    "start, what",
    [
        (b"%PDF-1.7\n1 0 obj\n", "it is a PDF, not plain text"),
        (b"PK\x03\x04\x14\0\x06\0\x08\x84\0", "it is an EPUB, a Word document or another"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "it is an old Word document"),
        (rb"{\rtf1\ansi Hello there.\par}", "it is rich text (RTF)"),
        (b"RIFF\x24\0\0\0WAVE\x90\x91", "if it is a text at all"),
    ],
)
def test_a_file_that_is_no_text_is_named_and_not_read_out(
    tiny_release, here, monkeypatch, capsys, start, what
):
    (here / "letter").write_bytes(start)
    for way in [["--file", "letter"], ["--batch", "letter"], ["--file", "-"], ["--stream"]]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(start)))
        assert speak(tiny_release, *way, "--output", "out.wav", text=None) == 2, way
        err = capsys.readouterr().err
        assert what in err and err.count("cannot read") == 1 and "cp1252" not in err, way
    assert os.listdir(here) == ["letter"]


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


@pytest.mark.parametrize(
    "text, flags, told",
    [
        ("hello [pause 1s] there. [slow]bye.[/slow]", [], 1),
        ("hello [[həlˈoʊ]] there.", ["--text", "-"], 1),
        ("hello [pause 1s] there.", ["--no-markup"], 0),
        ("hello [pause 1s] there.", ["--markup"], 0),
        ("hello [sic] there [pause] bye.", [], 0),
    ],
)
def test_markup_that_arrives_is_told_not_to_be_read(
    tiny_release, here, monkeypatch, capsys, text, flags, told
):
    class Slow(io.BytesIO):
        """A pipe that gives few bytes at once."""

        def read1(self, size=-1):
            return super().read1(5)

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Slow(text.encode())))
    flags = ["--stream", "--loudness", "off", "--output", "a.wav", *flags]
    assert speak(tiny_release, *flags, text=None) == 0
    err = capsys.readouterr().err
    assert err.count("brackets are text as it arrives; --markup reads") == told


@pytest.mark.skipif(os.name == "nt", reason="there are no terminals to leave")
@pytest.mark.parametrize(
    "gone", ["pipe", *(pytest.param(g, marks=pytest.mark.slow) for g in ("terminal", "closed"))]
)
def test_speech_outlives_the_reader_of_what_is_told_of_it(tiny_release, here, gone):
    words = ["-m", "nanospeech", "hello there.", "--output", "a.wav", "--device", "cpu"]
    backend = "onnx" if installed("onnx") else BACKEND  # loaded soonest
    command = [sys.executable, *words, "--model", str(tiny_release), "--backend", backend]
    reader, writer = os.openpty() if gone == "terminal" else os.pipe()
    os.close(reader)
    shell = ["sh", "-c", 'exec "$@" 2>&-', "sh"] if gone == "closed" else []
    done = subprocess.run([*shell, *command], stderr=writer, env=ENVIRONMENT, timeout=120)
    os.close(writer)
    assert done.returncode == 0 and os.listdir(here) == ["a.wav"]


def test_without_output_it_plays_or_says_where_it_writes(tiny_release, here, capsys):
    if loudspeakers.player() is not None:
        pytest.skip("this machine would play it")
    args = ["--model", str(tiny_release), "--backend", BACKEND, "--steps", "1", "--device", "cpu"]
    assert main([*args, "--text", "hello."]) == 0
    assert "no player here" in (err := capsys.readouterr().err) and "nanospeech.wav" in err
    assert os.listdir(here) == ["nanospeech.wav"]


def test_speech_that_a_sound_card_does_not_play_is_in_a_file(
    tiny_release, here, monkeypatch, capsys
):
    class Busy:
        def play(self, wave, rate):
            raise RuntimeError("Device unavailable")

        def OutputStream(self, **_):
            raise RuntimeError("Device unavailable")

    monkeypatch.setattr(loudspeakers, "player", Busy)
    assert speak(tiny_release, text="hello.") == 0
    assert "cannot play: Device unavailable; it is in nanospeech.wav" in capsys.readouterr().err
    assert audio.check_length("nanospeech.wav", 60) > 0.3
    assert speak(tiny_release, "--stream", text="hello.") == 2
    err = capsys.readouterr().err
    assert err.endswith("error: cannot play: Device unavailable; write to a file with --output\n")


@pytest.mark.parametrize(
    "module, told",
    [
        (None, "pip install 'nanospeech-tts[play]'"),
        ("raise OSError('PortAudio library not found')", "found; on Debian and Ubuntu: apt"),
        ("def query_devices(kind): raise ValueError('No output')", "no loudspeakers: No output"),
    ],
    ids=["package", "library", "loudspeakers"],
)
def test_what_is_missing_to_play_is_named(tmp_path, monkeypatch, module, told):
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    if module is None:
        monkeypatch.setitem(sys.modules, "sounddevice", None)
    else:
        (tmp_path / "sounddevice.py").write_text(module)
        monkeypatch.syspath_prepend(tmp_path)
    assert told in loudspeakers.no_player() and loudspeakers.player() is None
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)


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


def test_what_a_wanted_duration_leaves_without_effect_is_told(tiny_release, here, capsys):
    flags = ["--output", "a.wav", "--loudness", "off", "--duration"]
    unused = ["--pause-clause", "2", "--pause-heading", "off", "--speed", "2"]
    for more, told in (([], ""), (unused, "without --pause-clause, --pause-heading, --speed:")):
        assert speak(tiny_release, *flags, "3", *more) == 0
        err = capsys.readouterr().err
        assert told in err and err.count("\n") == bool(told)
    assert speak(tiny_release, *flags, "rule", *unused) == 0
    assert "without" not in capsys.readouterr().err


def test_voices_are_listed_on_stdout(tiny_release, here, capsys):
    assert main(["--model", str(tiny_release), "--list-voices"]) == 0
    out, err = capsys.readouterr()
    assert out == "tone\n" and err == ""  # its own, none of the package's
    assert speak(tiny_release, "--voice", "TONE", "--output", "a.wav") == 0


def test_a_recording_for_a_model_that_does_not_imitate_is_answered_plainly(
    tiny_release, here, monkeypatch, capsys
):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's
    folder = here.parent / "own voices alone"
    shutil.copytree(tiny_release, folder)
    sf.write("a.wav", speech_like(2.0), RATE)
    config = ModelConfig.load(folder / "config.json")
    given = ["--ref-audio", "a.wav", "--ref-text", "this is a test.", "--output", "b.wav"]
    for imitates in (False, None):
        dataclasses.replace(config, imitates=imitates).save(folder / "config.json")
        assert speak(folder, *given) == 0
        out, err = capsys.readouterr()
        assert out == "" and ("does not imitate" in err) == (imitates is False)
    assert audio.check_length("b.wav", 60) > 0.3


def test_voices_of_a_folder_without_any_are_said_to_be_lent(tiny_release, here, capsys):
    folder = here.parent / "mute"
    shutil.copytree(tiny_release, folder, ignore=shutil.ignore_patterns("voices"))
    assert main(["--model", str(folder), "--list-voices"]) == 0
    out, err = capsys.readouterr()
    assert "kathleen" in out.splitlines() and "no voices of its own" in err


def test_loudness_and_pauses_are_asked_for(tiny_release, tmp_path, capsys):
    levels = {}
    for asked in ("-30", "-20", "off"):
        out = tmp_path / "out.wav"
        assert speak(tiny_release, "--seed", "1", "--loudness", asked, "--output", str(out)) == 0
        levels[asked] = loudness(audio.read(out), 24_000)
    assert levels["-30"] == pytest.approx(-30, abs=0.3)
    assert levels["-20"] == pytest.approx(-20, abs=0.5)
    assert levels["off"] not in (levels["-30"], levels["-20"])
    seconds = []
    for pause in ("0.1", "1.1"):
        flags = ["--seed", "1", "--pause-paragraph", pause, "--output", str(out)]
        assert speak(tiny_release, *flags, text="hello there.\n\nbye now.") == 0
        seconds.append(len(audio.read(out)) / 24_000)
    assert seconds[1] - seconds[0] == pytest.approx(1, abs=0.03)
    capsys.readouterr()
    assert speak(tiny_release, "--loudness", "3", "--output", str(out)) == 2
    assert "loudness is 3; choose -40 to -9, or off" in capsys.readouterr().err
