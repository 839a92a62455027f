"""Cloning measured: whose voice, whose words, and prompts through noise, telephones and rooms."""

from __future__ import annotations

import copy
import csv
import io
import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nanospeech.audio import wave as audio
from nanospeech.audio.mp3 import encode
from nanospeech.audio.wave import SAMPLE_RATE
from nanospeech.corpus.samples import Source
from nanospeech.errors import InputError
from nanospeech.evaluate import cloning, cloning_report
from nanospeech.evaluate.prompts import degraded, seconds_of
from nanospeech.evaluate.results import check_settings
from nanospeech.speech.speaker import Speaker


def pitched(hertz: float, seconds: float) -> np.ndarray:
    """A tone: a speaker of whom this test knows everything."""
    time = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return (0.3 * np.sin(2 * np.pi * hertz * time)).astype(np.float32)


def by_pitch(wave: np.ndarray) -> np.ndarray:
    """An embedding on the unit circle: an angle for the loudest frequency below 1 kHz."""
    spectrum = np.abs(np.fft.rfft(wave))
    angle = np.pi * np.argmax(spectrum) * SAMPLE_RATE / len(wave) / 1000
    return np.array([np.cos(angle), np.sin(angle)], np.float32)


@pytest.fixture(scope="module")
def shard(tmp_path_factory) -> Path:
    """Six recordings each of anna, 200 Hz, and bert, 600 Hz, of 2 to 7 seconds. Read it alone."""
    path = tmp_path_factory.mktemp("people") / "people.tar"
    with tarfile.open(path, "w") as tar:
        for name, hertz in (("anna", 200.0), ("bert", 600.0)):
            for n in range(6):
                wave = pitched(hertz, 2.05 + n)
                meta = {"text": f"Words {n}", "duration": len(wave) / SAMPLE_RATE, "speaker": name}
                for ending, data in (("mp3", encode(wave)), ("json", json.dumps(meta).encode())):
                    info = tarfile.TarInfo(f"{name}{n}.{ending}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture(scope="module")
def everyone(shard) -> cloning.People:
    return cloning.People(cloning.samples_of([str(shard)]), by_pitch)


@pytest.fixture
def people(everyone) -> cloning.People:
    """Those of the shard, whom a test may change."""
    return copy.deepcopy(everyone)


def test_a_speaker_is_nearest_to_the_mean_of_the_own_other_recordings(people):
    for name, other in (("anna", "bert"), ("bert", "anna")):
        for reference in people.references(name, 8, "clean"):
            own = people.mean(name, reference.used)
            assert own is not None and by_pitch(reference.wave) @ own > 0.99
            assert by_pitch(reference.wave) @ people.mean(other) < 0.5


def test_a_reference_is_not_compared_with_itself(people):
    (found,) = people.references("anna", 1, "clean")
    assert all(key in people.embeddings["anna"] for key in found.used)
    others = [e for key, e in people.embeddings["anna"].items() if key not in found.used]
    wanted = np.mean(others, 0) / np.linalg.norm(np.mean(others, 0))
    np.testing.assert_allclose(people.mean("anna", found.used), wanted, atol=1e-6)
    assert people.mean("anna", tuple(people.embeddings["anna"])) is None


@pytest.mark.parametrize("seconds", [2.0, 5.0, 10.0])
def test_prompts_have_the_length_that_is_asked(people, seconds):
    for reference in people.references("anna", 3, str(seconds)):
        assert 0.8 * seconds <= len(reference.wave) / SAMPLE_RATE <= 1.2 * seconds + 0.4
        assert reference.text.count("Words") == len(reference.used)
    with pytest.raises(InputError, match="anna has no recordings"):
        people.references("anna", 3, "30")


def test_a_prompt_without_words_is_one_whose_words_nobody_told(tiny_aligned, tmp_path, monkeypatch):
    """Recordings without texts are such prompts alone; of others, what they say is not told."""
    samples = []
    for n, text in enumerate(("", "hello there.", "", "", "", "")):
        audio.write(wav := tmp_path / f"{n}.wav", pitched(300.0, 3.5 + n / 10))
        samples.append({"audio": wav.name, "text": text, "speaker": "books/anna"})
    lines = "\n".join(map(json.dumps, samples))
    (manifest := tmp_path / "people.jsonl").write_text(lines + "\n")
    people = cloning.People(cloning.samples_of([str(manifest)]), by_pitch)
    assert len(people.references("books/anna", 8, "clean")) == 1
    assert len(people.references("books/anna", 8, "wordless")) == 6
    asked: list[object] = []

    def spoken(*_, ref_text, **__):
        asked.append(ref_text)
        wave = audio.resample(pitched(300.0, 1.0), SAMPLE_RATE, 48_000)  # as Irodori speaks
        return SimpleNamespace(speak=lambda _: SimpleNamespace(wave=wave, sample_rate=48_000))

    monkeypatch.setattr("nanospeech.speech.speaker.Speaker", spoken)
    monkeypatch.setattr(cloning.metrics, "load_whisper", lambda *_: None)
    monkeypatch.setattr(cloning.metrics, "transcribe", lambda *_, **__: "nothing")
    words = [str(tiny_aligned), "--people", str(manifest), "--out", str(tmp_path / "out")]
    words += ["--backend", "torch", "--imitate", "books/anna", "--seeds", "0"]
    words += ["--wavs", str(tmp_path / "wavs")]
    words += ["--prompts", "clean", "wordless", "--references", "6"]
    args = cloning.build_parser().parse_args(words)
    (tmp_path / "out").mkdir()
    found = cloning.measure(args, people, [], tmp_path / "out" / "cloning.csv")
    assert [r.prompt for r in found] == ["clean"] + ["wordless"] * 6
    assert asked == ["hello there."] + [None] * 6
    assert min(r.similarity for r in found) > 0.99
    waves = [audio.read(path) for path in (tmp_path / "wavs").glob("*-books_anna-*.wav")]
    assert [len(w) for w in waves] == [SAMPLE_RATE] * 7


def test_clean_prompts_are_single_recordings_in_an_order_of_their_own(people):
    found = people.references("bert", 8, "clean")
    assert {r.key for r in found} == {f"bert{n}" for n in range(1, 6)}  # 3 to 10 seconds
    assert [r.key for r in people.references("bert", 2, "clean")] == [r.key for r in found[:2]]


def test_noise_is_15_db_below_the_speech():
    wave = pitched(440, 2)
    noise = degraded(wave, "noise") - wave
    assert 10 * np.log10(np.mean(wave**2) / np.mean(noise**2)) == pytest.approx(15, abs=0.1)
    spectrum = np.abs(np.fft.rfft(noise)) ** 2
    octaves = [spectrum[n : 2 * n].sum() for n in (500, 1000, 2000, 4000, 8000)]
    assert max(octaves) / min(octaves) < 1.3  # as much in each: pink


def test_rumble_is_14_db_below_the_speech_and_lower_than_any_voice():
    wave = pitched(440, 2)
    noise = degraded(wave, "rumble") - wave
    assert 10 * np.log10(np.mean(wave**2) / np.mean(noise**2)) == pytest.approx(14, abs=0.1)
    power = np.abs(np.fft.rfft(noise)) ** 2
    hertz = np.fft.rfftfreq(len(noise), 1 / SAMPLE_RATE)
    assert power[(hertz > 7.9) & (hertz < 42.1)].sum() > 0.999 * power.sum()


def test_a_telephone_keeps_300_to_3400_hertz():
    for hertz, kept in ((150, 0.0), (1000, 1.0), (3000, 1.0), (3700, 0.0), (8000, 0.0)):
        wave = pitched(hertz, 1)
        share = np.mean(degraded(wave, "telephone")[2400:-2400] ** 2) / np.mean(wave**2)
        assert share == pytest.approx(kept, abs=0.05)


def test_a_room_adds_as_much_as_it_is_given_and_falls_by_60_db_in_half_a_second():
    click = np.zeros(24_000, np.float32)
    click[4800] = 0.5
    found = degraded(click, "room")
    assert found.dtype == np.float32 and len(found) == len(click)
    assert found[4800] == pytest.approx(0.5, abs=1e-6) and np.abs(found[:4800]).max() < 1e-6
    echo = found[4801:].astype(np.float64)
    assert np.abs(echo[:119]).max() < 1e-6 < np.abs(echo[119:240]).max()  # 5 ms later
    assert np.sum(echo**2) == pytest.approx(0.25, rel=1e-4)  # as strong as the click
    power = [10 * np.log10(np.mean(echo[n : n + 1200] ** 2)) for n in (1200, 9600)]
    assert power[0] - power[1] == pytest.approx(60 * 0.35 / 0.5, abs=1)
    assert np.abs(echo[12_000:]).max() < 1e-6


def test_others_recordings_can_be_named_on_the_command_line(shard):
    assert {s.speaker for s in cloning.samples_of([f"carla={shard}"])} == {"carla"}
    assert {s.speaker for s in cloning.samples_of([str(shard)])} == {"anna", "bert"}


def test_people_of_two_sets_with_equal_keys_are_told_apart(shard, tmp_path):
    for name, hertz in (("carla", 300.0), ("dan", 800.0)):
        for n in range(3):
            path = tmp_path / name / f"{n}.wav"
            path.parent.mkdir(exist_ok=True)
            audio.write(path, pitched(hertz, 3.0 + n))
            path.with_suffix(".txt").write_text("Some words.\n")
    both = [f"{name}={tmp_path / name}" for name in ("carla", "dan")]
    again = Path(shutil.copy(shard, tmp_path / "again.tar"))
    people = cloning.People(cloning.samples_of([str(shard), *both, str(again)]), by_pitch)
    for name, hertz in (("anna", 200.0), ("carla", 300.0), ("dan", 800.0)):
        for reference in people.references(name, 2, "clean"):
            assert by_pitch(reference.wave) @ by_pitch(pitched(hertz, 2.0)) > 0.99
    assert len({s.key for found in people.of.values() for s in found}) == 2 * 12 + 6


def test_recordings_that_cannot_be_used_are_left_out(shard, caplog):
    samples = cloning.samples_of([str(shard)])
    broken, silent, *rest = samples

    class Bad:
        def read(self) -> bytes:
            return b"no audio"

    used = [replace(broken, audio=Bad()), replace(silent, text="..."), *rest]
    people = cloning.People(used, by_pitch)
    found = people.references(broken.speaker, 8, "clean")
    assert not {broken.key, silent.key} & {r.key for r in found} and found
    assert "is left out" in caplog.text
    alone = cloning.People([s for s in samples if s.speaker == "anna"][:1], by_pitch)
    with pytest.raises(InputError, match="a prompt of 3 to 10 seconds and others to compare with"):
        alone.references("anna", 8, "clean")


def test_a_recording_that_is_gone_by_its_turn_is_left_out(shard, tmp_path, caplog):
    gone, *rest = cloning.samples_of([str(shard)])
    gone = replace(gone, audio=Source(tmp_path / "gone.wav"))
    people = cloning.People([gone, *rest], by_pitch)
    found = people.references(gone.speaker, 8, "clean")
    assert found and gone.key not in {r.key for r in found}
    assert "is left out: unreadable audio" in caplog.text and "gone.wav" in caplog.text


def test_a_recording_that_is_no_prompt_ends_nothing(
    people, tiny_aligned, tmp_path, monkeypatch, caplog
):
    """One whose speech is a click, as in four seconds of silence."""
    monkeypatch.setattr(cloning.metrics, "load_whisper", lambda *_: None)
    monkeypatch.setattr(cloning.metrics, "transcribe", lambda *_, **__: "nothing")
    waves = people.waves
    brief, *others = (r.key for r in people.references("anna", 3, "clean"))
    waves[brief] = np.pad(pitched(200.0, 0.1), (50_000, 50_000))
    words = [str(tiny_aligned), "--people", "a.tar", "--out", str(tmp_path), "--backend", "torch"]
    args = cloning.build_parser().parse_args([*words, "--imitate", "anna", "--references", "3"])
    args.prompts, table = ["clean"], tmp_path / "cloning.csv"
    found = cloning.measure(args, people, [], table)
    assert [row.reference for row in found] == others
    assert f"{brief} of anna is left out: the reference holds 0." in caplog.text


def test_keys_of_many_joined_recordings_name_a_file(tmp_path):
    long = [cloning.short("+".join([f"{who}\u00fc" * 30] * 9)) for who in "ab"]
    ends = [cloning.short("a" + "\u00fc" * n + end) for n, end in ((200, ""), (199, "o"))]
    for name in (*long, *ends):
        (tmp_path / f"telephone-anna-{name}-12345.wav").write_bytes(b"")
    assert len([*tmp_path.iterdir()]) == 4 and cloning.short("anna-01") == "anna-01"


@pytest.mark.parametrize("prompt", ["loud", "0.5", "99"])
def test_unknown_prompts_are_refused(prompt):
    with pytest.raises(InputError, match="--prompts"):
        seconds_of(prompt)


def rows() -> list[cloning.Row]:
    row = ("clean", "anna", "k", 0, "a b c d", "a b c", 1, 4, "", 0.8, "anna")
    return [
        cloning.Row(*row),
        cloning.Row("clean", "bert", "k", 0, "a", "x y", 2, 1, "y", 0.6, "anna"),
    ]


def test_the_summary_counts_words_and_people(tmp_path, drawn):
    found = cloning_report.write(rows(), ["anna", "bert"], tmp_path)["clean"]
    assert found["all"] == {
        "utterances": 2, "wer": 0.6, "similarity": 0.7, "nearest": 0.5, "leaks": 1,
    }  # fmt: skip
    assert found["bert"]["nearest"] == 0 and found["anna"]["wer"] == 0.25
    assert json.loads((tmp_path / "cloning.json").read_text())["clean"] == found
    assert "| clean | anna | 1 | 0.800 | 100 % | 25.0 % | 0 |" in (
        (tmp_path / "cloning.md").read_text()
    )
    assert (tmp_path / "cloning.png").read_bytes().startswith(b"\x89PNG")


def test_a_table_that_was_cut_off_goes_on_with_what_is_whole(tmp_path):
    path = tmp_path / "cloning.csv"
    with path.open("w", newline="") as f:
        table = csv.DictWriter(f, [*vars(rows()[0])])
        table.writeheader()
        for row in rows():
            table.writerow(vars(row))
    assert cloning.rows_of(path) == rows()
    whole = path.read_text()
    path.write_text(whole[: whole.rindex("anna") - 12])
    assert cloning.rows_of(path) == rows()[:1]
    with path.open("a", newline="") as f:
        csv.DictWriter(f, [*vars(rows()[0])]).writerow(vars(rows()[1]))
    assert cloning.rows_of(path) == rows()
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="no table of this command"):
        cloning.rows_of(path)


