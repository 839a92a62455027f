"""Text encoders: transformers' numbers in both backends, and a model that reads their states."""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil

import numpy as np
import pytest

from nanospeech.engine.text_states import TextStates
from nanospeech.errors import CheckpointError, InputError
from nanospeech.latent_architectures import TextEncoderConfig
from nanospeech.load import load_engine
from nanospeech.release.text_encoder import encoders_own, read_text_encoder

from . import tiny

both_backends = pytest.mark.parametrize("backend", ["torch", "mlx"])
KINDS = ("t5_v10", "t5_v11", "t5gemma", "t5gemma2")


def encoder_folder(folder, kind):
    """A tiny random encoder as the Hub has it, with a tokenizer of two words."""
    configs = json.loads((tiny.GOLDEN / "t5_configs.json").read_text())
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(configs[kind]))
    shutil.copy(tiny.GOLDEN / f"{kind}.safetensors", folder / "model.safetensors")
    vocab = {"hello": 3, "there": 4, "</s>": 1, "<unk>": 2}
    pieces = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(pieces))
    return folder


def states_of(backend, files, ids, mask):
    if backend == "torch":
        import torch

        from nanospeech_torch.echo.text_encoder import FrozenTextEncoder

        return FrozenTextEncoder(files)(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()
    import mlx.core as mx

    from nanospeech_mlx.echo.text_encoder import FrozenTextEncoder

    encoder = FrozenTextEncoder(files)
    return np.array(encoder(mx.array(ids.astype(np.int32)), mx.array(mask)))


@both_backends
@pytest.mark.parametrize("kind", KINDS)
def test_states_are_transformers_own(tmp_path, backend, kind):
    golden = np.load(tiny.GOLDEN / "t5.npz")
    files = read_text_encoder(encoder_folder(tmp_path / kind, kind))
    assert files.kind == kind.partition("_")[0] and files.width == 32
    mask = golden["attention_mask"] > 0
    got = states_of(backend, files, golden["input_ids"], mask)
    wanted = golden[kind]
    assert np.abs(got - wanted)[mask].max() <= 2e-5 * np.abs(wanted[mask]).max()


@pytest.fixture
def folder(tmp_path):
    weights = tiny.seeded(tiny.network_shapes(tiny.SCALED))
    encoder_folder(tmp_path / "text_encoder", "t5gemma2")
    return tiny.write(
        tmp_path, tiny.SCALED, weights, text_encoder=TextEncoderConfig(kind="t5gemma2")
    )


@both_backends
def test_a_model_reads_the_states_and_the_target_duration(folder, backend):
    engine, i = load_engine(folder, backend, dtype="float32"), tiny.echo_inputs()
    text = engine.tokenizer.encode("Hello there hello")
    assert text.tolist() == [3, 4, 3]
    both = np.stack([np.append(text, -1), [3, 4, 4, 3]])
    given = i["x"], i["speaker"], both, i["t"]
    v = engine.velocity(*given)
    alone = engine.velocity(*(a[:1] for a in given[:2]), text[None], i["t"][:1])
    assert np.abs(v[:1] - alone).max() <= 1e-4
    assert np.abs(v - engine.velocity(*given, drop_text=True)).max() > 1e-3
    longer = engine.velocity(*given, seconds_B=np.array([9.0, 9.0]))
    assert np.abs(v - longer).max() > 1e-3
    other = load_engine(folder, "mlx" if backend == "torch" else "torch", dtype="float32")
    assert np.abs(v - other.velocity(*given)).max() <= 1e-4 * np.abs(v).max()


def test_kept_states_are_those_that_were_computed(folder, tmp_path):
    engine, i = load_engine(folder, "torch", dtype="float32"), tiny.echo_inputs()
    given = i["x"], i["speaker"], np.array([[3, 4, 3, -1], [4, 3, 3, 3]]), i["t"]
    fresh = engine.velocity(*given)
    engine.cache_texts(tmp_path / "states")
    assert np.abs(fresh - engine.velocity(*given)).max() <= 1e-5
    assert len(list((tmp_path / "states").rglob("*.npy"))) == 2
    engine.modules.clear()
    (folder / "text_encoder" / "model.safetensors").unlink()  # and is not needed any more
    assert np.abs(fresh - engine.velocity(*given)).max() <= 1e-5


def test_each_text_is_encoded_once_and_damaged_files_again(tmp_path):
    asked = []

    def encode(ids, mask):
        asked.append(ids.tolist())
        return np.repeat(ids[..., None], 2, -1) * mask[..., None] * np.float32(0.5)

    texts = np.array([[5, 6, 7], [8, -1, -1]])
    keep = TextStates(encode, "a", tmp_path)
    first = keep.states(texts)
    assert first[1].tolist() == [[4, 4], [0, 0], [0, 0]] and len(asked) == 1
    assert np.array_equal(keep.states(texts[::-1]), first[::-1]) and len(asked) == 1
    keep.path(np.array([8])).write_bytes(b"\x93NUMPY")
    assert np.array_equal(keep.states(texts), first) and asked[1] == [[8, 0, 0]]
    TextStates(encode, "b", tmp_path).states(texts)
    assert len(asked) == 3


def test_states_that_cannot_be_kept_are_computed_again(tmp_path, monkeypatch, caplog):
    """A disk that fills up ends no run."""
    asked, save = [], np.save

    def encode(ids, mask):
        asked.append(ids.tolist())
        return np.repeat(ids[..., None], 2, -1) * np.float32(0.5)

    def full(file, *rest, **more):
        save(file, *rest, **more)  # a part of it is written
        raise OSError(errno.ENOSPC, "No space left on device")

    keep = TextStates(encode, "a", tmp_path)
    first = keep.states(np.array([[5, 6]]))
    monkeypatch.setattr(np, "save", full)
    for _ in range(2):
        assert keep.states(np.array([[7, 8], [5, 6]])).tolist()[1] == first[0].tolist()
    assert asked == [[[5, 6]], [[7, 8]], [[7, 8]]]
    assert [r.getMessage() for r in caplog.records] == [
        f"states of texts cannot be kept in {tmp_path}, and are computed each time: [Errno 28] No"
        " space left on device"
    ]
    assert len([f for f in tmp_path.rglob("*") if f.is_file()]) == 1
    monkeypatch.undo()
    keep.states(np.array([[7, 8]]))
    assert len(list(tmp_path.rglob("*.npy"))) == 2  # there is room again


def test_frozen_encoders_stay_frozen_and_out_of_float16(tmp_path):
    torch = pytest.importorskip("torch")
    from nanospeech_torch.echo.text_encoder import FrozenTextEncoder

    files = read_text_encoder(encoder_folder(tmp_path / "t5", "t5_v11"))
    encoder = FrozenTextEncoder(files).train()
    ids, mask = torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.bool)
    states = encoder(ids, mask)
    assert not encoder.training and not encoder.network.training and not states.requires_grad
    assert torch.equal(states, encoder(ids, mask))  # no dropout
    assert not any(p.requires_grad for p in encoder.parameters())
    with pytest.raises(InputError, match="overflows"):
        FrozenTextEncoder(files, dtype="float16")


