"""Peers: compares this project's networks with other projects' own outputs for tiny checkpoints.

    python -m scripts.experiments.peers FOLDER

FOLDER has echo, irodori and dacvae as .safetensors (random weights in the published layouts) and
.npz (inputs, and what the projects' own code made of them). Each is converted, opened in both
backends and compared; a line has the largest difference relative to the largest number.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from convert import convert
from convert.codec import read_codec
from convert.writer import write_release
from nanospeech.architectures import EchoOptions
from nanospeech.engine.echo_sampling import end_of, rescaled
from nanospeech.load import load_engine
from nanospeech.release.folder import CODEC

LIMITS = {"torch": 2e-5, "mlx": 1e-4}
SAMPLES = 2e-4
Line = tuple[str, np.ndarray, np.ndarray]


def options(given: dict[str, Any]) -> EchoOptions:
    """Echo-TTS's arguments of its sampler as options."""
    return EchoOptions(
        steps=given["num_steps"],
        cfg_text=given["cfg_scale_text"],
        cfg_speaker=given["cfg_scale_speaker"],
        cfg_min_t=given["cfg_min_t"],
        cfg_max_t=given["cfg_max_t"],
        truncation=given["truncation_factor"] or 1.0,
        rescale_k=given["rescale_k"],
        rescale_sigma=given["rescale_sigma"] or 3.0,
        speaker_kv_scale=given["speaker_kv_scale"],
        speaker_kv_layers=given["speaker_kv_max_layers"],
        speaker_kv_min_t=given["speaker_kv_min_t"] or 0.0,
    )


def echo_states(engine: Any, z: Any) -> Iterator[Line]:
    """States of Echo's streams, and keys and values of its first block."""
    net, array, numpy = engine.dit, engine.array, engine.numpy
    with engine.context():
        cond = np.concatenate([numpy(c)[:, 0] for c in net.condition(array(z["t"]))], -1)
        yield "cond_embed", cond, z["cond_embed"]
        read = array(z["text_mask"])
        text = net.text_states(array(z["text_ids"].astype(np.int64)), read)
        kept = z["text_mask"]
        yield "text_state", numpy(text)[kept], z["text_state"][kept]
        heard = array(z["speaker_mask"])
        speaker, _ = net.speaker_states(array(z["speaker_latent"]), heard)
        yield "speaker_state", numpy(speaker), z["speaker_state"]
        latent = net.latent_states(array(z["prefix_latent"]))
        yield "latent_state", numpy(latent), z["latent_state"]
        pairs = (net.latent_contexts(latent)[0], *net.contexts(text, speaker)[0])
        for name, (k, v) in zip(("latent", "text", "speaker"), pairs):
            yield f"k_{name}_0", numpy(k.swapaxes(1, 2)), z[f"k_{name}_0"]
            yield f"v_{name}_0", numpy(v.swapaxes(1, 2)), z[f"v_{name}_0"]


def echo(engine: Any, z: Any, settings: dict[str, Any]) -> Iterator[Line]:
    """Echo's velocities and samples."""
    import torch

    text = np.where(z["text_mask"], z["text_ids"], -1).astype(np.int64)
    heard = {"prompt_frames_B": z["speaker_mask"].sum(1)}
    given = z["x"], z["speaker_latent"], text, z["t"]
    yield "v", engine.velocity(*given, **heard), z["v"]
    yield "v_no_text", engine.velocity(*given, **heard, drop_text=True), z["v_no_text"]
    yield "v_no_speaker", engine.velocity(*given, **heard, drop_audio=True), z["v_no_speaker"]
    neither = engine.velocity(*given, **heard, drop_text=True, drop_audio=True)
    yield "v_no_both", neither, z["v_no_both"]
    yield from echo_states(engine, z)
    base = settings["base"]
    for name, run in settings["runs"].items():
        o = options({**base, **run})
        got = engine.sample(z["noise"], z["speaker_latent"], text, o, **heard)
        yield f"sample_{name}", got, z[f"sample_{name}"]
    draw = torch.Generator().manual_seed(settings["noise_seed"])
    noises = [torch.randn(2, n, 80, generator=draw).numpy() for n in settings["block_sizes"]]
    given = noises, z["speaker_latent"], text, options(base)
    blocks = np.concatenate(list(engine.sample_blocks(*given, **heard)), 1)
    yield "sample_blockwise", blocks, z["sample_blockwise"]
    said = z["prefix_latent"][:, :8]
    more = np.concatenate([said, *engine.sample_blocks(*given, prefix_BNC=said, **heard)], 1)
    yield "sample_blockwise_continued", more, z["sample_blockwise_continued"]
    out = rescaled(z["rescale_v"], z["rescale_x"], float(z["rescale_t"]), 1.2, 3.0)
    yield "rescale_out", out, z["rescale_out"]
    yield "flat_point", np.array(end_of(z["flat_latent"])), z["flat_point"]