def test_another_models_rows_are_not_added_to_a_table(tiny_aligned, tmp_path):
    def settings(*changes: str) -> dict:
        words = [str(folder), "--people", "a.tar", "--out", str(tmp_path), *changes]
        return cloning.settings(cloning.build_parser().parse_args(words))

    folder = tmp_path / "model"
    shutil.copytree(tiny_aligned, folder)
    check_settings(tmp_path, settings(), "cloning.csv")
    (tmp_path / "cloning.csv").write_text("prompt\n")
    check_settings(tmp_path, settings("--seeds", "3"), "cloning.csv")
    with pytest.raises(InputError, match="whisper was base, is small"):
        check_settings(tmp_path, settings("--whisper", "small"), "cloning.csv")
    config = folder / "config.json"
    config.write_text(config.read_text().replace("}", " }", 1))
    with pytest.raises(InputError, match="model was"):
        check_settings(tmp_path, settings(), "cloning.csv")


def test_the_report_is_of_what_is_asked_alone(people, tiny_aligned, tmp_path, monkeypatch):
    """Rows of other seeds and sentences stay in the table, and out of the figures."""
    monkeypatch.setattr(cloning.metrics, "load_whisper", lambda *_: None)
    monkeypatch.setattr(cloning.metrics, "transcribe", lambda *_, **__: "nothing")
    table = tmp_path / "cloning.csv"
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("good morning\n")
    words = [str(tiny_aligned), "--people", "a.tar", "--out", str(tmp_path), "--backend", "torch"]
    words += ["--sentences", str(sentences), "--references", "1"]
    name = sorted(people.of)[0]

    def measured(*seeds: str) -> list[cloning.Row]:
        args = cloning.build_parser().parse_args([*words, "--imitate", name, "--seeds", *seeds])
        return cloning.measure(args, people, cloning.rows_of(table), table)

    assert [row.seed for row in measured("0", "1")] == [0, 1]
    assert [row.seed for row in measured("1", "2")] == [1, 2]
    sentences.write_text("good evening\n")
    assert [row.text for row in measured("1")] == ["good evening"]
    assert len(cloning.rows_of(table)) == 4
    monkeypatch.setattr(cloning.audio, "write", lambda *_: None)
    silence = SimpleNamespace(wave=np.zeros(9000, "f4"), sample_rate=SAMPLE_RATE)
    monkeypatch.setattr(Speaker, "speak", lambda *_: silence)
    (silent,) = measured("5")
    assert (silent.similarity, silent.nearest) == (0.0, "")


