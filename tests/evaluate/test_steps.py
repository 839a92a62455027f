"""The sweep of steps against quality: its cells, its arithmetic, its rule, its files."""

from __future__ import annotations

import csv
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from nanospeech.config import STEPS, SampleOptions
from nanospeech.errors import InputError, NanospeechError
from nanospeech.evaluate import durations, steps, steps_report
from nanospeech.evaluate.steps import Row, read_rows
from nanospeech.evaluate.steps_cells import COUNTS, Cell, cells
from nanospeech.release.folder import open_release
from tests import forked
from tests.test_locks import holder

TEXTS = [f"sentence {i}" for i in range(10)]


def rows(cell: Cell, edits: list[int], dnsmos: float = 3.0) -> list[Row]:
    """Ten utterances of ten words each."""
    marks = [dnsmos + 0.1 * (i % 2) for i in range(10)]
    return [
        Row(cell.key, 0, text, text, e, 10, mark, 2.0, 0.5)
        for text, e, mark in zip(TEXTS, edits, marks)
    ]


def euler(count: int) -> Cell:
    return Cell("euler", SampleOptions(steps=count, cfg_strength=3.0))


def test_cells_count_evaluations_and_not_steps():
    found = cells(3.0)
    by_line = {line: [c for c in found if c.line == line] for line in steps_report.LINES}
    assert [len(c.times) for c in by_line["euler"]] == list(COUNTS)
    assert [len(c.times) for c in by_line["uniform"]] == [4, 5, 6, 7, 8, 10]
    assert [len(c.times) for c in by_line["midpoint"]] == [4, 6, 8, 10, 12, 16, 32]
    assert [len(c.times) for c in by_line["rk4"]] == [4, 8, 12, 16, 32]
    for c in by_line["cfg-zero"]:  # steps that are skipped cost nothing
        assert len(c.times) == c.options.steps - c.options.zero_init
        assert c.forwards == 2 * len(c.times)
    assert {c.options.zero_init for c in by_line["cfg-zero"]} == {0, 1, 2}
    assert [c.options.cfg_strength for c in by_line["strength"]] == [0, 1, 2, 3, 4]
    assert [c.forwards for c in by_line["strength"]] == [7, 14, 14, 14, 14]
    assert [c.options.temperature for c in by_line["temperature"]] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert all(7 < c.forwards < 14 for c in by_line["interval"])
    default = cells(3.0, lines=["euler"])[COUNTS.index(STEPS)]
    for line in ("strength", "temperature"):  # and is measured once
        assert default.key in {c.key for c in by_line[line]}


def test_a_model_without_guidance_has_no_kinds_of_it_to_compare():
    found = cells(0.0)
    guided = {"interval", "cfg-zero"}
    assert {c.line for c in found} == {c.line for c in cells(3.0)} - guided
    assert all(c.forwards == len(c.times) for c in found if c.line != "strength")


def test_a_student_takes_one_pass_an_evaluation_beside_the_model_in_as_many_steps():
    found = cells(3.0, student_steps=(2, 3))
    taught = [c for c in found if c.student]
    assert [c.line for c in taught] == ["student", "student"]
    assert [(len(c.times), c.forwards) for c in taught] == [(2, 2), (3, 3)]
    assert len({c.key for c in found}) == len({c.key for c in cells(3.0)}) + 2
    assert cells(3.0, lines=["student"]) == []


@pytest.mark.parametrize(
    ("voice", "recording", "steps_taught"),
    [(None, None, (2,)), ("kumo", None, (2,)), ("sora", None, ()), (None, "me.wav", ())],
)
def test_the_student_is_measured_in_voices_that_it_was_taught(voice, recording, steps_taught):
    args = SimpleNamespace(voice=voice, ref_audio=recording)
    assert steps.student_steps(args, open_release().config) == steps_taught


def test_the_sweep_is_of_the_models_own_share_of_overshoot_taken_back():
    assert {c.options.cfg_rescale for c in cells(2.0, rescale=0.7)} == {0.7}


@pytest.mark.parametrize("flags", [["--voice", "sora"], ["--ref-audio", "me.wav"]])
def test_voices_that_another_network_speaks_are_not_swept_by_this_one(flags):
    args = steps.build_parser().parse_args(flags)
    with pytest.raises(InputError, match=r"imitated by another model.*imitator$"):
        steps.voice_of(args, open_release())
    own = open_release(open_release().folder / "imitator")
    assert getattr(steps.voice_of(args, own), "name", None) == args.voice
    assert steps.voice_of(steps.build_parser().parse_args([]), open_release()).name == "kathleen"


