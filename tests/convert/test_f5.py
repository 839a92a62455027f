"""F5-TTS: its checkpoints give what its own code gave, in both backends."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file, save_file

from convert import convert
from convert.__main__ import main
from convert.card import renewed_card
from nanospeech.config import ModelConfig, SampleOptions
from nanospeech.errors import CheckpointError, InputError
from nanospeech.generate import main as speak
from nanospeech.load import load_engine
from nanospeech.release.prompt import make_prompt
from nanospeech.text.tokenizer import Tokenizer
from tests.conftest import tone

from .conftest import PEERS

VERSIONS = ("v1", "v0")
DROPS = {
    "plain": {},
    "drop_audio": {"drop_audio": True},
    "drop_text": {"drop_text": True},
    "drop_both": {"drop_audio": True, "drop_text": True},
}
VOCAB = PEERS / "f5_vocab.txt"
ARCH = """
model:
  arch: {{dim: 64, depth: {depth}, text_mask_padding: {masks}, pe_attn_head: {rope}}}
"""


def golden_of(version: str) -> dict[str, np.ndarray]:
    with np.load(PEERS / f"f5_{version}.npz") as z:
        return dict(z)


def near(got: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() <= tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("tag", DROPS)
def test_velocities_of_single_items(f5_release, engine_of, backend, version, tag):
    a, engine = golden_of(version), engine_of(f5_release(version), backend)
    for i, n in enumerate(a["lens"]):
        row = slice(i, i + 1)
        v = engine.velocity(
            a["x"][row, :n], a["cond"][row, :n], a["text_ids"][row], a["time"][row], **DROPS[tag]
        )
        near(v[0], a[f"dit_{tag}_item{i}"], 2e-5)


@pytest.mark.parametrize("version", VERSIONS)
def test_velocities_of_a_batch_are_those_of_its_items(f5_release, engine_of, backend, version):
    a, engine = golden_of(version), engine_of(f5_release(version), backend)
    for tag, drops in DROPS.items():
        v = engine.velocity(a["x"], a["cond"], a["text_ids"], a["time"], lens_B=a["lens"], **drops)
        for i, n in enumerate(a["lens"]):
            near(v[i, :n], a[f"dit_{tag}_item{i}"], 2e-5)


@pytest.mark.parametrize("version", VERSIONS)
def test_text_beyond_the_frames_is_cut(f5_release, engine_of, backend, version):
    a, engine = golden_of(version), engine_of(f5_release(version), backend)
    v = engine.velocity(a["x"][:1], a["cond"][:1], a["long_text_ids"], a["time"][:1])
    near(v, a["dit_long_text"], 2e-5)


@pytest.mark.parametrize("version", VERSIONS)
def test_samples(f5_release, engine_of, backend, version):
    a, engine = golden_of(version), engine_of(f5_release(version), backend)
    names = [name for name in a if name.startswith("sample_") and "steps" in name]
    assert len(names) >= 4
    cond = np.zeros_like(a["noise"])[None]
    cond[:, : a["prompt_mel"].shape[1]] = a["prompt_mel"]
    for name in names:
        _, method, steps, cfg, sway = name.split("_")
        options = SampleOptions(
            method=method,
            steps=int(steps.removesuffix("steps")),
            cfg_strength=float(cfg.removeprefix("cfg")),
            sway_sampling_coef=float(sway.removeprefix("sway")) or None,
        )
        got = engine.sample(a["noise"][None], cond, a["sample_text_ids"], options)
        near(got[0], a[name], 2e-4)


def test_a_folder_of_it_needs_its_config(f5_release, tmp_path):
    folder = Path(shutil.copytree(f5_release("v0"), tmp_path / "copy"))
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"needs the config\.json"):
        load_engine(folder, "torch")


def test_kinds_that_shapes_cannot_tell_are_asked_for(tmp_path):
    with pytest.raises(InputError, match=r"--from \(f5-v1: .*; f5-v0: .*--config"):
        convert(PEERS / "f5_v1.safetensors", tmp_path / "out", vocab=VOCAB)


@pytest.mark.parametrize(("masks", "rope"), [("true", "null"), ("false", "1")])
def test_a_yaml_file_beside_it_tells_the_version(tmp_path, masks, rope):
    load = load_file(PEERS / "f5_v1.safetensors")
    torch.save({"ema_model_state_dict": load, "step": 7}, tmp_path / "model.pt")
    (tmp_path / "vocab.txt").write_bytes(VOCAB.read_bytes())
    (tmp_path / "config.yaml").write_text(ARCH.format(depth=2, masks=masks, rope=rope))
    config = convert(tmp_path, tmp_path / "out", licence="apache-2.0")
    v1 = masks == "true"
    assert config.dit.text_masking == config.dit.grn_all_frames == v1
    assert config.dit.null_text_places == v1 and config.dit.rope_heads == (2 if v1 else 1)
    with pytest.raises(CheckpointError, match="text_mask_padding"):
        convert(tmp_path, tmp_path / "o", kind="f5-v0" if v1 else "f5-v1", licence="mit")
    (tmp_path / "config.yaml").write_text(ARCH.format(depth=3, masks=masks, rope=rope))
    with pytest.raises(CheckpointError, match=r"'depth': 3.*'depth': 2"):
        convert(tmp_path, tmp_path / "o", licence="mit")


def test_other_recipes_are_refused(tmp_path):
    for line, wrong in {
        "mel_spec: {mel_spec_type: bigvgan}": "bigvgan",
        "mel_spec: {hop_length: 320}": "hop_length",
        "backbone: UNetT": "UNetT",
        "arch: {text_mask_padding: true, qk_norm: rms_norm}": "qk_norm",
        "arch: {text_mask_padding: 'false'}": "text_mask_padding 'false'",
        "arch: {text_mask_padding: true, pe_attn_head: many}": "pe_attn_head 'many'",
        "arch: {text_mask_padding: true, pe_attn_head: 99}": "f5_v1.*rope_heads is 99",
        "mel_spec: 3": "mel_spec 3",
    }.items():
        (tmp_path / "a.yaml").write_text(line)
        with pytest.raises(CheckpointError, match=wrong):
            convert(
                PEERS / "f5_v1.safetensors",
                tmp_path / "out",
                kind="f5-v1",
                config=tmp_path / "a.yaml",
                vocab=VOCAB,
                licence="mit",
            )


def mlx_layout(name: str) -> str:
    for part in ("time_mlp", "text_blocks", "conv1d", "to_out"):
        name = name.replace(f".{part}.", f".{part}.layers.")
    return name.replace("ff.ff.0.0", "ff.ff.layers.0.layers.0").replace("ff.ff.2", "ff.ff.layers.2")


def in_mlx_layout(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a golden checkpoint as f5-tts-mlx has them."""
    tensors = {
        mlx_layout(n.removeprefix("ema_model.")): t
        for n, t in load_file(path).items()
        if n.startswith("ema_model.transformer.") and "rotary" not in n
    }
    convolutions = {n for n in tensors if n.endswith("weight") and "conv" in n and "pw" not in n}
    assert len(convolutions) == 4
    return {
        n: t.transpose(1, 2).contiguous() if n in convolutions else t for n, t in tensors.items()
    }


