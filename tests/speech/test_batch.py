"""Batches of texts: each comes out as it does alone, and a bad one spoils no other."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nanospeech
from nanospeech import InputError, SampleOptions, Speaker, Utterance, load_engine
from nanospeech.audio import wave as audio
from nanospeech.config import BatchLimits
from nanospeech.generate import main
from nanospeech.speech.batch_files import Line, read_lines, read_texts, speak_file
from nanospeech.speech.batching import batches, effort, groups, length_bar, speak_each
from nanospeech.text.markup import Marked, Style, read_markup
from tests.conftest import BACKENDS, tone
from tests.speech.test_speaker import EchoEngine, speaker

FAST = SampleOptions(steps=2)
TEXTS = [
    "Hello there.",
    "One sentence is short. Another one, which comes after it, is quite a bit longer. Bye!",
    "",
    "A text of one sentence that is of middling length.",
    "?!",
    "世界",
    "Hi.",
]
BAD = (2, 4, 5)


@pytest.mark.parametrize("seed", range(5))
def test_batches_hold_each_item_once_within_the_limits(seed):
    frames = [random.Random(seed).randint(30, 1200) for _ in range(50)]
    limits = BatchLimits(items=6, frames=4000)
    found = batches(frames, limits)
    assert sorted(i for batch in found for i in batch) == list(range(50))
    for batch in found:
        lengths = [frames[i] for i in batch]
        assert len(batch) <= 6 and len(batch) * max(lengths) <= 4000
    longest = [max(frames[i] for i in batch) for batch in found]
    shortest = [min(frames[i] for i in batch) for batch in found]
    assert all(a >= b for a, b in zip(shortest, longest[1:]))  # those of about one length together
    assert batches([50, 9000, 60], limits) == [[1], [2, 0]] and batches([], limits) == []


def check_alike(together: list, alone: list, tolerance: float) -> None:
    assert len(together) == len(alone)
    for a, b in zip(together, alone):
        assert isinstance(a, Utterance) and a.chunks == b.chunks and a.seed == b.seed
        assert a.wave.shape == b.wave.shape
        assert np.abs(a.wave - b.wave).max() <= tolerance * max(1, np.abs(b.wave).max())
        assert a.elapsed > 0


KINDS = ("none", "average", "aligned", "durations")
# MLX takes longest, and what a batch does there is the same in all backends
SLOW = [("mlx", "none"), ("mlx", "average"), ("mlx", "durations")]


@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        pytest.param(b, k, marks=pytest.mark.slow if (b, k) in SLOW else [])
        for b in BACKENDS
        for k in KINDS
    ],
    indirect=["backend"],
)
def test_a_batch_equals_its_texts_alone(make_release, tiny_release, engine_of, backend, kind):
    folder = tiny_release
    if kind != "durations":
        folder = make_release(text_upsampling=kind, patch_size=2 if kind == "aligned" else 1)
    engine = engine_of(folder, backend)
    good = [text for i, text in enumerate(TEXTS) if i not in BAD]
    voice = Speaker(engine, options=FAST, seed=7, chunk_seconds=2)
    together = voice.speak_many(good, limits=BatchLimits(items=3))
    check_alike(together, [voice.speak(text) for text in good], 2e-4)
    assert max(len(voice.chunks(text)) for text in good) > 2


def test_the_shipped_voice_says_a_pair_as_it_says_each():
    engine = load_engine(backend="torch", dtype="float32")
    voice = Speaker(engine, options=FAST, seed=1)
    texts = ["Stop it!", "The kettle is on."]
    check_alike(voice.speak_many(texts), [voice.speak(text) for text in texts], 1e-3)


def test_order_is_kept_and_a_bad_text_fails_alone(caplog):
    engine = EchoEngine()
    results = speaker(engine).speak_many(TEXTS)
    assert [isinstance(r, InputError) for r in results] == [i in BAD for i in range(len(TEXTS))]
    for index in BAD:
        with pytest.raises(InputError) as alone:
            speaker().speak(TEXTS[index])
        assert "no text" in str(alone.value) or str(results[index]) == str(alone.value)
    for text, result in zip(TEXTS, results):
        if isinstance(result, Utterance):
            assert np.array_equal(result.wave, speaker().speak(text).wave)
    assert max(engine.batches) > 1 and engine.rests == len(engine.batches)
    with pytest.raises(InputError, match="no text"):
        speaker().speak_many(TEXTS, raise_errors=True)
    assert speaker().speak_many([]) == []
    (error,) = speaker().speak_many([None])  # type: ignore[list-item]
    assert "should be a string, got NoneType" in str(error)
    error, _ = speaker().speak_many(["Half of a pair: \ud800", "Hello there."])
    assert "not valid UTF-8" in str(error)
    with pytest.raises(InputError, match="should be a string, got bytes"):
        speaker().speak(b"Hello there.")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="single text; give a list"):
        speaker().speak_many("Hello there.")


def test_seeds_are_one_for_all_or_one_for_each():
    texts = ["Hello there.", "Hello there.", "Hello you."]
    for seeds in (None, [4, 5, 6]):
        own = seeds or [4, 4, 4]
        alone = [speaker(seed=seed).speak(text) for seed, text in zip(own, texts)]
        check_alike(speaker(seed=4).speak_many(texts, seeds), alone, 0)
    for seeds in ([1], [1, 2, -3]):
        with pytest.raises(InputError, match="give one for each of the 3 texts"):
            speaker().speak_many(texts, seeds)
    with pytest.raises(InputError, match="items of a batch are 0"):
        BatchLimits(items=0)


def test_a_batchs_time_is_shared_by_frames():
    engine = EchoEngine()
    one, two = speaker(engine).speak_many(["Hello there.", "A text of middling length, or more."])
    assert isinstance(one, Utterance) and isinstance(two, Utterance) and engine.batches == [2]
    frames = {len(call["text"]): int(call["start"] + call["new"]) for call in engine.calls}
    short, long = (frames[size] for size in sorted(frames))
    assert one.elapsed / two.elapsed == pytest.approx(short / long) and one.elapsed > 0


def test_batches_are_bounded_and_texts_are_taken_as_they_are_needed():
    taken = []

    def texts():
        for n in range(1000):
            taken.append(n)
            yield "Hello there. " * (1 + n % 3)

    engine = EchoEngine()
    results = speak_each(speaker(engine), texts(), limits=BatchLimits(items=5, frames=2000))
    first = [next(results)[0] for _ in range(5)]
    assert len(set(first)) == 5 and len(taken) <= 40 and max(engine.batches) <= 5


def test_the_shortest_texts_are_done_first_and_soon():
    texts = ["Hello there. " * (1 + n % 7) for n in range(40)]
    engine = EchoEngine()
    limits = BatchLimits(items=8)
    order = []
    for index, _ in speak_each(speaker(engine, chunk_seconds=3), iter(texts), limits=limits):
        order.append(index)
        if len(order) == 1:
            assert engine.batches == [2]  # before the rest is even planned
    sizes = [len(texts[i]) for i in order]
    assert sorted(order) == list(range(40)) and max(sizes[:10]) <= 2 * 13 < min(sizes[-5:])
    assert max(engine.batches) == 8
    found = groups(dict(enumerate(texts)), 40, limits)
    assert sorted(i for group in found for i in group) == list(range(40))
    assert [len(group) for group in found[:3]] == [2, 4, 8]
    # a long text fills a group by itself: what is done is not kept waiting for another
    assert groups({0: "word " * 1000, 1: "word " * 1000, 2: None}, 100, limits) == [[2, 0], [1]]


def test_ctrl_c_keeps_what_is_done(tmp_path):
    class Interrupted(EchoEngine):
        def sample(self, *args, **kwargs):
            if len(self.batches) == 2:
                raise KeyboardInterrupt
            return super().sample(*args, **kwargs)

    text = "\n".join("Hello there. " * (1 + n % 7) for n in range(30))
    outcome = speak_file(text, tmp_path, lambda: speaker(Interrupted()), BatchLimits(items=8))
    assert outcome.interrupted and outcome.spoken == len(list(tmp_path.glob("*.wav"))) == 6


def test_the_effort_of_a_text_counts_the_prompt_once_a_chunk():
    one = speaker()
    prompt = one.prompt.rate * len(one.prompt.mel) / one.engine.config.audio.frame_rate
    full = int(one.prompt.rate * one.chunk_seconds)
    assert prompt > 5  # bytes
    assert effort(one, "Hi.") == round(3 + prompt)
    assert effort(one, "a" * (full - 1)) == round(full - 1 + prompt)
    assert effort(one, "a" * 2 * (full + 1)) == round(2 * (full + 1) + 3 * prompt)
    assert effort(one, "") == effort(one, None) == 0


def test_progress_goes_by_the_length_of_texts(capsys):
    with length_bar([10, 30, 60], "file", True) as done:
        done(0)
        done(2)
    assert "0% of the work" in (told := capsys.readouterr().err)
    assert re.search(r"70% of the work\|.*2/3 files", told)
    with length_bar([1], "file", False) as done:
        done(0)
    assert not capsys.readouterr().err


# the command


def speak(release: Path, *flags: str) -> int:
    fast = ["--steps", "2", "--cfg", "0", "--device", "cpu", "--dtype", "float32", "--quiet"]
    return main(["--model", str(release), "--backend", "torch", *fast, *flags])


LINES = "Hello there.\n\n?!\nfoo|It is a test.\n../evil|text\nFOO|again\nx|\nIt ends here.\r\n"


def test_lines_are_texts_or_have_ids_that_stay_in_the_folder():
    lines, faults = read_lines(LINES)
    named = {line.number: (line.name, line.text.strip()) for line in lines}
    assert named == {
        1: ("0001", "Hello there."),
        3: ("0003", "?!"),
        4: ("foo", "It is a test."),
        7: ("x", ""),
        8: ("0008", "It ends here."),
    }
    assert set(faults) == {5, 6} and "line 4" in faults[6]
    for name in (
        "..",
        ".",
        "a/b",
        "a\\b",
        "/etc",
        ".hidden",
        "a\0",
        "",
        " ",
        "a.",
        "x" * 101,
        "は" * 81,  # more bytes than a file's name may have
        "C:",
        "CON",
        "aux.1",
        "nul .x",
        "Lpt¹",
    ):
        assert 1 in read_lines(f"{name}|text")[1], name
    for name in ("LJ001-0001", "a.b c", "ü", "7", "は" * 80, "console", "com", "com10", "a.con"):
        assert read_lines(f"{name}|text")[0][0].file == f"{name}.wav"


OBJECTS = """{"text": "Hi.", "output_file": "/tmp/b.wav"}
{"text": "a | b", "id": "d", "voice": "kumo"}
{"text": "Hi."}
{"text": "Hi.", "speaker_id": 3}
{"voice": "kumo"}
{"text": "Hi.", "voice": 3}
{"text": "Hi.", "id": "../x"}
{no object}
[slow] {}
{"text": "Hi.", "id": null, "output_file": "c.wav", "voice": null, "speaker_id": null}
{"text": null}"""


def test_lines_may_be_objects_of_json():
    lines, faults = read_lines(OBJECTS, marked=True)
    assert [(line.name, line.text, line.voice) for line in lines] == [
        ("b", "Hi.", None),
        ("d", "a | b", "kumo"),
        ("0003", "Hi.", None),
        ("0008", "{no object}", None),
        ("0009", "[slow] {}", None),
        ("c", "Hi.", None),
    ]
    assert set(faults) == {4, 5, 6, 7, 11}
    assert "'speaker_id' is not known; write text, id, output_file, voice" in faults[4]
    assert 'no "text"' in faults[5] and "3; it should be a name" in faults[6]
    assert read_lines("{" * 100_000)[0]
    assert read_lines('{"text":' * 100_000)[0]


def test_the_voice_of_a_line_is_that_of_all_but_what_has_its_own():
    text = "Hi. [slow]Oh.[/slow] [voice: kumo]Ho.[/voice]"
    lines = [Line(1, "a", text, "theo"), Line(2, "b", text, "theo"), Line(3, "c", text)]
    (marked,), _ = read_texts(lines[:1], read_markup, {})
    assert isinstance(marked, Marked)
    assert [(span.said.text.strip(), span.style) for span in marked.spans] == [
        ("Hi.", Style(1.0, "theo")),
        ("Oh.", Style(0.8, "theo")),
        ("Ho.", Style(1.0, "kumo")),
    ]
    (plain, without), _ = read_texts(lines[1:], None, {})
    assert isinstance(plain, Marked) and without == text
    assert [(s.written.text, s.said.text, s.style) for s in plain.spans] == [
        (text, text, Style(voice="theo"))
    ]


def test_batch_files_are_written_and_failures_reported(tiny_release, tmp_path, capsys):
    pytest.importorskip("torch")
    (tmp_path / "texts.txt").write_bytes(LINES.encode())
    out = tmp_path / "new" / "folder"
    flags = ["--batch", str(tmp_path / "texts.txt"), "--output", str(out), "--seed", "1"]
    assert speak(tiny_release, *flags) == 1
    reported = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in reported] == [
        "line 3",
        "line 5",
        "line 6",
        "line 7",
    ]
    assert sorted(os.listdir(out)) == ["0001.wav", "0008.wav", "foo.wav"]
    assert not (tmp_path / "evil.wav").exists()
    assert (
        speak(tiny_release, "--text", "Hello there.", "--output", str(out / "a.wav"), *flags[4:])
        == 0
    )
    assert np.abs(audio.read(out / "a.wav") - audio.read(out / "0001.wav")).max() < 1e-3


def test_what_is_there_is_spoken_again_only_if_it_is_asked_for(tiny_release, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "texts.txt").write_text("Hello there.\nb|It ends here.\n")
    flags = ["--batch", str(tmp_path / "texts.txt"), "--output", str(tmp_path / "out")]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "b.wav").write_text("mine")
    assert speak(tiny_release, *flags) == 0
    assert (tmp_path / "out" / "b.wav").read_text() == "mine"
    written = (tmp_path / "out" / "0001.wav").stat().st_mtime_ns
    # all is there: not even the model is looked for
    assert speak(tmp_path / "no-model", *flags) == 0
    assert (tmp_path / "out" / "0001.wav").stat().st_mtime_ns == written
    assert speak(tiny_release, *flags, "--overwrite", "--batch-size", "1") == 0
    assert len(audio.read(tmp_path / "out" / "b.wav")) > 5000


def test_a_batch_writes_over_nothing_that_it_reads(tiny_release, tmp_path, capsys):
    pytest.importorskip("torch")
    audio.write(tmp_path / "me.wav", tone(2.0))
    (tmp_path / "lines.srt").write_text("me|Hello there.\nlines|It is late.\nb|It ends here.\n")
    kept = {name: (tmp_path / name).read_bytes() for name in ("me.wav", "lines.srt")}
    flags = ["--batch", str(tmp_path / "lines.srt"), "--output", str(tmp_path), "--overwrite"]
    flags += ["--ref-audio", str(tmp_path / "me.wav"), "--ref-text", "this is a test."]
    assert speak(tiny_release, *flags, "--subtitles", "srt") == 1
    told = capsys.readouterr().err
    for number, name in enumerate(kept, 1):
        assert f"line {number}: {tmp_path / name} is read, and would be written over" in told
        assert (tmp_path / name).read_bytes() == kept[name]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.srt", "b.wav", *sorted(kept)]


@pytest.mark.skipif(os.name == "nt", reason="files have no such limit there")
def test_a_batch_ends_where_the_disk_is_full(tiny_release, tmp_path, capsys):
    """Lines before it stay, none after it is spoken in vain, and the same command goes on."""
    import resource

    lines = ["Hello.", "Hello there, general. " * 9, "Hello there, general. " * 12]
    (tmp_path / "texts.txt").write_text("\n".join(lines))
    flags = ["--batch", str(tmp_path / "texts.txt"), "--output", str(tmp_path / "out")]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, hard))  # larger files: as on a full disk
    try:
        code = speak(tiny_release, *flags, "--batch-size", "1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    said = capsys.readouterr().err
    assert code == 1 and "line 2: cannot write" in said and "were not spoken" in said
    assert said.count("cannot write") == 1
    assert os.listdir(tmp_path / "out") == ["0001.wav"]
    assert speak(tiny_release, *flags) == 0
    assert len(os.listdir(tmp_path / "out")) == 3


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--output", "-"], "name it with --output FOLDER"),
        (["--output", ""], "name it with --output FOLDER"),
        (["--output", "out", "--text", "x"], "without --text"),
        (["--output", "out", "--stream"], "without --text, --file, --stream"),
        (["--output", "out", "--duration", "3"], "seconds of --duration"),
        (["--output", "out", "--batch-size", "0"], "--batch-size is 0; choose 1"),
        (["--output", "file"], "cannot write into file"),
        (["--output", "out", "--batch", "none.txt"], "cannot read none.txt"),
        (["--output", "out", "--batch", "blank.txt"], "has no lines"),
        (["--output", "out", "--batch", "latin.txt"], "cannot read latin.txt"),
    ],
    ids=lambda v: " ".join(v)[:40] if type(v) is list else "",
)
def test_wrong_wishes_are_one_line(tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("Hello there.\n")
    Path("blank.txt").write_text("\n \n")
    Path("latin.txt").write_bytes(b"h\xe9llo\n")
    Path("file").write_text("x")
    assert speak(tmp_path / "no-model", "--batch", "texts.txt", *flags) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not Path("out").exists()


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
def test_an_interrupted_batch_goes_on_where_it_was(tiny_release, tmp_path):
    pytest.importorskip("onnxruntime")  # the backend that is imported soonest
    (tmp_path / "texts.txt").write_text("hello there, it is said again.\n" * 3000)
    command = [sys.executable, "-m", "nanospeech.generate"]
    command += ["--model", str(tiny_release), "--backend", "onnx"]
    command += ["--device", "cpu", "--steps", "8", "--batch", "texts.txt", "--output", "out"]
    path = str(Path(nanospeech.__file__).parents[1])
    with subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE
    ) as process:
        while process.poll() is None and len(list(tmp_path.glob("out/0*.wav"))) < 3:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        error = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130 and "goes on from here" in error and "Traceback" not in error
    written = list(tmp_path.glob("out/*"))
    assert 3 <= len(written) < 3000
    assert all(p.suffix == ".wav" and len(audio.read(p)) > 5000 for p in written)
    counted = int(re.search(r"(\d+) spoken", error)[1])  # type: ignore[index]
    assert len(written) - 1 <= counted <= len(written)
