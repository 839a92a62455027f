"""The command nanospeech: finds its subcommands, imports one alone, and speaks a bare text."""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import io
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tqdm import tqdm

from nanospeech import cli, commands, plugins
from nanospeech.commands import completion
from nanospeech.configs import find_recipe, recipes
from nanospeech.errors import InputError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("group", plugins.BUILT_IN)
def test_entry_points_are_those_of_the_table(group):
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.split(f'[project.entry-points."{group}"]\n')[1].split("\n\n")[0]
    declared = dict(re.findall(r'^([\w-]+) = "(.+)"$', section, re.M))
    assert declared == plugins.BUILT_IN[group]
    for where in declared.values():
        assert callable(plugins.load(where))


def test_the_help_has_a_phrase_for_each_command():
    assert list(commands.COMMANDS) == list(plugins.BUILT_IN[plugins.COMMANDS])


def test_a_package_adds_a_command_but_takes_none_of_ours(tmp_path, monkeypatch, capsys):
    (tmp_path / "shouting.py").write_text("def main(words): print(*words); return 7\n")
    info = tmp_path / "shouting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    lines = "shout = shouting:main", "voices = shouting:main"
    (info / "entry_points.txt").write_text("\n".join(["[nanospeech.commands]", *lines, ""]))
    monkeypatch.syspath_prepend(tmp_path)
    assert commands.main(["shout", "hello"]) == 7
    assert commands.main(["voices"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("hello\n") and "kathleen" in said


@pytest.mark.parametrize("word", ["--help", "help"])
def test_help_names_every_command_and_imports_none(word):
    code = (
        f"import sys; from nanospeech.commands import main; code = main(['{word}'])\n"
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
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: nanospeech {name}") and f"  nanospeech {name}" in shown


@pytest.mark.parametrize("group", ["prepare", "evaluate", "publish"])
def test_each_tool_of_a_group_explains_itself(group, capsys):
    module = __import__(f"nanospeech.commands.{group}", fromlist=["TOOLS"])
    for tool in module.TOOLS:
        with pytest.raises(SystemExit) as stop:
            commands.main([group, tool, "--help"])
        assert stop.value.code in (0, None), tool
        shown = capsys.readouterr().out
        assert shown.startswith(f"usage: nanospeech {group}"), tool
        assert f"    nanospeech {group} {tool} " in shown or tool in ("model", "push"), tool


def test_every_argument_says_what_it_is():
    def silent(parser: argparse.ArgumentParser, name: str) -> list[str]:
        found = []
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for tool, child in action.choices.items():
                    found += silent(child, f"{name} {tool}")
            elif not action.help:
                found.append(f"{name}: {action.dest}")
        return found

    assert silent(completion.whole_parser(commands.COMMANDS), "nanospeech") == []


def test_what_is_no_command_is_said_or_refused(monkeypatch, capsys):
    given = []
    monkeypatch.setattr(commands, "find", lambda name: lambda words: given.append((name, words)))
    commands.main(["Hello there.", "--seed", "1"])
    commands.main(["--text", "Hi"])
    commands.main([])
    assert given == [
        ("speak", ["Hello there.", "--seed", "1"]),
        ("speak", ["--text", "Hi"]),
        ("speak", []),
    ]
    monkeypatch.undo()
    assert commands.main(["evalute", "model"]) == 2
    assert "did you mean evaluate?" in capsys.readouterr().err
    assert commands.main(["Hello", "there", "--seed", "1"]) == 2
    assert "to say a text, in quotes: nanospeech 'Hello there'" in capsys.readouterr().err
    assert commands.main(["Hello,", "it's", "--seed", "1"]) == 2
    assert """give one text, in quotes: 'Hello, it'"'"'s'""" in capsys.readouterr().err
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
    assert commands.main(["train"]) == 2
    assert "name one recipe or YAML file" in capsys.readouterr().err


def test_voices_are_listed_and_shown(capsys):
    assert commands.main(["voices"]) == 0
    assert {"kathleen", "kumo"} <= set(capsys.readouterr().out.split())
    assert commands.main(["voices", "show", "Kumo"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("name: kumo\nwords: ") and "licence: " in shown
    assert commands.main(["voices", "show", "nobody"]) == 2
    assert "kumo" in capsys.readouterr().err


def test_what_goes_wrong_is_one_line_and_a_code(capsys, tmp_path):
    def raising(error: BaseException):
        def main(argv=None):
            raise error

        return cli.command(main, interrupted="the same command goes on")

    assert raising(InputError("two\nlines"))([]) == 2
    assert capsys.readouterr().err == "error: two lines\n"
    assert cli.command(lambda argv: len((tmp_path / "gone").read_text()))([]) == 2
    assert capsys.readouterr().err.startswith(f"error: cannot read or write {tmp_path / 'gone'}: ")
    assert raising(KeyboardInterrupt())([]) == 130
    assert capsys.readouterr().err == "the same command goes on\n"
    with pytest.raises(ZeroDivisionError):  # a bug of ours keeps its traceback
        raising(ZeroDivisionError())([])
    with pytest.raises(FileNotFoundError):
        cli.command(lambda argv: (tmp_path / "gone").read_text(), expected=())([])


SHARD = str(ROOT / "tests" / "fixtures" / "speech-000000.tar")
PRINTING = [["--help"], ["prepare"], ["voices", "--help"]]
PRINTING += [["prepare", "vocab", "--out", "/dev/null", SHARD]]


@pytest.mark.parametrize(
    "words",
    [
        ["convert", "mine", "--output", ""],
        ["convert", "mine", "--output", "new", "--voices", ""],
        ["prepare", "vocab", "--out", ""],
        ["book", "", "--output", ""],
        ["publish", "voice", "", "base", "--voice", "anna"],
    ],
    ids=" ".join,
)
def test_an_empty_path_is_no_name_of_the_current_folder(words, tmp_path, monkeypatch, capsys):
    """It is that of a shell's variable that is not set."""
    monkeypatch.chdir(tmp_path)
    assert commands.main(words) == 2
    err = capsys.readouterr().err
    assert "it is empty; name a file or a folder" in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", PRINTING, ids=["help", "group", "voices", "vocab"])
def test_a_closed_pipe_is_no_error(words, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    with subprocess.Popen(
        [sys.executable, "-m", "nanospeech", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        # no tool named: 2
        assert process.stderr.read() == b"" and process.wait() in (0, 2 * (words == ["prepare"]))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device is full here")
@pytest.mark.parametrize("words", [["--help"], ["voices"], ["say-how", "hello"]], ids=" ".join)
@pytest.mark.parametrize("buffered", [True, False])
def test_a_full_disk_under_what_is_printed_is_one_line(words, buffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    command = [sys.executable, "-m", "nanospeech", *words]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, cwd=ROOT, env=environment, text=True
        )
    assert done.returncode == 2
    assert done.stderr == (
        "error: cannot write: No space left on device; make room, or write to another disk\n"
    )


def test_a_character_that_the_output_lacks_is_escaped(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "cp1252"))
    assert commands.main(["say-how", "\u0141\u00f3d\u017a"]) == 0
    assert written.getvalue().startswith(b"# \\u0141\xf3d\\u017a is read as: Woodzh")


def test_an_interrupt_of_its_imports_is_one_line(monkeypatch, capsys):
    def find(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "find", find)
    assert commands.main(["voices"]) == 130 and capsys.readouterr().err == "interrupted\n"


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_ends_is_an_interrupt_unless_it_is_ignored(number):
    sent = getattr(signal, number)
    before = signal.signal(sent, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt), cli.ends_interrupt():
            signal.raise_signal(sent)
        assert signal.getsignal(sent) is signal.SIG_DFL
        signal.signal(sent, signal.SIG_IGN)  # as nohup does
        with cli.ends_interrupt():
            signal.raise_signal(sent)
        assert signal.getsignal(sent) is signal.SIG_IGN
    finally:
        signal.signal(sent, before)


@pytest.mark.parametrize("where", ["callback", "error", "del"])
def test_an_interrupt_that_python_ignores_ends_the_command_all_the_same(where, capfd):
    class Late:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    @ctypes.CFUNCTYPE(None)
    def callback():
        signal.raise_signal(signal.SIGINT)

    def work(argv=None):
        if where == "del":
            Late()
        else:
            callback()
        if where == "error":  # as soundfile's, of which a callback wrote nothing
            raise RuntimeError("too few bytes were written")
        for _ in range(500):
            time.sleep(0.01)
        return 0

    ignoring = sys.unraisablehook
    assert cli.command(work)([]) == 130
    assert capfd.readouterr().err == "interrupted\n"
    assert sys.unraisablehook is ignoring


def test_a_warning_has_a_line_of_its_own_above_a_progress_bar(monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's
    before = logging.lastResort

    def work(argv=None):
        for n in tqdm(range(3), "work", mininterval=0):
            if n == 1:
                logging.getLogger("nanospeech").warning("of %s", "two\nlines")
        return 0

    assert cli.command(work)([]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "of" in line] == ["of two lines"]
    assert sum("work:" in line for line in lines) >= 2  # the bar is drawn again below
    assert logging.lastResort is before


def test_no_console_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert commands.main(["say-how", "win"]) == 0
    assert commands.main(["say-how", "win", "--model", "nobody"]) == 2
    assert commands.main(["Hello there.", "--output", "-"]) == 2


def test_commands_that_need_torch_name_the_pip_command():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from nanospeech.commands import main\n"
        "print([main(words.split()) for words in sys.argv[1:]])"
    )
    needing = "finetune --data x --voice anna --output y", "convert x --output y"
    needing += "prepare mels m x --out y", "evaluate vocoder", "train 82M"
    done = subprocess.run([sys.executable, "-c", code, *needing], capture_output=True, text=True)
    assert done.stdout == f"{[2] * len(needing)}\n"
    said = "error: torch is not installed; run: pip install 'nanospeech-tts[{}]'".format
    assert done.stderr.splitlines() == [said(e) for e in ("train", "torch", *["train"] * 3)]


@pytest.mark.parametrize("package, extra", [("accelerate", "train"), ("peft", "finetune")])
def test_finetuning_names_what_it_lacks_before_it_reads_recordings(
    package, extra, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(tmp_path)
    words = ["finetune", "--data", "missing", "--voice", "anna", "--output", "out", "--lora", "4"]
    assert commands.main(words) == 2
    assert f"pip install 'nanospeech-tts[{extra}]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_flags_of_a_dataclass_come_back_as_one():
    @dataclasses.dataclass(frozen=True)
    class Options:
        size: int = dataclasses.field(default=3, metadata={"help": "so many"})
        longest: float | None = dataclasses.field(default=None, metadata={"help": "at most"})
        name: str = dataclasses.field(default="x", metadata={"help": "its name"})
        shares: tuple[float, ...] = dataclasses.field(default=(), metadata={"help": "some"})

    parser = cli.Parser("nanospeech test")
    cli.add_fields(parser, Options)
    assert cli.read_fields(parser.parse_args([]), Options) == Options()
    given = ["--size", "4", "--longest", "2", "--name", "7", "--shares", "0.5", "1"]
    assert cli.read_fields(parser.parse_args(given), Options) == Options(4, 2.0, "7", (0.5, 1.0))
    with pytest.raises(InputError, match="see nanospeech test --help"):
        parser.parse_args(["--siz", "4"])
    told = " ".join(parser.format_help().split())
    assert "so many (default: 3)" in told and "its name (default: x)" in told
    assert told.count("default") == 2  # None and nothing tell nothing


COMPLETED = {
    "ev": "evaluate",
    "prepare sh": "shards",
    "prepare shards --min": "--min-seconds",
    "speak --no-such": "",
    "speak --file pypr": "pyproject.toml",
    "book pypr": "pyproject.toml",
    "finetune --data sc": "scripts",
    "speak --steps pypr": "",
}


@pytest.mark.parametrize("typed", COMPLETED)
def test_a_shell_completes_commands_tools_flags_and_files(completions, typed):
    words = ["nanospeech", *typed.split()]
    script = (
        f"source {completions}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}\n"
        '_shtab_nanospeech; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == COMPLETED[typed]


@pytest.fixture(scope="module")
def completions(tmp_path_factory) -> Path:
    """The script of bash."""
    pytest.importorskip("shtab", reason="it is of the extra completion")
    path = tmp_path_factory.mktemp("completion") / "nanospeech.bash"
    path.write_text(completion.script("bash", commands.COMMANDS))
    return path


def test_zsh_completes_where_its_script_is_part_of_zshrc(tmp_path):
    pytest.importorskip("shtab", reason="it is of the extra completion")
    script = completion.script("zsh", commands.COMMANDS)
    assert completion.READ in script and completion.EVALUATED not in script
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here")
    (tmp_path / ".zshrc").write_text(f"autoload -Uz compinit; compinit -u\n{script}")
    done = subprocess.run(
        ["zsh", "-i", "-c", "echo $_comps[nanospeech]"],
        capture_output=True, text=True, env={**os.environ, "ZDOTDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout == "_shtab_nanospeech\n" and "_arguments" not in done.stderr


def test_a_shell_without_completion_is_an_error(capsys):
    assert commands.main(["--print-completion", "fish"]) == 2
    assert "no completion for 'fish'; choose from bash, zsh" in capsys.readouterr().err
