"""Echo's and Irodori's checkpoints: other files are refused, and what is missing is said."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tokenizers
import torch
from safetensors.numpy import save_file

from convert import ConvertOptions, convert, read_source
from convert.__main__ import main
from convert.kinds import KINDS
from nanospeech.config import SampleOptions
from nanospeech.errors import CheckpointError, InputError
from nanospeech.load import load_engine
from nanospeech.release.folder import open_release
from tests.echo import tiny

from .conftest import PEERS


def weights(config) -> dict:
    made = tiny.seeded(tiny.network_shapes(config))
    return {name.removeprefix("transformer."): tensor for name, tensor in made.items()}


@pytest.fixture
def echo(tmp_path):
    save_file(weights(tiny.ECHO), tmp_path / "echo.safetensors")
    return tmp_path / "echo.safetensors"


@pytest.fixture
def irodori(tmp_path):
    save_file(weights(tiny.IRODORI), tmp_path / "irodori.safetensors")
    return tmp_path / "irodori.safetensors"


def pieces(path, count: int):
    words = {**{f"w{i}": i for i in range(count - 1)}, "<unk>": count - 1}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"}
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    return path


@pytest.mark.parametrize("kind", ["echo", "irodori"])
def test_no_tensor_is_read_before_it_is_written(echo, irodori, monkeypatch, kind):
    """Gigabytes of weights need the memory of a file of them."""
    path = {"echo": echo, "irodori": irodori}[kind]
    source, got = read_source(path), []
    monkeypatch.setattr(source.tensors, "read", lambda name: got.append(name))
    model = KINDS[kind].read(path, source, {}, ConvertOptions()).parts["model"]
    assert got == []
    assert len([model[name] for name in model]) == len(got) == len(source.tensors)


def test_one_project_does_not_pass_for_the_other(echo, irodori, tmp_path):
    """Their networks differ in what no tensor tells, and their licences do."""
    with pytest.raises(CheckpointError, match="no checkpoint of irodori: its text is that of echo"):
        convert(echo, tmp_path / "out", kind="irodori", licence="mit")
    with pytest.raises(CheckpointError, match="no checkpoint of echo: its text is that of irodori"):
        convert(irodori, tmp_path / "out", kind="echo", licence="mit")
    save_file({"a": torch.zeros(2).numpy()}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="no checkpoint of echo: it has no blocks"):
        convert(tmp_path / "other.safetensors", tmp_path / "out", kind="echo", licence="mit")
    for kind in ("f5-v1", "f5-mlx", "nanospeech"):
        with pytest.raises(CheckpointError, match=f"no checkpoint of {kind}: .* those of echo"):
            convert(echo, tmp_path / "out", kind=kind, licence="mit")
    f5 = PEERS / "f5_v0.safetensors"
    for kind in ("irodori", "nanospeech"):
        with pytest.raises(CheckpointError, match=f"no checkpoint of {kind}: .* f5-v1 or f5-v0"):
            convert(f5, tmp_path / "out", kind=kind, licence="mit")


@pytest.mark.parametrize("name", ["in_proj.weight", "text_encoder.text_embedding.weight",
    "blocks.0.attention.q_norm.weight", "speaker_encoder.in_proj.weight"])  # fmt: skip
def test_a_tensor_that_no_size_can_be_read_off_is_named(tmp_path, name):
    path, held = tmp_path / "echo.safetensors", weights(tiny.ECHO)
    for odd in (np.zeros((), "f"), np.zeros(3, "f"), held[name][:0], np.zeros((7, 1000), "f")):
        save_file(held | {name: odd}, path)
        with pytest.raises(CheckpointError, match=r"echo\.safetensors"):
            convert(path, tmp_path / "out", kind="echo", licence="mit")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("change", ["missing", "unknown"])
def test_tensors_that_do_not_make_a_network_are_named(tmp_path, change):
    held, name = weights(tiny.ECHO), "blocks.1.attention.wo.weight"
    tensor = held.pop(name)
    if change == "unknown":
        held |= {name: tensor, "blocks.1.other.weight": tensor}
        name = "blocks.1.other.weight"
    save_file(held, tmp_path / "echo.safetensors")
    with pytest.raises(CheckpointError, match=f"{change} transformer.{name}"):
        convert(tmp_path / "echo.safetensors", tmp_path / "out", licence="mit")
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_has_to_be_there_and_no_larger_than_the_model(irodori, tmp_path):
    with pytest.raises(InputError, match=r"nope\.json not found"):
        convert(irodori, tmp_path / "out", vocab=tmp_path / "nope.json")
    large = pieces(tmp_path / "large.json", 200)
    with pytest.raises(CheckpointError, match=r"200 tokens, but .* was trained with 90"):
        convert(irodori, tmp_path / "out", vocab=large)


def test_what_is_no_tokenizer_json_is_named(irodori, tmp_path):
    (tmp_path / "vocab.txt").write_text(" \na\nb\n")
    with pytest.raises(CheckpointError, match=r"vocab\.txt is no tokenizer\.json"):
        convert(irodori, tmp_path / "out", vocab=tmp_path / "vocab.txt")


@pytest.mark.parametrize("stated", ["{", "[1]"])
def test_a_header_that_is_no_json_object_is_refused(tmp_path, stated):
    metadata = {"config_json": stated}
    save_file(weights(tiny.IRODORI), tmp_path / "irodori.safetensors", metadata=metadata)
    with pytest.raises(CheckpointError, match="config_json that is no"):
        convert(tmp_path / "irodori.safetensors", tmp_path / "out")


def test_parts_that_could_not_be_opened_together_are_not_written(irodori, golden, tmp_path):
    """Vocos makes waves of 100 bands, an Irodori latents of 16."""
    with pytest.raises(CheckpointError, match=r"disagree on n_mels: .*'vocoder': 100"):
        convert(irodori, tmp_path / "out", vocoder=golden / "vocos_pytorch_model.bin")
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="not for an EchoDiT"):
        convert(irodori, tmp_path / "out", duration=golden / "duration.safetensors")


def test_guidance_and_temperature_of_a_conversion_are_those_that_it_speaks_with(irodori, tmp_path):
    settings = {"cfg_strength": 1.5, "temperature": 0.8}
    own = convert(irodori, tmp_path / "out", **settings).echo_sampling
    assert (own.cfg_text, own.cfg_speaker, own.truncation) == (1.5, 2.5, 0.8)
    engine = load_engine(tmp_path / "out", "torch", dtype="float32")
    x = tiny.echo_inputs()["x"][:1].repeat(2, axis=2)[..., :16]
    said = [np.zeros((1, 0, 16), np.float32), np.array([[3, 5]])]
    asked = engine.sample(x, *said, SampleOptions(steps=2, **settings))
    assert np.array_equal(engine.sample(x, *said, SampleOptions(steps=2)), asked)
    for setting, word in (
        ({"cfg_rescale": 0.5}, "cfg_rescale"),
        ({"smooth": 0.2}, "--smooth"),
    ):
        with pytest.raises(InputError, match=word):
            convert(irodori, tmp_path / "other", **setting)


def test_what_a_folder_lacks_is_said(echo, irodori, tmp_path, capsys):
    assert main([str(irodori), "--output", str(tmp_path / "bare")]) == 0
    said = capsys.readouterr().out
    assert "reads no texts without a tokenizer.json" in said and "not sound" in said
    vocab = str(pieces(tmp_path / "small.json", 80))
    assert main([str(irodori), "--vocab", vocab, "--output", str(tmp_path / "read")]) == 0
    assert "reads no texts" not in capsys.readouterr().out
    assert (tmp_path / "read" / "tokenizer.json").is_file()
    assert main([str(irodori), "--onnx", "--output", str(tmp_path / "graphs")]) == 2
    assert "no ONNX graphs" in capsys.readouterr().err and not (tmp_path / "graphs").exists()
    assert load_engine(tmp_path / "read", "torch").tokenizer.encode("w5").tolist() == [5]
    convert(echo, tmp_path / "echo", licence="mit")
    engine = load_engine(tmp_path / "echo", "torch")
    with pytest.raises(CheckpointError, match="makes latents, not sound"):
        engine.vocode(tiny.echo_inputs()["x"])
    with pytest.raises(CheckpointError, match="makes latents, not sound"):
        engine.encode(np.zeros(4096, np.float32))
    assert "ONNX" not in (tmp_path / "echo" / "README.md").read_text()


@pytest.mark.parametrize("template", [None, "<s> $A", "$A </s>"])
def test_irodori_reads_texts_as_its_own_code_does(irodori, tmp_path, template):
    """BOS, then punctuation folded; what a tokenizer.json puts around texts itself is not asked."""
    letters = dict.fromkeys("こんにちは!?ー○♡…ABC.")
    words = {piece: i for i, piece in enumerate(["<unk>", "<s>", "</s>", *letters])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(words, [], unk_token="<unk>"))
    made.add_special_tokens(["<s>", "</s>"])
    if template:
        ends = [(name, words[name]) for name in ("<s>", "</s>")]
        around = tokenizers.processors.TemplateProcessing(single=template, special_tokens=ends)
        made.post_processor = around
    made.save(str(tmp_path / "tokenizer.json"))
    convert(irodori, tmp_path / "out", vocab=tmp_path / "tokenizer.json")
    found = open_release(tmp_path / "out").tokenizer
    for text, read in {
        "こんにちは！ＡＢＣ？": "こんにちは!ABC?",
        "こん〜に———ちは♥": "こんーにちは♡",
        "こ...ん..に……ち………は": "こ…ん…に……ち……は",
        "こ\u3000ん◯に;": "こん○に",
    }.items():
        assert found.encode(text).tolist() == [words["<s>"], *(words[c] for c in read)]