def test_f5_mlx_has_the_same_weights(tmp_path, f5_release):
    save_file(in_mlx_layout(PEERS / "f5_v1.safetensors"), tmp_path / "model_v1.safetensors")
    with pytest.raises(InputError, match="f5-mlx"):
        convert(tmp_path / "model_v1.safetensors", tmp_path / "out", vocab=VOCAB)
    convert(
        tmp_path / "model_v1.safetensors",
        tmp_path / "out",
        kind="f5-mlx",
        vocab=VOCAB,
        licence="mit",
    )
    made, wanted = (
        load_file(f / "model.safetensors") for f in (tmp_path / "out", f5_release("v1"))
    )
    assert made.keys() == wanted.keys()
    assert all(torch.equal(made[n], wanted[n]) for n in wanted)


@pytest.mark.parametrize(
    ("name", "kind", "told"),
    [
        ("model", "f5-mlx", True),
        ("model_v1", "f5-mlx", False),
        ("model", "f5-v0", False),
        ("stated", "f5-mlx", False),
    ],
)
def test_which_version_a_file_of_f5_mlx_is_taken_for_is_told(tmp_path, caplog, name, kind, told):
    path = tmp_path / f"{name}.safetensors"
    save_file(in_mlx_layout(PEERS / "f5_v0.safetensors"), path)
    if name == "stated":
        (tmp_path / "stated.yaml").write_text("model: {arch: {text_mask_padding: true}}")
    made = convert(path, tmp_path / "out", kind=kind, vocab=VOCAB, licence="mit")
    assert made.dit.text_masking == (kind == "f5-mlx")
    assert ("if it is of v0" in caplog.text) == told


def test_weights_are_as_exact_as_they_were_published(tmp_path, f5_release):
    def kind(folder: Path) -> torch.dtype:
        return load_file(folder / "model.safetensors")["transformer.proj_out.weight"].dtype

    assert kind(f5_release("v1")) == torch.float32
    tensors = load_file(PEERS / "f5_v1.safetensors")
    halves = {n: t.half() if t.is_floating_point() else t for n, t in tensors.items()}
    save_file(halves, tmp_path / "halves.safetensors")
    shared = {"kind": "f5-v1", "vocab": VOCAB, "licence": "mit"}
    convert(tmp_path / "halves.safetensors", tmp_path / "halves", **shared)
    convert(PEERS / "f5_v1.safetensors", tmp_path / "asked", dtype="float16", **shared)
    assert kind(tmp_path / "halves") == kind(tmp_path / "asked") == torch.float16


def command(*options) -> list[str]:
    return [str(PEERS / "f5_v0.safetensors"), "--vocab", str(VOCAB), *map(str, options)]


