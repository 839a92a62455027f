"""Checkpoint: release folders found, read, checked, and refused with reasons."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from nanospeech.config import DiTConfig, DurationConfig, ModelConfig
from nanospeech.errors import CheckpointError, InputError
from nanospeech.load import load_engine
from nanospeech.release import folder as checkpoint
from nanospeech.release.shapes import dit_config_from_shapes, duration_config_from_shapes
from nanospeech.release.tensors import check_tensors, read_tensors

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tiny_release, tmp_path) -> Path:
    """A copy of the tiny release, to damage."""
    return Path(shutil.copytree(tiny_release, tmp_path / "copy"))


def shapes_of(module, prefix: str = "") -> dict[str, tuple[int, ...]]:
    return {prefix + n: tuple(t.shape) for n, t in module.state_dict().items()}


def numbers(shapes) -> int:
    return sum(int(np.prod(s)) for s in shapes.values())


@pytest.mark.parametrize("vocab", [33, 72])
def test_published_82m_model_from_shapes(vocab):
    torch = pytest.importorskip("torch")
    from nanospeech_torch.dit import DiT

    config = DiTConfig(text_num_embeds=vocab)
    with torch.device("meta"):
        shapes = shapes_of(DiT(config), "transformer.")
    assert len(shapes) == 288
    assert numbers(shapes) == 82_203_648 + 512 * (vocab + 1)
    assert dit_config_from_shapes(shapes, "model") == config
    narrow = {512: 24, 712: 224}  # widths of the network, and of its input and text together
    odd = {n: tuple(narrow.get(s, s) for s in shape) for n, shape in shapes.items()}
    with pytest.raises(CheckpointError, match="model: dim is 24, should be a multiple of 16"):
        dit_config_from_shapes(odd, "model")


@pytest.mark.parametrize(("depth", "conv_layers"), [(12, 0), (8, 4)])
def test_published_and_guides_duration_models_from_shapes(depth, conv_layers):
    torch = pytest.importorskip("torch")
    from nanospeech_torch.duration import DurationHead, DurationTransformer

    config = DurationConfig(depth=depth, conv_layers=conv_layers, text_num_embeds=72)
    with torch.device("meta"):
        shapes = shapes_of(DurationHead(DurationTransformer(config)))
    if depth == 12:
        assert len(shapes) == 141
        assert numbers(shapes) == 26_534_400 + 512 * (72 + 1)
    assert duration_config_from_shapes(shapes, "duration") == config


def test_folder_without_config_says_the_same(folder, arrays, backend):
    a = arrays
    args = (a["x"], a["cond"], a["text_ids"], a["time"])
    whole = load_engine(folder, backend, "cpu", "float32")
    (folder / "config.json").unlink()
    bare = load_engine(folder, backend, "cpu", "float32")
    assert bare.config.dit == whole.config.dit
    assert bare.config.duration == whole.config.duration
    assert bare.config.vocoder == whole.config.vocoder
    assert np.array_equal(bare.velocity(*args), whole.velocity(*args))


def test_keys_of_older_versions_are_read_and_warned_of_once(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("nanospeech.fields.warned", set())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"lead": 0.2, "vocoder": {"rounds": 12}}))
    for _ in range(2):
        config = ModelConfig.load(path)
        assert config.leading_pause == 0.2 and config.vocoder.griffin_lim_iters == 12
    assert [r.levelname for r in caplog.records] == ["WARNING"] * 2
    assert "lead is called leading_pause now" in caplog.text
    assert "rounds is called griffin_lim_iters now" in caplog.text
    path.write_text(json.dumps({"lead": 0.2, "leading_pause": 0.2}))
    with pytest.raises(CheckpointError, match="leading_pause and its old name lead"):
        ModelConfig.load(path)


def test_config_survives_the_disk(tmp_path):
    config = ModelConfig(
        name="x",
        tokenizer="phonemes",
        dit=DiTConfig(dim=128, text_upsampling="aligned", patch_size=2),
        duration=DurationConfig(depth=3),
        default_voice="tone",
    )
    config.save(tmp_path / "config.json")
    assert ModelConfig.load(tmp_path / "config.json") == config


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"depht": 3}, "depht.*newer nanospeech.*pip install --upgrade"),
        ({"dit": {"dimm": 3}}, "dimm.*newer nanospeech.*pip install --upgrade"),
        ({"dit": {"dim": "64"}}, r"dit\.dim should be int"),
        ({"dit": {"dim": True}}, r"dit\.dim should be int"),
        ({"dit": [1]}, "should be a mapping"),
        ({"dit": {"text_upsampling": "magic"}}, "none.*average.*aligned"),
        ({"licence": "mit\ud800"}, r"licence is 'mit\\ud800', which is not valid UTF-8"),
        ({"tokenizer": "words"}, "chars.*bytes.*phonemes"),
        ({"audio": {"n_mels": 80}}, "disagree on n_mels"),
        ({"audio": {"hop_length": 300}}, "disagree on hop_length: audio has 300, the vocoder 256"),
        ({"vocoder": {"hop_length": 128}}, "disagree on hop_length"),
    ],
)
def test_config_is_strict(folder, change, word):
    values = json.loads((folder / "config.json").read_text())
    for key, value in change.items():
        values[key] = {**values[key], **value} if isinstance(value, dict) else value
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=word):
        checkpoint.load_config(folder)


@pytest.mark.parametrize(
    ("section", "change", "word"),
    [
        ("audio", {"sample_rate": 0}, "sample_rate is 0"),
        ("audio", {"hop_length": 0}, "hop_length is 0"),
        ("audio", {"hop_length": 1}, "1000 frames a second"),
        ("audio", {"mel_std": 0.0}, "mel_std"),
        ("audio", {"mel_mean": float("nan")}, "mel_mean is nan"),
        ("audio", {"prompt_rms": -0.1}, "prompt_rms"),
        ("dit", {"dim": -16}, "dim is -16"),
        ("dit", {"dim": 10**30}, "dim is 10{30}"),
        ("dit", {"dim": 24}, "multiple of 16"),
        ("dit", {"depth": 10**9}, "depth is 10{9}"),
        ("dit", {"text_dim": 0}, "text_dim is 0"),
        ("dit", {"dropout": float("inf")}, "dropout is inf"),
        ("duration", {"heads": -1}, "heads is -1"),
        ("duration", {"conv_layers": 10**9}, "conv_layers"),
        ("vocoder", {"hop_length": 0}, "hop_length is 0"),
        ("vocoder", {"num_layers": 10**9}, "num_layers"),
    ],
)
def test_sizes_that_no_network_has(folder, section, change, word):
    values = json.loads((folder / "config.json").read_text())
    values[section] |= change
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=word):
        checkpoint.load_config(folder)


@pytest.mark.parametrize("content", ["{", "[]", "\x00", '"text"', "[" * 100_000])
def test_config_that_is_no_config(folder, content):
    (folder / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        checkpoint.load_config(folder)


def test_a_model_of_another_project_is_told(folder, tmp_path):
    kokoro = {"istftnet": {"gen_istft_hop_size": 5}, "n_mels": 80, "vocab": {";": 1}, "max_dur": 50}
    for values in (kokoro, {"model_type": "qwen3_tts", "tokenizer": "chars"}):
        (folder / "config.json").write_text(json.dumps(values))
        with pytest.raises(CheckpointError, match=r"another project.*nanospeech convert --help"):
            checkpoint.load_config(folder)
    (tmp_path / "model_1250000.safetensors").write_bytes(b"")
    for path in (tmp_path, tmp_path / "model_1250000.safetensors"):
        with pytest.raises((CheckpointError, InputError), match="of another project too"):
            checkpoint.resolve(path)


def test_absurdly_large_text_files(folder):
    with open(folder / "config.json", "wb") as f:
        f.truncate(checkpoint.MAX_TEXT_BYTES + 1)
    with pytest.raises(CheckpointError, match="more than"):
        checkpoint.load_config(folder)


@pytest.mark.parametrize("name", ["model", "duration", "vocoder"])
@pytest.mark.parametrize("keep", [0, 7, 100, 0.5, -1])
def test_truncated_weights(folder, name, keep):
    path = folder / f"{name}.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(CheckpointError, match=rf"{name}\.safetensors"):
        read_tensors(path)


def edit(path: Path, change) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda t: t.pop("transformer.proj_out.weight"), r"missing transformer\.proj_out\.weight"),
        (lambda t: t.update(odd=np.zeros(3, np.float32)), "unknown odd"),
        (
            lambda t: t.update({"transformer.proj_out.weight": np.zeros((100, 32), np.float32)}),
            r"proj_out\.weight \(100, 32\) instead of \(100, 64\)",
        ),
    ],
    ids=["missing", "unknown", "shape"],
)
def test_tensors_that_do_not_fit_are_named(folder, backend, change, word):
    edit(folder / "model.safetensors", change)
    with pytest.raises(CheckpointError, match=word):
        load_engine(folder, backend, "cpu", "float32")


def test_many_wrong_tensors_make_a_short_message():
    wanted = {f"w{i}": (1,) for i in range(1000)}
    with pytest.raises(CheckpointError, match="and 997 more") as e:
        check_tensors({}, wanted, "file")
    assert len(str(e.value)) < 300


def test_weights_of_half_size_are_read(folder, arrays, backend):
    a = arrays
    args = (a["x"], a["cond"], a["text_ids"], a["time"])
    truth = load_engine(folder, backend, "cpu", "float32").velocity(*args)

    def halve(tensors):
        tensors.update({n: t.astype(np.float16) for n, t in tensors.items()})

    edit(folder / "model.safetensors", halve)
    halved = load_engine(folder, backend, "cpu", "float32").velocity(*args)
    assert 0 < np.abs(halved - truth).max() < 1e-2


def test_bfloat16_is_read_as_float32(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    tensors = {"a": torch.randn(3, 5).bfloat16(), "b": torch.randn(4), "mel_spec.x": torch.ones(2)}
    save_torch(tensors, tmp_path / "t.safetensors")
    got = read_tensors(tmp_path / "t.safetensors")
    assert set(got) == {"a", "b"}
    assert got["a"].dtype == np.float32
    for name, array in got.items():
        assert np.array_equal(array, tensors[name].float().numpy())


def test_integers_are_no_weights(tmp_path):
    save_file({"a": np.arange(3)}, tmp_path / "t.safetensors")
    with pytest.raises(CheckpointError, match="I64"):
        read_tensors(tmp_path / "t.safetensors")


@pytest.mark.parametrize("name", ["model", "duration", "vocoder"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(folder, name, value):
    path = folder / f"{name}.safetensors"
    tensors = load_file(path)
    odd = max(tensors)
    tensors[odd].flat[-1] = value
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=rf"{name}\.safetensors .*NaN.*{odd}"):
        checkpoint.open_release(folder).weights(path.name)


class Bomb:
    def __reduce__(self):
        return (os.mkdir, ("unpickled",))


def test_nothing_is_unpickled(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("model", "duration", "vocoder"):
        (folder / f"{name}.safetensors").write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(CheckpointError):
            read_tensors(folder / f"{name}.safetensors")
    assert not Path("unpickled").exists()


def test_vocabulary_of_another_model(folder):
    with open(folder / "vocab.txt", "a") as f:
        f.write("\n€\n¥")
    with pytest.raises(CheckpointError, match=r"35 tokens.*33"):
        checkpoint.open_release(folder)


def test_vocabulary_that_ends_in_a_newline(folder):
    with open(folder / "vocab.txt", "a") as f:
        f.write("\n")
    assert len(checkpoint.open_release(folder).tokenizer) == 33


def test_folder_without_a_vocabulary(folder):
    (folder / "vocab.txt").unlink()
    with pytest.raises(CheckpointError, match=r"no vocab\.txt"):
        checkpoint.open_release(folder)


def test_parts_are_optional(folder, arrays, backend, monkeypatch):
    monkeypatch.setattr("nanospeech.release.folder.DEFAULT", folder / "none")
    for name in ("duration", "vocoder"):
        (folder / f"{name}.safetensors").unlink()
    engine = load_engine(folder, backend, "cpu", "float32")
    assert not engine.has_duration
    with pytest.raises(CheckpointError, match=r"duration\.safetensors"):
        engine.duration(arrays["mel"], arrays["text_ids"][:1])
    with pytest.raises(CheckpointError, match=r"vocoder\.safetensors.*convert"):
        engine.vocode(arrays["mel"])


def test_an_aligned_model_needs_its_config(tiny_aligned, tmp_path):
    folder = Path(shutil.copytree(tiny_aligned, tmp_path / "copy"))
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"needs the config\.json"):
        checkpoint.open_release(folder)


def test_a_config_may_leave_out_what_shapes_tell(folder):
    whole = checkpoint.load_config(folder)
    dataclasses.replace(whole, duration=None, vocoder=None).save(folder / "config.json")
    assert checkpoint.load_config(folder) == whole


@pytest.mark.parametrize(
    "name", ["no_such_model", "./no/such", "/no/such/folder", "~nobody-here/such", "a/b/c", ""]
)
def test_names_that_are_nothing(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((InputError, CheckpointError)) as e:
        checkpoint.resolve(name)
    if name:
        assert isinstance(e.value, InputError) and name in str(e.value)


def test_the_model_that_ships_is_found_by_its_path_in_a_clone_from_any_folder(
    folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert checkpoint.resolve("nanospeech/default") == checkpoint.DEFAULT
    imitator = checkpoint.DEFAULT / "imitator"
    assert checkpoint.resolve("nanospeech/default/imitator") == imitator
    shutil.copytree(folder, "nanospeech/default")  # one that is there comes first
    assert checkpoint.resolve("nanospeech/default") == Path("nanospeech/default")


def test_a_file_or_an_empty_folder_is_no_release(folder, tmp_path):
    with pytest.raises(InputError, match="is a file"):
        checkpoint.resolve(folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"no model\.safetensors"):
        checkpoint.resolve(tmp_path)


def test_a_hub_name_without_a_network_says_what_to_do(tmp_path):
    code = (
        "from nanospeech.release.folder import resolve\n"
        "from nanospeech.errors import CheckpointError\n"
        "try: resolve('someone/something')\n"
        "except CheckpointError as e: print(e)"
    )
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "cannot download 'someone/something'" in done.stdout
    assert "name their folder" in done.stdout and done.stdout.count("\n") == 1


def test_folder_without_vocoder_takes_the_packaged_one(folder, arrays, backend, monkeypatch):
    monkeypatch.setattr("nanospeech.release.folder.DEFAULT", folder / "package")
    mel = arrays["mel"] if arrays["mel"].ndim == 3 else arrays["mel"][None]
    want = load_engine(folder, backend, "cpu", "float32").vocode(mel)[0]
    (folder / "package").mkdir()
    (folder / "vocoder.safetensors").rename(folder / "package" / "vocoder.safetensors")
    (folder / "config.json").unlink(missing_ok=True)  # which may name another vocoder
    assert np.array_equal(load_engine(folder, backend, "cpu", "float32").vocode(mel)[0], want)


def test_the_packaged_vocoder_stands_in_for_none_that_a_config_describes(folder, arrays, backend):
    (folder / "vocoder.safetensors").unlink()
    engine = load_engine(folder, backend, "cpu", "float32")
    mel = arrays["mel"] if arrays["mel"].ndim == 3 else arrays["mel"][None]
    with pytest.raises(CheckpointError, match=r"has no vocoder\.safetensors, which its config"):
        engine.vocode(mel)
