"""Recipes: clocks that end runs, cards and pages that claim nothing, and the whole road."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

from nanospeech import Speaker, load_engine
from nanospeech.audio import wave as audio
from nanospeech.configs import find_recipe
from nanospeech.corpus.layouts import find
from nanospeech.errors import InputError
from nanospeech.prepare.choose_prompts import ATTRIBUTIONS, read_attributions
from nanospeech.prepare.curate import main as curate
from nanospeech.prepare.recogniser import Heard
from nanospeech.prepare.spoken import build_parser as spoken_parser
from nanospeech.publish.listen import main as listen
from nanospeech.publish.model_card import main as model_card
from nanospeech.release.folder import DEFAULT, load_config
from nanospeech_torch.train.config import read_run
from nanospeech_torch.train.initial import load_objective
from nanospeech_torch.train.loop.config import TrainConfig
from nanospeech_torch.train.optim.optimizers import lr_factor, steps_in_all
from scripts.recipes.revoice import main as revoice
from scripts.recipes.run_stage import main as stage
from scripts.recipes.untranscribed import main as untranscribed
from tests.test_docs import changes, help_of
from tests.test_docs import script as program
from tests.training import samples, trainer

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests/fixtures"
TINY = (
    "speed.compile=off "
    "dit.dim=64 dit.depth=1 dit.heads=1 dit.rope_heads=1 dit.text_dim=32 dit.conv_layers=1 "
    "total_steps=3 warmup_steps=1 train.log_every=1 data.cache_mb=1 mixed_precision=no"
)


# the clock


@pytest.mark.parametrize("pace", [0.05, 1.0, 40.0])  # steps a second
def test_the_rate_falls_with_the_time_whatever_the_machine(pace):
    minutes, decay = 46, 0.4
    for share in (0.3, 0.59, 0.7, 0.9, 0.999):
        step = max(1, round(share * minutes * 60 * pace))
        total = steps_in_all(step, share, 10**9)
        want = 1.0 if share < 1 - decay else (1 - share) / decay
        assert lr_factor(step, 0, total, "wsd", decay) == pytest.approx(want, abs=0.02)


def test_whichever_comes_first_ends_the_schedule():
    # a run that ends before its warm-up does is at rest at its end too
    assert lr_factor(90, 200, steps_in_all(90, 0.999, 10**9), "wsd", 0.4) < 0.01
    assert lr_factor(9, 200, steps_in_all(9, 0.1, 10**9), "wsd", 0.4) == 10 / 201
    assert steps_in_all(500, 0.1, 1000) == 1000
    assert steps_in_all(500, 0.0, 1000) == 1000
    assert steps_in_all(500, 0.9, 1000) == pytest.approx(500 / 0.9)


def test_a_run_ends_by_the_clock_and_its_time_is_remembered(tmp_path, capsys):
    first = trainer(tmp_path, schedule="wsd", minutes=0.005)
    first.train(samples(), 10**6, 2, max_duration=200)
    assert 0 < first.step < 10**6 and first.seconds() >= 0.005 * 60
    again = trainer(tmp_path, schedule="wsd", minutes=0.005)
    again.train(samples(), 10**6, 2, max_duration=200)
    assert again.step == first.step and again.seconds() >= 0.005 * 60
    assert "/1000000" not in capsys.readouterr().err  # nor the hours that these would take
    with pytest.raises(InputError, match="minutes is 0"):
        TrainConfig(minutes=0)


# the card


def test_the_card_says_what_the_files_say_and_no_more(tmp_path, capsys):
    model = Path(shutil.copytree(DEFAULT, tmp_path / "model"))
    assert model_card([str(model)]) == 0
    bare = (model / "README.md").read_text()
    assert "## Consent" in bare and "## Figures" not in bare and "## Training" not in bare
    curate([str(FIXTURES / "speech-000000.tar"), "--out", str(tmp_path / "data"), "--jobs", "1"])
    figures = tmp_path / "evaluation"
    figures.mkdir()
    (figures / "summary.md").write_text("| | WER |\n|---|---|\n| anna | 4.25 % |\n")
    (figures / "summary.json").write_text(
        json.dumps({"metrics": ["wer"], "whisper": "/x/base", "beam": 5, "seeds": [0, 1]})
    )
    stage([str(tmp_path / "record.json"), "train", "--", sys.executable, "-c", ""])
    argv = ["--data", str(tmp_path / "data/curate.json"), "--evaluation", str(figures)]
    argv += ["--record", str(tmp_path / "record.json"), "--vocoder-sources", "callie"]
    assert model_card([str(model), *argv]) == 0
    text = (model / "README.md").read_text()
    for words in ("4.25 %", "Whisper base", "CC0", "FreeSWITCH community", "cores", "| train |"):
        assert words in text
    assert str(tmp_path) not in text  # nobody's folders
    (figures / "summary.json").unlink()
    assert model_card([str(model), *argv]) == 2
    assert capsys.readouterr().err.startswith("error: cannot read")


def test_the_card_keeps_the_licence_of_the_weights(tmp_path):
    model = Path(shutil.copytree(DEFAULT, tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "licence": "cc-by-nc-4.0"}))
    card = model / "README.md"
    for old, front in (
        ("# a card\n", "---\nlicense: cc-by-nc-4.0\n---\n\n# default"),
        (
            "---\nlicense: mit\nlanguage: [de]\n---\n# b\n",
            "---\nlicense: mit\nlanguage: [de]\n---\n\n#",
        ),
    ):
        card.write_text(old)
        for _ in range(2):
            assert model_card([str(model)]) == 0
            assert card.read_text().startswith(front)
            assert (
                card.read_text().count("## Licence\n\nThe weights are published under cc-by-nc")
                == 1
            )
    said = "## Licence\n\nThe weights are published under x. It allows no commercial use of them.\n"
    card.write_text(f"# c\n\n{said}")
    assert model_card([str(model)]) == 0 and said in card.read_text()


def test_every_source_is_attributed():
    for about in read_attributions(ATTRIBUTIONS).values():
        assert about["title"] and about["license"] and about["kind"]


# the page


class Page(HTMLParser):
    """Tags with their attributes, and whether they are nested well."""

    VOID = ("meta", "img", "br", "link")

    def __init__(self):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def check_page(folder: Path) -> Page:
    """Every law of a page: whole, local, labelled, and its sounds and pictures are there."""
    page = Page()
    text = (folder / "index.html").read_text(encoding="utf-8")
    page.feed(text)
    assert not page.open and page.all("html") == [{"lang": "en"}] and page.all("title")
    assert "prefers-color-scheme: dark" in text and "http" not in text
    assert len(page.all("figure")) == text.count("<figcaption>")
    for attrs in page.all("audio"):
        assert "controls" in attrs and attrs["aria-label"]
        wave = audio.read(folder / attrs["src"])
        assert len(wave) > 0.3 * 24_000 and not audio.is_silent(wave)
    for attrs in page.all("img"):
        assert attrs["alt"] and (folder / attrs["src"]).read_bytes().startswith(b"\x89PNG")
    linked = {a["src"] for tag in ("audio", "img") for a in page.all(tag)}
    assert linked == {p.name for p in folder.iterdir()} - {"index.html"}
    return page


def test_what_a_page_lacks_for_its_pictures_is_told_before_it_speaks(
    tmp_path, capsys, tiny_release, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    argv = ["--model", str(tiny_release), "--backends", "torch", "--out", str(tmp_path / "out")]
    assert listen(argv) == 2
    out, err = capsys.readouterr()
    assert not out and "pip install 'nanospeech-tts[eval]'" in err


def test_the_page_can_be_heard_seen_and_read(tmp_path, capsys, tiny_release):
    pytest.importorskip("matplotlib")
    texts, figures = tmp_path / "texts", tmp_path / "evaluation"
    texts.write_text('Yes <and> "no"!\n')
    figures.mkdir()
    (figures / "summary.md").write_text("| | WER |\n|---|---|\n| kumo & co | 4.25 % |\n\nmore\n")
    out = tmp_path / "listen"
    argv = ["--out", str(out), "--texts", str(texts), "--backends", "onnx", "torch"]
    model = Path(shutil.copytree(tiny_release, tmp_path / "model"))
    for suffix in (".wav", ".txt"):
        shutil.copy(model / f"voices/tone{suffix}", model / f"voices/other{suffix}")
    terms = "CC BY 4.0: https://creativecommons.org/licenses/by/4.0/"
    (model / "voices/other.license.txt").write_text(terms)
    argv += ["--model", str(model)]
    assert listen([*argv, "--evaluation", str(figures)]) == 0
    page = check_page(out)
    assert "CC BY 4.0: creativecommons.org/licenses/by/4.0/" in (out / "index.html").read_text()
    assert len(page.all("audio")) >= 2 and len(page.all("th")) == 3
    beside = (tmp_path / "listen.md").read_text()
    assert "| 1, ONNX Runtime | 1, PyTorch |" in beside and "The backends' waves" in beside
    assert "4.25 %" in beside and "shows no audio players" in beside
    for link in re.findall(r"\]\(([^)]+)\)", beside):
        assert (tmp_path / link).is_file()
    assert listen(["--out", str(out), "--backends", "jax"]) == 2
    (tmp_path / "notes.txt").write_text("mine")
    assert listen(["--out", str(tmp_path)]) == 2 and (tmp_path / "notes.txt").exists()
    assert "choose from torch, mlx, onnx" in capsys.readouterr().err


def test_the_page_in_the_documents_is_whole_and_small():
    folder = ROOT / "docs/listen"
    if not folder.exists():
        pytest.skip("not built: nanospeech publish listen")
    check_page(folder)
    assert sum(p.stat().st_size for p in folder.iterdir()) < 3e6


# the whole road


def test_the_speedrun_trains_the_default_network():
    ours, default = (
        read_run(ROOT / f"nanospeech/configs/{name}.yaml") for name in ("speedrun", "default_voice")
    )
    # but one speaker alone needs no conditioning
    assert ours.dit == replace(default.dit, aligner_dim=0) and default.dit.aligner_dim
    assert ours.data.tokenizer == default.data.tokenizer
    assert ours.train.minutes and ours.train.schedule == "wsd"


def check_words(stages: Sequence[Sequence[str]]) -> None:
    """That the commands of a recipe's stages have flags and settings that exist."""
    for words in stages:
        found = program([*(words[words.index("--") + 1 :] if "--" in words else words)])
        if found is None:  # no program of ours
            continue
        known, rest = help_of(found[0]), found[1]
        for flag in (word for word in rest if re.match("--[a-z]", word)):
            assert re.search(rf"(?<![\w-]){flag}(?![\w-])", known), f"{found[0]} {flag}"
        if "--set" in rest:
            read_run(find_recipe(rest[rest[0] == "--config"]), changes(rest))


