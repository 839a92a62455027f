"""A release goes to the Hub: real HTTP on the loopback, with the part of the Hub's API it takes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import constants, metadata_load

from nanospeech.errors import CheckpointError, InputError
from nanospeech.publish.push import metadata, release_files, write_metadata
from nanospeech.publish.push import push as upload
from nanospeech.release.folder import load_config
from tests.conftest import needs

ROOT = Path(__file__).parents[2]
TOKEN = "hf_secretsecretsecret"


class Hub(ThreadingHTTPServer):
    """Repositories in memory. Keeps what is committed, and the status that it is to answer with."""

    daemon_threads = True

    def __init__(self, status: int = 200):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = status
        self.private = True  # of the repository
        self.created: list[dict[str, Any]] = []
        self.stored: dict[str, bytes] = {}  # large files by their SHA-256
        self.files: dict[str, bytes] = {}  # as committed
        self.tokens: set[str | None] = set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, values: Any, status: int = 200) -> None:
        data = json.dumps(values).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if "/tree/main" in self.path and self.server.status == 200:
            files = [
                {"type": "file", "path": name, "size": len(data), "oid": "0" * 40}
                for name, data in self.server.files.items()
            ]
            return self.answer(files)
        if self.path == "/api/models/anna/my-voice" and self.server.status == 200:
            return self.answer({"id": "anna/my-voice", "private": self.server.private})
        self.answer({"error": "not here"}, 404 if self.server.status == 200 else self.server.status)

    def do_PUT(self) -> None:
        self.server.stored[self.path.rpartition("/")[2]] = self.body()
        self.answer({})

    def do_POST(self) -> None:
        hub, data, path = self.server, self.body(), self.path.partition("?")[0]
        hub.tokens.add(self.headers.get("Authorization"))
        if hub.status != 200:
            return self.answer({"error": "refused"}, hub.status)
        if path == "/api/repos/create":
            hub.created.append(json.loads(data))
            return self.answer({"url": f"{hub.address}/anna/my-voice", "name": "anna/my-voice"})
        if path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if path.endswith("/preupload/main"):
            modes = [
                {
                    "path": f["path"],
                    "uploadMode": "lfs" if f["size"] > 10_000 else "regular",
                    "shouldIgnore": False,
                }
                for f in json.loads(data)["files"]
            ]
            return self.answer({"files": modes})
        if path.endswith("/info/lfs/objects/batch"):
            objects = [
                {**o, "actions": {"upload": {"href": f"{hub.address}/lfs/{o['oid']}"}}}
                for o in json.loads(data)["objects"]
            ]
            return self.answer({"transfer": "basic", "objects": objects})
        if path.endswith("/commit/main"):
            for line in map(json.loads, data.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    hub.files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    hub.files[value["path"]] = hub.stored[value["oid"]]
                elif line["key"] == "deletedFile":
                    del hub.files[value["path"]]
            commit = f"{hub.address}/anna/my-voice/commit/1"
            return self.answer({"commitUrl": commit, "commitOid": "1" * 40})
        return self.answer({"error": path}, 404)


@pytest.fixture
def folder(tiny_release, tmp_path) -> Path:
    """A release with a card, and things beside it that are nobody's business."""
    folder = tmp_path / "my_voice"
    shutil.copytree(tiny_release, folder)
    (folder / "README.md").write_text("# my voice\n\nSpeaks.\n", encoding="utf-8")
    (folder / "notes.txt").write_text("private")
    (folder / ".env").write_text(TOKEN)
    (folder / "takes-of-anna.safetensors").write_text("private")
    raw = folder / "voices" / "raw"
    raw.mkdir()
    for file in (raw / "anna.wav", folder / "voices/.anna.txt", folder / "voices/consent.pdf"):
        file.write_text("private")
    return folder


PRIVATE = {
    "notes.txt",
    ".env",
    "takes-of-anna.safetensors",
    "voices/raw/anna.wav",
    "voices/.anna.txt",
    "voices/consent.pdf",
}


