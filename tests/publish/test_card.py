"""A model card says what the folder's files are, and what others are owed for them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from nanospeech.errors import InputError
from nanospeech.evaluate import __main__ as evaluate
from nanospeech.publish import model_card as cards
from nanospeech.publish.listen import read_voices
from nanospeech.publish.model_card import main as model_card
from nanospeech.release.folder import DEFAULT, load_config
from tests.conftest import needs

SHARD = Path(__file__).parents[1] / "fixtures" / "speech-000000.tar"
OWED = "## Data, licences, attributions\n\nRead by Anna, CC BY 4.0.\n\n| a | b |\n|---|---|\n"


@pytest.fixture
def shipped(tmp_path) -> Path:
    """The model that ships, whose weights are packed."""
    return Path(shutil.copytree(DEFAULT, tmp_path / "model"))


def card(folder: Path, *flags: str) -> str:
    assert model_card([str(folder), *flags]) == 0
    return (folder / "README.md").read_text(encoding="utf-8")


def rows(text: str) -> set[str]:
    """The rows of the table of files."""
    return {line for line in text.splitlines() if ".safetensors |" in line}


def test_packed_weights_are_counted_as_the_parameters_that_they_are(shipped):
    by_convert = rows((shipped / "README.md").read_text(encoding="utf-8"))
    assert rows(card(shipped)) == by_convert and "10,374,617" in "".join(by_convert)


def test_attributions_stay_until_others_are_given(shipped):
    (shipped / "README.md").write_text(f"# mine\n\n{OWED}\n## Limits\n\nNone.\n")
    text = card(shipped)
    assert OWED in text and "None." not in text and text.count("\n## Data") == 1
    again = card(shipped, "--vocoder-sources", "callie")
    assert "Read by Anna" not in again and "FreeSWITCH" in again


def test_all_that_a_card_says_of_its_licence_stays(shipped):
    said = "## Licence\n\nMIT,\nbut for anna's voice:\n\n- hers alone, she asks not to sell it.\n"
    (shipped / "README.md").write_text(f"# mine\n\n{said}\n## Limits\n\nNone.\n")
    assert said in card(shipped) and card(shipped).count("## Licence") == 1


def test_no_figures_are_spoken_of_where_there_are_none(shipped):
    assert "figures above" not in card(shipped)


def test_words_of_a_prompt_are_shown_as_they_are(shipped):
    (shipped / "voices/kumo.txt").write_text("He *said* <laugh>, a | b.\n")
    (shipped / "voices/stray.wav").touch()  # no voice: nobody says what its words are
    assert r"| He \*said\* \<laugh\>, a \| b. |" in card(shipped)


def test_figures_of_recordings_alone_are_of_no_sentences_and_seeds(shipped, tmp_path):
    pytest.importorskip("whisper_normalizer", reason="it is of the extra eval")
    line = ["--recordings", f"human={SHARD}", "--metrics", "wer", "--out", str(tmp_path / "eval")]
    evaluate.run(evaluate.build_parser().parse_args(line), lambda _: "nothing")
    text = card(shipped, "--evaluation", str(tmp_path / "eval"))
    assert "| human | 4 | 100.00 % |" in text
    assert "\nRecordings; recogniser: Whisper base, beam 5.\n" in text and "seeds" not in text


def test_a_folder_that_is_none_is_told(tmp_path, capsys):
    assert model_card([str(tmp_path / "nothing")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_a_file_that_is_no_text_is_told(tiny_release, tmp_path, capsys):
    folder = Path(shutil.copytree(tiny_release, tmp_path / "folder"))
    odd, told = "Grüße".encode("latin-1"), "; save it as UTF-8\n"
    (notes := tmp_path / "notes.md").write_bytes(odd)
    assert model_card([str(folder), "--notes", str(notes)]) == 2
    assert f"cannot read {notes}: " in (said := capsys.readouterr().err) and said.endswith(told)
    (licence := folder / "voices" / "tone.license.txt").write_bytes(odd)
    assert model_card([str(folder)]) == 2
    assert f"cannot read {licence}: " in (said := capsys.readouterr().err) and said.endswith(told)
    with pytest.raises(InputError, match=r"tone\.license\.txt: .*save it as UTF-8"):
        read_voices(folder)


def written(path: Path, values: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def speaker(clips: int, hours: float, held: float, source: str, licence: str) -> dict:
    return {
        "train_clips": clips, "heldout_clips": int(held > 0), "train_hours": hours,
        "heldout_hours": held, "source": {source: clips}, "license": {licence: clips},
    }  # fmt: skip


def test_the_speakers_of_the_data_are_added_up_and_their_sources_credited(tmp_path):
    nobody = {"train_clips": 0, "heldout_clips": 0}
    first = {"none": nobody, "ann": speaker(90, 1.5, 0.25, "books", "CC0")}
    last = {
        "bob": speaker(8, 0.75, 0, "books", "CC BY 4.0"),
        "eve": speaker(1, 0, 0.5, "calls|2", "MIT"),
    }
    one = written(tmp_path / "1.json", {"speakers": first, "vary": 0.08})
    two = written(tmp_path / "2.json", {"speakers": last, "vary": [0.05, 0.08]})
    known = {
        "books": {"title": "Books", "by": "Ann", "kind": "readings", "note": "Old ones"},
        "tones": {"title": "Tones", "license": "MIT"},
    }
    wanted = """## Data, licences, attributions

