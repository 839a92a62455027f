"""A release goes to the Hub: real HTTP on the loopback."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from huggingface_hub import constants, metadata_load

from nanospeech.errors import CheckpointError, InputError
from nanospeech.publish.push import (
    first_line,
    main,
    metadata,
    release_files,
    warn_of_imitator,
    write_metadata,
)
from nanospeech.publish.push import push as upload
from nanospeech.release.folder import load_config, open_release
from tests.conftest import needs
from tests.publish.hub import Hub

ROOT = Path(__file__).parents[2]
TOKEN = "hf_secretsecretsecret"


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


def in_a_process(folder: Path, hub: Hub, *flags: str) -> subprocess.CompletedProcess:
    """As a user runs it."""
    hidden = ("HF_TOKEN", "HF_HUB_OFFLINE", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH")
    env = {k: v for k, v in os.environ.items() if k not in hidden and "proxy" not in k.lower()}
    env |= {"HF_ENDPOINT": hub.address, "HF_HOME": str(folder.parent / "home")}
    env |= {"HF_HUB_DISABLE_XET": "1", "PYTHONPATH": str(ROOT), "HF_TOKEN": TOKEN}
    command = [sys.executable, "-m", "nanospeech", "publish", str(folder), "--push"]
    return subprocess.run(
        [*command, "anna/my-voice", *flags], env=env, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def push(monkeypatch, capsys):
    """The same in this process, which spares seconds: push(folder, hub, *flags)."""
    for name in ("HUGGING_FACE_HUB_TOKEN", *(k for k in os.environ if "proxy" in k.lower())):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", os.devnull)

    def run(
        folder: Path, hub: Hub, *flags: str, token: str | None = TOKEN, repo: str = "anna/my-voice"
    ):
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setenv("HF_TOKEN", token or "")
        capsys.readouterr()
        code = main([str(folder), "--push", repo, *flags])
        out, err = capsys.readouterr()
        assert TOKEN not in out + err
        return subprocess.CompletedProcess([], code, out, err)

    return run


def test_a_release_is_uploaded_with_the_hubs_metadata_and_nothing_else(folder):
    hub = Hub()
    done = in_a_process(folder, hub, "--license", "cc-by-4.0", "--private")
    assert done.returncode == 0 and TOKEN not in done.stdout + done.stderr, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    commit = f"{hub.address}/anna/my-voice/commit/1"
    assert told == {"repository": "anna/my-voice", "commit": commit}
    assert "--model anna/my-voice speaks with it" in done.stdout
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
        (404, TOKEN, ["--license", "mit"], "there is no such user or repository"),
        (429, TOKEN, ["--license", "mit"], "the Hub asks for a pause"),
        (418, TOKEN, ["--license", "mit"], "the Hub answers 418"),
    ],
)
def test_what_stops_it_says_what_to_do(push, folder, status, token, flags, said):
    done = push(folder, hub := Hub(status), *flags, token=token)
    assert done.returncode == 2 and not hub.files
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("repo", "said"),
    [
        ("my-voice", "--push 'my-voice' should be USER/REPO"),
        ("anna/my--voice", "--push: Cannot have -- or .. in repo_id: 'anna/my--voice'"),
        ("anna/my-voice", "the Hub cannot be reached: "),
    ],
)
def test_where_nothing_can_go_is_told(push, folder, repo, said):
    hub = Hub()
    hub.server_close()
    done = push(folder, hub, "--license", "mit", repo=repo)
    assert done.returncode == 2 and done.stderr.startswith(f"error: {said}")
    done = push(folder / "none", hub, "--license", "mit", repo=repo)
    assert done.returncode == 2 and ("there is no folder" in done.stderr) == ("/" in repo)


def test_a_repository_has_to_be_named(folder, capsys):
    assert main([str(folder)]) == 2
    assert "the following arguments are required: --push" in capsys.readouterr().err


def test_a_token_in_an_error_is_hidden_and_only_the_first_line_is_told():
    assert first_line(ValueError(f"\nno {TOKEN}: {TOKEN}\nmore"), TOKEN) == "no ***: ***"


def test_a_commit_says_what_it_is_asked_to_and_a_repository_is_made_once(push, folder):
    hub = Hub()
    for flags in ([], ["--message", "Better vowels"]):
        assert push(folder, hub, "--license", "mit", *flags).returncode == 0
    assert hub.summaries == ["Upload my_voice by nanospeech", "Better vowels"]
    assert len(hub.created) == 1 and not hub.created[0].get("private")


def test_a_folder_without_a_card_is_told_how_to_get_one(push, folder):
    (folder / "README.md").unlink()
    done = push(folder, hub := Hub(), "--license", "mit")
    assert done.returncode == 2 and not hub.created
    assert f"nanospeech publish card {folder} writes it" in done.stderr


@pytest.mark.parametrize(
    ("inner", "warned"),
    [("cc-by-nc-4.0", True), ("MIT", False), ("", False), (None, False)],
)
def test_another_licence_of_the_imitator_is_told(folder, caplog, inner, warned):
    if inner is not None:
        config = load_config(folder)
        replace(config, imitator=True).save(folder / "config.json")
        (folder / "imitator").mkdir()
        replace(config, licence=inner).save(folder / "imitator/config.json")
    warn_of_imitator(open_release(folder), "mit")
    assert ("imitator's weights are under cc-by-nc-4.0, not mit" in caplog.text) == warned
    assert bool(caplog.text) == warned


def test_what_a_folder_has_no_more_is_gone_from_the_repository_and_other_files_stay(push, folder):
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


def test_nothing_private_goes_to_a_repository_that_is_public(push, folder):
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


def test_a_licence_that_the_weights_are_not_under_is_refused(push, folder):
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
    assert card.read_text().endswith("# theirs\n")


def test_what_a_card_says_already_stays():
    old = {"license": "mit", "language": ["de"], "tags": ["mine"], "library_name": "other"}
    assert metadata(old, None, []) == {**old, "pipeline_tag": "text-to-speech"}
    changed = metadata(old, "cc0-1.0", ["en", "de"])
    assert changed["license"] == "cc0-1.0" and changed["language"] == ["en", "de"]
    with pytest.raises(InputError, match="--license"):
        metadata({}, None, ["en"])


@pytest.mark.parametrize("own, told", [("", ["en"]), ("de", ["de"]), ("und", None)])
def test_a_model_is_told_to_speak_its_own_language(push, folder, own, told):
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
