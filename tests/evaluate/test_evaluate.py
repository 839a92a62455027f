"""Evaluation: lists and recordings read, work that is done once, figures that add up, measures."""

from __future__ import annotations

import csv
import json
import os
import shutil
import tarfile
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from nanospeech.audio import wave as audio
from nanospeech.errors import InputError
from nanospeech.evaluate import __main__ as evaluate
from nanospeech.evaluate import items as evaluate_items
from nanospeech.evaluate.plan import plan
from nanospeech.evaluate.results import Results
from nanospeech.load import pick_backend
from nanospeech.measure import metrics
from nanospeech.release.user_voices import save_voice
from nanospeech.speech.speaker import Speaker
from tests.conftest import needs, tone
from tests.evaluate.conftest import TEXTS
from tests.test_locks import holder

ROOT = Path(__file__).resolve().parents[2]
SHARD = ROOT / "tests/fixtures/speech-000000.tar"
# the tiny model's voice says "hello there, general."; what is heard repeats a word of it
HEARD = "General the cat sat on a mat"


def recordings() -> list[np.ndarray]:
    return evaluate_items.waves([SHARD])


def run(args, heard: str = HEARD, fail_at: int = -1) -> tuple[dict, int]:
    """Evaluates with a recogniser that hears the same in everything.

    Returns:
        The summary, and how often the recogniser was asked.
    """
    pytest.importorskip("whisper_normalizer", reason="it is of the extra eval")
    asked = []

    def recogniser(wave: np.ndarray) -> str:
        if len(asked) == fail_at:
            raise KeyboardInterrupt
        asked.append(len(wave))
        return heard

    return evaluate.run(args, recogniser), len(asked)


def table(out: Path) -> list[dict]:
    with (out / "results.csv").open(encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f))


def same(a: list[dict], b: list[dict]) -> bool:
    """Whether two tables agree in all but the time that synthesis took."""
    return [r | {"compute_seconds": ""} for r in a] == [r | {"compute_seconds": ""} for r in b]


def test_a_model_is_spoken_heard_and_summed_up(arguments, capsys):
    args = arguments()
    summary, asked = run(args)
    (row,) = summary["rows"]
    rows = table(args.out)
    assert asked == row["utterances"] == len(rows) == 2
    # 1 insertion in the first; in the second nothing is right: 7 words heard for 3
    assert [int(r["edits"]) for r in rows] == [1, 7]
    assert row["wer"] == round(8 / 9, 4) and row["perfect"] == 0 and row["over_half_wrong"] == 1
    assert row["leaking"] == 2 and rows[0]["leaked"] == "general"
    assert row["rtf"] > 0 and "duration_error" not in row and "similarity" not in row
    for r in rows:
        wave = audio.read(args.out / "wavs" / "tone-steps2-seed0" / f"{r['key']}.wav")
        assert len(wave) / 24_000 == pytest.approx(float(r["seconds"]), abs=1e-3)
    shown = capsys.readouterr().out
    assert "| tone |" in shown and shown.strip() == (args.out / "summary.md").read_text().strip()
    assert json.loads((args.out / "summary.json").read_text())["rows"] == summary["rows"]


def test_a_models_voice_is_compared_with_the_users_of_its_name(arguments):
    """As a finetuned voice is with the recording that it was finetuned from."""
    save_voice("tone", tone(4.0), "hello, all of them.", {})
    args = arguments("--voice", "tone,user/tone", metrics="rtf")
    summary, _ = run(args)
    assert [row["name"] for row in summary["rows"]] == ["tone", "user/tone"]
    lengths = [float(r["seconds"]) for r in table(args.out)]
    assert lengths[:2] != lengths[2:]  # each at its own pace


def test_a_recording_may_be_imitated_whose_words_nobody_knows(arguments, tiny_aligned, capsys):
    """Which words leaked is then not known either: none is no figure."""
    recording = next((ROOT / "tests/fixtures/ljspeech/wavs").glob("*.wav"))
    args = arguments("--ref-audio", str(recording), model=tiny_aligned)
    summary, _ = run(args)
    (row,) = summary["rows"]
    assert row["utterances"] == 2 and "wer" in row and "leaking" not in row
    assert "leak" not in summary["metrics"] and "leaks" not in (args.out / "summary.md").read_text()
    assert "left out: leak: what is said in the recording is not" in capsys.readouterr().err