SCRIPTS = "speedrun.sh", "default_voice.sh", "voice.sh", "student.sh", "any_voice.sh"


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_recipe_without_arguments_tells_its_own(script):
    done = subprocess.run(
        ["sh", str(ROOT / "scripts" / "recipes" / script)], capture_output=True, text=True
    )
    assert (
        done.returncode == 2
        and f"sh scripts/recipes/{script}" in done.stdout
        and "set -eu" not in done.stdout
    )


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("script", ["any_voice.sh", "default_voice.sh"])
def test_losses_are_measured_on_held_out_clips_where_there_are_some(tmp_path, script, held_out):
    runs = tmp_path / "für Anna's Ohren, neu"  # whose name stays one word of each command
    for name in ("data/heldout", "evaluation", "voices"):
        (runs / name).mkdir(parents=True)
    for name in ("levels.txt", "evaluation/summary.md", "voices/anna.flac"):
        (runs / name).touch()
    if held_out:
        (runs / "data/heldout/heldout-000000.tar").touch()
    tell = tmp_path / "tell"  # the commands, a word a line, and runs none
    tell.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    tell.chmod(0o755)
    env = os.environ | {"PYTHON": str(tell), "RUNS": str(runs), "PROCESSES": "1"}
    words = ["out", "5", "shards.tar"] if script == "any_voice.sh" else ["shards", "out", "5"]
    command = ["sh", str(ROOT / "scripts/recipes" / script), *words]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert (f'log.held_out=["{runs}/data/heldout/*.tar"]' in told) == held_out
    assert ("log.held_out" in done.stdout) == held_out
    assert f'data.shards=["{runs}/data/train/*.tar"]' in told and f"run_dir={runs}/speech" in told
    assert not any(line.startswith(("Anna's", "Ohren", "neu")) for line in told)


