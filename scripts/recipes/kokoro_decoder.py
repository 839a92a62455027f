"""Decodes Kokoro's frames into waves with PyTorch, in bfloat16 where the CPU is fast in it.

The ONNX export quantizes activations before each convolution. This runs the same network, with the
weights of the export, as convolutions whose channels come last and two compiled functions: on a
CPU with AMX four times as fast. Lengths are filled up to a multiple of half a second, because each
new one costs half a second of preparing kernels.

Network: StyleTTS 2 (Li et al., arXiv 2306.07691) with iSTFTNet (Kaneko et al., arXiv 2203.02395)
and a harmonic source (Wang et al., arXiv 1904.12088), as Kokoro-82M has it, without noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nanospeech.errors import require
from nanospeech_torch.engine import has_bfloat16

# what the decoder is given: text (1, 512, T) of 40 frames a second, pitch and energy (1, 2 T)
FRAMES = ["/encoder/MatMul_1_output_0", "/encoder/Reshape_output_0", "/encoder/Reshape_1_output_0"]
PREFIX = "/decoder/decoder/"
MULTIPLE = 20  # of frames that lengths are filled up to
SAMPLE_RATE, SAMPLES = 24000, 300  # samples of each value of the pitch
FFT, HOP = 20, 5
HARMONICS = 9
WEIGHTED = {"Conv", "ConvInteger", "ConvTranspose", "MatMul", "MatMulInteger"}


def read_export(path: Path) -> tuple[bytes, dict[str, np.ndarray]]:
    """An ONNX export in two parts.

    Returns:
        the model up to FRAMES, and the decoder's weights in float32 by the names of its modules.
    """
    onnx = require("onnx", package="onnx")
    model = onnx.load(str(path))
    arrays = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    weights = {}
    for node in model.graph.node:
        if not node.name.startswith(PREFIX) or node.op_type not in WEIGHTED or "istft" in node.name:
            continue
        module = node.name.removeprefix(PREFIX).rsplit("/", 1)[0].replace("/", ".")
        module = module.replace("asr_res.asr_res.0", "asr_res")
        weights[f"{module}.weight"] = dequantized(arrays, node.input, node.op_type)
        if node.op_type in ("Conv", "ConvTranspose"):
            weights[f"{module}.bias"] = arrays[node.input[2]]
    for name, array in arrays.items():
        if name.startswith("decoder.decoder.") and (name.endswith(".bias") or ".alpha" in name):
            own = name.removeprefix("decoder.decoder.").replace("asr_res.0", "asr_res")
            weights.setdefault(own, array)
    cut(model.graph, FRAMES)
    return model.SerializeToString(), {n: np.asarray(a, np.float32) for n, a in weights.items()}


def cut(graph: Any, outputs: list[str]) -> None:
    """Leaves what a graph's new outputs need: ONNX Runtime runs the rest, too."""
    onnx = require("onnx", package="onnx")
    made_by = {name: node for node in graph.node for name in node.output}
    wanted, needed = list(outputs), set()
    while wanted:
        name = wanted.pop()
        if name not in needed:
            needed.add(name)
            wanted += made_by[name].input if name in made_by else []
    del graph.output[:]
    for name in outputs:
        info = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        graph.output.append(info)
    for kept, has in (
        (graph.node, lambda n: needed.intersection(n.output)),
        (graph.initializer, lambda i: i.name in needed),
    ):
        left = [x for x in kept if has(x)]
        del kept[:]
        kept.extend(left)


def dequantized(arrays: Mapping[str, np.ndarray], inputs: Any, kind: str) -> np.ndarray:
    """The weight of a node: as convolutions have it; of a MatMul, transposed as nn.Linear's."""
    weight = arrays[inputs[1]]
    if kind.endswith("Integer"):
        zero, scale = arrays[inputs[3]], arrays[inputs[1].replace("_quantized", "_scale")]
        weight = (weight.astype(np.float32) - zero.astype(np.float32)) * scale
    return weight.T if kind.startswith("MatMul") else weight


