"""Source: reads one network's weights from the files that trainers write. Builds no folder.

Nothing is ever unpickled beyond tensors and plain containers (torch.load with weights_only).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nanospeech.config import from_dict
from nanospeech.errors import CheckpointError, InputError
from nanospeech.release.folder import HUB_MODEL, resolve, shipped
from nanospeech.release.tensors import IGNORED

from .lazy import LazyTensors, read_checkpoint, read_lazily, read_metadata

# Names under which trainers keep the averaged and the raw weights, best first.
AVERAGED = ("ema_state_dict", "ema_model_state_dict", "average")
RAW = ("model_state_dict", "state_dict")
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
INDEX = ".safetensors.index.json"
GUIDED = "model_guidance"
# what a run of this project trained, by its section of config.json
TRAINED = {
    "dit": "a speech model",
    "echo": "a speech model",
    "duration": "a duration model",
    "vocoder": "a vocoder",
    "listener": "a listener",
}
EXPORT = "export.json"  # of step_N.weights/, beside its shards


@dataclass
class Source:
    """Weights of one network with the metadata of their file."""

    tensors: Mapping[str, Tensor]
    config: dict[str, Any]
    vocab: list[str]
    step: int | None = None
    guided: bool = False  # its targets held the guidance already (loss.model_guidance)
    metadata: dict[str, str] = field(default_factory=dict)  # of a safetensors file


def located(model: str | Path) -> str | Path:
    """A path as it is; the folder of a release on the Hub that is named by owner/name."""
    path = shipped(model)
    if path.exists() or path.suffix in SUFFIXES or not HUB_MODEL.fullmatch(str(model)):
        return path
    return resolve(str(model))


def read_source(path: str | Path, weights: str = "ema") -> Source:
    """Reads a checkpoint of this trainer, an upstream .pt, a raw state dict or safetensors.

    Args:
        path: .pt, .bin, .pth or .safetensors, or the index of its shards; a step_N/ or
            step_N.weights/ folder, or a run's folder for its newest.
        weights: "ema" (the averaged weights, or the raw ones where there are none) or "raw".

    Raises:
        CheckpointError: missing, damaged, or holding something else than tensors.
    """
    if weights not in ("ema", "raw"):
        raise InputError(f"weights is {weights!r}; choose ema or raw")
    path = find_checkpoint(path)
    if path.suffix == ".onnx":
        raise CheckpointError(
            f"{path} is an ONNX graph, as Piper's voices are, of which the network cannot be read;"
            " name the checkpoint that it was exported from, of a kind in --from"
        )
    try:
        if path.name.endswith(INDEX):
            path = path.with_name(path.name.removesuffix(".index.json"))
        if path.suffix == ".safetensors":
            return Source(clean(read_lazily(path), path), {}, [], metadata=read_metadata(path))
        if path.is_dir():
            state: Any = read_folder(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except FileNotFoundError as e:
        raise CheckpointError(
            f"{path} not found; name a run's folder, a checkpoint in it, or a release folder"
        ) from e
    except pickle.UnpicklingError as e:
        raise CheckpointError(
            f"cannot read {path} as plain tensors: it holds something else, which could run code as"
            " it is read, or is no checkpoint; ask whoever made it for .safetensors"
        ) from e
    except Exception as e:  # zip, pickle, safetensors and OS errors share no base class
        reason = str(e).strip().split("\n")[0]
        raise CheckpointError(f"cannot read {path} as plain tensors: {reason}") from e
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{path} holds a {type(state).__name__}, not a state dict")
    held = [k for k in AVERAGED + RAW if isinstance(state.get(k), Mapping)]
    wanted = held if weights == "ema" else [k for k in held if k in RAW]
    if held and not wanted:
        raise CheckpointError(
            f"{path} holds averaged weights alone, no raw ones; leave out --weights raw"
        )
    inner = state[wanted[0]] if wanted else state
    step, config = state.get("step"), dict(stated(state, "config", path))
    tensors = clean(inner, path)
    if any(".lora_A." in name for name in tensors):
        tensors = merge_adapters(tensors, state, config, path)
    return Source(
        tensors,
        config,
        tokens_of(state, path),
        step if type(step) is int else whole_number(step),
        bool(stated(stated(state, "run", path), "loss", path).get(GUIDED)),
    )


def stated(state: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    """What a checkpoint says beside its tensors, empty where it says nothing.

    Raises:
        CheckpointError: it is of another type.
    """
    value = {} if state.get(name) is None else state[name]
    if not isinstance(value, Mapping):
        raise CheckpointError(f"{path}: {name} should be a mapping, got {type(value).__name__}")
    return value


def tokens_of(state: Mapping[str, Any], path: Path) -> list[str]:
    """The vocabulary of a checkpoint, empty where it carries none.

    Raises:
        CheckpointError: it is no list of tokens.
    """
    vocab = [] if state.get("vocab") is None else state["vocab"]
    if not isinstance(vocab, (list, tuple)) or any(type(token) is not str for token in vocab):
        raise CheckpointError(f"{path}: vocab should be a list of tokens; name its vocab.txt")
    return list(vocab)


def check_trained(source: Source, path: str | Path, *wanted: str) -> None:
    """Raises CheckpointError where a run's config says that it trained none of these of TRAINED."""
    held = [what for section, what in TRAINED.items() if section in source.config]
    if held and not source.config.keys() & set(wanted):
        raise CheckpointError(
            f"{path} is {held[0]}, where {TRAINED[wanted[0]]} is wanted: nanospeech convert"
            " SPEECH_MODEL --duration DURATION_MODEL --vocoder VOCODER"
        )