def test_figures_are_those_of_the_utterances():
    cell = euler(7)
    (result,) = steps_report.summarize([cell], rows(cell, [0] * 8 + [1, 3]))
    assert result["wer"] == pytest.approx(0.04)
    assert result["wer_error"] == pytest.approx(0.0306, abs=1e-4)
    assert result["dnsmos"] == pytest.approx(3.05)
    assert result["rtf"] == pytest.approx(0.25)
    assert (result["evaluations"], result["forwards"], result["utterances"]) == (7, 14, 10)


def test_the_error_of_a_ratio_is_not_that_of_edits_a_sentence():
    # 3 edits in 20 words, 0.15; over it -0.75, 0.5 and 0.25: sqrt(3 / 2 * 0.875) / 20
    assert steps_report.ratio_error([0, 2, 1], [5, 10, 5]) == pytest.approx(0.05728, abs=1e-5)
    assert steps_report.ratio_error([1, 2, 3], [5, 10, 15]) == pytest.approx(0)  # 0.2 in each
    cell, words = euler(7), [5, 10, 15, 20, 5, 10, 15, 20, 5, 10]
    spoken = [replace(row, words=n) for row, n in zip(rows(cell, [n // 5 for n in words]), words)]
    (result,) = steps_report.summarize([cell], spoken)
    assert (result["wer"], result["wer_error"]) == (pytest.approx(0.2), pytest.approx(0))


def test_only_sentences_that_every_cell_has_spoken_count():
    a, b = euler(5), euler(7)
    spoken = rows(a, [0] * 10) + rows(b, [1] * 10)[:4]
    assert [r["utterances"] for r in steps_report.summarize([a, b], spoken)] == [4, 4]
    assert steps_report.summarize([a, b], rows(a, [0] * 10)) == []


@pytest.mark.parametrize(
    ("few", "wanted"),
    [
        (([0] * 9 + [1], 3.0), 5),  # a point of WER is noise
        (([0] * 8 + [1, 2], 3.0), 7),  # three are not
        (([1] * 10, 3.0), 7),
        (([0] * 10, 2.9), 7),  # nor is a tenth of DNSMOS
        (([0] * 10, 3.2), 5),  # better than the rest
    ],
)
def test_the_knee_is_the_fewest_within_noise_of_the_best(few, wanted):
    quality = {5: few, 7: ([0] * 10, 3.0), 32: ([0] * 10, 3.0)}
    if wanted == 7:
        quality[3] = ([5] * 10, 2.0)
    found = [euler(n) for n in quality]
    spoken = [row for c in found for row in rows(c, *quality[c.options.steps])]
    chosen = [r for r in steps_report.summarize(found, spoken) if r["knee"]]
    assert [r["evaluations"] for r in chosen] == [wanted]


def height(png: Path) -> int:
    """Of a picture, in pixels."""
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG")
    return int.from_bytes(data[20:24], "big")


def test_table_csv_and_picture(tmp_path):
    pytest.importorskip("matplotlib")
    found = cells(3.0)
    spoken = [r for c in {c.key: c for c in found}.values() for r in rows(c, [0] * 9 + [1])]
    results = steps_report.summarize(found, spoken)
    assert [r["evaluations"] for r in results if r["knee"]] == [3]
    steps_report.write_csv(results, tmp_path / "steps.csv")
    with (tmp_path / "steps.csv").open() as f:
        read = list(csv.DictReader(f))
    assert len(read) == len(found) and sum(r["knee"] == "True" for r in read) == 1
    assert {r["guidance"] for r in read} == {"cfg", "cfg-zero"}
    assert {r["cfg_rescale"] for r in read} == {"0.0"}
    steps_report.draw(results, tmp_path / "steps.png")
    assert height(tmp_path / "steps.png") == 1122
    steps_report.draw([r for r in results if r["line"] == "euler"], tmp_path / "euler.png")
    assert height(tmp_path / "euler.png") == 374  # no empty pictures of what was not swept
    page = tmp_path / "page.md"
    page.write_text(f"before\n{steps_report.BEGIN}\nold\n{steps_report.END}\nafter\n")
    for _ in range(2):
        steps_report.insert(steps_report.table(results), page, tmp_path / "figures")
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert text.count("](figures/steps.png)") == 1
    assert text.count("(**knee**)") == 1 and "| 1.0 ± 1.0 |" in text
    page.write_text("no markers")
    with pytest.raises(InputError, match="steps: begin"):
        steps_report.insert("table", page, tmp_path)


def test_a_sweep_goes_on_where_it_was_but_not_with_another_model(tmp_path):
    raw, about = tmp_path / "new" / "utterances.csv", {"model": "a", "whisper": "base"}
    assert read_rows(raw, about) == []
    kept = rows(euler(5), [0, 1] * 5)
    with raw.open("a", newline="") as f:
        csv.writer(f).writerows(steps.asdict(row).values() for row in kept)
    assert read_rows(raw, about) == kept
    with pytest.raises(InputError, match="another whisper"):
        read_rows(raw, about | {"whisper": "small"})
    with raw.open("a") as f:
        f.write("half a line")  # killed
    assert read_rows(raw, about) == kept == read_rows(raw, about)
    with raw.open("a") as f:
        f.write("a damaged line\n")
    with pytest.raises(InputError, match="cannot read"):
        read_rows(raw, about)


@pytest.mark.parametrize("args", [["--limit", "0"], ["--workers", "0"], ["--seeds", "-1"]])
def test_bad_input_is_one_line(args, capsys):
    assert steps.main(args) == 2
    assert capsys.readouterr().err.startswith("error: --")


def test_lines_that_a_model_has_not_are_no_matter_of_time(tiny_release, monkeypatch, capsys):
    monkeypatch.setattr(steps.metrics, "check", lambda name: None)
    assert steps.main([str(tiny_release), "--lines", "student"]) == 2
    assert "nothing to sweep for --lines student" in capsys.readouterr().err


def test_a_page_without_markers_is_found_before_anything_is_spoken(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(steps.metrics, "check", lambda name: None)
    assert steps.main(["--doc", str(tmp_path / "none.md"), "--out", str(tmp_path / "out")]) == 2
    assert "none.md should hold the lines" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_development_sentences_are_thirty_and_none_is_a_test_sentence():
    def plain(path):
        return {" ".join(t.lower().split()) for t in steps.read_texts(path)}

    dev = plain(steps.SENTENCES)
    assert len(dev) == 30
    assert all(3 <= len(t.split()) <= 20 for t in dev)
    for name in ("sentences.txt", "short_texts.txt"):
        assert not dev & plain(steps.SENTENCES.with_name(name))


def test_the_description_of_a_model_changes_with_its_weights(tiny_release, make_release):
    def about(folder, ref_audio=None, ref_text=None):
        names = {"voice": None, "ref_audio": ref_audio, "ref_text": ref_text, "whisper": "base"}
        args, release = SimpleNamespace(backend="auto", device="cpu", **names), open_release(folder)
        return steps.about(args, release, steps.voice_of(args, release))

    other = make_release()
    a, b = about(tiny_release), about(other)
    assert a["voice"] == "tone" and a["whisper"] == "base"
    assert a["weights"] != b["weights"] and a == about(tiny_release)
    (other / "voices" / "tone.json").write_text('{"pace": 1.1}')
    assert about(other)["weights"] != b["weights"]
    recording = str(tiny_release / "voices" / "tone.wav")
    said, corrected = (about(tiny_release, recording, text) for text in ("hello", "hello there"))
    assert said["prompt"] != corrected["prompt"] and said["voice"] == corrected["voice"]


def test_a_worker_that_cannot_begin_ends_the_sweep():
    """A pool would start it again and again."""
    args = steps.build_parser().parse_args(["no/such/model"])
    task = Cell("", SampleOptions()), 0, "Hello."
    with (
        forked.CONTEXT.Pool(1, steps.prepare, (args, ())) as pool,
        pytest.raises(NanospeechError, match="no/such/model"),
    ):
        pool.apply_async(steps.speak_and_measure, (task,)).get(30)


@pytest.mark.skipif(os.name == "nt", reason="nothing is locked there")
@pytest.mark.parametrize("command", [steps.main, durations.main], ids=["steps", "durations"])
def test_two_runs_do_not_write_into_one_folder(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(steps.metrics, "check", lambda name: None)
    words = ["--shards", "none.tar"] if command is durations.main else []
    with holder(tmp_path / "out"):
        assert command([*words, "--out", str(tmp_path / "out")]) == 2
    assert "is in use by process" in capsys.readouterr().err


def test_clips_that_name_no_language_are_of_the_models():
    shard = str(Path(__file__).parents[1] / "fixtures/speech-000000.tar")
    for own, code in ("pt-BR", "pt"), ("und", "en"), ("", "en"):
        clips = list(durations.read_clips([shard], 0, [], own))
        assert len(clips) == 4 and {clip.language for clip in clips} == {code}