The speech model: 2.25 hours trained on, 0.75 held out. Each clip was also heard 5 % and 8 % slower or faster.

| speaker | hours trained on | clips | hours held out | source | licence |
| --- | --- | --- | --- | --- | --- |
| ann | 1.50 | 90 | 0.25 | books | CC0 |
| bob | 0.75 | 8 | 0.00 | books | CC BY 4.0 |
| eve | 0.00 | 1 | 0.50 | calls\\|2 | MIT |

| source | used for | attribution | licence |
| --- | --- | --- | --- |
| books | speech, vocoder | Books, Ann, readings. Old ones | CC BY 4.0, CC0 |
| calls\\|2 | speech | calls\\|2 | MIT |
| tones | vocoder | Tones | MIT |

CC BY 4.0: https://creativecommons.org/licenses/by/4.0/
"""  # noqa: E501
    assert cards.data([one, two], ["books", "tones"], known) == wanted
    plain = cards.data([], ["tones", "x"], known)
    rows_of_two = "| tones | vocoder | Tones | MIT |\n| x | vocoder | x | not stated |\n"
    assert "hours" not in plain and plain.endswith(rows_of_two)
    once = written(tmp_path / "3.json", {"speakers": first})
    assert "held out.\n" in cards.data([once], [], {}) and cards.data([], [], {}) == ""
    assert cards.sources_of([one, two]) == ["books", "calls|2"] and cards.shares(0.08) == [0.08]


def test_a_run_and_its_machine_are_told(tmp_path):
    config = {
        "optimizer": {"name": "muon", "lr": 1e-3}, "mixed_precision": "bf16", "initial": "a/warm",
        "train": {"schedule": "cosine", "accumulate": 3}, "data": {"max_batch_frames": 1000},
    }  # fmt: skip
    meta = {"step": 12_000, "processes": 2, "seconds": 540_000, "run": config}
    written(tmp_path / "run/step-12000/meta.json", meta)
    (tmp_path / "run/latest").write_text("step-12000\n")
    hardware = {"cpu": "C", "cores": 8, "memory_gb": 64, "gpus": ["G", "H"]}
    stages = {"prepare": {"seconds": 61}, "train": {"seconds": 3600}}
    records = [
        written(tmp_path / "a.json", {"hardware": hardware, "stages": stages}),
        written(tmp_path / "b.json", {}),
    ]
    assert (
        cards.training(tmp_path / "run", records)
        == """## Training

- 12,000 optimiser steps on 2 process(es), 150.00 hours, bfloat16 precision.
- muon at a peak rate of 0.001, schedule cosine, up to 6,000 mel frames a step.
- Started from the weights of warm, not from nothing.
- Hardware: C, 8 cores, 64 GB of memory, 2 x G.

| stage | time |
| --- | --- |
| prepare | 01:01 |
| train | 1:00:00 |
| all | 1:01:01 |

- Hardware: unknown processor, ? cores, ? GB of memory.

| stage | time |
| --- | --- |
| all | 00:00 |
"""
    )
    written(tmp_path / "run/step-12000/meta.json", {"step": 5, "processes": 1, "run": {}})
    assert cards.settings(tmp_path / "run") == [
        "- 5 optimiser steps on 1 process(es), float32 precision."
    ]
    assert cards.training(None, []) == ""
    with pytest.raises(InputError, match="holds no checkpoint of a run"):
        cards.settings(tmp_path)


def test_figures_stand_with_how_they_were_measured(tmp_path):
    summary = {
        "seeds": [1, 2], "sentences": "short", "backend": "onnx", "metrics": ["wer", "similarity"],
        "whisper": "models/base", "beam": 5, "speaker_model": "models/ecapa",
    }  # fmt: skip
    folders = [written(tmp_path / name / "summary.json", summary).parent for name in "ab"]
    written(folders[1] / "summary.json", {"sentences": "long", "backend": "mlx"})
    for folder in folders:
        (folder / "summary.md").write_text(f"| {folder.name} |\n\n")
    assert (
        cards.evaluation(folders)
        == """## Figures

| a |

Sentences: short; seeds: 1, 2; backend: onnx; recogniser: Whisper base, beam 5; similarity by ecapa.

| b |

Sentences: long; seeds: none; backend: mlx.

