"""Peers: compares this project's networks with other projects' own outputs for tiny checkpoints.

    python -m scripts.experiments.peers FOLDER

FOLDER has echo, irodori, dacvae, f5_v1, f5_v0 and text encoders as .safetensors (random weights in
the published layouts) and .npz (inputs, and what the projects' own code made of them). Each is
converted, opened in both backends and compared; a line has the largest difference relative to the
largest number. tests/golden/peers has those of F5-TTS, Irodori-TTS and the text encoders alone,
which tests compare.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from convert import convert
from convert.codec import read_codec
from convert.writer import write_release
from nanospeech.audio.mel import log_mel
from nanospeech.cli import Parser, command
from nanospeech.config import SampleOptions
from nanospeech.engine.echo_sampling import end_of, euler, rescaled
from nanospeech.errors import InputError
from nanospeech.latent_architectures import EchoOptions
from nanospeech.load import load_engine
from nanospeech.release.folder import CODEC
from nanospeech.release.text_encoder import read_text_encoder

LIMITS = {"torch": 2e-5, "mlx": 1e-4}
SAMPLES = 2e-4
ENCODERS = ("t5_v10", "t5_v11", "t5gemma", "t5gemma2")
NEEDED = (
    *(
        f"{n}.{e}"
        for n in ("echo", "irodori", "dacvae", "f5_v1", "f5_v0")
        for e in ("safetensors", "npz")
    ),
    *(f"{n}.safetensors" for n in ENCODERS),
    *("echo_settings.json", "f5_vocab.txt", "t5_configs.json", "t5.npz"),
)
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
        ops = importlib.import_module(f"nanospeech_{engine.backend}.echo.ops")
        times = ops.timesteps(array(z["t"]), net.config.time_dim)
        yield "timestep_embedding", numpy(times), z["timestep_embedding"]
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
    more = engine.velocity(*given, **heard, prefix_BNC=z["prefix_latent"][:, :8])
    yield "v_continued_start8", more, z["v_continued_start8"]
    yield from echo_states(engine, z)
    base = settings["base"]
    for name, run in settings["runs"].items():
        o = options({**base, **run})
        got = engine.sample(z["noise"], z["speaker_latent"], text, o, **heard)
        yield f"sample_{name}", got, z[f"sample_{name}"]
    o = options({**base, **settings["runs"]["cfg"]})
    yield "sample_cfg_states", states_before(engine, z, text, o), z["sample_cfg_states"]
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


def states_before(engine: Any, z: Any, text: np.ndarray, o: EchoOptions) -> np.ndarray:
    """The state before each step of a guided sample."""
    count = np.full(2, z["noise"].shape[1])
    with engine.context():
        heard = z["speaker_latent"], text, count, z["speaker_mask"].sum(1)
        contexts, masks, _ = engine.conditions(*heard)
        masks = [np.ones(z["noise"].shape[:2], bool), *masks]
        velocity = engine.echo_velocity(contexts, masks, o, 0, None)
        start = engine.array(z["noise"] * np.float32(o.truncation))
        after = list(euler(velocity, start, o))
        return np.stack([engine.numpy(x) for x in (start, *after[:-1])])


def irodori(engine: Any, z: Any) -> Iterator[Line]:
    """Irodori's velocities and samples."""
    text, mask = np.where(z["text_mask"], z["text_ids"], -1), z["latent_mask"]
    heard = {"prompt_frames_B": z["ref_mask"].sum(1)}
    given = z["x"], z["ref_latent"], text, z["t"]
    with engine.context():
        net, array, numpy, read = engine.dit, engine.array, engine.numpy, z["text_mask"]
        states = numpy(net.text_states(array(z["text_ids"].astype(np.int64)), array(read)))
        yield "text_state", states[read], z["text_state"][read]
        speaker, counted = net.speaker_states(array(z["ref_latent"]), array(z["ref_mask"]))
        yield "speaker_state", numpy(speaker), z["speaker_state"]
        yield "speaker_state_mask", numpy(counted) > 0, z["speaker_state_mask"]
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
    conv = importlib.import_module(f"nanospeech_{engine.backend}.echo.convolutions")
    with engine.context():
        heard, codec = engine.array(z["padded_wave"][:, 0]), engine.module(CODEC)

        def rows(x: Any) -> np.ndarray:
            return engine.numpy(conv.outer(x)).swapaxes(1, 2)

        yield "hidden", rows(codec.encoder(conv.inner(heard[:, :, None]))), z["hidden"]
        inner = codec.from_latent(conv.inner(engine.array(z["latent"].swapaxes(1, 2).copy())))
        yield "emb", rows(inner), z["emb"]
        inner = codec.decoder.first(inner)
        for i, stage in enumerate(codec.decoder.stages):
            inner = stage(inner)
            if i == 0:
                yield "decoder_after_block1", rows(inner), z["decoder_after_block1"]
        yield "before_audio_head", rows(inner), z["before_audio_head"]
        mean, scale = codec.distribution(heard)
        yield "mean", engine.numpy(mean).swapaxes(1, 2), z["mean"]
        yield "scale", engine.numpy(scale).swapaxes(1, 2), z["scale"]
        stdev = np.logaddexp(0, engine.numpy(scale)).swapaxes(1, 2) + 1e-4
        yield "stdev", stdev, z["stdev"]
        yield "sampled", engine.numpy(mean).swapaxes(1, 2) + stdev * z["noise"], z["sampled"]
    encoded = np.stack([engine.encode(wave) for wave in z["wave"][:, 0]])
    yield "encode", encoded.swapaxes(1, 2), z["mean"]
    waves = np.stack(engine.vocode(z["latent"].swapaxes(1, 2)))
    yield "audio_without_watermark", waves, z["audio_without_watermark"][:, 0]