def test_a_licence_without_commercial_use_is_accepted_once(tmp_path, capsys):
    first = command("--from", "f5-v0", "--output", tmp_path / "first")
    assert main(first) == 2
    error = capsys.readouterr().err
    assert "cc-by-nc-4.0" in error and "--accept-licence" in error
    assert not (tmp_path / "first").exists()
    assert main([*first, "--accept-licence"]) == 0
    assert "licence of the weights: cc-by-nc-4.0" in capsys.readouterr().out
    assert main(command("--from", "f5-v0", "--output", tmp_path / "second")) == 0
    card = (tmp_path / "second" / "README.md").read_text()
    assert card.startswith("---\nlicense: cc-by-nc-4.0\n---\n\n# second")
    assert "no commercial use" in card
    assert main([str(tmp_path / "second"), "--output", str(tmp_path / "third")]) == 0
    assert ModelConfig.load(tmp_path / "third" / "config.json").licence == "cc-by-nc-4.0"
    assert "no commercial use" in (tmp_path / "third" / "README.md").read_text()


def test_a_licence_that_is_named_later_is_that_of_config_and_card(tmp_path):
    one = command("--from", "f5-v0", "--licence", "cc-by-nc-4.0", "--accept-licence")
    assert main([*one, "--output", str(tmp_path / "one")]) == 0
    again = [str(tmp_path / "one"), "--licence", "apache-2.0", "--output", str(tmp_path / "two")]
    assert main(again) == 0
    assert ModelConfig.load(tmp_path / "two" / "config.json").licence == "apache-2.0"
    card = (tmp_path / "two" / "README.md").read_text()
    assert card.startswith("---\nlicense: apache-2.0\n---\n\n# one")
    assert "under apache-2.0" in card and "cc-by-nc" not in card and "no commercial" not in card
    unlicensed = card.replace("---\nlicense: apache-2.0\n---\n\n", "")
    assert renewed_card(unlicensed, [], "mit").startswith("---\nlicense: mit\n---\n\n# one")
    front = "---\nlanguage: de\nlicense: {}\nbase_model: license\n---\n\n# one\n"
    assert renewed_card(front.format("cc0-1.0"), [], "mit") == front.format("mit")


class Code:
    def __reduce__(self):
        return print, ("this must not run",)


def test_a_file_that_holds_code_is_refused(tmp_path, capsys):
    torch.save({"ema_model_state_dict": {}, "other": Code()}, tmp_path / "model.pt")
    assert main([str(tmp_path / "model.pt"), "--output", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert "could run code" in said.err and "weights_only" not in said.err
    assert "must not run" not in said.out + said.err


def test_a_finetune_has_the_licence_of_its_card(tmp_path, capsys):
    (tmp_path / "model.safetensors").write_bytes((PEERS / "f5_v0.safetensors").read_bytes())
    (tmp_path / "README.md").write_text(
        "---\nlanguage: fi\nlicense: apache-2.0\n---\n# A finetune\n"
    )
    path = str(tmp_path / "model.safetensors")
    options = ["--from", "f5-v0", "--vocab", str(VOCAB), "--output", str(tmp_path / "out")]
    assert main([path, *options]) == 0
    assert "apache-2.0" in capsys.readouterr().out


def test_a_folder_with_several_files_is_asked_about(tmp_path):
    for name in ("a.pt", "b.pt"):
        (tmp_path / name).touch()
    with pytest.raises(CheckpointError, match=r"a\.pt, b\.pt"):
        convert(tmp_path, tmp_path / "out")


def test_a_checkpoint_of_no_kind_is_named(tmp_path):
    save_file({"encoder.weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match=r"encoder\.weight.*nanospeech, f5-v1"):
        convert(tmp_path / "other.safetensors", tmp_path / "out")


def test_an_imported_folder_is_loaded_as_it_is(f5_release):
    config = load_engine(f5_release("v1"), "torch", "cpu", "float32").config
    assert config.tokenizer == "pinyin" and config.cfg_strength == 2.0 and config.imitates
    assert config.rules == "f5"
    assert config.dit.text_positions == 8192


@pytest.mark.parametrize("text", ["and so it goes on and on", "hi"])
def test_an_imported_model_speaks_in_a_recordings_voice(f5_release, tmp_path, backend, text):
    recording, out = tmp_path / "me.wav", tmp_path / "out.wav"
    soundfile.write(recording, tone(2.0), 24_000)
    said = "a tone that is held"
    options = [
        "--model",
        f5_release("v1"),
        "--backend",
        backend,
        "--device",
        "cpu",
        "--output",
        out,
    ]
    reference = ["--ref-audio", recording, "--ref-text", said, "--steps", 2, "--seed", 0]
    assert speak([str(o) for o in ["--text", text, *options, *reference]]) == 0
    wave, rate = soundfile.read(out)
    made = make_prompt(tone(2.0), said, ModelConfig(rules="f5"), Tokenizer("chars", [" "]))
    hops = len(made.mel) - 1
    new = hops / len(f"{said}.  ") * len(text) / (0.3 if len(text) < 10 else 1)
    assert rate == 24_000 and abs(len(wave) / 256 - new) <= 15 and np.abs(wave).max() > 0


def test_a_comparison_with_other_projects_names_the_files_that_it_lacks(capsys):
    from scripts.experiments.peers import main

    assert main([str(PEERS)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "lacks echo.safetensors, dacvae.safetensors, echo_" in told