@pytest.mark.parametrize("script", ["speedrun.sh", "default_voice.sh", "voice.sh"])
def test_recordings_that_name_nobody_are_of_one_person(tmp_path, script):
    """As a folder of one's own: without a name no clip is the prompt of another in training."""
    runs = tmp_path / "runs"
    for name in ("levels.txt", "evaluation/summary.md", "voices/anna.flac", "prompt/anna.flac"):
        (runs / name).parent.mkdir(parents=True, exist_ok=True)
        (runs / name).touch()
    tell = tmp_path / "tell"  # the commands, a word a line, and runs none
    tell.write_text('#!/bin/sh\nprintf "%s\\n" --- "$@"\n')
    tell.chmod(0o755)
    env = os.environ | {"PYTHON": str(tell), "RUNS": str(runs), "PROCESSES": "1"}
    last = {"voice.sh": ["model", "anna"], "speedrun.sh": [str(runs)]}.get(script, ["model"])
    command = ["sh", str(ROOT / "scripts/recipes" / script), str(FIXTURES / "ljspeech"), *last]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    stages = [stage.splitlines() for stage in done.stdout.split("---\n")]
    check_words(stages)
    words = next(stage for stage in stages if "curate" in stage[5:])
    curated = words[words.index("curate", 5) + 1 :]
    curated[curated.index("--out") + 1] = str(tmp_path / "data")
    curated[curated.index("--jobs") + 1] = "1"
    cut = [w for w in curated if w not in ("--whisper", "base")]
    assert curate(cut) == 0
    clips = [s for s in find([*(tmp_path / "data").glob("*/*.tar")])[0] if "pace" not in s.extra]
    assert {s.speaker for s in clips} == {"anna" if script == "voice.sh" else "voice"}


