"""Export: a release folder's graphs as .onnx files, for programs that run ONNX without nanospeech.

Weights stay where they are: a graph names the folder's safetensors as its external data, with
offsets. The engine of this package reads no such file; it makes its graphs itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nanospeech.config import ModelConfig
from nanospeech.errors import InputError
from nanospeech.files import whole
from nanospeech.release.folder import DURATION, MODEL, STUDENT, VOCODER, Release, open_release
from nanospeech.release.tensors import FLOATS

from . import duration as durations
from . import layers, proto
from .dit import DiT
from .graph import Derived, Graph, floats
from .networks import SpeechGraphs, checked, duration_graph
from .vocoder import VocosNetwork

TYPES = {**FLOATS, "F64": "float64", "U32": "uint8"}  # packed codes: of 8 bits, a byte each
# how a weight is made of what is stored: the operators that do so, and their attributes
MADE: Mapping = {
    floats: (),
    layers.transposed: (("Transpose", {"perm": [1, 0]}),),
    layers.picture: (("Unsqueeze", {}),),
}


def export(folder: str | Path) -> list[Path]:
    """Writes the graphs of a release folder beside its weights.

    Args:
        folder: with weights in floats or in 8 bits.

    Returns:
        The files: velocity.onnx; tokens.onnx or text.onnx; of an aligned model means.onnx and
        log_durations.onnx; and where there are such models student.onnx (the student's velocity),
        duration.onnx, vocoder.onnx, and an imitator's graphs in its folder.

    Raises:
        InputError: its weights are packed in fewer bits, or its network is an EchoDiT.
        CheckpointError: the folder is incomplete or damaged.
    """
    release = open_release(folder)
    check_exported(release.config, folder)
    written = []
    for file, graphs in graphs_of(release).items():
        where = stored(release, file)
        for graph in graphs:
            path = release.folder / f"{graph.name}.onnx"
            with whole(path) as part:
                part.write_bytes(with_files(graph, where))
            written.append(path)
    if release.config.imitator:
        written += export(release.imitator().folder)
    return written


def check_exported(config: ModelConfig, folder: str | Path) -> None:
    """Raises InputError where no graphs can be written of a model."""
    if config.echo is not None:
        raise InputError(f"{folder} is of an EchoDiT, for which no ONNX graphs are written")
    q = config.quantization
    if q is not None and any(bits != 8 for layers in q.parts for bits in layers.values()):
        raise InputError(
            f"{folder} has weights in fewer than 8 bits, for which no ONNX graphs are written; take"
            " 8, or the release folder that it was made from"
        )


def graphs_of(release: Release) -> dict[str, list[Graph]]:
    """The graphs of a folder, by the file of their weights; each is of that file's tensors."""
    c = release.config
    network = DiT(c.dit)
    checked(network, release.weights(MODEL), release.path(MODEL), "transformer.")
    speech = SpeechGraphs(c.dit, network)
    found = {MODEL: [speech.velocity()]}
    found[MODEL].append(speech.text() if c.dit.text_upsampling == "none" else speech.tokens())
    if network.aligner is not None:
        found[MODEL] += [speech.means(), speech.log_durations()]
    if c.student is not None and (release.folder / STUDENT).is_file():
        own = release.student()
        student = DiT(own.config.dit)
        checked(student, own.weights(MODEL), own.path(MODEL), "transformer.")
        graph = SpeechGraphs(own.config.dit, student).velocity()
        graph.name = "student"
        found[STUDENT] = [graph]
    if release.has(DURATION) and c.duration is not None:
        head = durations.DurationHead(durations.DurationTransformer(c.duration))
        checked(head, release.weights(DURATION), release.path(DURATION))
        found[DURATION] = [duration_graph(c.duration, head)]
    if (release.folder / VOCODER).is_file() and c.vocoder is not None:
        vocoder = VocosNetwork(c.vocoder)
        checked(vocoder, release.weights(VOCODER), release.path(VOCODER))
        found[VOCODER] = [vocoder.graph()]
    return found


def stored(release: Release, name: str) -> dict[str, tuple[str, proto.Stored]]:
    """The type and the place of each tensor of a part, from the headers of its files."""
    found = {}
    for path in release.files(name):
        with open(path, "rb") as f:
            length = int.from_bytes(f.read(8), "little")
            header = json.loads(f.read(length))
        header.pop("__metadata__", None)
        for tensor, about in header.items():
            first, last = about["data_offsets"]
            place = proto.Stored(path.name, 8 + length + first, last - first)
            found[tensor] = TYPES[about["dtype"]], place
    return found


def with_files(graph: Graph, where: Mapping[str, tuple[str, proto.Stored]]) -> bytes:
    """A graph whose weights are made of tensors in files."""
    nodes, tensors = [], [proto.tensor(n, a) for n, a in graph.constants.items()]
    tensors.append(proto.tensor("axis", np.array([2])))
    seen = set()
    for name, weight in graph.weights.items():
        dtype, place = where[weight.source.name]
        file = f"{weight.source.name}:stored"
        if file not in seen and dtype == "uint8":
            more, some = unpacked(weight.source.name, file, weight.source.shape, where)
            tensors, nodes = tensors + more, nodes + some
        elif file not in seen:
            tensors.append(proto.outside(file, weight.source.shape, dtype, place))
        seen.add(file)
        nodes += made_of(file, name, weight)
    return proto.model(graph.name, [*nodes, *graph.nodes], tensors, graph.inputs, graph.outputs)


def unpacked(
    name: str, result: str, shape: tuple[int, ...], where: Mapping[str, tuple[str, proto.Stored]]
) -> tuple[list[bytes], list[bytes]]:
    """Tensors and nodes that make the floats of a weight of 8 bits, see release/quantization.py.

    Args:
        name: of the weight.
        result: name of the floats.
        shape: of them.
        where: see stored.
    """
    parts = {"codes": name}
    parts |= {n: f"{name.removesuffix('.weight')}.{n}" for n in ("scales", "biases")}
    groups = where[parts["scales"]][1].length // 2 // shape[0]  # of float16
    shapes = {"codes": (shape[0], groups, shape[1] // groups)}
    tensors, nodes = [], []
    for part, stored_name in parts.items():
        dtype, place = where[stored_name]
        given, floats = f"{result}:{part}", f"{result}:{part}:floats"
        tensors.append(proto.outside(given, shapes.get(part, (shape[0], groups, 1)), dtype, place))
        nodes.append(proto.node("Cast", [given], [floats], "", {"to": proto.TYPES["float32"]}))
    codes, scales, biases = (f"{result}:{part}:floats" for part in parts)
    tensors.append(proto.tensor(f"{result}:shape", np.array(shape)))
    nodes.append(proto.node("Mul", [codes, scales], [f"{result}:scaled"]))
    nodes.append(proto.node("Add", [f"{result}:scaled", biases], [f"{result}:groups"]))
    nodes.append(proto.node("Reshape", [f"{result}:groups", f"{result}:shape"], [result]))
    return tensors, nodes


def made_of(file: str, name: str, weight: Derived) -> list[bytes]:
    """Nodes that make a weight of a stored tensor."""
    steps = [("Cast", {"to": proto.TYPES["float32"]}), *MADE[weight.make]]
    nodes, before = [], file
    for i, (kind, attributes) in enumerate(steps):
        after = name if i == len(steps) - 1 else f"{name}:{kind}"
        given = [before, "axis"] if kind == "Unsqueeze" else [before]
        nodes.append(proto.node(kind, given, [after], "", attributes))
        before = after
    return nodes
