"""Mutants: the faults that scripts/experiments/mutate.py puts into a module. Runs nothing.

Most are cosmic-ray's; of its operators those are taken that change a meaning and leave a program
that may run: `+` for `-`, but not `+` for `<<`. To these come statements left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

OPERATORS = (
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBinaryOperator_Mul_Div",
    "ReplaceBinaryOperator_Div_Mul",
    "ReplaceBinaryOperator_FloorDiv_Div",
    "ReplaceBinaryOperator_Mod_Mul",
    "ReplaceBinaryOperator_Pow_Mul",
    "ReplaceBinaryOperator_BitOr_BitAnd",
    "ReplaceBinaryOperator_BitAnd_BitOr",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceUnaryOperator_USub_UAdd",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_Invert",
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ExceptionReplacer",
    "NumberReplacer",
    "RemoveDecorator",
    "ZeroIterationForLoop",
    "DropStatement",
)
Lines = tuple[int, int]  # the first and the last


@dataclass
class Mutant:
    """One fault: `new` in place of `old` in a function of a module."""

    module: str
    operator: str
    occurrence: int
    part: Lines  # the top-level statement in which the operator works
    function: str
    lines: Lines  # of the statement that is changed
    old: str
    new: str
    outcome: str = ""  # killed, survived, timeout or unrun
    seconds: float = 0.0

    def code(self, source: str) -> str:
        """The module with the fault."""
        first, last = self.part
        lines = source.splitlines(keepends=True)
        changed = mutated("".join(lines[first - 1 : last]), self.operator, self.occurrence)
        assert changed is not None
        return "".join([*lines[: first - 1], changed, *lines[last:]])


def mutated(source: str, operator: str, occurrence: int) -> str | None:
    """The source with one fault, or None where there are not so many places for it."""
    if operator == "DropStatement":
        return without_statement(source, occurrence)
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    return mutate_code(source, get_operator(f"core/{operator}")(), occurrence)


def without_statement(source: str, occurrence: int) -> str | None:
    """The source with `pass` in place of a statement that is for its effect alone.

    Plain assignments stay: without one the name is missing, which any test would notice.
    """
    places = []
    for node in ast.walk(ast.parse(source)):
        called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        stored = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name)
        if called or stored or isinstance(node, (ast.AugAssign, ast.Raise, ast.Delete)):
            places.append(node)
    places.sort(key=lambda n: (n.lineno, n.col_offset))
    if occurrence >= len(places):
        return None
    # columns are of UTF-8 bytes
    node, lines = places[occurrence], source.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, (node.end_lineno or 0) - 1
    head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    return b"".join([*lines[:first], head, b"pass", tail, *lines[last + 1 :]]).decode()


def meaning(source: str) -> Any:
    """A program's bytecode without what has no effect; None if it does not compile.

    Two mutants of the same bytecode are one (trivial compiler equivalence: Papadakis et al., 2015).
    """
    try:
        tree = ast.parse(source)
        compile(tree, "mutant", "exec")  # break outside of a loop is found here
        return bytecode(compile(Noticed().visit(tree), "mutant", "exec", optimize=2))
    except (SyntaxError, ValueError):
        return None


def bytecode(code: CodeType) -> tuple:
    """Instructions with what they name, without places in the file."""
    constants = [
        bytecode(c) if isinstance(c, CodeType) else (type(c), repr(c)) for c in code.co_consts
    ]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    caught = getattr(code, "co_exceptiontable", b"")  # since Python 3.11
    return code.co_code, caught, code.co_argcount, *names, *constants


class Noticed(ast.NodeTransformer):
    """Removes from a program what docs/mutation.md declares to be no fault.

    Docstrings and `assert` go when it is compiled.
    """

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        """The star of "by name only" is no product."""
        self.generic_visit(node)
        node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        node.defaults = [d for d in (*node.defaults, *node.kw_defaults) if d is not None]
        node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        node.annotation = ast.copy_location(ast.Constant(0), node)
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """An error's message is for people; that it is raised, and which, counts."""
        if isinstance(node.exc, ast.Call):
            node.exc.args, node.exc.keywords = [], []
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        """Imports for annotations alone."""
        self.generic_visit(node)
        if any(isinstance(n, ast.Name) and n.id == "TYPE_CHECKING" for n in ast.walk(node.test)):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """When a copy is waited for changes no number."""
        self.generic_visit(node)
        node.keywords = [k for k in node.keywords if k.arg != "non_blocking"]
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """A uniform draw equals a border with probability 0."""
        self.generic_visit(node)
        if any(is_draw(n) for n in (node.left, *node.comparators)):
            strict = {ast.LtE: ast.Lt, ast.GtE: ast.Gt}
            node.ops = [strict.get(type(op), type(op))() for op in node.ops]
        return node


def is_draw(node: ast.AST) -> bool:
    """Whether it is a call of a generator's random()."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "random"
    )


def mutants(module: str, path: Path) -> Iterator[Mutant]:
    """All faults of a module, each once, but for those that change no meaning."""
    source = path.read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines(keepends=True)
    for node in tree.body:  # one by one: a small text is soon parsed
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        part = (first, node.end_lineno or node.lineno)
        text = "".join(lines[part[0] - 1 : part[1]])
        seen = {meaning(text)}
        for operator, occurrence, changed in faults(text):
            if (what := meaning(changed)) is None or what in seen:
                continue
            seen.add(what)
            number, old, new = difference(text, changed)
            where, function = statement(tree, number + first - 1)
            yield Mutant(module, operator, occurrence, part, function, where, old, new)


def faults(text: str) -> Iterator[tuple[str, int, str]]:
    """Each operator at each of its places: its name, the place's number, and the text then."""
    for operator in OPERATORS:
        for occurrence in range(10**6):
            try:
                changed = mutated(text, operator, occurrence)
            except AttributeError:  # ExceptionReplacer cannot put a name for a dotted one
                continue
            if changed is None:
                break
            yield operator, occurrence, changed


def difference(old: str, new: str) -> tuple[int, str, str]:
    """Number of the first line that differs, and what stood and stands there."""
    one, two = old.splitlines(), new.splitlines()
    first = same_at_start(one, two)
    last = same_at_start(one[first:][::-1], two[first:][::-1])
    while first + last + 1 < len(one) and not one[first].strip():
        first += 1  # a decorator goes with the empty lines before it
    was, now = (" ".join(line.strip() for line in x[first : len(x) - last]) for x in (one, two))
    return first + 1, was, now


def same_at_start(one: list[str], two: list[str]) -> int:
    """How many items two lists begin with alike."""
    differ = (i for i, (a, b) in enumerate(zip(one, two)) if a != b)
    return next(differ, min(len(one), len(two)))


def statement(tree: ast.AST, line: int) -> tuple[Lines, str]:
    """Lines of the innermost statement around a line (of a compound one: its head), and where."""
    found, names = (line, line), []
    for node in ast.walk(tree):  # outer ones come first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            if line <= (last or 0):
                found = (node.lineno, last or node.lineno)
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.append(node.name)
    return found, ".".join(names) or "(module)"
