"""Engine: runs a model of latents with PyTorch; see nanospeech/engine/latents.py."""

from __future__ import annotations

from typing import Any

from torch import nn

from nanospeech.engine.latents import LatentEngine
from nanospeech.release.folder import CODEC, MODEL, TEXT_ENCODER

from ..engine import TorchEngine
from .codec import DACVAE
from .network import EchoDiT
from .text_encoder import FrozenTextEncoder


class TorchLatentEngine(LatentEngine, TorchEngine):
    """An EchoDiT in PyTorch; its arguments are TorchEngine's. It is not compiled."""

    def set_network(self, dit: nn.Module) -> None:
        self._dit, self.compiled = dit, None

    def load(self, name: str) -> Any:
        if name != TEXT_ENCODER:
            return super().load(name)
        files = self.text_encoder_files()
        dtype = "bfloat16" if self.device.startswith("cuda") else "float32"
        return FrozenTextEncoder(files, self.device, dtype)

    def network_of(self, name: str) -> nn.Module:
        if name == MODEL:
            return EchoDiT(self.echo)
        if name == CODEC:
            assert self.config.codec is not None
            return DACVAE(self.config.codec)
        return super().network_of(name)
