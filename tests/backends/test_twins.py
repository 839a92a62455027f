"""Twins: the networks of all backends are one program, but for the array library's names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("nanospeech_torch", "nanospeech_mlx")
ONNX = "nanospeech_onnx"
GRAPHS = ("dit", "duration")  # of which there are graphs


def tree(package: str, name: str) -> ast.Module:
    return ast.parse((ROOT / package / f"{name}.py").read_text(encoding="utf-8"))


class Neutral(ast.NodeTransformer):
    """Takes out the one thing that may differ: what the call is named."""

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        if node.name == "forward":
            node.name = "__call__"
        return node


def attributes(method: ast.FunctionDef | None) -> list[str]:
    """Names given to self in order."""
    if method is None:
        return []
    stores = (n for n in ast.walk(method) if isinstance(n, ast.Attribute))
    names = [
        (n.lineno, n.col_offset, n.attr)
        for n in stores
        if isinstance(n.ctx, ast.Store) and isinstance(n.value, ast.Name) and n.value.id == "self"
    ]
    return [attr for *_, attr in sorted(names)]


def methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    found = (n for n in node.body if isinstance(n, ast.FunctionDef))
    return {"__call__" if f.name == "forward" else f.name: f for f in found}


def arguments(f: ast.FunctionDef) -> list[str]:
    return [a.arg for a in (*f.args.args, *f.args.kwonlyargs)]


@pytest.mark.parametrize("name", ["dit", "duration", "echo/network", "echo/encoders", "echo/codec"])
def test_networks_are_the_same_program(name):
    packages = (*PACKAGES, ONNX) if name in GRAPHS else PACKAGES
    torch, *others = (ast.dump(Neutral().visit(tree(p, name))) for p in packages)
    assert all(torch == other for other in others)


@pytest.mark.parametrize("name", ["vocoder", "layers", "echo/ops", "echo/convolutions"])
def test_files_with_array_code_have_the_same_parts(name):
    torch, mlx = ({n.name: n for n in tree(p, name).body if hasattr(n, "name")} for p in PACKAGES)
    common = [n for n in torch if n in mlx]
    assert common == [n for n in mlx if n in torch]
    classes = [n for n in torch if isinstance(torch[n], ast.ClassDef)]
    # torch has its own class for Sequential; a function only one backend needs may stand alone
    assert [n for n in classes if n not in mlx] == []
    for n in common:
        a, b = torch[n], mlx[n]
        if n != "sanitize":  # says what it does to convolutions in MLX
            assert ast.get_docstring(a) == ast.get_docstring(b), n
        if isinstance(a, ast.FunctionDef):
            assert arguments(a) == arguments(b), n
            continue
        ours, theirs = methods(a), methods(b)
        assert attributes(ours.get("__init__")) == attributes(theirs.get("__init__")), n
        for m in ours.keys() & theirs.keys():
            assert arguments(ours[m]) == arguments(theirs[m]), f"{n}.{m}"
            assert ast.get_docstring(ours[m]) == ast.get_docstring(theirs[m]), f"{n}.{m}"


def names_in(package: str, name: str) -> set[str]:
    body = tree(package, name).body
    made = {n.name for n in body if hasattr(n, "name")}
    return made | {t.id for n in body if isinstance(n, ast.Assign) for t in n.targets}


@pytest.mark.parametrize("name", ["layers", "echo/ops", "echo/convolutions"])
def test_layers_offer_the_same_names(name):
    assert names_in("nanospeech_torch", name) == names_in("nanospeech_mlx", name)


def test_graphs_have_every_layer_that_networks_use():
    used = {
        node.attr
        for name in GRAPHS
        for node in ast.walk(tree(ONNX, name))
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "layers"
    }
    assert len(used) > 20 and used <= names_in(ONNX, "layers")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"qk_norm": True, "heads": 2, "rope_heads": 2},
        {"text_upsampling": "aligned", "patch_size": 2},
        {"text_upsampling": "aligned", "aligner_dim": 24, "prompt_dim": 24},
        {"text_upsampling": "average", "conv_layers": 0},
        {"max_strength": 5.0},
    ],
)
def test_parameters_have_the_same_names_and_shapes(fields):
    pytest.importorskip("torch")
    pytest.importorskip("mlx.core")
    from mlx.utils import tree_flatten

    from nanospeech.config import DiTConfig, DurationConfig, VocoderConfig
    from nanospeech_mlx import dit as mlx_dit
    from nanospeech_mlx import duration as mlx_duration
    from nanospeech_mlx import vocoder as mlx_vocoder
    from nanospeech_mlx.engine import published
    from nanospeech_onnx import dit as onnx_dit
    from nanospeech_onnx import duration as onnx_duration
    from nanospeech_onnx.vocoder import VocosNetwork
    from nanospeech_torch import dit, duration, vocoder

    c = DiTConfig(**{"dim": 64, "depth": 2, "heads": 2, "text_dim": 32, **fields})
    d = DurationConfig(dim=64, depth=2, heads=2, text_dim=32)
    v = VocoderConfig(dim=16, intermediate_dim=32, num_layers=2)
    networks = [
        (dit.DiT(c), mlx_dit.DiT(c), onnx_dit.DiT(c)),
        (
            duration.DurationHead(duration.DurationTransformer(d)),
            mlx_duration.DurationHead(mlx_duration.DurationTransformer(d)),
            onnx_duration.DurationHead(onnx_duration.DurationTransformer(d)),
        ),
        (vocoder.Vocos(v), mlx_vocoder.Vocos(v), VocosNetwork(v)),
    ]
    for torch_module, mlx_module, onnx_module in networks:
        ours = {n: tuple(t.shape) for n, t in torch_module.state_dict().items()}
        flat = tree_flatten(mlx_module.parameters())
        assert ours == {n: published(n, tuple(p.shape)) for n, p in flat}
        assert ours == {p.name: p.shape for p in onnx_module.parameters()}
