"""The package as users get it: wheel, sdist, the README's command, imports that do nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from subprocess import PIPE

import numpy as np
import pytest
import soundfile
import yaml

from nanospeech.commands import COMMANDS
from nanospeech.corpus.layouts import find
from nanospeech.corpus.mp3 import decode

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
VOCODER = ROOT / "tests" / "golden" / "vocos_pytorch_model.bin"
SPOKEN = ["--text", "It works from a wheel.", "--output", "hello.wav", "--seed", "1"]


def run(command: list, cwd: Path) -> subprocess.CompletedProcess:
    result = subprocess.run(
        [str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=900
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    return result


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A copy of the tree without anything that git would not carry."""
    target = tmp_path_factory.mktemp("source") / "nanospeech"
    skip = shutil.ignore_patterns(
        ".git", ".venv*", "runs", "__pycache__", "dist", "build", "*.egg-info", ".*_cache"
    )
    shutil.copytree(ROOT, target, ignore=skip)
    return target


@pytest.fixture(scope="module")
def built(source, tmp_path_factory) -> Path:
    """A folder with the sdist and the wheel that is built from it.

    NANOSPEECH_DIST names one whose files are to be published, and are tested instead.
    """
    if ready := os.environ.get("NANOSPEECH_DIST"):
        return ROOT / ready
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source], source)
    return out


def speech_in(path: Path) -> float:
    """Seconds of a file that is neither silent nor clipped."""
    wave, rate = soundfile.read(path)
    assert rate == 24_000 and 0.01 < (wave**2).mean() ** 0.5 < 0.5 and abs(wave).max() <= 1
    return len(wave) / rate


def licences_of(wheel: Path) -> set[str]:
    """The SPDX identifiers of a wheel's expression: of all that is in it (PEP 639)."""
    with zipfile.ZipFile(wheel) as files:
        (about,) = (n for n in files.namelist() if n.endswith(".dist-info/METADATA"))
        text = files.read(about).decode()
    (expression,) = re.findall(r"^License-Expression: (.+)$", text, re.M)
    return set(expression.split(" AND "))


def licences_of_voices() -> set[str]:
    """What the recordings in the package, and the texts in them, are under."""
    notes = (ROOT / "nanospeech/default/voices").glob("*.license.txt")
    text = "\n".join(note.read_text(encoding="utf-8") for note in notes)
    found = re.findall(r"CC BY \d\.0|CC0 1\.0|Apache-2\.0", text)
    return {"-".join(name.split()) for name in found}


def test_wheel_and_sdist_hold_what_they_should(built):
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    for needed in (
        "nanospeech/default/model.safetensors",
        "nanospeech/default/config.json",
        *(
            f"nanospeech/default/imitator/{n}"
            for n in ("model.safetensors", "student.safetensors", "README.md")
        ),
        "nanospeech/text/data/cmudict.txt.gz",
        "nanospeech_mlx/dit.py",
        "nanospeech_onnx/dit.py",
        "nanospeech_torch/dit.py",
        *(f"nanospeech{p}/py.typed" for p in ("", "_torch", "_mlx", "_onnx")),
        "convert/py.typed",
        "convert/__main__.py",
    ):
        assert needed in names
    assert not any(n.startswith(("tests/", "scripts/", "runs/")) for n in names)
    voices = [n.removesuffix(".flac") for n in names if n.endswith(".flac")]
    notes = ["LICENSE", "nanospeech/text/data/cmudict.LICENSE.txt"]
    for note in [*notes, *(f"{voice}.license.txt" for voice in voices)]:
        assert any(n.endswith(f".dist-info/licenses/{note}") for n in names), note
    assert licences_of(wheel) == {"MIT", "BSD-2-Clause", *licences_of_voices()}
    assert wheel.stat().st_size < 60e6
    with tarfile.open(sdist) as tar:
        inside = tar.getnames()
    assert any(n.endswith("tests/test_package.py") for n in inside)
    assert not any("/runs/" in n for n in inside)


def test_readme_command_speaks(source, monkeypatch):
    monkeypatch.setenv("PIP_COMPILE", "0")  # 2,000 modules of which 200 are imported
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"<!-- speak -->\n```sh\n(.*?)```", text, re.S)
    run(["bash", "-euo", "pipefail", "-c", command], source)
    assert 0.5 < speech_in(source / "hello.wav") < 15


def test_import_loads_no_backend():
    code = "import sys, nanospeech.generate, nanospeech.speech.speaker\n"
    code += "import nanospeech_torch.prepare.features; print(sorted(sys.modules))"
    names = run([sys.executable, "-c", code], ROOT).stdout
    assert not [n for n in ("'torch'", "'mlx", "'onnxruntime", "'datasets'") if n in names]