`nanospeech evaluate MODEL --out FOLDER` measures it again.
"""
    )
    assert cards.evaluation([]) == ""


def test_a_new_card_names_its_licence_voices_and_size(shipped, tmp_path, capsys):
    (shipped / "README.md").unlink()
    (notes := tmp_path / "notes.md").write_text("\nMind this.\n\n")
    config = replace(load_config(shipped), licence="cc-by-4.0")
    config.save(shipped / "config.json")
    size = sum(p.stat().st_size for p in shipped.rglob("*") if p.is_file()) / 1e6
    text = card(shipped, "--notes", str(notes))
    assert capsys.readouterr().out == f"wrote {shipped / 'README.md'}\n"
    assert text.startswith("---\nlicense: cc-by-4.0\n---\n\n# ")
    assert "The weights are published under cc-by-4.0.\n" in text and "\n\nMind this.\n\n" in text
    assert f" model, {size:.1f} MB with" in text
    marked = [line for line in text.splitlines() if "(default)" in line]
    assert [line.split(" (")[0] for line in marked] == [f"| {config.default_voice}"]
    none = replace(config, licence=None)
    assert cards.metadata("", none) == cards.licence("", none) == ""


@pytest.mark.parametrize("text", ["[1]", "{", None])
def test_a_file_that_is_of_another_kind_is_told(tiny_release, tmp_path, capsys, text):
    path = tmp_path / "x.json"
    if text:
        path.write_text(text)
    with pytest.raises(InputError, match=r"x\.json should hold|cannot read .*x\.json"):
        cards.read_json(path)
    path.write_text("{}")
    assert model_card([str(tiny_release), "--data", str(path)]) == 2
    assert "one of the files is of another kind or version" in capsys.readouterr().err


# of conversions


def converted(source: Path, output: Path, **options) -> str:
    needs("torch")
    from convert import convert

    convert(source, output, **options)
    return (output / "README.md").read_text(encoding="utf-8")


def test_a_conversion_has_its_own_name_and_says_what_was_changed(tiny_release, tmp_path):
    first = converted(tiny_release, tmp_path / "first")
    assert "Changed by" not in first
    few = converted(tmp_path / "first", tmp_path / "few", name="few", quantize=8)
    assert few.startswith("# few\n\nChanged by `nanospeech convert`: weights in 8 bits. ")
    more = converted(tmp_path / "few", tmp_path / "more", temperature=0.5, vocoder=DEFAULT)
    assert more.count("Changed by") == 1
    assert "weights in 8 bits, another vocoder, temperature 0.5. Words and figures" in more


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"voices": "x"}, "with other voices"),
        ({"average": "x"}, "by the model before --average"),
        ({"temperature": 0.7}, "with another temperature"),
        ({"temperature": 0.5, "quantize": 4, "cfg_strength": 1.0}, ""),
    ],
)
def test_a_student_goes_where_it_was_taught_by_another_model(given, told):
    needs("torch")
    from convert import ConvertOptions
    from convert.converter import other_student

    config = replace(load_config(DEFAULT), temperature=0.5)
    found = other_student(config, ConvertOptions(**given))
    assert found.startswith(told) and bool(found) == bool(told)


def test_each_change_is_named():
    needs("torch")
    from convert import ConvertOptions
    from convert.folder import changes

    before = load_config(DEFAULT)
    given = {name: "x" for name in ("duration", "vocoder", "imitator", "voices", "average")}
    options = ConvertOptions(**given, quantize=4, share=0.25, sharpen=0.5, cfg_strength=2.0)
    old = replace(before, duration=None, imitator=False)
    assert changes(old, replace(before, student=None), options) == [
        "weights in 4 bits",
        "the mean with another model's weights (its own share: 0.25)",
        "a new duration model",
        "another vocoder",
        "a new imitator",
        "other voices",
        "no student",
        "cfg_strength 2.0",
        "sharpen 0.5",
    ]
    assert changes(old, before, ConvertOptions()) == []


def test_weights_that_are_left_out_are_no_longer_in_the_table(shipped, tmp_path):
    config = load_config(shipped)
    text = converted(shipped, tmp_path / "cold", temperature=config.temperature + 0.1)
    assert not (tmp_path / "cold" / "student.safetensors").exists()
    assert "| student.safetensors" not in text and "| imitator/student.safetensors" in text
    assert "no student, temperature 0.5" in text
    replace(config, imitator=False).save(shipped / "config.json")
    assert "imitator/" not in "".join(rows(converted(shipped, tmp_path / "alone")))


def test_rows_fit_a_table_of_more_columns(tiny_release, tmp_path):
    folder = Path(shutil.copytree(tiny_release, tmp_path / "folder"))
    wide = "# tiny\n\n| file | n | kind | size |\n|---|---|---|---|\n"
    (folder / "README.md").write_text(wide + "| model.safetensors | 1 | F16 | 9 MB |\n")
    found = rows(converted(folder, tmp_path / "new"))
    assert {row.count("|") for row in found if "model.safetensors" in row} == {5}