def f5(engine: Any, z: Any) -> Iterator[Line]:
    """F5-TTS's velocities of single items, and its samples."""
    drops = {"plain": (), "drop_audio": ("drop_audio",), "drop_text": ("drop_text",)}
    for tag, names in {**drops, "drop_both": ("drop_audio", "drop_text")}.items():
        for i, n in enumerate(z["lens"]):
            given = z["x"][i, None, :n], z["cond"][i, None, :n]
            told = z["text_ids"][i, None], z["time"][i, None], dict.fromkeys(names, True)
            v = engine.velocity(*given, *told[:2], **told[2])
            yield f"dit_{tag}_item{i}", v[0], z[f"dit_{tag}_item{i}"]
    with engine.context():
        net, ids = engine.dit, engine.array(z["text_ids"][1:])
        yield "time_embed", engine.numpy(net.embed_time(engine.array(z["time"]))), z["time_embed"]
        frames = int(z["lens"][1])
        text = engine.numpy(net.embed_text(ids, frames, None))
        yield "text_embed_item1", text, z["text_embed_item1"]
        text = engine.numpy(net.embed_text(ids * 0 - 1, frames, None, ids))
        yield "text_embed_item1_dropped", text, z["text_embed_item1_dropped"]
    given = z["x"][:1], z["cond"][:1], z["long_text_ids"], z["time"][:1]
    yield "dit_long_text", engine.velocity(*given), z["dit_long_text"]
    cond = np.zeros_like(z["noise"])[None]
    prompt = z["prompt_mel"].shape[1]
    cond[:, :prompt] = z["prompt_mel"]
    for name in (n for n in z.files if n.startswith("sample_") and "steps" in n):
        _, method, steps, cfg, sway, *rest = name.split("_")
        o = SampleOptions(
            method=method,
            steps=int(steps.removesuffix("steps")),
            cfg_strength=float(cfg.removeprefix("cfg")),
            sway_sampling_coef=float(sway.removeprefix("sway")) or None,
        )
        got = engine.sample(z["noise"][None], cond, z["sample_text_ids"], o)[0]
        if rest == ["out"]:
            got = np.concatenate([z["prompt_mel"][0], got[prompt:]])
        yield name, got, z[name][-1] if rest == ["trajectory"] else z[name]
    if "wave" in z.files:
        yield "mel_of_wave", log_mel(z["wave"], engine.config.audio), z["mel_of_wave"]