@pytest.mark.parametrize(
    "own, asked, code",
    [
        ("de-AT", [], "de"),
        ("de-AT", ["--language", "en-GB"], "en"),
        ("und", [], "en"),
        ("und", ["--language", "de"], "de"),
    ],
)
def test_a_model_reads_and_is_heard_in_the_language_that_is_asked_or_its_own(
    arguments, tiny_release, tmp_path, monkeypatch, own, asked, code
):
    pytest.importorskip("whisper_normalizer", reason="it is of the extra eval")
    folder = Path(shutil.copytree(tiny_release, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"language": own}))
    heard: list[str] = []

    def transcribe(wave, language, **_):
        heard.append(language)
        return [SimpleNamespace(text="àt 9:40")], None

    model = SimpleNamespace(supported_languages=["de", "en"], transcribe=transcribe)
    module = pytest.importorskip("faster_whisper")
    monkeypatch.setattr(module, "WhisperModel", lambda *_, **__: model)
    read: list[str] = []
    speak = Speaker.speak
    monkeypatch.setattr(Speaker, "speak", lambda s, *a: read.extend(s.chunks(a[0])) or speak(s, *a))
    args = arguments("--jobs", "1", *asked, model=folder, metrics="wer")
    args.sentences.write_text("at 9:40\n", encoding="utf-8")
    summary = evaluate.run(args)
    assert heard == [code] and summary["language"] == code
    assert ("nine forty" in read[-1]) == (code == "en")
    (row,) = table(args.out)  # accents are letters in all languages but English
    assert (row["edits"], row["char_edits"]) == (("1", "1") if code == "de" else ("0", "0"))


def test_a_second_run_does_only_what_is_missing(arguments):
    args = arguments("--jobs", "2")
    first, _ = run(args)
    rows = table(args.out)
    waves = {p: p.stat().st_mtime_ns for p in args.out.rglob("*.wav")}
    again, asked = run(args)
    assert asked == 0 and again == first and table(args.out) == rows
    more, asked = run(arguments("--seeds", "0,1"))
    assert asked == 2 and len(table(args.out)) == 4
    assert {p: p.stat().st_mtime_ns for p in waves} == waves
    row = more["rows"][0]
    seeds = [row["by_seed"][s]["wer"] for s in "01"]
    assert row["wer"] == pytest.approx(np.mean(seeds)) and row["spread"]["wer"] == np.std(seeds)


def test_a_run_that_was_ended_goes_on(arguments, tmp_path):
    whole, _ = run(arguments("--out", str(tmp_path / "whole"), "--seeds", "0,1"))
    args = arguments("--seeds", "0,1")
    with pytest.raises(KeyboardInterrupt):
        run(args, fail_at=3)
    with (args.out / "results.csv").open("a", encoding="utf-8") as f:
        f.write("tone,2,1,00")  # ended in the middle of a line
    summary, asked = run(args)
    assert asked == 1 and same(table(args.out), table(tmp_path / "whole"))
    assert summary["rows"][0]["wer"] == whole["rows"][0]["wer"]


def test_metrics_may_be_added_without_speaking_again(arguments):
    args = arguments(metrics="rtf")
    _, asked = run(args)
    spoken = {p: p.stat().st_mtime_ns for p in args.out.rglob("*.wav")}
    before = table(args.out)
    _, later = run(arguments())
    assert asked == 0 and later == len(spoken) == 2
    assert {p: p.stat().st_mtime_ns for p in spoken} == spoken
    for old, new in zip(before, table(args.out)):
        assert (
            new["edits"] and not old["edits"] and new["compute_seconds"] == old["compute_seconds"]
        )


@pytest.mark.parametrize(
    "flags, message",
    [
        (("--cfg-strength", "1"), "cfg_strength was None, is 1.0"),
        (("--whisper", "tiny"), "whisper was base, is tiny"),
        (("--speed", "2"), "speed was 1.0, is 2.0"),
    ],
)
def test_other_settings_are_refused_and_named(arguments, flags, message):
    run(arguments())
    with pytest.raises(InputError, match=message):
        run(arguments(*flags))


def test_another_text_under_the_same_key_is_refused(arguments):
    args = arguments()
    run(args)
    args.sentences.write_text("\n".join(reversed(TEXTS)), encoding="utf-8")
    with pytest.raises(InputError, match="the text of tone, 000 was"):
        run(args)


def test_several_processes_find_what_one_finds(arguments, tmp_path):
    needs("onnx")  # whose processes start soonest
    flags = ("--backend", "onnx", "--jobs")
    alone = arguments(*flags, "1", metrics="rtf,duration")
    evaluate.run(alone)
    many = arguments(*flags, "2", "--out", str(tmp_path / "many"), metrics="rtf,duration")
    before = dict(os.environ)
    evaluate.run(many)
    assert dict(os.environ) == before
    assert same(table(alone.out), table(many.out))


