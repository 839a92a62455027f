"""Faults that are put into the code on purpose: statements left out, one at a time."""

from __future__ import annotations

import ast
import sys

import pytest

from scripts.experiments import mutate
from scripts.experiments.mutants import Mutant, meaning, mutated

SOURCE = '''
def first(log):
    log.begin()


def speak(log, rows):
    """Docstring."""
    log.say("día…"); log.say("más")
    if rows: log.many(
        rows,
        "é",
    ); rows.sort()
    with log.aside():
        found = log.count(rows)
    log.counts["n"] += 1
    log.kept = found
    del rows[0]
    for row in rows: print(row)
    if not found:
        raise ValueError("none")
    return log.end(found)
'''
LEFT_OUT = [
    "log.begin()",
    "log.say('día…')",
    "log.say('más')",
    "log.many(rows, 'é')",
    "rows.sort()",
    "log.counts['n'] += 1",
    "log.kept = found",
    "del rows[0]",
    "print(row)",
    "raise ValueError('none')",
]


def statements(source: str) -> list[str]:
    """A line each, however they are written."""
    return ast.unparse(ast.parse(source)).splitlines()


def differing(old: str, new: str) -> tuple[str, str]:
    """The one statement that differs, as it was and as it is."""
    pairs = zip(statements(old), statements(new), strict=True)
    ((was, now),) = [(a.strip(), b.strip()) for a, b in pairs if a != b]
    return was, now


@pytest.mark.parametrize("number", range(len(LEFT_OUT)))
def test_a_statement_for_its_effect_is_left_out_alone(number):
    """Calls, changes, errors: whatever shares their lines, and letters of several bytes, stay."""
    changed = mutated(SOURCE, "DropStatement", number)
    assert changed is not None and meaning(changed) not in (None, meaning(SOURCE))
    assert differing(SOURCE, changed) == (LEFT_OUT[number], "pass")


def test_what_gives_a_result_is_not_left_out():
    """A name that nothing is assigned to, or a result that is not returned, any test would see."""
    assert mutated(SOURCE, "DropStatement", len(LEFT_OUT)) is None


def test_a_fault_is_put_into_its_part_of_the_module():
    begin = SOURCE.splitlines().index("def speak(log, rows):") + 1
    part = (begin, len(SOURCE.splitlines()))
    mutant = Mutant("module", "DropStatement", 0, part, "speak", part, "", "")
    assert differing(SOURCE, mutant.code(SOURCE)) == ("log.say('día…')", "pass")


def test_what_is_not_installed_is_told_with_the_command_that_installs_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cosmic_ray", None)
    assert mutate.main(["guards", "--list"]) == 2
    assert "pip install 'nanospeech-tts[mutation]'" in capsys.readouterr().err
