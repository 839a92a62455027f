"""Text encoder: T5, T5Gemma and T5Gemma 2 by the package transformers. Trains nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nanospeech.errors import CheckpointError, InputError, NanospeechError, require
from nanospeech.release.tensors import check_tensors
from nanospeech.release.text_encoder import TextEncoderFiles


class FrozenTextEncoder(nn.Module):
    """The states of token ids, without gradients and without dropout.

    Args:
        files: of a folder.
        dtype: "float32" or "bfloat16"; these networks' numbers are too large for float16.

    Raises:
        InputError: another dtype.
        CheckpointError: the weights do not fit the config.
        BackendError: transformers is not installed, or too old for the kind.
    """

    def __init__(self, files: TextEncoderFiles, device: str = "cpu", dtype: str = "float32"):
        super().__init__()
        if dtype not in ("float32", "bfloat16"):
            raise InputError(
                f"a text encoder was asked for in {dtype}, in which it overflows; choose float32 or"
                " bfloat16"
            )
        try:
            with torch.device("meta"):  # sizes that are not those of the weights take no memory
                sizes = network_of(files).state_dict()
            wanted = {n: tuple(t.shape) for n, t in sizes.items()}
            check_tensors({n: t.shape for n, t in files.tensors.items()}, wanted, "a text encoder")
            self.network, self.count = network_of(files), files.count
        except NanospeechError:
            raise
        except Exception as e:  # transformers' own have no common class
            why = " ".join(str(e).split())
            raise CheckpointError(
                f"the text encoder's config.json is none of its kind: {why}"
            ) from e
        state = {n: torch.from_numpy(t.copy()) for n, t in files.tensors.items()}
        self.network.load_state_dict(state)
        self.to(device=device, dtype=getattr(torch, dtype)).eval()
        self.requires_grad_(False)

    def train(self, mode: bool = True) -> FrozenTextEncoder:
        """Stays in eval mode, whatever it is part of."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, text_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """States (B, T, D) of ids; those where the mask is false mean nothing."""
        states = self.network(input_ids=text_BT, attention_mask=mask_BT.long())
        return states.last_hidden_state


def network_of(files: TextEncoderFiles) -> nn.Module:
    """The encoder without weights of its own; transformers' class for the kind."""
    transformers: Any = require("transformers", "t5")
    if files.kind == "t5":
        config = transformers.T5Config.from_dict(files.config)
        return transformers.T5EncoderModel(config).encoder
    if files.kind == "t5gemma":
        whole = {**files.whole, "is_encoder_decoder": False}
        config = transformers.T5GemmaConfig.from_dict(whole)
        network = transformers.T5GemmaEncoderModel(config).encoder
        network.set_attn_implementation("eager")  # others leave the cap of its scores out
        return network
    module: Any = require("transformers.models.t5gemma2.modeling_t5gemma2", "t5")
    configs: Any = require("transformers.models.t5gemma2.configuration_t5gemma2", "t5")
    config = configs.T5Gemma2TextConfig.from_dict(files.config)
    return module.T5Gemma2TextEncoder(config, eoi_token_index(files))


def eoi_token_index(files: TextEncoderFiles) -> int:
    """Id of the token that ends a picture, which has a vector of its own."""
    return files.whole.get("eoi_token_index") or files.config.get("eoi_token_index") or 256_000