def test_both_backends_are_evaluated(backend, arguments):
    args = arguments("--limit", "1", metrics="rtf,leak,wer")
    args.backend = backend
    summary, asked = run(args)
    assert asked == 1 and summary["rows"][0]["rtf"] > 0


def test_the_backend_that_auto_chose_is_named_and_kept_to(arguments, monkeypatch):
    summary, _ = run(arguments("--backend", "auto", metrics="rtf"))
    assert summary["backend"] == pick_backend(device="cpu")
    run(arguments("--backend", summary["backend"], metrics="rtf"))
    monkeypatch.setattr(evaluate, "pick_backend", lambda *_: "other")
    with pytest.raises(InputError, match="is other"):
        run(arguments("--backend", "auto", metrics="rtf"))


@pytest.mark.skipif(os.name == "nt", reason="nothing is locked there")
def test_two_runs_do_not_write_over_each_others_rows(arguments):
    """The later end of two, of one voice each, would have left the rows of its own alone."""
    args = arguments(metrics="rtf")
    with holder(args.out), pytest.raises(InputError, match="is in use by process"):
        run(args)
    assert run(args)[0]["rows"]


def test_numbers_of_steps_are_rows_and_a_picture(arguments, drawn):
    args = arguments("--steps", "1,2", "--method", "midpoint", "--limit", "1")
    summary, _ = run(args)
    assert [(r["steps"], r["evaluations"]) for r in summary["rows"]] == [(1, 2), (2, 4)]
    for name in ("wer_by_length", "quality_by_evaluations"):
        assert (args.out / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_recordings_are_rows_too_and_tables_are_joined(arguments, tmp_path):
    args = evaluate.build_parser().parse_args(
        ["--recordings", f"human={SHARD}", "--metrics", "wer,leak", "--out", str(tmp_path / "h")]
    )
    human, asked = run(args, heard="she turned in at the hotel")
    (row,) = human["rows"]
    assert asked == row["utterances"] == 4 and row["perfect"] == 1
    assert row["name"] == "human" and row["steps"] is None and not {"rtf", "leaks"} & row.keys()
    assert not list(args.out.rglob("*.wav"))
    part = tmp_path / "set=1" / "speech.tar"
    part.parent.mkdir()
    shutil.copy(SHARD, part)
    args.recordings = [str(part)]
    assert {task.name for task in plan(args)} == {"speech"}
    args = arguments("--compare", str(tmp_path / "h"))
    joined, _ = run(args)
    assert [r["name"] for r in joined["compared"]] == ["human (h)"]
    assert "| human (h) |" in (args.out / "summary.md").read_text()
    with pytest.raises(InputError, match=r"is no summary\.json"):
        run(arguments("--compare", str(args.sentences)))


def voice_list(folder: Path, truth: bool) -> Path:
    """A Seed-TTS-eval list of two texts, its waves those of the shard."""
    (folder / "waves").mkdir()
    items = evaluate_items.read_recordings([SHARD])
    for item in items:
        audio.write(folder / "waves" / f"{item.key}.wav", item.truth.wave())
    lines = []
    for prompt, item in pairwise(items[:3]):
        fields = [f"id/{item.key}", prompt.text, f"waves/{prompt.key}.wav", item.text]
        lines.append("|".join([*fields, f"waves/{item.key}.wav"] if truth else fields))
    path = folder / "meta.lst"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_list_gives_each_text_its_prompt_and_its_true_length(arguments, tmp_path):
    path = voice_list(tmp_path, truth=True)
    items = evaluate_items.read_items(path)
    assert [i.prompt.text != i.text and i.truth is not None for i in items] == [True, True]
    assert evaluate_items.read_items(path, 1) == items[:1]
    args = arguments("--sentences", str(path))
    summary, _ = run(args)
    rows = table(args.out)
    assert summary["rows"][0]["name"] == "meta" and len({r["prompt"] for r in rows}) == 2
    for r, item in zip(rows, items):
        start, stop = audio.loud_span(item.truth.wave())
        true = (stop - start) / 24_000
        assert float(r["true_spoken"]) == pytest.approx(true, abs=1e-3)
        error = abs(float(r["spoken"]) - true) / true
        assert float(r["duration_error"]) == pytest.approx(error, abs=1e-3)
    args.voice = "tone"
    with pytest.raises(InputError, match="leave out --voice"):
        run(args)


def test_a_list_without_true_waves_has_no_true_lengths(tmp_path):
    items = evaluate_items.read_items(voice_list(tmp_path, truth=False))
    assert len(items) == 2 and all(i.prompt and not i.truth for i in items)


@pytest.mark.parametrize(
    "lines, message",
    [
        ("a|b|none.wav|c", "there is no"),
        ("a|b||c", r"write id\|prompt text"),
        ("", "holds no sentences"),
    ],
)
def test_lists_that_cannot_be_used_are_named(tmp_path, lines, message):
    path = tmp_path / "meta.lst"
    path.write_text(lines, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        evaluate_items.read_items(path)


def test_a_tar_is_read_where_its_waves_lie():
    items = evaluate_items.read_items(SHARD)
    assert len(items) == 4 and evaluate_items.read_items(SHARD, 2) == items[:2]
    with tarfile.open(SHARD) as tar:
        for item in items:
            file = tar.extractfile(item.truth.name)
            assert file is not None and item.truth.bytes() == file.read()
            assert item.text and item.truth.wave().dtype == np.float32


def test_a_folder_goes_by_its_own_texts_or_by_lines(tmp_path):
    for key, text in {"001": "hello there", "000": "good morning"}.items():
        audio.write(tmp_path / f"{key}.wav", recordings()[0])
        (tmp_path / f"{key}.txt").write_text(text + "\n", encoding="utf-8")
    items = evaluate_items.read_recordings([tmp_path])
    assert [(i.key, i.text) for i in items] == [("000", "good morning"), ("001", "hello there")]
    assert len(evaluate_items.waves([tmp_path, SHARD])) == 6
    assert len(evaluate_items.waves([tmp_path, SHARD], 3)) == 3
    (tmp_path / "000.txt").unlink()
    texts = tmp_path / "lines.list"
    texts.write_text("only one\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"2 waves, but .* only 1"):
        evaluate_items.read_recordings([tmp_path], texts=texts)
    (tmp_path / "001.txt").unlink()  # without any they are of the sentences that ship
    lines = evaluate_items.read_texts(evaluate_items.SENTENCES)[:2]
    assert [i.text for i in evaluate_items.read_recordings([tmp_path])] == lines


def test_words_are_found_in_files_of_recorders_that_write_capitals(tmp_path):
    (tmp_path / "A.WAV").write_bytes(audio.wav_bytes(recordings()[0]))
    (tmp_path / "A.TXT").write_text("hello there\n", encoding="utf-8")
    assert [i.text for i in evaluate_items.read_recordings([tmp_path])] == ["hello there"]
    pytest.importorskip("torch")
    from nanospeech_torch.evaluate.vocoder import read_clips

    assert [c.text for c in read_clips([tmp_path], lambda key: True, 9)] == ["hello there"]


def test_what_a_mac_adds_to_recordings_is_none(tmp_path):
    """It was an error, of a file that the user does not see."""
    from nanospeech.release.voices import own_voices

    folder = tmp_path / "voices"
    folder.mkdir()
    audio.write(folder / "a.wav", recordings()[0])
    (folder / "a.txt").write_text("hello", encoding="utf-8")
    for name in ("._a.wav", "._a.txt"):
        (folder / name).write_bytes(b"\0\5\x16\7\0\2\0\0Mac OS X        \xff")
    assert [i.key for i in evaluate_items.read_recordings([folder])] == ["a"]
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(folder, "a")
    assert len(evaluate_items.waves([folder, tmp_path / "a.tar"])) == 2
    assert list(own_voices(tmp_path)) == ["a"]
    pytest.importorskip("torch")
    from nanospeech_torch.evaluate.vocoder import read_clips

    assert [c.key for c in read_clips([folder], lambda key: True, 9)] == ["a"]


def test_a_tar_may_hold_any_format_that_is_read(tmp_path):
    soundfile.write(tmp_path / "A.AIFF", recordings()[0], 24_000, format="AIFF")
    (tmp_path / "A.txt").write_text("Hello.", encoding="utf-8")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in ("A.AIFF", "A.txt"):
            tar.add(tmp_path / name, name)
    (item,) = evaluate_items.read_recordings([tmp_path / "a.tar"])
    assert item.text == "Hello." and len(evaluate_items.waves([tmp_path / "a.tar"])) == 1


def test_recordings_of_phones_are_heard_as_they_are_spoken_after(tmp_path, arguments):
    pytest.importorskip("av")
    from tests.audio.test_films import written

    wave = np.tile(audio.resample(recordings()[0], 24_000, 48_000), (2, 1))
    films = tmp_path / "films"
    films.mkdir()
    for name in ("a.m4a", "b.mp4"):
        written(films / name, wave)
        (films / name).with_suffix(".txt").write_text("hello there\n", encoding="utf-8")
    audio.write(films / "b.wav", recordings()[0])  # the second one, converted
    found = evaluate_items.read_recordings([films])
    assert [i.truth.path.name for i in found] == ["a.m4a", "b.wav"]
    assert len(evaluate_items.waves([films])) == 2 and len(found[0].truth.wave()) > 24_000
    assert len(evaluate_items.waves([films / "b.mp4"])) == 1
    args = arguments()
    args.ref_audio, args.ref_text = films / "a.m4a", "hello there"
    (row,) = run(args)[0]["rows"]
    assert row["name"] == "a" and row["utterances"] == len(TEXTS)
    (films / "c.m4a").write_bytes(b"no film")
    with pytest.raises(InputError, match=r"^cannot read \S+c\.m4a as audio"):
        evaluate_items.waves([films])


def test_a_text_without_words_ends_no_evaluation(arguments):
    args = arguments()
    args.sentences.write_text("The cat sat on a mat.\nHmm.\n", encoding="utf-8")
    (row,) = run(args, "The cat")[0]["rows"]
    assert (row["words"], row["edits"], row["wer"]) == (6, 6, 1.0)
    args.sentences.write_text("Hmm.\n", encoding="utf-8")
    args.out = args.out / "other"
    (row,) = run(args)[0]["rows"]
    assert "wer" not in row and row["rtf"] > 0


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path):
    (tmp_path / "lines.txt").write_text("Hello there.\nBye.\n", encoding="utf-8-sig")
    assert evaluate_items.read_texts(tmp_path / "lines.txt") == ["Hello there.", "Bye."]
    audio.write(tmp_path / "a.wav", recordings()[0])
    (tmp_path / "a.json").write_text('{"text": "Hello."}', encoding="utf-8-sig")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in ("a.wav", "a.json"):
            tar.add(tmp_path / name, name)
    (item,) = evaluate_items.read_items(tmp_path / "a.tar")
    assert (item.key, item.text) == ("a", "Hello.")


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read the shard .*none.tar"):
        evaluate_items.read_recordings([tmp_path / "none.tar"])
    with pytest.raises(InputError, match=r"there are no .mp3, .wav"):
        evaluate_items.read_recordings([tmp_path])
    with pytest.raises(InputError, match=r"sentences in \S+none.txt: No such file or directory$"):
        evaluate_items.read_items(tmp_path / "none.txt")
    with pytest.raises(InputError, match="there is no file or folder "):
        evaluate_items.waves([tmp_path / "nowhere.wav"])
    (tmp_path / "results.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="other columns"):
        Results(tmp_path)


def test_bad_arguments_end_in_one_line(tmp_path, capsys):
    for argv, message in [
        (["--limit", "0"], "at least 1"),
        (["--seeds", "one"], "--seeds"),
        (["--steps", "0"], "choose 1 to 1000"),
        (["--metrics", "wer,beauty"], "metric 'beauty' not known"),
        (["--metrics", ","], "--metrics names none"),
        (["--duration", "long"], "--duration is 'long'"),
        (["--voice", "nobody"], "voice 'nobody' not found"),
        (["--voice", "a", "--ref-audio", "b.wav", "--ref-text", "c"], "not both"),
    ]:
        code = evaluate.main(["--out", str(tmp_path / "out"), *argv])
        lines = capsys.readouterr().err.strip().splitlines()
        assert code == 2 and len(lines) == 1 and message in lines[0]
        assert not (tmp_path / "out").exists()


def test_a_package_that_is_missing_is_named_and_the_rest_goes_on(monkeypatch, capsys):
    packages = dict(metrics.PACKAGES, dnsmos=(("no_such_package",), "pip install it"))
    monkeypatch.setattr(metrics, "PACKAGES", packages)
    assert evaluate.available(["rtf", "dnsmos", "duration"], "resemblyzer", True) == [
        "rtf",
        "duration",
    ]
    err = capsys.readouterr().err
    assert "dnsmos" in err and "no_such_package is not installed; run: pip install it" in err


def test_lengths_that_nothing_true_is_there_for_are_told_of(arguments, capsys):
    summary, _ = run(arguments(metrics="rtf,duration"))
    assert summary["metrics"] == ["rtf"]
    assert "left out: duration: no text has a recording" in capsys.readouterr().err
    with pytest.raises(InputError, match="no metric is left"):
        run(arguments(metrics="duration"))
