"""Text reader: a published text encoder beside an EchoDiT in training, frozen or trained too."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nanospeech.engine.text_states import TextStates
from nanospeech.errors import InputError, require
from nanospeech.release.text_encoder import TextEncoderFiles
from nanospeech_torch.echo.text_encoder import FrozenTextEncoder, network_of

PATTERNS = ("config.json", "tokenizer.json", "*.safetensors", "*.safetensors.index.json")


def find_encoder(name: str) -> Path:
    """The folder of a text encoder, fetched if it is a Hub repository.

    Raises:
        InputError: neither a folder nor a Hub repository.
    """
    if Path(name).is_dir():
        return Path(name)
    hub: Any = require("huggingface_hub", "t5")
    try:
        return Path(hub.snapshot_download(name, allow_patterns=list(PATTERNS)))
    except (OSError, ValueError) as e:
        raise InputError(
            f"the text encoder {name!r} is neither a folder nor a Hub repository that can be"
            f" fetched: {e}"
        ) from e


class TextReader(nn.Module):
    """States of texts by a T5, T5Gemma or T5Gemma 2.

    Frozen it is no part of the model: neither its weights nor an average of them is in checkpoints,
    and it runs without gradients, in eval mode, in bfloat16 on GPUs and in float32 elsewhere.

    Args:
        files: of its folder.
        frozen: whether it stays as it is.
        cache: folder in which states of texts are kept, for a frozen one.
    """

    def __init__(self, files: TextEncoderFiles, frozen: bool, cache: str | None = None):
        super().__init__()
        self.files, self.cache = files, cache
        self.states: TextStates | None = None
        self.frozen: tuple[FrozenTextEncoder, ...] = ()  # in a tuple: not a part of this model
        self.is_frozen = frozen
        self.device = torch.device("cpu")  # of the last texts: the model's
        if not frozen:
            with torch.random.fork_rng(devices=[]):  # its random weights do not stay
                self.network = network_of(files)
            known = {n: torch.from_numpy(t.copy()) for n, t in files.tensors.items()}
            self.network.load_state_dict(known)
            self.forget()

    def described(self) -> dict[str, Any]:
        """For a converter: whose it is, and all that is not weights of one that was trained."""
        found = {"text_encoder": {"kind": self.files.kind, "frozen": self.is_frozen}}
        return found if self.is_frozen else {**found, "text_encoder_config": self.files.whole}

    def forward(self, text_BT: Tensor, read_BT: Tensor) -> Tensor:
        """States (B, T, D) of ids padded with -1."""
        ids = text_BT.clamp(min=0)
        self.device = ids.device
        if not self.is_frozen:
            # outside of autocast: these networks' numbers are too large for float16
            with torch.autocast(ids.device.type, enabled=False):
                found = self.network(input_ids=ids, attention_mask=read_BT.long())
            return found.last_hidden_state
        if self.cache is None:
            return self.encode(ids, read_BT).float()
        if self.states is None:
            self.states = TextStates(
                self.encode_arrays, f"torch {self.files.fingerprint}", self.cache
            )
        return torch.from_numpy(self.states.states(text_BT.cpu().numpy())).to(ids.device)

    def forget(self) -> None:
        """Frees the arrays of the files, once a network has their numbers."""
        self.files = dataclasses.replace(self.files, tensors={})

    def encode(self, ids_BT: Tensor, read_BT: Tensor) -> Tensor:
        """States by the frozen network, which is loaded when it is first used."""
        if not self.frozen:
            dtype = "bfloat16" if ids_BT.device.type == "cuda" else "float32"
            with torch.random.fork_rng(devices=[]):
                self.frozen = (FrozenTextEncoder(self.files, str(ids_BT.device), dtype),)
            self.forget()
        with torch.autocast(ids_BT.device.type, enabled=False):
            return self.frozen[0](ids_BT, read_BT)

    def encode_arrays(self, ids_BT: Any, read_BT: Any) -> Any:
        """The same of NumPy arrays, on the model's device."""
        ids, read = (torch.from_numpy(a).to(self.device) for a in (ids_BT, read_BT))
        found = self.encode(ids, read)
        return found.float().cpu().numpy()