def told_by(
    tmp_path: Path,
    script: str = "any_voice.sh",
    words: Sequence[str] = ("5", "a.tar"),
    **settings: str,
) -> tuple[str, list[list[str]]]:
    """What a recipe says where a setting is missing, or the words of its stages' commands.

    Args:
        words: of its command; of any_voice.sh those behind the folder to write.
    """
    runs = tmp_path / "für Anna's Ohren, neu"
    for name in ("data/train", "data/heldout"):
        (runs / name).mkdir(parents=True, exist_ok=True)
        (runs / name / "clips-000000.tar").touch()
    tell = tmp_path / "tell"  # the commands, a word a line, and runs none
    tell.write_text('#!/bin/sh\nprintf "%s\\n" --- "$@"\n')
    tell.chmod(0o755)
    env = os.environ | {"PYTHON": str(tell), "RUNS": str(runs), "WITHOUT": "anna", **settings}
    first = [str(tmp_path / "out")] if script == "any_voice.sh" else []
    command = ["sh", str(ROOT / "scripts/recipes" / script), *first, *words]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    told = done.stdout.split("---\n")[1:]
    assert (done.returncode == 0) == bool(told), done.stderr
    return done.stderr, [stage.splitlines() for stage in told]


@pytest.mark.parametrize("script", ["student.sh", "any_voice.sh"])
def test_a_recipe_that_was_stopped_keeps_what_the_teacher_said(tmp_path, script):
    """Its folder is emptied for other commands alone; --overwrite began again each time."""
    words = ("teacher", "texts.txt", "out", "5") if script == "student.sh" else ("5", "a.tar")
    _, stages = told_by(tmp_path, script, words, UNDERSTOOD="5", TEXTS="texts.txt")
    check_words(stages)
    spoken = next(stage for stage in stages if stage[3] == "spoken")
    args = spoken_parser().parse_args(spoken[spoken.index("prepare") + 2 :])
    assert spoken[spoken.index("--clean") + 1] == str(args.out) and not args.overwrite


