"""Card facts: what a model card says of a folder's files and of its network. Writes no card."""

from __future__ import annotations

from math import prod
from pathlib import Path

from nanospeech.config import ModelConfig

from .folder import (
    CODEC,
    DURATION,
    IMITATOR,
    MODEL,
    STUDENT,
    TEXT_ENCODER,
    VOCODER,
    Release,
    open_release,
)
from .sharded import files_of, there
from .tensors import FLOATS, opened

HEAD = "file", "parameters", "stored as"  # of the table of files


def table_row(file: str, parameters: int, stored: str) -> str:
    """A row of the table of files."""
    return f"| {file} | {parameters:,} | {stored} |"


def file_rows(release: Release) -> list[str]:
    """Rows of a release's own files of weights, then of its imitator's."""
    parts = [MODEL, *([STUDENT] if release.config.student else []), DURATION, VOCODER, CODEC]
    rows = [part_row(release, file) for file in parts if there(release.folder / file)]
    encoder = f"{TEXT_ENCODER}/{MODEL}"
    if there(release.folder / encoder):
        rows.append(part_row(release, encoder))
    return rows + (imitator_rows(release.folder / IMITATOR) if release.config.imitator else [])


def imitator_rows(folder: Path) -> list[str]:
    """Rows of an imitator, its student and its vocoder, with its licence if known."""
    own = open_release(folder)
    files = [MODEL, *([STUDENT] if own.config.student else []), VOCODER]
    return [part_row(own, file, f"{IMITATOR}/") for file in files if there(folder / file)]


def part_row(release: Release, file: str, within: str = "") -> str:
    """A row: all parameters of a file or of its shards, packed ones as they are unpacked.

    Args:
        within: the folder of the release in another one, whose licence may be another.
    """
    part = TEXT_ENCODER if file.startswith(TEXT_ENCODER) else Path(file).stem
    count = sum(prod(shape) for shape in release.shapes(file).values())
    about = stored_as(release.config, part, float_types(release.folder / file))
    if within and release.config.licence:
        about += f", licence {release.config.licence}"
    return table_row(f"{within}{file}", count, about)


def stored_as(config: ModelConfig, part: str, floats: str) -> str:
    """How a part's weights are stored: "float16", or "3 to 8 bits, float16"."""
    bits = sorted(getattr(config.quantization, part, {}).values())  # none of a codec's
    if not bits or part == TEXT_ENCODER:
        return floats
    span = f"{bits[0]} to {bits[-1]}" if bits[0] < bits[-1] else f"{bits[0]}"
    return f"{span} bits, {floats}"


def float_types(path: Path) -> str:
    """Types of the floats in a safetensors file, or in its shards: "float16"."""
    kinds = set()
    for file in files_of(path):
        with opened(file) as f:
            names = list(f.keys())
            kinds |= {f.get_slice(name).get_dtype() for name in names}
    return ", ".join(sorted(FLOATS[kind] for kind in kinds & FLOATS.keys()))


def readers(config: ModelConfig) -> str:
    """The backends that read a model."""
    return "PyTorch, MLX\nand ONNX Runtime" if config.echo is None else "PyTorch\nand MLX"


def network_rows(config: ModelConfig) -> str:
    """What the network is, what it reads and what it speaks."""
    a, d, e = config.audio, config.dit, config.echo
    if e is not None:
        other = config.text_encoder
        text = f"{e.text_vocab} ids" if other is None else f"states of a {other.kind} encoder"
        if e.text_tags:
            text += f", and the tags {', '.join(e.text_tags)}"
        return f"""- Speech: EchoDiT, {e.depth} blocks of width {e.dim}, {e.heads} heads.
- Text: {text} ({config.tokenizer}).
- Audio: {a.sample_rate} Hz, latents of {e.latent_dim}, hop {a.hop_length}."""
    return f"""- Speech: DiT, {d.depth} blocks of width {d.dim}, {d.heads} heads,
  {d.patch_size} mel frame(s) a patch, text upsampling "{d.text_upsampling}".
- Text: {d.text_num_embeds} {config.tokenizer} (vocab.txt).
- Audio: {a.sample_rate} Hz, {a.n_mels} mel bands, hop
  {a.hop_length}."""
