"""The page of other projects' checkpoints: each of its commands, run on the tiny ones."""

from __future__ import annotations

import dataclasses
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import soundfile
import tokenizers
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file

from nanospeech.commands import main
from tests.conftest import tone
from tests.echo import tiny
from tests.test_docs import ROOT, commands

from .conftest import PEERS

PAGE = ROOT / "docs" / "foreign_checkpoints.md"
CONFIG = "model: {arch: {dim: 64, text_mask_padding: true, pe_attn_head: null}, tokenizer: pinyin}"


def put(source: Path, *targets: str) -> None:
    for target in targets:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


@pytest.fixture
def downloads(tmp_path, monkeypatch, golden) -> Path:
    """A folder with the files that the page downloads, tiny, and a recording."""
    monkeypatch.chdir(tmp_path)
    put(PEERS / "f5_v1.safetensors", "f5_hub/F5TTS_v1_Base/model_1250000.safetensors")
    put(PEERS / "f5_v0.safetensors", "f5_hub/F5TTS_Base/model_1200000.safetensors")
    put(PEERS / "f5_v1.safetensors", "f5_mlx/model_v1.safetensors")
    folders = "f5_hub/F5TTS_v1_Base", "f5_hub/F5TTS_Base", "f5_mlx", "my_finetune"
    put(PEERS / "f5_vocab.txt", *(f"{folder}/vocab.txt" for folder in folders))
    put(golden / "vocos_pytorch_model.bin", "vocos-mel-24khz/pytorch_model.bin")
    put(golden / "vocos_config.yaml", "vocos-mel-24khz/config.yaml")
    weights = load_file(PEERS / "f5_v1.safetensors")
    torch.save({"ema_model_state_dict": weights}, "my_finetune/model_last.pt")
    Path("my_finetune/finetune.yaml").write_text(CONFIG)
    soundfile.write("me.wav", tone(2.0), 24_000)
    put_latent_models()
    return tmp_path


def put_latent_models() -> None:
    """Irodori's and Echo's files, with random weights, and DAC-VAE's."""
    for folder in ("irodori_hub", "dacvae_hub", "echo_hub"):
        Path(folder).mkdir()
    codec = {n: torch.from_numpy(t) for n, t in tiny.dacvae().items()}
    torch.save({"state_dict": codec, "metadata": {"kwargs": {}}}, "dacvae_hub/weights.pth")
    irodori = dataclasses.replace(tiny.IRODORI, latent_dim=8)
    for config, file in (
        (irodori, "irodori_hub/model.safetensors"),
        (tiny.ECHO, "echo_hub/pytorch_model.safetensors"),
    ):
        weights = tiny.seeded(tiny.network_shapes(config))
        save_file({n.removeprefix("transformer."): t for n, t in weights.items()}, file)
    words = {word: i for i, word in enumerate(["[UNK]", "good", "morning", "all", "of", "you"])}
    pieces = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    pieces.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    pieces.save("irodori_hub/tokenizer.json")


def test_what_the_page_converts_it_tells_to_download():
    there: set[str] = set()
    for words in commands(PAGE):
        if words[:2] == ["hf", "download"]:
            folder = words[words.index("--local-dir") + 1]
            there |= {folder, *(f"{folder}/{name}" for name in words[3:-2])}
        elif words[:2] == ["nanospeech", "convert"]:
            files = [words[2]]
            files += [
                w for flag, w in pairwise(words) if flag in ("--vocab", "--vocoder", "--codec")
            ]
            assert {f for f in files if not f.startswith("my_finetune")} <= there, words


def test_the_commands_of_the_page_do_what_it_says(downloads):
    ours = [words[1:] for words in commands(PAGE) if words[0] == "nanospeech"]
    assert len(ours) >= 10
    for words in ours:
        assert main(words) == 0, words
        output = Path(words[words.index("--output") + 1]) if "--output" in words else None
        if words[0] == "convert":
            assert output is not None and (output / "model.safetensors").is_file()
        elif output is not None:
            wave, _ = soundfile.read(output)
            assert 0.5 <= len(wave) / 24_000 <= 10
            output.unlink()