@pytest.mark.parametrize("end", ["SIGINT", "SIGTERM", "a failure"])
def test_processes_that_speak_at_once_end_with_the_recipe(tmp_path, end):
    """A shell has what runs beside it ignore Ctrl-C: they went on for hours, unseen."""
    fails = "case $* in *0/2*) until [ -e id.* ]; do sleep 0.1; done; exit 1;; esac"
    stub = tmp_path / "stub"  # in the place of Python
    stub.write_text(f"#!/bin/sh\n{fails if end == 'a failure' else ''}\n>id.$$\nexec sleep 60\n")
    stub.chmod(0o755)
    (tmp_path / "texts.txt").touch()
    env = os.environ | {"PYTHON": str(stub), "RUNS": str(tmp_path / "runs"), "JOBS": "2"}
    env |= {"WHEELS": str(tmp_path), "TEXTS": str(tmp_path / "texts.txt")}
    command = ["sh", str(ROOT / "scripts/recipes/any_voice.sh"), "out", "5", "a.tar"]
    recipe = subprocess.Popen(command, env=env, cwd=tmp_path, start_new_session=True)
    while recipe.poll() is None and len(list(tmp_path.glob("id.*"))) < 2:
        time.sleep(0.05)
    if end == "SIGINT":  # a terminal sends it to all of them
        os.killpg(recipe.pid, signal.SIGINT)
    elif end == "SIGTERM":
        recipe.terminate()
    assert recipe.wait(30) == {"SIGINT": 130, "SIGTERM": 143}.get(end, 1)
    for path in tmp_path.glob("id.*"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.suffix[1:]), 0)


def after(stage: list[str], flag: str) -> list[str]:
    """The words behind a flag of a stage, up to the next one."""
    rest = stage[stage.index(flag) + 1 :]
    return rest[: next((i for i, word in enumerate(rest) if word.startswith("--")), len(rest))]


def test_what_is_understood_is_measured_and_what_was_before_lies_beside_it(tmp_path):
    told, stages = told_by(tmp_path, UNDERSTOOD="3")
    assert "TEXTS" in told and not stages  # before anything is trained
    runs, out, texts = tmp_path / "für Anna's Ohren, neu", str(tmp_path / "out"), {"TEXTS": "t.txt"}
    stages = {stage[3]: stage for stage in told_by(tmp_path, **texts)[1]}
    assert after(stages["convert"], "--output") == [out]
    assert after(stages["evaluate"], "--needs") == ["convert"] and len(stages) == 5
    more = {"UNDERSTOOD": "3", "LISTENERS": "8 16", "SHARE": "0.7", **texts}
    stages = {stage[3]: stage for stage in told_by(tmp_path, **more)[1]}
    before = str(runs / "before")
    assert list(stages) == [
        "hear", "curate", "speech", "convert", "listener-8", "listener-16", "spoken", "understood",
        "understood-convert", "evaluate",
    ]  # fmt: skip
    assert after(stages["convert"], "--output") == [before]
    for name in ("listener-8", "listener-16", "spoken"):
        assert after(stages[name], "--needs") == ["convert"]
    assert f"teacher={before}" in stages["listener-8"] and "listener.dim=8" in stages["listener-8"]
    spoken, learns, last = (stages[n] for n in ("spoken", "understood", "understood-convert"))
    assert before in spoken and after(spoken, "--recordings") == [
        str(runs / "data/train/clips-000000.tar")
    ]
    assert {Path(p).name for p in after(spoken, "--exclude")} == {
        p.name for p in (ROOT / "nanospeech/evaluate").glob("*.txt")
    }
    assert after(learns, "--needs") == ["spoken", "listener-8", "listener-16"]
    heard = f'["{runs}/listener-8", "{runs}/listener-16"]'
    assert f"understood.listener={heard}" in learns and "train.minutes=3" in learns
    assert after(last, "--output") == [out] and after(last, "--share") == ["0.7"]
    assert after(last, "--average") == after(last, "--like") == [before]
    assert after(stages["evaluate"], "--needs") == ["understood-convert"]
    assert out in stages["evaluate"] and before not in stages["evaluate"]
    same = slice(last.index("--vocoder"), last.index("--like"))
    settings = stages["convert"][stages["convert"].index("--vocoder") :]
    assert last[same] == settings  # both speak alike


