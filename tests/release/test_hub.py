"""A model on the Hub: downloaded from a server on loopback, kept, and read from there offline."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nanospeech.config import ModelConfig

pytest.importorskip("onnxruntime")  # the backend that is imported soonest
ROOT = Path(__file__).parents[2]
FIRST, SECOND = "1" * 40, "2" * 40  # commits


class Hub(ThreadingHTTPServer):
    """The repository anna/my-voice, whose branch main and tag v1 are folders."""

    daemon_threads = True

    def __init__(self, commits: dict[str, Path], refs: dict[str, str]):
        super().__init__(("127.0.0.1", 0), Handler)
        self.commits, self.refs = commits, refs
        self.fetched: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None: ...

    def answer(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def do_GET(self) -> None:
        hub, parts = self.server, self.path.partition("?")[0].strip("/").split("/")
        where = parts[:2] if parts[0] == "anna" else parts[2:4]
        if where != ["anna", "my-voice"]:
            return self.answer(404, b"{}", X_Error_Code="RepoNotFound")
        revision = parts[5] if parts[0] == "api" and len(parts) > 5 else "main"
        revision = parts[3] if parts[0] == "anna" else revision
        commit = hub.refs.get(revision, revision)
        if commit not in hub.commits:
            return self.answer(404, b"{}", X_Error_Code="RevisionNotFound")
        folder = hub.commits[commit]
        names = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]
        if parts[0] == "api" and parts[4:5] == ["tree"]:
            files = [{"path": n, "size": (folder / n).stat().st_size} for n in names]
            files = [{"type": "file", "oid": "0" * 40, **file} for file in files]
            return self.answer(200, json.dumps(files).encode(), Content_Type="application/json")
        if parts[0] == "api":
            told = {"id": "anna/my-voice", "sha": commit, "private": False, "downloads": 0}
            told |= {"siblings": [{"rfilename": n} for n in names], "tags": [], "likes": 0}
            return self.answer(200, json.dumps(told).encode(), Content_Type="application/json")
        name = "/".join(parts[4:])
        if name not in names:
            return self.answer(404, b"", X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        data = (folder / name).read_bytes()
        if self.command == "GET":
            hub.fetched.append(name)
        etag = hashlib.sha1(data).hexdigest()
        return self.answer(200, data, X_Repo_Commit=commit, ETag=f'"{etag}"')

    do_HEAD = do_GET


@pytest.fixture
def hub(tiny_release, tmp_path):
    """Two versions of a release, of which the second speaks at another temperature."""
    commits = {FIRST: tmp_path / "first", SECOND: tmp_path / "second"}
    for folder in commits.values():
        shutil.copytree(tiny_release, folder)
        (folder / "notes.txt").write_text("private")
        (folder / "model.onnx.bin").write_bytes(b"of somebody else")
    config = ModelConfig.load(tmp_path / "second" / "config.json")
    told = json.loads((tmp_path / "second" / "config.json").read_text())
    assert config.temperature != 0.9
    (tmp_path / "second" / "config.json").write_text(json.dumps(told | {"temperature": 0.9}))
    hub = Hub(commits, {"main": SECOND, "v1": FIRST})
    yield hub
    hub.shutdown()
    hub.server_close()


# the commands of a list, one after the other: each one's status, and what it told
EACH = """
import contextlib, io, json, sys
from nanospeech.commands import main
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as told, contextlib.redirect_stdout(told):
        status = main(words)
    print(json.dumps([status, told.getvalue()]))
"""


def commands(hub: Hub, home: Path, *each: tuple[str, ...], ends: int) -> list[str]:
    """What commands tell, in one process, that all end with a status."""
    done = run(hub, home, "-c", EACH, json.dumps(each))
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [status for status, _ in found] == [ends] * len(each), found
    return [told for _, told in found]


def command(hub: Hub, home: Path, *words: str, **more: str) -> subprocess.CompletedProcess:
    return run(hub, home, "-m", "nanospeech", *words, **more)


def run(hub: Hub, home: Path, *words: str, **more: str) -> subprocess.CompletedProcess:
    hidden = ("HF_TOKEN", "HF_HUB_OFFLINE", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH")
    env = {k: v for k, v in os.environ.items() if k not in hidden and "proxy" not in k.lower()}
    env |= {"HF_ENDPOINT": hub.address, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    env |= {"PYTHONPATH": str(ROOT), **more}
    words = (sys.executable, *words)
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)


def test_a_model_on_the_hub_is_fetched_once_and_speaks_without_a_network(hub, tmp_path):
    spoken = ("speak", "Hello.", "--backend", "onnx", "--device", "cpu", "--steps", "2")
    spoken += ("--model", "anna/my-voice", "--seed", "1", "--output")
    home, out = tmp_path / "home", tmp_path / "out.wav"
    done = command(hub, home, *spoken, str(out))
    assert done.returncode == 0, done.stderr
    assert "model.safetensors" in hub.fetched and "voices/tone.wav" in hub.fetched
    assert "notes.txt" not in hub.fetched and len(hub.fetched) == len(set(hub.fetched))
    before = len(hub.fetched)
    again = command(hub, home, *spoken, str(tmp_path / "again.wav"), HF_HUB_OFFLINE="1")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "again.wav").read_bytes() == out.read_bytes() and len(hub.fetched) == before


def test_a_revision_is_the_one_that_is_named(hub, tmp_path):
    first = ModelConfig.load(tmp_path / "first" / "config.json").temperature
    models = {"anna/my-voice": 0.9, "anna/my-voice@v1": first, f"anna/my-voice@{SECOND}": 0.9}
    each = [("convert", m, "--output", str(tmp_path / f"got{i}")) for i, m in enumerate(models)]
    commands(hub, tmp_path / "home", *each, ends=0)
    for i, temperature in enumerate(models.values()):
        found = ModelConfig.load(tmp_path / f"got{i}" / "config.json").temperature
        assert found == temperature


def test_what_the_hub_has_not_is_told_in_one_line(hub, tmp_path):
    why = {
        "anna/nobody": "no such repository",
        "anna/my-voice@v9": "no revision 'v9'",
        "anna/my-voice@": "neither a folder nor a Hub repository",
        "anna/my-voice@../../v1": "neither a folder nor a Hub repository",
    }
    speak = ("speak", "Hello.", "--output", str(tmp_path / "out.wav"), "--model")
    for told, wanted in zip(
        commands(hub, tmp_path / "home", *((*speak, model) for model in why), ends=2), why.values()
    ):
        assert wanted in told and "Traceback" not in told
    assert not (tmp_path / "out.wav").exists()


def test_a_repository_of_a_checkpoint_is_told_how_to_convert_it(hub, tmp_path):
    model = tmp_path / "second" / "model.safetensors"
    model.rename(model.with_name("model_1250000.safetensors"))
    words = ("speak", "Hello.", "--model", "anna/my-voice", "--output", str(tmp_path / "out.wav"))
    done = command(hub, tmp_path / "home", *words)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "hf download anna/my-voice FILE --local-dir FOLDER" in done.stderr
    assert "nanospeech convert FOLDER/FILE" in done.stderr