def text_encoder(backend: str, name: str, peers: Path, made: Path, z: Any) -> Iterator[Line]:
    """States of a text encoder, in a batch and alone."""
    configs = json.loads((peers / "t5_configs.json").read_text(encoding="utf-8"))
    config = configs.get(name) or configs[f"{name}_text"]
    (made / name).mkdir(exist_ok=True)
    (made / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shutil.copy(peers / f"{name}.safetensors", made / name / "model.safetensors")
    encoders = importlib.import_module(f"nanospeech_{backend}.echo.text_encoder")
    encoder = encoders.FrozenTextEncoder(read_text_encoder(made / name))
    array = importlib.import_module("torch").tensor
    if backend == "mlx":
        array = importlib.import_module("mlx.core").array
    ids, mask = z["input_ids"].astype(np.int64), z["attention_mask"] > 0
    yield name, np.array(encoder(array(ids), array(mask)))[mask], z[name][mask]
    rows, count = mask[1].nonzero()[0], mask[1].sum()
    alone = encoder(array(ids[1:, rows]), array(np.ones((1, count), bool)))
    yield f"{name}_item1", np.array(alone)[0], z[f"{name}_item1"]


def folders(peers: Path, made: Path) -> Iterator[tuple[str, Path, Any]]:
    """A release folder of each, with its arrays."""
    for name in ("f5_v1", "f5_v0"):
        settings = {"kind": name.replace("_", "-"), "vocab": peers / "f5_vocab.txt"}
        file = peers / f"{name}.safetensors"
        convert(file, made / name, dtype="float32", licence="cc-by-4.0", **settings)
        yield name, made / name, np.load(peers / f"{name}.npz")
    for name in ("echo", "irodori"):
        file = peers / f"{name}.safetensors"
        convert(file, made / name, dtype="float32", licence="cc-by-4.0")
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
    audio = dataclasses.replace(config.audio, n_mels=wide, hop_length=found.hop_length)
    network = dataclasses.replace(config.echo, latent_dim=wide)
    config = dataclasses.replace(config, codec=found, audio=audio, echo=network)
    write_release(made / "dacvae", config, {"codec": tensors}, "float32")
    save_file(weights, str(made / "dacvae" / "model.safetensors"))
    yield "dacvae", made / "dacvae", np.load(peers / "dacvae.npz")


def compared(name: str, backend: str, lines: Iterator[Line]) -> int:
    """Prints a line for each array; how many are too far."""
    wrong = 0
    for what, got, wanted in lines:
        assert got.shape == wanted.shape, (what, got.shape, wanted.shape)
        got, wanted = np.float64(got), np.float64(wanted)
        off = float(np.abs(got - wanted).max() / np.abs(wanted).max())
        limit = SAMPLES if what.startswith("sample_") else LIMITS[backend]
        wrong += off > limit
        print(f"{name} {backend} {what}: {off:.1e}{' TOO FAR' if off > limit else ''}")
    return wrong


@command
def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser("python -m scripts.experiments.peers", __doc__)
    parser.add_argument("folder", type=Path, help="of the checkpoints and arrays")
    peers, wrong = parser.parse_args(argv).folder, 0
    if missing := [name for name in NEEDED if not (peers / name).is_file()]:
        raise InputError(
            f"{peers} lacks {', '.join(missing)}; name a folder with what other projects' code"
            " made, see --help"
        )
    settings = json.loads((peers / "echo_settings.json").read_text(encoding="utf-8"))["settings"]
    with tempfile.TemporaryDirectory() as made:
        for name, folder, z in folders(peers, Path(made)):
            for backend in LIMITS:
                engine = load_engine(folder, backend, dtype="float32")
                lines = {
                    "echo": lambda e, z: echo(e, z, settings),
                    "irodori": irodori,
                    "dacvae": codec,
                }.get(name, f5)(engine, z)
                wrong += compared(name, backend, lines)
        for name in ENCODERS:
            for backend in LIMITS:
                z = np.load(peers / "t5.npz")
                wrong += compared("t5", backend, text_encoder(backend, name, peers, Path(made), z))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