def push(folder: Path, hub: Hub, *flags: str, token: str | None = TOKEN):
    hidden = ("HF_TOKEN", "HF_HUB_OFFLINE", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH")
    env = {k: v for k, v in os.environ.items() if k not in hidden and "proxy" not in k.lower()}
    env |= {"HF_ENDPOINT": hub.address, "HF_HOME": str(folder.parent / "home")}
    env |= {"HF_HUB_DISABLE_XET": "1", "PYTHONPATH": str(ROOT)}
    env |= {"HF_TOKEN": token} if token else {}
    command = [sys.executable, "-m", "nanospeech", "publish", str(folder), "--push"]
    done = subprocess.run(
        [*command, "anna/my-voice", *flags], env=env, capture_output=True, text=True, timeout=60
    )
    assert TOKEN not in done.stdout + done.stderr
    return done


def test_a_release_is_uploaded_with_the_hubs_metadata_and_nothing_else(folder):
    hub = Hub()
    done = push(folder, hub, "--license", "cc-by-4.0", "--private")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["commit"] == f"{hub.address}/anna/my-voice/commit/1"
    assert hub.tokens == {f"Bearer {TOKEN}"}
    (made,) = hub.created
    assert (made["organization"], made["name"]) == ("anna", "my-voice")
    assert made.get("visibility") == "private" or made.get("private") is True
    here = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    assert hub.files.keys() == here.keys() - PRIVATE
    for name, data in hub.files.items():
        assert data == here[name].read_bytes(), name
    assert hashlib.sha256(here["model.safetensors"].read_bytes()).hexdigest() in hub.stored
    _, head, text = hub.files["README.md"].decode().split("---\n", 2)
    assert yaml.safe_load(head) == {
        "library_name": "nanospeech",
        "pipeline_tag": "text-to-speech",
        "license": "cc-by-4.0",
        "language": ["en"],
    }
    assert text.lstrip() == "# my voice\n\nSpeaks.\n"


@pytest.mark.parametrize(
    ("status", "token", "flags", "said"),
    [
        (200, None, ["--license", "mit"], "no Hugging Face token: run hf auth login"),
        (200, TOKEN, [], "name it with --license"),
        (200, TOKEN, ["--license", "My Own"], "are like mit or cc-by-4.0"),
        (401, TOKEN, ["--license", "mit"], "the Hub does not know the token: make one"),
        (403, TOKEN, ["--license", "mit"], "the token may not write there"),
        (418, TOKEN, ["--license", "mit"], "the Hub answers 418"),
    ],
)
def test_what_stops_it_says_what_to_do(folder, status, token, flags, said):
    done = push(folder, hub := Hub(status), *flags, token=token)
    assert done.returncode == 2 and not hub.files
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    assert said in done.stderr


def test_what_a_folder_has_no_more_is_gone_from_the_repository_and_other_files_stay(folder):
    hub = Hub()
    hub.files = dict.fromkeys(("student.safetensors", "voices/anna.wav", "demo.html"), b"old")
    hub.files |= dict.fromkeys(("model-00001-of-00002.safetensors", "LICENSE"), b"old")
    assert push(folder, hub, "--license", "mit").returncode == 0
    assert {"demo.html", "LICENSE", "model.safetensors"} <= hub.files.keys()
    gone = {"voices/anna.wav", "student.safetensors", "model-00001-of-00002.safetensors"}
    assert not gone & hub.files.keys()


@pytest.mark.parametrize("name", ["voices", "imitator", "text_encoder"])
def test_a_folder_that_is_a_link_is_not_left_out(folder, name):
    (folder / "voices").rename(folder.parent / "voices")
    (folder / name).symlink_to(folder.parent / "voices")
    with pytest.raises(InputError, match=rf"{name} is a link, whose files would not .*cp -rL"):
        upload(folder, "anna/my-voice")


def test_nothing_private_goes_to_a_repository_that_is_public(folder):
    hub = Hub()
    hub.private = False
    done = push(folder, hub, "--license", "mit", "--private")
    assert done.returncode == 2 and not hub.files and not hub.stored
    assert "error: anna/my-voice is there already, and public" in done.stderr
    assert push(folder, hub, "--license", "mit").returncode == 0 and hub.files


def test_weights_in_several_files_are_uploaded_with_their_index(tmp_path):
    names = ["config.json", "model.safetensors.index.json", "imitator/student.safetensors"]
    names += ["model-00001-of-00002.safetensors", "imitator/model-00001-of-00001.safetensors"]
    others = ["other-00001-of-00002.safetensors", "voices/anna.wav", "optimizer.safetensors"]
    for name in (*names, *others):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(release_files(tmp_path)) == sorted(names)


def test_a_licence_that_the_weights_are_not_under_is_refused(folder):
    config = load_config(folder)
    replace(config, licence="cc-by-nc-4.0").save(folder / "config.json")
    hub = Hub()
    done = push(folder, hub, "--license", "mit")
    assert done.returncode == 2 and not hub.files
    assert "are under cc-by-nc-4.0, as their config.json says" in done.stderr
    assert push(folder, hub).returncode == 0
    assert b"license: cc-by-nc-4.0" in hub.files["README.md"]


def test_a_card_in_the_hubs_cache_is_not_written_through(tmp_path):
    blob, card = tmp_path / "blob", tmp_path / "README.md"
    blob.write_text("# theirs\n")
    card.symlink_to(blob)
    assert write_metadata(card, "mit", []) == "mit"
    assert blob.read_text() == "# theirs\n" and "license: mit" in card.read_text()


def test_what_a_card_says_already_stays():
    old = {"license": "mit", "language": ["de"], "tags": ["mine"], "library_name": "other"}
    assert metadata(old, None, []) == {**old, "pipeline_tag": "text-to-speech"}
    changed = metadata(old, "cc0-1.0", ["en", "de"])
    assert changed["license"] == "cc0-1.0" and changed["language"] == ["en", "de"]
    with pytest.raises(InputError, match="--license"):
        metadata({}, None, ["en"])


@pytest.mark.parametrize("own, told", [("", ["en"]), ("de", ["de"]), ("und", None)])
def test_a_model_is_told_to_speak_its_own_language(folder, own, told):
    replace(load_config(folder), language=own).save(folder / "config.json")
    hub = Hub()
    assert push(folder, hub, "--license", "mit").returncode == 0
    head = yaml.safe_load(hub.files["README.md"].decode().split("---\n")[1])
    assert head.get("language") == told


@pytest.mark.parametrize("language, kept", [("no", ["no"]), ("[de, no]", ["de", "no"])])
def test_norwegian_stays_norwegian(tmp_path, language, kept):
    (card := tmp_path / "README.md").write_text(f"---\nlicense: mit\nlanguage: {language}\n---\n")
    for _ in range(2):
        assert write_metadata(card, None, []) == "mit"
        assert metadata_load(card)["language"] == kept


def test_metadata_that_is_no_yaml_is_told_in_one_line(tmp_path):
    (card := tmp_path / "README.md").write_text("---\nlicense: cc: by\n---\n# mine\n")
    with pytest.raises(InputError, match=r"README.md is not YAML: mapping values are .*") as found:
        write_metadata(card, "mit", [])
    assert "\n" not in str(found.value) and "cc: by" in card.read_text()


def test_a_release_on_the_hub_is_converted_by_its_name(tiny_release, tmp_path, monkeypatch):
    """From the Hub's cache, whose files are links into a folder of all versions."""
    needs("torch")
    from convert import convert

    repo, version = tmp_path / "models--anna--my-voice", "1" * 40
    snapshot = repo / "snapshots" / version
    for file in (f for f in sorted(tiny_release.rglob("*")) if f.is_file()):
        link, blob = snapshot / file.relative_to(tiny_release), repo / "blobs" / file.name
        for path in (link, blob):
            path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, blob)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (repo / "refs").mkdir()
    (repo / "refs/main").write_text(version)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    convert("anna/my-voice", out := tmp_path / "out")
    made = [p for p in out.rglob("*") if p.is_file()]
    assert out / "voices/tone.wav" in made and not any(p.is_symlink() for p in made)
    with pytest.raises(CheckpointError, match=r"anna/other\.pt not found"):
        convert("anna/other.pt", out)
    with pytest.raises((CheckpointError, InputError), match="no such folder"):
        convert("anna/other", out)