def test_a_row_tells_how_near_to_whom_an_utterance_of_a_seed_is(
    people, tiny_aligned, tmp_path, monkeypatch
):
    wave = audio.resample(pitched(600.0, 2.0), SAMPLE_RATE, 48_000)
    spoken, seeds = SimpleNamespace(wave=wave, sample_rate=48_000), []
    monkeypatch.setattr(Speaker, "speak", lambda s, _: seeds.append(s.seed) or spoken)
    monkeypatch.setattr(cloning.metrics, "load_whisper", lambda *_: None)
    monkeypatch.setattr(cloning.metrics, "transcribe", lambda *_, **__: "nothing")
    (reference,) = people.references("anna", 1, "clean")
    people.embeddings["anna"][reference.used[0]] = by_pitch(pitched(600.0, 1.0))  # is not compared
    words = [str(tiny_aligned), "--people", "a.tar", "--out", str(tmp_path), "--backend", "torch"]
    words += ["--references", "1", "--imitate", "anna", "--seeds", "3", "4"]
    args = cloning.build_parser().parse_args(words)
    rows = cloning.measure(args, people, [], tmp_path / "cloning.csv")
    assert seeds == [row.seed for row in rows] == [3, 4] and rows[0].text != rows[1].text
    for row in rows:
        assert (row.speaker, row.reference, row.nearest) == ("anna", reference.key, "bert")
        assert row.similarity == pytest.approx(np.cos(0.4 * np.pi), abs=0.02)  # of 200 and 600 Hz