def whole_number(step: Any) -> int | None:
    """A step that was saved as a tensor; None for what is none."""
    one = isinstance(step, Tensor) and step.numel() == 1 and not step.is_floating_point()
    return int(step) if one else None


def find_checkpoint(path: str | Path) -> Path:
    """What to read: of a run's folder the newest step_N, whole or sharded, else the path itself."""
    path = Path(path)
    if not path.is_dir() or path.name.startswith("step_"):
        return path
    folders = [*path.glob("step_*[0-9]"), *path.glob("step_*.weights")]
    found = [*path.glob("step_*.pt"), *(p for p in folders if p.is_dir())]
    if not found:
        files = sorted(p for p in path.glob("*") if p.suffix in SUFFIXES and p.is_file())
        if len(files) != 1:  # all of them may be the shards of one
            files = sorted(path.glob(f"*{INDEX}")) or files
        if len(files) == 1:  # as on the Hub
            return files[0]
        choices = f": {', '.join(p.name for p in files[:5])}" if files else ""
        raise CheckpointError(f"{path} holds no step_*; name a checkpoint{choices}")
    return max(found, key=lambda p: (step_of(p), p.suffix))


def step_of(path: Path) -> int:
    """The step that a checkpoint's name tells, of however many digits; -1: none."""
    number = path.stem.removeprefix("step_")
    return int(number) if number.isdecimal() else -1


def read_folder(path: Path) -> dict[str, Any]:
    """A step_N/ or step_N.weights/ folder as the mapping that step_N.pt holds; tensors are lazy.

    Raises:
        CheckpointError: it is not whole.
    """
    parts = {"model": "model_state_dict", "ema": "ema_state_dict"}
    if (path / EXPORT).is_file():
        described = json.loads((path / EXPORT).read_text(encoding="utf-8"))
        files = {part: path / f"{part}.safetensors" for part in parts}
        return described | {parts[part]: read_lazily(file) for part, file in files.items()}
    state: dict[str, Any] = {parts[part]: read_checkpoint(path, f"{part}.") for part in parts}
    meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
    return state | {k: meta[k] for k in ("step", "config", "vocab")} | {"run": meta.get("run")}


def merge_adapters(
    tensors: Mapping[str, Tensor], state: Mapping[str, Any], config: dict[str, Any], path: Path
) -> dict[str, Tensor]:
    """The tensors of a model with LoRA adapters, merged, by their published names."""
    from nanospeech_torch.adapters import LoraConfig, merge_lora

    if "lora" not in config:
        raise CheckpointError(
            f"{path} holds adapters, but not their rank and scale; save with FinetuneTrainer"
        )
    # weights that are frozen may have no average of their own
    found = (clean(state[k], path) for k in RAW if isinstance(state.get(k), Mapping))
    raw: Mapping[str, Tensor] = next(found, {})
    return merge_lora({**raw, **tensors}, from_dict(LoraConfig, config["lora"], f"{path}: lora"))


def clean(state: Mapping[str, Any], path: Path) -> Mapping[str, Tensor]:
    """Tensors under their published names: wrappers' prefixes and mel buffers removed.

    Raises:
        CheckpointError: there are none, or two of one name.
    """
    names: dict[str, str] = {}
    for old in (name for name in state if isinstance(name, str)):
        new = old
        for prefix in ("ema_model.", "module.", "_orig_mod."):
            new = new.removeprefix(prefix)
        if not new.startswith(IGNORED) and new not in ("initted", "step"):
            if new in names:
                raise CheckpointError(
                    f"{path} holds both {names[new]} and {old}; keep one model's tensors in a file"
                )
            names[new] = old
    if isinstance(state, LazyTensors):
        return state.renamed(names)
    kept = {new: state[old] for new, old in names.items()}
    tensors = {name: value.detach() for name, value in kept.items() if isinstance(value, Tensor)}
    if not tensors:
        has = ", ".join(list(names)[:6])  # as Coqui's and Lightning's: model, state_dict, config
        other = f" at its top, but {has}: it is of a kind that --from does not name" if has else ""
        raise CheckpointError(f"{path} holds no tensors{other}")
    if odd := [n for n, t in tensors.items() if repeats(t)]:
        raise CheckpointError(
            f"{path} holds fewer numbers of {odd[0]} than its shape {tuple(tensors[odd[0]].shape)}"
            " tells; save it contiguous"
        )
    return tensors


def repeats(tensor: Tensor) -> bool:
    """Whether a tensor has fewer numbers than its shape tells, by strides that repeat them."""
    plain = tensor.layout == torch.strided and not tensor.is_meta  # others are refused as they are
    return plain and tensor.nbytes > tensor.untyped_storage().nbytes()
