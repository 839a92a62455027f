"""Tiny models of latents, written as release folders, and what other implementations made of them.

tests/golden/peers/irodori.* are Irodori-TTS's own outputs for random weights (Aratako/Irodori-TTS
2708d3c, MIT). The other files hold outputs of this project for weights of a seed, written by
`python -m tests.echo.tiny` when it agreed to 1e-5 with the other projects' own code on larger
checkpoints; scripts/experiments/peers.py compares those.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from nanospeech.config import AudioConfig, ModelConfig
from nanospeech.latent_architectures import EchoConfig, EchoOptions
from nanospeech.load import load_engine

GOLDEN = Path(__file__).parents[1] / "golden" / "peers"
IRODORI = EchoConfig(
    latent_dim=16, dim=48, depth=2, heads=4, ff_dim=96, text_vocab=90, text_dim=32, text_depth=2,
    text_heads=2, text_ff_dim=83, speaker_patch=1, speaker_dim=24, speaker_depth=2, speaker_heads=2,
    speaker_ff_dim=62, speaker_causal=False, speaker_mean=True, zero_masked=True, time_dim=32,
    adaln_rank=6,
)  # fmt: skip
ECHO = EchoConfig(
    latent_dim=12, dim=32, depth=2, heads=4, ff_dim=40, text_dim=24, text_depth=2, text_heads=2,
    text_ff_dim=30, speaker_dim=16, speaker_depth=2, speaker_heads=2, speaker_ff_dim=20,
    continues=True, time_dim=32, adaln_rank=4,
)  # fmt: skip
SCALED = EchoConfig(
    latent_dim=12, dim=32, depth=2, heads=2, ff_dim=88, text_vocab=80, text_dim=16, text_input=32,
    speaker_dim=16, speaker_depth=1, speaker_heads=2, speaker_ff_dim=44, text_heads=2,
    target_duration=True, time_dim=32, adaln_rank=4,
)  # fmt: skip
WINDOWED = EchoConfig(
    latent_dim=12, latent_patch=2, dim=32, depth=2, heads=4, ff_dim=40, text_dim=24, text_depth=1,
    text_heads=2, text_ff_dim=30, speaker_dim=16, speaker_depth=1, speaker_heads=2,
    speaker_ff_dim=20, text_rotary=True, text_window=1.5, time_dim=32, adaln_rank=4,
)  # fmt: skip
RUNS = {
    "plain": EchoOptions(steps=5, cfg_text=0, cfg_speaker=0),
    "all": EchoOptions(
        steps=5, truncation=0.9, rescale_k=1.2, speaker_kv_scale=1.3, speaker_kv_layers=1,
        speaker_kv_min_t=0.6,
    ),
}  # fmt: skip


def seeded(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    """Weights by name: matrices of unit gain, vectors around 0, norms' around 1."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, shape in sorted(shapes.items()):
        draw = rng.standard_normal(shape, dtype=np.float32)
        gain = 0.1 if len(shape) < 2 else np.prod(shape[1:]) ** -0.5
        if name.endswith("weight_g"):
            draw, gain = 0.1 * draw + 0.5, 1.0
        made[name] = (
            0.1 * draw + 1 if "norm" in name or "alpha" in name else np.float32(gain) * draw
        )
        made[name] = made[name].astype(np.float32)
    return made


def network_shapes(config: EchoConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a network's tensors in a release folder."""
    from nanospeech_torch.echo.network import EchoDiT

    state = EchoDiT(config).state_dict()
    return {f"transformer.{n}": tuple(t.shape) for n, t in state.items()}


def write(folder: Path, config: EchoConfig, weights: dict[str, np.ndarray], **fields) -> Path:
    """A release folder without a codec."""
    audio = AudioConfig(sample_rate=48_000, hop_length=1920, n_mels=config.latent_dim)
    kind = "echo" if config.text_depth and config.text_vocab == 256 else "pieces"
    ModelConfig(tokenizer=kind, audio=audio, echo=config, **fields).save(folder / "config.json")
    save_file(weights, str(folder / "model.safetensors"))
    return folder


def echo_inputs() -> dict[str, np.ndarray]:
    """Two texts and two speakers of different lengths, and noise."""
    rng = np.random.default_rng(1)
    text = rng.integers(1, 256, (2, 14))
    text[1, 9:] = -1
    return {
        "x": rng.standard_normal((2, 13, 12), dtype=np.float32),
        "speaker": rng.standard_normal((2, 16, 12), dtype=np.float32),
        "speaker_lens": np.array([16, 9]),
        "prefix": rng.standard_normal((2, 8, 12), dtype=np.float32),
        "text": text,
        "t": np.array([0.83, 0.21], np.float32),
    }


def echo_outputs(engine) -> dict[str, np.ndarray]:
    """What an engine makes of them."""
    i = echo_inputs()
    given, heard = (i["speaker"], i["text"]), {"prompt_frames_B": i["speaker_lens"]}

    def v(**more):
        return engine.velocity(i["x"], *given, i["t"], **heard, **more)

    out = {
        "v": v(),
        "no_text": v(drop_text=True),
        "no_speaker": v(drop_audio=True),
        "continued": v(prefix_BNC=i["prefix"]),
    }
    out |= {n: engine.sample(i["x"], *given, o, **heard) for n, o in RUNS.items()}
    noises = [i["x"][:, :8], i["x"][:, 1:9]]
    blocks = engine.sample_blocks(noises, *given, RUNS["all"], prefix_BNC=i["prefix"], **heard)
    return out | {"blocks": np.concatenate(list(blocks), 1)}


def dacvae() -> dict[str, np.ndarray]:
    """Weights of a small DAC-VAE under its own names, its watermark's head among them."""
    shapes = json.loads((GOLDEN / "dacvae_shapes.json").read_text(encoding="utf-8"))
    return seeded({n: tuple(s) for n, s in shapes.items()}, 2)


def write_with_codec(folder: Path) -> Path:
    """A release folder of ECHO's network, and the codec that dacvae() converts to."""
    from convert import convert

    weights, codec = folder / "weights", folder / "dacvae.safetensors"
    weights.mkdir()
    save_file(dacvae(), str(codec))
    config = dataclasses.replace(ECHO, latent_dim=8)
    write(weights, config, seeded(network_shapes(config)))
    convert(weights, folder / "release", dtype="float32", codec=codec)
    return folder / "release"


def codec_outputs(engine) -> dict[str, np.ndarray]:
    """A recording's latents, and the audio of other ones."""
    rng = np.random.default_rng(3)
    latent = rng.standard_normal((11, 8), dtype=np.float32)
    wave = 0.3 * rng.standard_normal(895, dtype=np.float32)
    return {"encode": engine.encode(wave), "decode": engine.vocode(latent[None])[0]}


def main(folder: Path) -> None:
    (folder / "codec").mkdir()
    engine = load_engine(write_with_codec(folder / "codec"), "torch", dtype="float32")
    np.savez_compressed(GOLDEN / "dacvae.npz", **codec_outputs(engine))
    weights = seeded(network_shapes(ECHO))
    engine = load_engine(write(folder, ECHO, weights), "torch", dtype="float32")
    np.savez_compressed(GOLDEN / "echo.npz", **echo_outputs(engine))


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