@pytest.mark.slow
def test_a_folder_gets_one_more_voice(tiny_aligned, tmp_path):
    folder = Path(shutil.copytree(tiny_aligned, tmp_path / "model"))
    weights = (folder / "model.safetensors").read_bytes()
    env = os.environ | {"PYTHON": sys.executable, "STEPS": "2", "RANK": "2", "LISTEN": "0"}
    env |= {"CUDA_VISIBLE_DEVICES": "", "SPEAKER": "kathleen"}
    command = ["sh", str(ROOT / "scripts/recipes/voice.sh")]
    runs, others = tmp_path / "runs/anna", tmp_path / "others.tar"
    shutil.copy(FIXTURES / "speech-000000.tar", others)

    def run(shards: Path) -> list[str]:
        words = [*command, str(shards), str(folder), "anna"]
        done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return sorted(path.name for path in runs.glob("finetune*"))

    assert run(FIXTURES / "speech-000000.tar") == ["finetune"]
    shutil.rmtree(runs / "prompt")  # another one takes no training
    assert run(FIXTURES / "speech-000000.tar") == ["finetune"]
    assert run(others) == ["finetune", "finetune.1"]  # other recordings do
    assert (folder / "model.safetensors").read_bytes() == weights
    assert "CC0" in (folder / "voices/anna.license.txt").read_text()
    assert (folder / "voices/anna.safetensors").stat().st_size < 2.8e6
    speech = Speaker(load_engine(folder, backend="torch"), "anna", seed=0).speak("Hello there.")
    assert np.isfinite(speech.wave).all() and speech.seconds > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("imitates", [False, True])
def test_a_model_gets_a_student(tiny_aligned, tmp_path, imitates):
    """And goes on with more minutes where it stopped; one that imitates is given recordings."""
    teacher = Path(shutil.copytree(tiny_aligned, tmp_path / "teacher"))
    config = load_config(teacher)
    replace(config, imitates=imitates).save(teacher / "config.json")
    (tmp_path / "texts.txt").write_text("Hello there.\nA red fox ran.\n", encoding="utf-8")
    env = os.environ | {"PYTHON": sys.executable, "CLIPS": "4", "CUDA_VISIBLE_DEVICES": ""}
    env |= {"SET": "total_steps=2 mixed_precision=no save_step=1 warmup_steps=1", "THREADS": "1"}
    command = ["sh", str(ROOT / "scripts/recipes/student.sh"), str(teacher)]
    command += [str(tmp_path / "texts.txt"), str(tmp_path / "out"), "5"]
    if imitates:
        env["RECORDINGS"] = str(FIXTURES / "speech-000000.tar")
    for _ in range(2):
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    student = load_config(tmp_path / "out").student
    assert student is not None and bool(student.voices) != imitates
    speaker = Speaker(load_engine(tmp_path / "out", backend="torch"), "tone", seed=0)
    assert speaker.network == "student" and np.isfinite(speaker.speak("Hello there.").wave).all()