def normalized(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Instance norm over time, scaled and shifted by the style (AdaIN), in float32."""
    variance, mean = torch.var_mean(x.float(), (2, 3), correction=0, keepdim=True)
    return (x - mean) * (torch.rsqrt(variance + 1e-5) * scale) + shift


def leaky(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return F.leaky_relu(normalized(x, scale, shift), 0.2).to(x.dtype)


def snake(x: Tensor, scale: Tensor, shift: Tensor, alpha: Tensor) -> Tensor:
    """Snake (Ziyin et al., arXiv 2006.08195) of the norm."""
    x_norm = normalized(x, scale, shift)
    return (x_norm + torch.sin(alpha * x_norm).square() / alpha).to(x.dtype)


class Decoder:
    """Kokoro's decoder: frames to a wave.

    Args:
        weights: of read_export.
        compiles: the norms, which takes ten seconds and a C++ compiler.
        dtype: of convolutions; None: bfloat16 where the CPU is fast in it, else float32.
    """

    def __init__(
        self,
        weights: Mapping[str, np.ndarray],
        compiles: bool = True,
        dtype: torch.dtype | None = None,
    ):
        self.dtype = dtype or (torch.bfloat16 if has_bfloat16() else torch.float32)
        self.weights = {n: self.prepared(n, torch.tensor(a)) for n, a in weights.items()}
        self.window = torch.hann_window(FFT)
        self.leaky, self.snake = leaky, snake
        if compiles:
            self.leaky = torch.compile(leaky, dynamic=True)
            self.snake = torch.compile(snake, dynamic=True)

    def prepared(self, name: str, weight: Tensor) -> Tensor:
        """A weight as it is used: convolutions are of images one pixel high, channels last."""
        if ".alpha" in name:
            return weight.reshape(1, -1, 1, 1)
        if ".fc." in name or "l_linear" in name:
            return weight
        if weight.ndim == 3:
            weight = last(weight[:, :, None])
        return weight.to(self.dtype)

    def __call__(
        self, text: np.ndarray, pitch: np.ndarray, energy: np.ndarray, style: np.ndarray
    ) -> np.ndarray:
        """The wave, float32 (600 T,) at 24 kHz.

        Args:
            text: (1, 512, T).
            pitch, energy: (1, 2 T), in Hz and of Kokoro's own unit.
            style: (1, 128), the half for timbre.
        """
        frames = text.shape[-1]
        more = -frames % MULTIPLE
        f0, loudness = (
            torch.tensor(np.pad(a.reshape(1, -1), [(0, 0), (0, 2 * more)], "edge"))
            for a in (pitch, energy)
        )
        x_text = torch.tensor(np.pad(text, [(0, 0), (0, 0), (0, more)], "edge"))
        with torch.inference_mode():
            wave = self.decode(x_text, f0, loudness, torch.tensor(style))
        return wave.numpy()[: 2 * SAMPLES * frames]

    def decode(self, text: Tensor, pitch: Tensor, energy: Tensor, style: Tensor) -> Tensor:
        text = last(text[:, :, None].to(self.dtype))
        curves = [
            self.convolved(name, curve[:, None, None].to(self.dtype), stride=2, padding=1)
            for name, curve in (("F0_conv", pitch), ("N_conv", energy))
        ]
        x = self.block("encode", torch.cat([text, *curves], 1), style)
        own = self.convolved("asr_res", text)
        for i in range(4):
            x = torch.cat([x, own, *curves], 1)
            x = self.block(f"decode.{i}", x, style, doubles=i == 3)
        source = last(self.source(pitch).to(self.dtype))
        x = self.risen("ups.0", x, 10, 5) + self.residual(
            "noise_res.0", self.convolved("generator.noise_convs.0", source, 6, 3), style
        )
        x = self.risen("ups.1", self.mixed(0, x, style), 6, 3)
        x = torch.cat([x[..., 1:2], x], -1) + self.residual(
            "noise_res.1", self.convolved("generator.noise_convs.1", source), style
        )
        x = F.leaky_relu(self.mixed(3, x, style), 0.01)
        x = self.convolved("generator.conv_post", x, padding=3)[:, :, 0].float()
        magnitude, phase = x.split(FFT // 2 + 1, 1)
        spectrum = torch.polar(magnitude.exp(), phase.sin())
        return torch.istft(spectrum, FFT, HOP, FFT, self.window)[0]

    def convolved(
        self, name: str, x: Tensor, stride: int = 1, padding: int = 0, dilation: int = 1
    ) -> Tensor:
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        return F.conv2d(last(x), weight, bias, (1, stride), (0, padding), (1, dilation))

    def style_of(self, name: str, style: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and shift of a norm: (1, C, 1, 1) each."""
        weight, bias = self.weights[f"{name}.fc.weight"], self.weights[f"{name}.fc.bias"]
        scale, shift = F.linear(style, weight, bias)[:, :, None, None].chunk(2, 1)
        return 1 + scale, shift

    def block(self, name: str, x: Tensor, style: Tensor, doubles: bool = False) -> Tensor:
        """A residual block of two convolutions, which may double the frames."""
        y = self.leaky(last(x), *self.style_of(f"{name}.norm1", style))
        if doubles:
            weight, bias = self.weights[f"{name}.pool.weight"], self.weights[f"{name}.pool.bias"]
            y = F.conv_transpose2d(y, weight, bias, (1, 2), (0, 1), (0, 1), groups=y.shape[1])
            x = x.repeat_interleave(2, -1)
        y = self.convolved(f"{name}.conv1", y, padding=1)
        y = self.leaky(y, *self.style_of(f"{name}.norm2", style))
        y = self.convolved(f"{name}.conv2", y, padding=1)
        if f"{name}.conv1x1.weight" in self.weights:
            x = self.convolved(f"{name}.conv1x1", x)
        return (y + x) * 0.5**0.5

    def residual(self, name: str, x: Tensor, style: Tensor) -> Tensor:
        """Three residual pairs of convolutions, the first of each pair dilated."""
        name = f"generator.{name}"
        size = self.weights[f"{name}.convs1.0.weight"].shape[-1]
        for i, dilation in enumerate((1, 3, 5)):
            y = x
            for half, spread in ((1, dilation), (2, 1)):
                norm = self.style_of(f"{name}.adain{half}.{i}", style)
                y = self.snake(y, *norm, self.weights[f"{name}.alpha{half}.{i}"])
                padding = size // 2 * spread
                y = self.convolved(f"{name}.convs{half}.{i}", y, 1, padding, spread)
            x = x + y
        return x

    def mixed(self, first: int, x: Tensor, style: Tensor) -> Tensor:
        """The mean of three residual blocks."""
        a, b, c = (self.residual(f"resblocks.{first + i}", x, style) for i in range(3))
        return (a + b + c) / 3

    def risen(self, name: str, x: Tensor, factor: int, padding: int) -> Tensor:
        name = f"generator.{name}"
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return F.conv_transpose2d(F.leaky_relu(x, 0.1), weight, bias, (1, factor), (0, padding))

    def source(self, pitch: Tensor) -> Tensor:
        """Spectrum of harmonics of the pitch, silent where it is below 10 Hz: (1, 22, 1, 120 T)."""
        harmonics = pitch.double()[:, None] * torch.arange(1, HARMONICS + 1)[:, None]
        turns = (harmonics / SAMPLE_RATE % 1).cumsum(-1) * SAMPLES
        turns = F.interpolate(turns, scale_factor=SAMPLES, mode="linear")
        sines = 0.1 * torch.sin(2 * torch.pi * (turns % 1)).float()
        sines = sines * (pitch > 10).repeat_interleave(SAMPLES, -1)[:, None]
        name = "generator.m_source.l_linear"
        mixed = F.linear(sines.mT, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])
        spectrum = torch.stft(mixed[..., 0].tanh(), FFT, HOP, FFT, self.window, return_complex=True)
        return torch.cat([spectrum.abs(), spectrum.angle()], 1)[:, :, None]


def last(x: Tensor) -> Tensor:
    """The tensor, its channels last in memory."""
    return x.contiguous(memory_format=torch.channels_last)
