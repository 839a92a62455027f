"""Source: reads one network's weights from the files that trainers write. Builds no folder.

Nothing is ever unpickled beyond tensors and plain containers (torch.load with weights_only).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from nanospeech.checkpoint import IGNORED, PACKED
from nanospeech.config import from_dict
from nanospeech.errors import CheckpointError, InputError

# Names under which trainers keep the averaged and the raw weights, best first.
AVERAGED = ("ema_state_dict", "ema_model_state_dict")
RAW = ("model_state_dict", "state_dict")


@dataclass
class Source:
    """Weights of one network with what their file tells of them."""

    tensors: dict[str, Tensor]
    config: dict[str, Any]
    vocab: list[str]
    step: int | None = None
    guided: bool = False  # its targets held the guidance already (loss.model_guidance)


def read_source(path: str | Path, weights: str = "ema") -> Source:
    """Reads a checkpoint of this trainer, an upstream .pt, a raw state dict or safetensors.

    Args:
        path: .pt, .bin, .pth or .safetensors; a step_N/ folder, or a run's folder for its newest.
        weights: "ema" (the averaged weights, or the raw ones where there are none) or "raw".

    Raises:
        CheckpointError: missing, damaged, or holding something else than tensors.
    """
    if weights not in ("ema", "raw"):
        raise InputError(f"weights is {weights!r}; choose ema or raw")
    path = find_checkpoint(path)
    try:
        if path.suffix == ".safetensors":
            return Source(clean(floats(load_file(path), path)), {}, [])
        if path.is_dir():
            state: Any = read_folder(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except FileNotFoundError as e:
        raise CheckpointError(f"{path} not found") from e
    except Exception as e:  # zip, pickle, safetensors and OS errors share no base class
        reason = str(e).strip().split("\n")[0]
        raise CheckpointError(f"cannot read {path} as plain tensors: {reason}") from e
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{path} holds a {type(state).__name__}, not a state dict")
    order = (AVERAGED if weights == "ema" else ()) + RAW
    inner = next((state[k] for k in order if isinstance(state.get(k), Mapping)), state)
    step, config = state.get("step"), dict(state.get("config") or {})
    tensors = clean(inner)
    if any(".lora_A." in name for name in tensors):
        tensors = merge_adapters(tensors, state, config, path)
    return Source(
        tensors,
        config,
        list(state.get("vocab") or []),
        int(step) if isinstance(step, (int, Tensor)) else None,
        bool(((state.get("run") or {}).get("loss") or {}).get("model_guidance")),
    )


def floats(tensors: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The tensors, none of which may be packed."""
    if any(t.dtype == torch.uint32 for t in tensors.values()):
        raise CheckpointError(f"{path} {PACKED}")
    return tensors


def find_checkpoint(path: str | Path) -> Path:
    """What to read: of a run's folder the newest step_N.pt or step_N/, else the path itself."""
    path = Path(path)
    if not path.is_dir() or path.name.startswith("step_"):
        return path
    found = [*path.glob("step_*.pt"), *(p for p in path.glob("step_*[0-9]") if p.is_dir())]
    if not found:
        raise CheckpointError(f"{path} holds no step_*; name a checkpoint")
    return max(found, key=lambda p: (p.name.removesuffix(".pt"), p.suffix))


def read_folder(path: Path) -> dict[str, Any]:
    """A sharded checkpoint folder of this trainer, in the form of its step_N.pt."""
    from nanospeech_torch.checkpoint_reader import read_tensors

    state: dict[str, Any] = {
        name: read_tensors(path, prefix)
        for name, prefix in (("model_state_dict", "model."), ("ema_state_dict", "ema."))
    }
    meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
    return state | {k: meta[k] for k in ("step", "config", "vocab")} | {"run": meta.get("run")}


def merge_adapters(
    tensors: dict[str, Tensor], state: Mapping[str, Any], config: dict[str, Any], path: Path
) -> dict[str, Tensor]:
    """The tensors of a model with LoRA adapters, merged, by their published names."""
    from nanospeech_torch.finetune import LoraConfig, merge_lora

    if "lora" not in config:
        raise CheckpointError(
            f"{path} holds adapters, but not their rank and scale; save with FinetuneTrainer"
        )
    # weights that are frozen may have no average of their own
    raw = next((clean(state[k]) for k in RAW if isinstance(state.get(k), Mapping)), {})
    return merge_lora({**raw, **tensors}, from_dict(LoraConfig, config["lora"], f"{path}: lora"))


def clean(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Tensors under their published names: wrappers' prefixes and mel buffers removed."""
    tensors = {}
    for name, value in state.items():
        if not isinstance(value, Tensor):
            continue
        for prefix in ("ema_model.", "module.", "_orig_mod."):
            name = name.removeprefix(prefix)
        if not name.startswith(IGNORED) and name not in ("initted", "step"):
            tensors[name] = value.detach()
    if not tensors:
        raise CheckpointError("the checkpoint holds no tensors")
    return tensors
