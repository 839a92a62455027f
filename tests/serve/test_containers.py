"""The container and unit files: what they promise about users, tokens, networks and health."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "containers"
DOCKERFILES = sorted(FOLDER.glob("Dockerfile*"))


def instructions(path: Path) -> list[tuple[str, str]]:
    """(INSTRUCTION, rest) of each line of a Dockerfile's last stage; continued lines are one."""
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.M).replace("\\\n", " ")
    pairs = [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]
    last = max(i for i, (name, _) in enumerate(pairs) if name == "FROM")
    return pairs[last:]


def test_there_are_images_for_processors_and_for_cuda():
    assert [p.name for p in DOCKERFILES] == ["Dockerfile", "Dockerfile.cuda"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda p: p.name)
def test_an_image_is_slim_labelled_and_does_not_run_as_root(path):
    found = instructions(path)
    last = dict(found)
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", last["FROM"])
    assert int(last["USER"].partition(":")[0]) > 0
    names = [name for name, _ in found]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert not {"RUN", "COPY", "ADD"} & set(names[names.index("USER") :])  # all that is root's
    for label in ("title", "description", "licenses", "version", "documentation"):
        assert f"org.opencontainers.image.{label}=" in last["LABEL"]
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.M)
    assert version and f'version="{version[1]}"' in last["LABEL"]
    assert "--insecure" not in last["ENTRYPOINT"] and "TOKEN" not in last["ENV"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda p: p.name)
def test_an_image_does_not_start_without_a_token(path):
    argv = json.loads(dict(instructions(path))["ENTRYPOINT"])
    assert argv[:2] == ["nanospeech", "serve"] and "0.0.0.0" in argv
    env = {k: v for k, v in os.environ.items() if k != "NANOSPEECH_TOKEN"}
    done = subprocess.run(
        [sys.executable, "-m", *argv], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 2 and "set a token" in done.stderr


def test_an_image_is_healthy_while_the_server_is_ready_and_no_longer(serve):
    checks = {dict(instructions(path))["HEALTHCHECK"].partition("CMD ")[2] for path in DOCKERFILES}
    assert len(checks) == 1
    python, *rest = json.loads(checks.pop())
    assert python == "python"
    with serve() as server:
        argv = [sys.executable, *(word.replace(":8000/", f":{server.port}/") for word in rest)]
        assert argv[1:] != rest
        assert subprocess.run(argv, capture_output=True).returncode == 0
    assert subprocess.run(argv, capture_output=True).returncode != 0


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda p: p.name)
def test_what_is_copied_is_not_ignored_and_secrets_are(path):
    text = path.read_text(encoding="utf-8")
    assert "COPY . ." in text
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert ignored[0] == "*"
    wheel = re.search(r"^packages = \[(.+)\]", (ROOT / "pyproject.toml").read_text(), re.M)
    assert wheel
    needed = [
        *json.loads(f"[{wheel[1]}]"),
        "pyproject.toml",
        "constraints.txt",
        "README.md",
        "LICENSE",
    ]
    assert {f"!{name}" for name in needed} <= set(ignored)
    assert not any("containers" in line or "git" in line for line in ignored)


def test_compose_publishes_to_this_machine_alone_and_takes_a_token_from_a_secret():
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    service = found["services"]["nanospeech"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["command"] == ["--token-file", "/run/secrets/token"]
    assert service["secrets"] == ["token"] and found["secrets"]["token"]["file"] == "token.txt"
    assert "containers/token.txt" in (ROOT / ".gitignore").read_text(encoding="utf-8")
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"pids_limit", "mem_limit", "cpus"} <= service.keys()


def test_the_unit_is_hardened_and_its_command_is_one_of_ours():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read(FOLDER / "nanospeech.service", encoding="utf-8")
    service = unit["Service"]
    for key in ("DynamicUser", "NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome"):
        assert service[key] == "yes"
    assert service["ProtectSystem"] == "strict" and service["CapabilityBoundingSet"] == ""
    from nanospeech.commands.serve import build_parser, read_settings
    from nanospeech.serve.settings import is_loopback

    program, *argv = shlex.split(service["ExecStart"])
    assert program.endswith("/bin/nanospeech") and argv[0] == "serve"
    settings = read_settings(build_parser().parse_args(argv[1:]))
    assert is_loopback(settings.host) and not settings.insecure
    assert settings.limits.drain < int(service["TimeoutStopSec"])


def test_the_flags_that_the_page_gives_an_image_are_taken(monkeypatch):
    pytest.importorskip("wyoming")
    from nanospeech.commands.serve import build_parser, read_settings
    from nanospeech.serve.wyoming import listen_wyoming
    from tests.test_docs import commands

    monkeypatch.setenv("NANOSPEECH_TOKEN", "0123456789abcdef0123")
    entry = json.loads(dict(instructions(DOCKERFILES[0]))["ENTRYPOINT"])
    runs = [w for w in commands(ROOT / "docs" / "containers.md") if w[:2] == ["docker", "run"]]
    given = [w[w.index("nanospeech") + 1 :] for w in runs if "nanospeech" in w]
    assert any("--wyoming" in flags for flags in given)
    for flags in given:
        args = build_parser().parse_args([*entry[2:], *flags])
        settings = read_settings(args)
        assert settings.token is not None
        if args.wyoming is not None:
            listen_wyoming(settings, 0).close()