def test_a_model_of_german_is_listened_to_in_german(people, tiny_aligned, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(tiny_aligned, tmp_path / "german"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"language": "de-AT"}))
    (texts := tmp_path / "texts.txt").write_text("heute fahren wir.\n")
    people.of["anna"] = [replace(sample, text="Um drei.") for sample in people.of["anna"]]
    listened: list[str] = []

    def transcribe(*_, language: str) -> str:
        listened.append(language)
        return "um ach heute fahren wir"  # um: which an English normaliser leaves out

    monkeypatch.setattr(cloning.metrics, "load_whisper", lambda *_: None)
    monkeypatch.setattr(cloning.metrics, "transcribe", transcribe)
    words = [str(folder), "--people", "a.tar", "--out", str(tmp_path), "--backend", "torch"]
    words += ["--sentences", str(texts), "--references", "1", "--imitate", "anna", "--seeds", "0"]
    args = cloning.build_parser().parse_args(words)
    (row,) = cloning.measure(args, people, [], tmp_path / "cloning.csv")
    assert listened == ["de"] and (row.edits, row.words, row.leaked) == (2, 3, "um")


def test_a_model_of_several_languages_reads_in_the_one_that_is_listened_for(
    people, tiny_aligned, tmp_path, monkeypatch
):
    folder = Path(shutil.copytree(tiny_aligned, tmp_path / "several"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"language": "und"}))
    (texts := tmp_path / "texts.txt").write_text("at 9:40 sharp.\n")
    read: list[str] = []
    speak = Speaker.speak
    monkeypatch.setattr(Speaker, "speak", lambda s, t: read.extend(s.chunks(t)) or speak(s, t))
    monkeypatch.setattr(cloning.metrics, "load_whisper", lambda *_: None)
    monkeypatch.setattr(cloning.metrics, "transcribe", lambda *_, **__: "nothing")
    words = [str(folder), "--people", "a.tar", "--out", str(tmp_path), "--backend", "torch"]
    words += ["--sentences", str(texts), "--references", "1", "--imitate", "anna", "--seeds", "0"]
    cloning.measure(cloning.build_parser().parse_args(words), people, [], tmp_path / "cloning.csv")
    assert read == ["at nine forty sharp."]


