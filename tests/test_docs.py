"""The documents: links that lead somewhere, commands whose scripts, flags and keys are there."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import shlex
import shutil
import subprocess
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

import nanospeech
from nanospeech import plugins
from nanospeech.commands import COMMANDS
from nanospeech.configs import find_recipe
from nanospeech.evaluate.curve import main as plot
from nanospeech.generate import FALLBACK
from nanospeech_torch.train.config import SECTIONS, read_run
from nanospeech_torch.train.objectives.base import Objective

ROOT = Path(__file__).parent.parent
DOCS = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))
DOCS += sorted((ROOT / "nanospeech" / "default").rglob("*.md"))
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.M | re.S)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FILES = ("py", "csv", "tsv", "md", "json", "png", "safetensors")  # endings that are no keys


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ +(.+?) *$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


def commands(path: Path) -> list[list[str]]:
    """The words of each line of a page's shell blocks; continued lines are one.

    Of a table that says what to type here, its last column's code as well.
    """
    text = path.read_text(encoding="utf-8")
    found = []
    cells = re.findall(r"^\|.*[^\\\n]\|(.+)\|$", text, re.M) if "| there | here |" in text else []
    typed = [("sh", code.replace("\\|", "|")) for cell in cells for code in CODE.findall(cell)]
    blocks = [code for code in typed if "nanospeech " in code[1]]
    for _, block in (m for m in FENCE.findall(text) + blocks if m[0] == "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\|| & ", line):
                if words := shlex.split(part, comments=True):
                    found.append(words)
    return found


def tool(name: str, rest: list[str]) -> tuple[str, list[str]]:
    """Where a subcommand's function is, "module:function", and what it is given."""
    where = plugins.BUILT_IN[plugins.COMMANDS][name]
    module, _, function = where.partition(":")
    tools = getattr(importlib.import_module(module), "TOOLS", None)
    if tools is None:
        return where, rest
    if rest and rest[0] in tools:
        return tools[rest[0]][0], rest[1:]
    return tools["model"][0] if "model" in tools else where, rest


def script(words: list[str]) -> tuple[str, list[str]] | None:
    """The function of ours that a command starts, and what the command gives it."""
    for i, word in enumerate(words):
        rest = words[i + 1 :]
        if word in ("scripts/recipes/slurm.sh", "scripts/train.py"):
            return tool("train", rest)
        if word.rpartition("/")[2] == "nanospeech" and i < 4 and rest:
            return tool(rest[0], rest[1:]) if rest[0] in COMMANDS else tool("speak", rest)
        if word == "-m" and rest:
            if rest[0] == "nanospeech.train":
                return tool("train", rest[1:])
            if rest[0] in ("convert", "nanospeech.generate"):
                module = {"convert": "convert.__main__"}.get(rest[0], rest[0])
                return f"{module}:main", rest[1:]
            if rest[0].startswith("scripts."):
                return f"{rest[0]}:main", rest[1:]
    return None


@cache
def help_of(where: str) -> str:
    """What --help prints."""
    module, _, function = where.partition(":")
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        getattr(importlib.import_module(module), function)(["--help"])
    return out.getvalue()


@pytest.mark.parametrize("path", DOCS, ids=name)
def test_what_a_page_imports_from_nanospeech_is_all_that_its_python_uses_of_it(path):
    code = "".join(
        body for kind, body in FENCE.findall(path.read_text("utf-8")) if kind == "python"
    )
    imported = set(re.findall(r"\w+", " ".join(re.findall(r"^from \S+ import (.+)$", code, re.M))))
    used = {n for n in nanospeech.__all__ if re.search(rf"(?<![\w.]){n}\b", code)}
    assert used <= imported | {"__version__"}


CALLS = [
    pytest.param(module, rest, id=f"{name(path)}: {module} {n}")
    for path in DOCS
    for n, words in enumerate(commands(path))
    if (found := script(words)) is not None
    for module, rest in [found]
]


@pytest.mark.parametrize("path", DOCS, ids=name)
def test_links_and_pictures_lead_somewhere(path):
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), f"{name(path)} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{name(path)} links to {link}"


@pytest.mark.parametrize("path", [p for p in DOCS if p.name != "CHANGELOG.md"], ids=name)
def test_scripts_and_tests_that_are_named_are_there(path):
    text = path.read_text(encoding="utf-8")
    for found in re.findall(r"\b((?:scripts|tests)/[\w./-]*\w)", text):
        if found != "tests/X.py":
            assert (ROOT / found).exists(), f"{name(path)} names {found}"