def irodori(engine: Any, z: Any) -> Iterator[Line]:
    """Irodori's velocities and samples."""
    text, mask = np.where(z["text_mask"], z["text_ids"], -1), z["latent_mask"]
    heard = {"prompt_frames_B": z["ref_mask"].sum(1)}
    given = z["x"], z["ref_latent"], text, z["t"]
    yield "v", engine.velocity(*given, **heard), z["v"]
    masked = engine.velocity(*given, **heard, lens_B=mask.sum(1))
    yield "v_latent_mask", masked[mask], z["v_latent_mask"][mask]
    yield "v_no_text", engine.velocity(*given, **heard, drop_text=True), z["v_no_text"]
    yield "v_no_speaker", engine.velocity(*given, **heard, drop_audio=True), z["v_no_speaker"]
    guided: dict[str, dict[str, Any]] = {
        "sample": {},
        "sample_joint": {"joint": True},
        "sample_plain": {"cfg_text": 0, "cfg_speaker": 0},
    }
    for name, fields in guided.items():
        o = EchoOptions(steps=5, **fields)
        yield name, engine.sample(z["noise"], z["ref_latent"], text, o, **heard), z[name]


def codec(engine: Any, z: Any) -> Iterator[Line]:
    """DAC-VAE's latents, and its audio without the watermark."""
    with engine.context():
        heard = engine.array(z["padded_wave"][:, 0])
        mean, scale = engine.module(CODEC).distribution(heard)
        yield "mean", engine.numpy(mean).swapaxes(1, 2), z["mean"]
        yield "scale", engine.numpy(scale).swapaxes(1, 2), z["scale"]
    encoded = np.stack([engine.encode(wave) for wave in z["wave"][:, 0]])
    yield "encode", encoded.swapaxes(1, 2), z["mean"]
    waves = np.stack(engine.vocode(z["latent"].swapaxes(1, 2)))
    yield "audio_without_watermark", waves, z["audio_without_watermark"][:, 0]


def folders(peers: Path, made: Path) -> Iterator[tuple[str, Path, Any]]:
    """A release folder of each, with its arrays."""
    for name in ("echo", "irodori"):
        convert(peers / f"{name}.safetensors", made / name, dtype="float32", accept_licence=True)
        yield name, made / name, np.load(peers / f"{name}.npz")
    found, tensors = read_codec(peers / "dacvae.safetensors")
    config = convert(peers / "irodori.safetensors", made / "dacvae", dtype="float32")
    assert config.echo is not None
    # Irodori's network with as many latents as the codec: its numbers are not looked at
    weights = load_file(str(made / "dacvae" / "model.safetensors"))
    wide = found.latent_dim
    for n in ("in_proj.weight", "speaker_encoder.in_proj.weight"):
        weights[f"transformer.{n}"] = np.ascontiguousarray(weights[f"transformer.{n}"][:, :wide])
    for n in ("out_proj.weight", "out_proj.bias"):
        weights[f"transformer.{n}"] = np.ascontiguousarray(weights[f"transformer.{n}"][:wide])
    audio = dataclasses.replace(config.audio, n_mels=wide)
    network = dataclasses.replace(config.echo, latent_dim=wide)
    config = dataclasses.replace(config, codec=found, audio=audio, echo=network)
    write_release(made / "dacvae", config, {"codec": tensors}, "float32")
    save_file(weights, str(made / "dacvae" / "model.safetensors"))
    yield "dacvae", made / "dacvae", np.load(peers / "dacvae.npz")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of the checkpoints and arrays")
    peers, wrong = parser.parse_args().folder, 0
    settings = json.loads((peers / "echo_settings.json").read_text(encoding="utf-8"))["settings"]
    with tempfile.TemporaryDirectory() as made:
        for name, folder, z in folders(peers, Path(made)):
            for backend in LIMITS:
                engine = load_engine(folder, backend, dtype="float32")
                lines = {
                    "echo": lambda e, z: echo(e, z, settings),
                    "irodori": irodori,
                    "dacvae": codec,
                }[name](engine, z)
                for what, got, wanted in lines:
                    off = float(np.abs(got - wanted).max() / np.abs(wanted).max())
                    limit = SAMPLES if what.startswith("sample") else LIMITS[backend]
                    wrong += off > limit
                    print(f"{name} {backend} {what}: {off:.1e}{' TOO FAR' if off > limit else ''}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