def test_what_is_named_twice_is_measured_once_and_who_cannot_be_compared_is_not_counted(
    shard, tiny_aligned, tmp_path, monkeypatch
):
    for name, found in (("check", None), ("load_encoder", by_pitch), ("load_whisper", None)):
        monkeypatch.setattr(cloning.metrics, name, lambda *_, found=found: found)
    monkeypatch.setattr(cloning.metrics, "transcribe", lambda *_, **__: "nothing")
    brief = tmp_path / "brief"
    brief.mkdir()
    audio.write(brief / "a.wav", pitched(300.0, 1.0))
    (brief / "a.txt").write_text("Hello.")
    words = [str(tiny_aligned), "--people", str(shard), f"carl={brief}"]
    words += [
        "--imitate",
        "anna",
        "anna",
        "--backend",
        "torch",
        "--references",
        "1",
        "--out",
        str(tmp_path / "out"),
    ]
    run = cloning.build_parser().parse_args
    found = cloning.run(run([*words, "--seeds", "0", "0", "--prompts", "clean", "clean"]))
    assert found["clean"]["all"]["utterances"] == 1
    assert "Nearest of 2: anna, bert." in (tmp_path / "out" / "cloning.md").read_text()
    with pytest.raises(InputError, match="--references is 0"):
        cloning.run(run([*words, "--references", "0"]))


def test_kinds_of_prompts_stand_in_one_order():
    kinds = ["telephone", "10", "wordless", "room", "noise", "2.5", "clean", "3"]
    assert sorted(kinds, key=cloning_report.place) == [
        "clean",
        "2.5",
        "3",
        "10",
        "noise",
        "room",
        "telephone",
        "wordless",
    ]