def test_what_the_pages_commands_write_into_a_clone_is_ignored(tmp_path):
    written = {
        words[i + 1]
        for path in DOCS
        for words in commands(path)
        for i, word in enumerate(words[:-1])
        if word in ("--output", "--out", "--run")
    }
    # pictures and tables of the pages themselves are there to be replaced
    written = {w for w in written if w[0].islower() and not w.startswith("docs/")}
    # what commands write where no flag names it
    written |= {FALLBACK, "runs/anna", "vocab.txt", "skipped.csv", "shards/shard-000000.tar"}
    shutil.copy(ROOT / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    asked = subprocess.run(
        ["git", "check-ignore", *(w if Path(w).suffix else f"{w}/file" for w in written)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    ignored = {line.removesuffix("/file") for line in asked.stdout.splitlines()}
    assert written == ignored


@pytest.mark.parametrize(("module", "rest"), CALLS)
def test_commands_use_flags_that_exist(module, rest):
    known = help_of(module)
    assert "usage" in known
    for word in rest:
        if re.match(r"--?[a-z]", word):
            flag = word.partition("=")[0]
            assert re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", known), f"{module} {flag}"


def changes(rest: list[str]) -> list[str]:
    """The words after --set."""
    found, inside = [], False
    for word in rest:
        inside = word == "--set" or (inside and not word.startswith("--"))
        found += [word] if inside and word not in ("--set", "…", "...") else []
    return found


@pytest.mark.parametrize(("module", "rest"), [c for c in CALLS if "--set" in c.values[1]])
def test_settings_of_commands_are_accepted(module, rest, tmp_path):
    if "--preset" in rest:
        config = find_recipe(rest[rest.index("--preset") + 1])
    elif "--config" in rest:
        config = find_recipe(rest[rest.index("--config") + 1])
    else:
        config = find_recipe(rest[0])
    if not config.exists():  # the reader's own, called FILE or my.yaml
        config = tmp_path / "empty.yaml"
        config.write_text("")
    read_run(config, changes(rest))


@pytest.mark.parametrize("path", DOCS, ids=name)
def test_settings_that_are_named_exist(path):
    for code in CODE.findall(FENCE.sub("", path.read_text(encoding="utf-8"))):
        for section, key in re.findall(r"(?:^|--set |\s)([a-z_]+)\.([a-z_]+)(?==|$|\s)", code):
            if section in SECTIONS and key not in FILES:
                known = {f.name for f in fields(SECTIONS[section])}
                assert key in known, f"{name(path)} names {section}.{key}"


def test_messages_of_the_troubleshooting_table_are_printed():
    """The longest fixed part of each message, as the code has it."""
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    table = text[text.index("Messages of this project") : text.index("Messages of others")]
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("nanospeech", "nanospeech_torch", "convert", "scripts")
        for path in sorted((ROOT / folder).rglob("*.py"))
    )
    code = re.sub(r'"\s*\n\s*f?"', "", code)  # strings that go on in the next line
    for row in table.splitlines():
        for message in CODE.findall(row.split("|")[1] if row.startswith("| `") else ""):
            parts = re.split(
                r"'[^']*'|\[.*?\]|\d[\d_]*|…|accelerate is|step_|dit;|runs/|\.pt", message
            )
            longest = max(parts, key=len).strip(" ;:,")
            assert len(longest) > 8 and longest in code, message


def test_every_reason_to_leave_a_clip_out_is_in_the_table():
    text = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    reasons = set()
    for path in sorted((ROOT / "nanospeech_torch" / "train" / "data").glob("*.py")):
        found = re.findall(r"(?:raise Skip\(|skipped\[)(.+)[\])]", path.read_text(encoding="utf-8"))
        reasons |= {r for line in found for r in re.findall(r'"([a-z][a-z \']+)"', line)}
    assert len(reasons) > 15
    for reason in reasons:
        assert f"`{reason}`" in text, reason


def test_the_map_of_the_house_names_every_module():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for folder in ("nanospeech", "nanospeech_torch"):
        for path in sorted((ROOT / folder).rglob("[a-z]*.py")):
            assert re.search(rf"\b{path.stem}\b", text), f"ARCHITECTURE.md lacks {path.name}"


def test_the_map_of_the_house_has_all_that_the_loop_asks_of_an_objective():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    asked = {n for n in vars(Objective) if not n.startswith("_") and n != "speaks"}
    assert len(asked) > 12
    assert not [n for n in asked if not re.search(rf"`[^`|]*\b{n}\b[^`|]*`", text)]


LOG = """step,mel,judge,grad_norm,lr,seconds
2,2.0,,1.5,1e-4,1.0
4,1.5,2.0,1.4,1e-4,2.0
6,1.2,1.9,1.3,1e-4,0.5
"""


def test_a_log_is_drawn_by_any_of_its_losses(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    log, out = tmp_path / "log.csv", tmp_path / "pictures" / "curve.png"
    log.write_text(LOG)
    for where, more in ((log, []), (tmp_path, ["--loss", "judge"])):  # a run's folder has one
        assert plot(["--log", str(where), "--out", str(out), *more]) == 0
        assert out.read_bytes().startswith(b"\x89PNG")
        assert capsys.readouterr().out == f"wrote {out}\n"
        out.unlink()
    assert plot(["--log", str(log), "--out", str(out), "--loss", "flow"]) == 2
    assert "choose from mel, judge" in capsys.readouterr().err
    log.write_text(LOG.splitlines()[0])
    assert plot(["--log", str(log), "--out", str(out)]) == 2


@pytest.mark.parametrize(
    ("log", "wer", "picture", "message"),
    [
        ("step,mel,grad_norm,lr,seconds\n2,,1,1,1\n", None, "a.png", "number for 'mel' yet"),
        ("step,mel,grad_norm,lr,seconds\n2,x,1,1,1\n", None, "a.png", "in column 'mel' but 'x'"),
        ("step,mel,grad_norm,lr\n2,1,1,1\n", None, "a.png", "in column 'seconds'"),
        (LOG, "step,hours,wer\n", "a.png", "wer.csv has no rows"),
        (LOG, "step,wer\n2,0.1\n", "a.png", "in column 'hours'"),
        (LOG, None, "a.doc", "ends in .png, .svg or .pdf"),
        (LOG, None, "a", "ends in .png, .svg or .pdf"),
    ],
)
def test_a_log_that_cannot_be_drawn_ends_in_a_line(tmp_path, capsys, log, wer, picture, message):
    pytest.importorskip("matplotlib")
    (tmp_path / "log.csv").write_text(log)
    flags = ["--log", str(tmp_path / "log.csv"), "--out", str(tmp_path / picture)]
    if wer is not None:
        (tmp_path / "wer.csv").write_text(wer)
        flags += ["--wer", str(tmp_path / "wer.csv")]
    assert plot(flags) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / picture).exists()
