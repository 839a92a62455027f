"""Codec: DAC-VAE's weights under this project's names, without its watermark.

Facts of the layout are those of facebookresearch/dacvae (Apache-2.0). Its old weight_norm keeps
weight_g and weight_v, of which the weight is g v / |v| for each row.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from nanospeech.errors import CheckpointError, InputError
from nanospeech.latent_architectures import CodecConfig
from nanospeech.release.folder import CODEC, CONFIG, load_config
from nanospeech.release.shapes import sizes
from nanospeech.release.tensors import check_tensors

from .lazy import read_lazily, shapes_of
from .source import read_source

MARK = "quantizer.in_proj.weight_v"


def read_codec(path: str | Path) -> tuple[CodecConfig, Mapping[str, Tensor]]:
    """A codec of DAC-VAE's weights.pth or safetensors, or of a release folder.

    Raises:
        CheckpointError: it cannot be read, or is no DAC-VAE.
    """
    path = Path(path)
    if path.is_dir() and (path / CONFIG).is_file():
        config = load_config(path).codec
        if config is None:
            raise CheckpointError(f"{path} has no codec; name a folder that has, or weights.pth")
        return config, read_lazily(path / CODEC)
    tensors = read_source(path, "raw").tensors
    if MARK not in tensors:
        raise CheckpointError(
            f"{path} is no DAC-VAE: it has no {MARK}; name the weights.pth of"
            " facebook/dacvae-watermarked, or a release folder with a codec"
        )
    try:
        config = config_of(tensors, path)
        made = {n: folded(tensors, old) for n, old in renamed(tensors, config, path).items()}
    except (KeyError, InputError) as e:
        what = f"it has no {e.args[0]}" if isinstance(e, KeyError) else str(e)
        raise CheckpointError(f"{path} is no whole DAC-VAE: {what}") from e
    check_tensors(shapes_of(made), codec_shapes(config), path)
    return config, made


def codec_shapes(config: CodecConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a codec's tensors, without allocating anything."""
    from nanospeech_torch.echo.codec import DACVAE
    from nanospeech_torch.engine import weightless

    with weightless():
        return shapes_of(DACVAE(config).state_dict())


def config_of(tensors: Mapping[str, Tensor], path: Path) -> CodecConfig:
    """Sizes, read off the shapes; the sample rate is DAC-VAE's.

    Raises:
        CheckpointError: a tensor that a size is read off is missing or of another shape.
        InputError: the sizes cannot be.
    """
    shapes, rates = shapes_of(tensors), []
    for side, kernel in (("encoder.block.{}", "4"), ("decoder.model.{}", "1")):
        found, i = [], 1
        while (name := f"{side.format(i)}.block.{kernel}.weight_v") in shapes:
            found.append(sizes(shapes, name, 3, path)[2] // 2)
            i += 1
        rates.append(found)
    hidden_dim, latent_dim, _ = sizes(shapes, "quantizer.out_proj.weight_v", 3, path)
    return CodecConfig(
        encoder_dim=sizes(shapes, "encoder.block.0.weight_v", 3, path)[0],
        encoder_rates=rates[0],
        hidden_dim=hidden_dim,
        decoder_dim=sizes(shapes, "decoder.model.0.weight_v", 3, path)[0],
        decoder_rates=rates[1],
        latent_dim=latent_dim,
    )


def renamed(tensors: Mapping[str, Tensor], c: CodecConfig, path: Path) -> dict[str, str]:
    """DAC-VAE's names by this project's; of a layer the name without its parameter's.

    Raises:
        CheckpointError: a layer is missing.
    """
    down, up = len(c.encoder_rates), len(c.decoder_rates)
    layers = {
        "encoder.first": "encoder.block.0",
        "encoder.snake": f"encoder.block.{down + 1}",
        "encoder.last": f"encoder.block.{down + 2}",
        "to_latent": "quantizer.in_proj",
        "from_latent": "quantizer.out_proj",
        "decoder.first": "decoder.model.0",
        "decoder.snake": "decoder.wm_model.encoder_block.pre.0",
        "decoder.last": "decoder.wm_model.encoder_block.pre.1",
    }
    for i in range(down):
        old, new = f"encoder.block.{i + 1}.block", f"encoder.stages.{i}"
        layers |= {f"{new}.snake": f"{old}.3", f"{new}.conv": f"{old}.4"}
        layers |= units(new, old, (0, 1, 2))
    for i in range(up):
        old, new = f"decoder.model.{i + 1}.block", f"decoder.stages.{i}"
        layers |= {f"{new}.snake": f"{old}.0", f"{new}.conv": f"{old}.1"}
        layers |= units(new, old, (4, 5, 8))
    names = {}
    for new, old in layers.items():
        kinds = ("alpha",) if "snake" in new else ("weight", "bias")
        names |= {f"{new}.{kind}": f"{old}.{kind}" for kind in kinds}
    there = {n.removesuffix("_v") for n in tensors}
    if missing := sorted(old for old in names.values() if old not in there):
        raise CheckpointError(f"{path} is no whole DAC-VAE: it has no {', '.join(missing[:3])}")
    return names


def units(new: str, old: str, places: tuple[int, ...]) -> dict[str, str]:
    """The layers of a stage's residual units."""
    parts = {"snake1": 0, "conv1": 1, "snake2": 2, "conv2": 3}
    return {
        f"{new}.units.{i}.{part}": f"{old}.{place}.block.{at}"
        for i, place in enumerate(places)
        for part, at in parts.items()
    }


def folded(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    """A tensor by its name without weight_norm, as float32; a snake's is a vector.

    Raises:
        InputError: weight_norm's two do not fit together.
    """
    if name in tensors:
        return tensors[name].float().reshape(-1).clone()
    v, g = tensors[f"{name}_v"].float(), tensors[f"{name}_g"].float()
    if g.shape != (rows := (*v.shape[:1], *(1 for _ in v.shape[1:]))):
        raise InputError(f"{name}_g is {tuple(g.shape)}, of {name}_v should be {rows}")
    return g * v / v.norm(dim=tuple(range(1, v.ndim)), keepdim=True)