def test_versions_types_and_names_are_declared():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '"Typing :: Typed"' in text and 'name = "nanospeech-tts"' in text
    # another project: nanospeech, or nanospeech[extra]; the benchmark of its version 0.0.6 means it
    old = re.compile(r"pip install(?: -\S+)* ['\"]?nanospeech" + r"(?!-tts|==)\b")
    kept = {".py", ".md", ".toml", ".sh", ".yaml", ".yml", ".txt"}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout
    paths = [ROOT / line for line in listed.splitlines()] or [  # an archive, with its environment
        p for p in ROOT.rglob("*") if not any(x.startswith(".venv") for x in p.parts)
    ]
    found = {
        str(path.relative_to(ROOT)): line
        for path in paths
        if path.suffix in kept and path.is_file()
        for line in path.read_text(encoding="utf-8").splitlines()
        if old.search(line)
    }
    assert not found


def test_a_release_is_tested_before_it_is_published():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert publish["needs"] == "build" and publish["permissions"] == {"id-token": "write"}
    assert "permissions" not in build and workflow["permissions"] == {"contents": "read"}
    assert publish["steps"][-1]["uses"].startswith("pypa/gh-action-pypi-publish@")
    runs = [step.get("run", "") for step in build["steps"]]
    assert runs.index("python -m build") < runs.index("python -m pytest tests/test_package.py")
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_missing_extra_is_answered_by_the_pip_command():
    code = (
        "import sys; sys.modules['datasets'] = None\n"
        "from nanospeech.errors import require, BackendError\n"
        "try: require('datasets', 'train')\n"
        "except BackendError as e: print(e)"
    )
    assert "pip install 'nanospeech-tts[train]'" in run([sys.executable, "-c", code], ROOT).stdout


TINY = "dim=64 depth=2 heads=1 text_dim=32 conv_layers=1 text_upsampling=aligned patch_size=2"
SHORT = "total_steps=4 warmup_steps=2 save_step=4 mixed_precision=no log.sample_every=0"
DATA = "batch_size=4 max_batch_frames=2000 workers=0"


# runs the script of the command for each line that it reads, in processes that have what others
# made of the imports: those of the wheel itself are each one's own
FORKS = """
import atexit, gc, json, os, runpy, sys
import accelerate, datasets, peft, torch, torch._dynamo
gc.freeze()
print("ready", flush=True)
for line in sys.stdin:
    words, *outputs = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    for number, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = words
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code or 0)  # to take all modules down takes a second
"""


