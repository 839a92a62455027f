"""The command nanospeech: finds its subcommands, imports one alone, and speaks a bare text."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nanospeech import commands, plugins
from nanospeech.configs import find_recipe, recipes
from nanospeech.errors import InputError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("group", plugins.BUILT_IN)
def test_entry_points_are_those_of_the_table(group):
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.split(f'[project.entry-points."{group}"]\n')[1].split("\n\n")[0]
    declared = dict(re.findall(r'^(\w+) = "(.+)"$', section, re.M))
    assert declared == plugins.BUILT_IN[group]
    for where in declared.values():
        assert callable(plugins.load(where))


def test_the_help_has_a_phrase_for_each_command():
    assert list(commands.COMMANDS) == list(plugins.BUILT_IN[plugins.COMMANDS])


def test_a_package_adds_a_command_but_takes_none_of_ours(tmp_path, monkeypatch, capsys):
    (tmp_path / "shouting.py").write_text("def main(words): print(*words); return 7\n")
    told = tmp_path / "shouting-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    lines = "shout = shouting:main", "voices = shouting:main"
    (told / "entry_points.txt").write_text("\n".join(["[nanospeech.commands]", *lines, ""]))
    monkeypatch.syspath_prepend(tmp_path)
    assert commands.main(["shout", "hello"]) == 7
    assert commands.main(["voices"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("hello\n") and "kathleen" in said


def test_help_names_every_command_and_imports_none():
    code = (
        "import sys; from nanospeech.commands import main; code = main(['--help'])\n"
        "print(code, sorted({m.split('.')[0] for m in sys.modules} & {'numpy', 'torch', 'mlx'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("0 []\n")
    for name in commands.COMMANDS:
        assert re.search(rf"^  {name} ", done.stdout, re.M)


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_each_command_explains_itself(name, capsys):
    try:
        code = commands.main([name, "--help"])
    except SystemExit as e:
        code = e.code
    assert code in (0, None)
    assert "usage" in capsys.readouterr().out


@pytest.mark.parametrize("group", ["prepare", "evaluate", "publish"])
def test_each_tool_of_a_group_explains_itself(group, capsys):
    module = __import__(f"nanospeech.commands.{group}", fromlist=["TOOLS"])
    for tool in module.TOOLS:
        with pytest.raises(SystemExit) as stop:
            commands.main([group, tool, "--help"])
        assert stop.value.code in (0, None), tool
        assert "usage" in capsys.readouterr().out, tool


def test_what_is_no_command_is_said_or_refused(monkeypatch, capsys):
    given = []
    monkeypatch.setattr(commands, "find", lambda name: lambda words: given.append((name, words)))
    commands.main(["Hello there.", "--seed", "1"])
    commands.main(["--text", "Hi"])
    commands.main([])
    assert given == [
        ("speak", ["--text", "Hello there.", "--seed", "1"]),
        ("speak", ["--text", "Hi"]),
        ("speak", []),
    ]
    monkeypatch.undo()
    assert commands.main(["evalute", "model"]) == 2
    assert "did you mean evaluate?" in capsys.readouterr().err
    assert commands.main(["prepare", "shrads"]) == 2
    assert "no tool 'shrads'; choose from shards" in capsys.readouterr().err


def test_recipes_are_found_by_name_by_path_and_where_they_used_to_be(tmp_path, monkeypatch):
    assert {"82M", "800M", "default_voice", "vocoder"} <= recipes().keys()
    assert all(recipes().values())
    assert find_recipe("82M").read_text(encoding="utf-8").startswith("#")
    assert find_recipe("scripts/configs/82M.yaml") == find_recipe("82M")
    own = tmp_path / "mine.yaml"
    own.write_text("total_steps: 1\n")
    assert find_recipe(str(own)) == own
    with pytest.raises(InputError, match="no recipe '83M' and no such file; choose from 3B, 800M"):
        find_recipe("83M")


def test_recipes_are_listed(capsys):
    assert commands.main(["train", "--list"]) == 0
    assert re.search(r"^82M +The 82M speech model", capsys.readouterr().out, re.M)
    with pytest.raises(SystemExit):
        commands.main(["train"])
    assert "name one recipe or YAML file" in capsys.readouterr().err


def test_voices_are_listed_and_shown(capsys):
    assert commands.main(["voices"]) == 0
    assert {"kathleen", "kumo"} <= set(capsys.readouterr().out.split())
    assert commands.main(["voices", "show", "Kumo"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("name: kumo\nwords: ") and "licence: " in shown
    assert commands.main(["voices", "show", "nobody"]) == 2
    assert "kumo" in capsys.readouterr().err