def test_what_is_no_encoder_is_refused(folder, tmp_path):
    config = tmp_path / "text_encoder" / "config.json"
    values = json.loads(config.read_text())
    config.write_text(json.dumps(values | {"model_type": "bert"}))
    with pytest.raises(CheckpointError, match="'bert'"):
        read_text_encoder(tmp_path / "text_encoder")
    config.unlink()
    with pytest.raises(CheckpointError, match=r"no text encoder in .*: copy there"):
        read_text_encoder(tmp_path / "text_encoder")
    config.write_text(json.dumps(values))
    wide = dataclasses.replace(tiny.SCALED, text_input=48)
    tiny.write(folder, wide, tiny.seeded(tiny.network_shapes(wide)))
    engine, i = load_engine(folder, "torch", dtype="float32"), tiny.echo_inputs()
    with pytest.raises(CheckpointError, match="no text_encoder"):
        engine.velocity(i["x"], i["speaker"], np.array([[3, 4]] * 2), i["t"])
    kept = {"model.encoder.text_model.norm.weight": 1, "lm_head.out.weight": 2}
    kept |= {"model.decoder.norm.weight": 3, "model.encoder.vision_tower.x.weight": 4}
    assert encoders_own(kept) == {"norm.weight": 1}


def test_a_config_may_leave_out_how_many_layers_there_are(tmp_path):
    folder = encoder_folder(tmp_path / "t5", "t5_v10")
    config = json.loads((folder / "config.json").read_text())
    del config["num_layers"]
    (folder / "config.json").write_text(json.dumps(config))
    assert read_text_encoder(folder).width == 32


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"num_layers": 10**9}, "weights of 2 layers, but config.json says num_layers 1000000000"),
        ({"encoder": 5}, "says encoder 5, should be a mapping"),
        ({"d_model": 10**9}, r"wrong shapes: .* instead of \(.*1000000000"),
        ({"d_ff": "wide"}, "config.json is none of its kind: .*d_ff"),
    ],
)
def test_a_config_that_is_not_the_weights_is_told(tmp_path, change, told):
    """It would take memory of its own sizes, which a folder from elsewhere may have of any."""
    folder = encoder_folder(tmp_path / "t5", "t5_v10")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    ids = np.array([[3, 4, 1]])
    with pytest.raises(CheckpointError, match=told):
        states_of("torch", read_text_encoder(folder), ids, ids > 0)