class Clean:
    """An environment that holds the wheel, and sees the packages of this one."""

    def __init__(self, wheel: Path, folder: Path):
        venv.create(folder / "env", with_pip=False)
        self.bin, self.desk = folder / "env" / "bin", folder / "desk"
        self.desk.mkdir()
        python = str(self.bin / "python")
        pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
        subprocess.run(
            [*pip, "install", "--no-index", "--no-deps", "--no-compile", "--quiet", str(wheel)],
            check=True, capture_output=True,
        )  # fmt: skip
        (site,) = (folder / "env" / "lib").glob("python*/site-packages")
        # a path alone: an editable install's own .pth there is not read
        (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        hidden = ("PYTHONPATH", "PYTHONHOME")
        self.env = {k: v for k, v in os.environ.items() if k not in hidden}
        self.env |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        self.done: set[str] = set()
        self.forks = subprocess.Popen(
            [python, "-c", FORKS], cwd=self.desk, env=self.env, stdin=PIPE, stdout=PIPE, text=True
        )
        assert self.forks.stdin is not None and self.forks.stdout is not None
        self.ask, self.codes = self.forks.stdin, iter(self.forks.stdout.readline, "")
        assert next(self.codes) == "ready\n"

    def __call__(self, command: str, *more: object) -> str:
        """Runs nanospeech with the words of a line, and others; what it printed."""
        words = [str(self.bin / "nanospeech"), *command.split(), *map(str, more)]
        said = [self.desk.parent / name for name in ("stdout", "stderr")]
        print(json.dumps([words, *map(str, said)]), file=self.ask, flush=True)
        code = int(next(self.codes))
        out, err = (path.read_text(encoding="utf-8") for path in said)
        assert code == 0, f"{command}: {out[-2000:]}{err[-3000:]}"
        self.done.add(words[1])
        return out

    @contextmanager
    def server(self, command: str) -> Iterator[str]:
        """The address of a command that serves; it is to end well when it is told to."""
        words = [str(self.bin / "nanospeech"), *command.split()]
        process = subprocess.Popen(words, cwd=self.desk, env=self.env, stderr=PIPE, text=True)
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            yield next(m[0] for m in (re.search(r"http://127\S+:\d+", x) for x in lines) if m)
        finally:
            process.terminate()
            process.communicate(timeout=60)
        assert process.returncode in (0, -signal.SIGTERM)
        self.done.add(words[1])


@pytest.fixture(scope="module")
def nanospeech(built, tmp_path_factory) -> Iterator[Clean]:
    clean = Clean(*built.glob("*.whl"), tmp_path_factory.mktemp("clean"))
    yield clean
    with clean.forks:  # end where there is no more to read
        clean.ask.close()
    assert clean.forks.returncode == 0


def test_the_wheel_speaks_in_the_voice_that_it_brings(nanospeech):
    words = [nanospeech.bin / "nanospeech", "speak", "--backend", "mlx", "--steps", "2", *SPOKEN]
    subprocess.run(words, cwd=nanospeech.desk, env=nanospeech.env, check=True)
    assert 0.5 < speech_in(nanospeech.desk / "hello.wav") < 6
    assert "kathleen" in nanospeech("speak --list-voices").split()


def record(folder: Path, count: int = 12) -> None:
    """Recordings with their texts: pairs of the fixtures' clips, one after the other."""
    samples, _ = find([FIXTURES / "libritts", FIXTURES / "speech-000000.tar"], "auto")
    clips = [(decode(s.audio.read())[0], s.text) for s in samples]
    folder.mkdir()
    pairs = [pair for pair in permutations(clips, 2)][:count]
    assert len(pairs) == count
    for i, ((a, said), (b, more)) in enumerate(pairs):
        soundfile.write(folder / f"clip{i:02d}.wav", np.concatenate([a, b]), 24_000)
        (folder / f"clip{i:02d}.txt").write_text(f"{said} {more}\n", encoding="utf-8")


def seconds_of(path: Path) -> float:
    wave, rate = soundfile.read(path)
    assert rate == 24_000 and np.isfinite(wave).all() and np.abs(wave).max() > 0
    return len(wave) / rate


def prefixed(prefix: str, changes: str) -> list[str]:
    return [f"{prefix}.{change}" for change in changes.split()]


def test_recordings_become_a_published_voice(nanospeech):
    run, desk = nanospeech, nanospeech.desk
    where = "import nanospeech, sys; sys.exit(sys.prefix not in nanospeech.__file__)"
    subprocess.run([run.bin / "python", "-c", where], cwd=desk, env=run.env, check=True)
    record(desk / "recordings")

    run("prepare vocab recordings --out vocab.txt")
    made = json.loads(run("prepare shards recordings --out shards --size 6 --jobs 1"))
    assert (made["samples"], made["shards"], made["skipped"]) == (12, 2, {})

    changes = [*prefixed("dit", TINY), *SHORT.split(), *prefixed("data", DATA)]
    run("train 82M --threads 1 --set", "data.shards=[shards/*.tar]", *changes)
    assert (desk / "runs" / "nanospeech" / "step_00000004.pt").is_file()

    run("convert runs/nanospeech --output model --imitates --vocoder", VOCODER)
    said = ["--ref-audio", "recordings/clip00.wav", "--ref-text"]
    said.append((desk / "recordings" / "clip00.txt").read_text().strip())
    flags = "--backend torch --steps 2 --seed 1 --duration 1.5 --quiet --model model --output a.wav"
    run(f"speak {flags} --text", "Hello there.", *said)
    assert seconds_of(desk / "a.wav") == pytest.approx(1.5, abs=0.1)

    (desk / "book.md").write_text("# One\n\nHello there.\n", encoding="utf-8")
    run("book book.md --output book --backend torch --steps 2 --quiet")
    assert seconds_of(desk / "book" / "01 One.opus") > 1

    tune = "--steps 2 --save-step 2 --threads 1 --precision no --prompt recordings/clip00.wav"
    run(f"finetune --model model --data recordings --voice anna --output anna {tune}")
    assert run("voices --model anna").splitlines()[1].startswith("anna ")
    assert seconds_of(desk / "anna" / "sample.wav") > 0.1

    measure = "--metrics duration --sentences recordings --limit 2 --steps 2 --jobs 1"
    summary = run(f"evaluate anna --backend torch --out evaluation {measure}").splitlines()[-1]
    (row,) = json.loads(summary)["rows"]
    assert row["name"] == "anna"

    run("publish voice anna model --voice anna")
    assert run("voices --model model").splitlines()[1].startswith("anna ")
    run("publish card anna --evaluation evaluation --run runs/nanospeech")
    card = (desk / "anna" / "README.md").read_text(encoding="utf-8")
    assert "4 optimiser steps" in card and re.search(r"\| anna \(default\) \|", card)
    (desk / "texts.txt").write_text("Hello there.\n")
    run("publish listen --model anna --out page --texts texts.txt --backends torch")
    assert (desk / "page" / "anna-1-torch.mp3").is_file() and (desk / "page.md").is_file()

    assert "W IH1 N" in run("say-how win")
    with run.server("serve --port 0 --backend torch --model anna") as url:
        assert b"<html" in urllib.request.urlopen(url, timeout=30).read()
        body = json.dumps({"model": "anna", "input": "Hello there.", "response_format": "wav"})
        asked = urllib.request.Request(f"{url}/v1/audio/speech", body.encode())
        asked.add_header("Content-Type", "application/json")
        (desk / "served.wav").write_bytes(urllib.request.urlopen(asked, timeout=60).read())
    assert seconds_of(desk / "served.wav") > 0.1
    assert run.done >= COMMANDS.keys()