@pytest.mark.slow
def test_recordings_and_speakers_made_of_them_teach_a_model_to_imitate(tiny_aligned, tmp_path):
    pytest.importorskip("pyworld")
    base = Path(shutil.copytree(tiny_aligned, tmp_path / "base"))
    runs, shard = tmp_path / "runs", FIXTURES / "speech-000000.tar"
    flags = ["--out", str(runs / "virtual"), "--per-speaker", "2", "--jobs", "1"]
    assert revoice([str(shard), *flags]) == 0
    made = sorted((runs / "virtual").glob("*.tar"))
    for n in range(6):  # a reader whose words are not told
        copy = tmp_path / f"reader/{n}"
        shutil.copytree(FIXTURES / "ljspeech/wavs", copy)
    reader = f"reader={tmp_path / 'reader'}"
    assert untranscribed([reader, "--out", str(runs / "untranscribed")]) == 0
    (runs / "data").mkdir()
    with Heard(runs / "data/heard.csv", "base") as heard:  # all of it, so that nothing listens
        for sample in find([shard, *made])[0]:
            heard.add(sample.key, sample.audio.read(), sample.text, sample.text)
    env = os.environ | {"PYTHON": sys.executable, "BASE": str(base), "RUNS": str(runs), "VARY": "0"}
    env |= {"REVOICE": "2", "JOBS": "2", "AVERAGE": "1", "CUDA_VISIBLE_DEVICES": ""}
    (tmp_path / "texts.txt").write_text("Hello there.\nA red fox ran.\n", encoding="utf-8")
    env |= {"UNDERSTOOD": "5", "TEXTS": str(tmp_path / "texts.txt"), "CLIPS": "4"}
    env |= {"LISTENERS": "16 24", "UNDERSTOOD_SET": "total_steps=2 mixed_precision=no"}
    env["UNTRANSCRIBED"] = str(runs / "untranscribed")
    config = asdict(load_config(base))
    settings = {"data.tokenizer": "chars", "data.vocab": base / "vocab.txt", "speed.compile": "off"}
    settings |= {"total_steps": 2, "warmup_steps": 1, "mixed_precision": "no"}
    for part in ("dit", "audio"):
        ours = {f"{part}.{k}": v for k, v in config[part].items()}
        settings |= {k: "null" if v is None else v for k, v in ours.items()}
    env["SET"] = " ".join(f"{k}={v}" for k, v in settings.items())
    command = ["sh", str(ROOT / "scripts/recipes/any_voice.sh"), str(tmp_path / "out"), "5"]
    for _ in range(2):
        done = subprocess.run(
            [*command, str(shard)], env=env, cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count("done before") == 9  # the second time there was nothing to do
    config = load_config(tmp_path / "out")
    assert config.imitates and config.prompt_codec == "mp3"
    assert config == load_config(runs / "before")  # it speaks alike, by other weights
    own, old = (
        load_objective(folder).transformer.state_dict()
        for folder in (tmp_path / "out", runs / "before")
    )
    assert any(not torch.equal(own[name], old[name]) for name in old)
    said = json.loads((runs / "record.json").read_text())["stages"]["understood"]["command"]
    assert f'understood.listener=["{runs}/listener-16", "{runs}/listener-24"]' in said
    step = (runs / "speech/latest").read_text().split()[0]
    left_out = json.loads((runs / "speech" / step / "meta.json").read_text())["skipped"]
    assert "without text" not in left_out  # the reader's clips
    said = [str(s.speaker) for s in find(sorted((runs / "data/train").glob("*.tar")))[0]]
    assert any("-v0-" in name for name in said) and any("-v0-" not in name for name in said)
    prompt = find([shard])[0][0]
    (tmp_path / "a.mp3").write_bytes(prompt.audio.read())
    engine = load_engine(tmp_path / "out", backend="torch")
    speaker = Speaker(engine, ref_audio=tmp_path / "a.mp3", ref_text=prompt.text, seed=0)
    assert np.isfinite(speaker.speak("Hello there.").wave).all()


def test_recordings_become_a_voice_that_speaks(tmp_path):
    """The speedrun with a tiny network, three steps and one sentence."""
    pytest.importorskip("matplotlib")
    from tests.forked import interpreter  # needs fork, which the other tests do not

    recordings, out = tmp_path / "recordings", tmp_path / "für Anna's Ohren, neu"
    recordings.mkdir()
    shutil.copy(FIXTURES / "speech-000000.tar", recordings)
    env = os.environ | {"SET": TINY, "PROCESSES": "1", "CUDA_VISIBLE_DEVICES": ""}
    env |= {"EVALUATE": "--limit 1 --metrics rtf"}
    command = ["sh", str(ROOT / "scripts/recipes/speedrun.sh"), str(recordings), str(out), "1"]
    with interpreter() as python:
        for _ in range(2):
            done = subprocess.run(
                command, env=env | {"PYTHON": python}, cwd=tmp_path, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count("done before") == 9  # the second time there was nothing to do
    speech = Speaker(load_engine(out / "model", backend="torch"), seed=0).speak("Hello there.")
    assert np.isfinite(speech.wave).all() and speech.seconds > 0.2
    assert len(audio.read(out / "samples/hello.mp3")) > 0
    card = (out / "model/README.md").read_text()
    assert "CC0" in card and "| train |" in card and "3 optimiser steps" in card
    assert torch.load(next((out / "run").glob("*.pt")), weights_only=True)["step"] == 3
