"""Belonging: parts that are not whole, or not of one model, are refused before they are written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from convert import convert, read_source, read_vocoder
from convert.settings import read_settings
from nanospeech.errors import CheckpointError, InputError
from nanospeech.release.sharded import ShardWriter, write_whole

from .conftest import PEERS

GAMMA, EMBED = "backbone.convnext.0.gamma", "backbone.embed.weight"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda t: t.pop(GAMMA), f"missing {GAMMA}"),
        (lambda t: t.update({"backbone.other": torch.zeros(3)}), "unknown backbone.other"),
        (lambda t: t.update({GAMMA: torch.zeros(3)}), rf"{GAMMA} \(3,\) instead of \(64,\)"),
        (lambda t: t.update({EMBED: torch.zeros(0, 100, 7)}), f"{EMBED} is missing or of another"),
    ],
)
def test_a_vocoder_that_is_not_whole_is_refused(golden, tmp_path, change, told):
    tensors = torch.load(golden / "vocos_pytorch_model.bin", weights_only=True)
    change(tensors)
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    options = {"vocab": golden / "vocab.txt", "vocoder": tmp_path / "pytorch_model.bin"}
    with pytest.raises(CheckpointError, match=told):
        convert(golden / "model.safetensors", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def carrying(folder: Path, golden: Path, part: str, tokens: list[str]) -> Path:
    """A checkpoint of the published layout with a vocabulary."""
    state = {"model_state_dict": load_file(golden / f"{part}.safetensors"), "vocab": tokens}
    torch.save(state, folder / f"{part}.pt")
    return folder / f"{part}.pt"


def test_parts_of_another_vocabulary_are_refused_though_it_has_as_many_tokens(golden, tmp_path):
    tokens = (golden / "vocab.txt").read_text("utf-8").split("\n")
    turned = tokens[::-1]
    (tmp_path / "turned.txt").write_text("\n".join(turned), "utf-8")
    model, out = carrying(tmp_path, golden, "model", tokens), tmp_path / "out"
    with pytest.raises(CheckpointError, match="other tokens than the speech model"):
        convert(model, out, duration=carrying(tmp_path, golden, "duration", turned))
    with pytest.raises(
        CheckpointError, match=r"turned\.txt is not the vocabulary.*leave out --vocab"
    ):
        convert(model, out, vocab=tmp_path / "turned.txt")
    convert(golden / "model.safetensors", tmp_path / "two", vocab=tmp_path / "turned.txt")
    with pytest.raises(InputError, match="trained with another vocabulary"):
        convert(model, out, average=tmp_path / "two")
    assert not out.exists()
    own = {
        "duration": carrying(tmp_path, golden, "duration", tokens),
        "vocab": golden / "vocab.txt",
    }
    assert convert(model, out, **own).duration is not None


def test_another_projects_weights_may_have_the_name_of_a_releases(golden, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(PEERS / "f5_v1.safetensors", folder / "model.safetensors")
    shutil.copy(PEERS / "f5_vocab.txt", folder / "vocab.txt")
    with pytest.raises(InputError, match=r"may be of several kinds.*--from"):
        convert(folder, tmp_path / "out", licence="mit")
    (folder / "a.yaml").write_text("arch: {text_mask_padding: true, pe_attn_head: null}")
    assert convert(folder, tmp_path / "out", licence="mit").rules == "f5"
    for name in ("model.safetensors", "vocab.txt"):  # a release without a config.json
        shutil.copy(golden / name, folder)
    assert convert(folder, tmp_path / "own").rules != "f5"


def test_models_that_differ_in_no_tensors_shape_have_no_mean(tmp_path):
    for version in ("v0", "v1"):
        one = {"kind": f"f5-{version}", "vocab": PEERS / "f5_vocab.txt", "licence": "mit"}
        convert(PEERS / "f5_v1.safetensors", tmp_path / version, **one)
    with pytest.raises(InputError, match="of another network: its grn_all_frames differs"):
        convert(tmp_path / "v0", tmp_path / "mean", average=tmp_path / "v1")


def test_the_newest_step_of_a_folder_is_the_greatest_number(tmp_path):
    for step in (900, 1000):
        torch.save(
            {"model_state_dict": {"a": torch.zeros(1)}, "step": step}, tmp_path / f"step_{step}.pt"
        )
    torch.save({}, tmp_path / "step_last.pt")
    assert read_source(tmp_path).step == 1000


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"a": torch.zeros(1), "module.a": torch.ones(1)}, r"both a and module\.a"),
        ({"ema_model_state_dict": {"a": torch.zeros(1)}}, "leave out --weights raw"),
        ({"model_state_dict": {}}, r"state\.pt holds no tensors"),
        ({"model": {"a": torch.zeros(1)}}, r"no tensors at its top, but model: it is of a kind"),
    ],
)
def test_weights_that_are_not_those_asked_for_are_refused(tmp_path, state, told):
    torch.save(state, tmp_path / "state.pt")
    with pytest.raises(CheckpointError, match=told):
        read_source(tmp_path / "state.pt", "raw")


@pytest.mark.parametrize(
    ("saved", "step"),
    [
        (5, 5),
        (torch.tensor(5), 5),
        (torch.tensor([5]), 5),
        (torch.tensor(5.0), None),
        (torch.tensor([5, 6]), None),
        ("5", None),
        (True, None),
        (None, None),
    ],
)
def test_a_step_is_a_whole_number_or_a_tensor_of_one(tmp_path, saved, step):
    state = {"model_state_dict": {"a": torch.zeros(1)}, "step": saved}
    torch.save(state, tmp_path / "state.pt")
    assert read_source(tmp_path / "state.pt").step == step


def test_voices_weights_do_not_stay_for_a_model_that_they_are_not_for(golden, tmp_path):
    own = {"vocab": golden / "vocab.txt"}
    convert(golden / "model.safetensors", tmp_path / "out", **own)
    (tmp_path / "out/voices").mkdir()
    for name in ("anna.wav", "anna.txt", "anna.safetensors"):
        (tmp_path / "out/voices" / name).touch()
    was = (tmp_path / "out/config.json").read_bytes()
    with pytest.raises(InputError, match=r"such as anna\.safetensors; name another folder"):
        convert(golden / "model.safetensors", tmp_path / "out", temperature=0.5, **own)
    assert (tmp_path / "out/config.json").read_bytes() == was
    (tmp_path / "out/voices/anna.safetensors").unlink()
    convert(golden / "model.safetensors", tmp_path / "out", temperature=0.5, **own)
    assert (tmp_path / "out/voices/anna.wav").exists()


def test_a_folder_is_not_copied_into_itself(golden, tmp_path, tiny_release):
    voices = tmp_path / "voices"
    shutil.copytree(tiny_release / "voices", voices)
    was = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"lies in --voices .*; name a folder elsewhere"):
        own = {"vocab": golden / "vocab.txt", "voices": voices}
        convert(golden / "model.safetensors", voices / "out", **own)
    assert sorted(tmp_path.rglob("*")) == was
    copy = Path(shutil.copytree(tiny_release, tmp_path / "release"))
    with pytest.raises(InputError, match="release/voices, all of which is copied there"):
        convert(copy, copy / "voices" / "out")


def doubled(lines: int) -> str:
    """YAML of so many lines, each twice the one before."""
    named = [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, lines)]
    return "\n".join(["a0: &a0 [1, 1]", *named, f"mel_spec: {{n_fft: *a{lines - 1}}}"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (doubled(40), "aliases .* more than 100,000"),  # a message with all of it had no end
        ("a: &a {b: *a}", "aliases .* more than 100,000"),
        ("[" * 100_000, "neither YAML nor JSON: maximum recursion"),
        ("a: [", "neither YAML nor JSON"),
        ("- a", "should hold a mapping, got list"),
    ],
)
def test_a_config_that_cannot_be_is_told(golden, tmp_path, text, told):
    config = tmp_path / "config.yaml"
    config.write_text(text)
    shutil.copy(golden / "vocos_pytorch_model.bin", tmp_path / "pytorch_model.bin")
    own = {"kind": "f5-v1", "config": config, "vocab": PEERS / "f5_vocab.txt", "licence": "mit"}
    with pytest.raises(CheckpointError, match=told):
        convert(PEERS / "f5_v1.safetensors", tmp_path / "out", **own)
    with pytest.raises(CheckpointError, match=told):
        read_vocoder(tmp_path)


def test_aliases_of_a_config_stand_for_their_values(tmp_path):
    """As in YAML that is written by a program, which names what it has twice."""
    (tmp_path / "a.yaml").write_text("a: &a {depth: 2}\nb: [*a, *a]\nc: {<<: *a, heads: 1}\n")
    read = read_settings(tmp_path / "a.yaml")
    assert read["b"] == [{"depth": 2}] * 2 and read["c"] == {"depth": 2, "heads": 1}


def test_a_tensor_is_no_larger_than_its_file_has_numbers(tmp_path):
    """A stride of 0 makes terabytes of one number."""
    torch.save({"a": torch.zeros(1).expand(1 << 20, 1 << 20)}, tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match="fewer numbers of a than its shape"):
        read_source(tmp_path / "a.pt")


def test_a_folder_of_shards_is_one_checkpoint(tmp_path):
    tensors = {n: t.numpy() for n, t in load_file(PEERS / "f5_v1.safetensors").items()}
    (tmp_path / "hub").mkdir()
    with ShardWriter(tmp_path / "hub/weights.safetensors", write_whole, 100_000) as out:
        for name, tensor in tensors.items():
            out.add(name, tensor)
    shutil.copy(PEERS / "f5_vocab.txt", tmp_path / "hub/vocab.txt")
    convert(tmp_path / "hub", tmp_path / "out", kind="f5-v1", licence="mit")
    made = load_file(tmp_path / "out/model.safetensors")
    assert made and all((made[n].numpy() == tensors[f"ema_model.{n}"]).all() for n in made)
    with pytest.raises(CheckpointError, match=r"hub has no vocoder\.safetensors or pytorch_model"):
        read_vocoder(tmp_path / "hub")
