"""A text encoder beside an EchoDiT in training: left alone or trained at a rate of its own."""

from __future__ import annotations

import dataclasses
import shutil
import weakref
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

from convert import convert
from nanospeech.errors import CheckpointError, InputError
from nanospeech.latent_architectures import TEXT_TAG
from nanospeech.load import load_engine
from nanospeech.release.folder import open_release
from nanospeech.release.text_encoder import read_text_encoder
from nanospeech_torch.echo.text_encoder import FrozenTextEncoder
from nanospeech_torch.train.config import run_config
from nanospeech_torch.train.optim.optimizers import build_optimizers
from nanospeech_torch.train.run import build_objective, build_tokenizer
from nanospeech_torch.train.scale.materialize import fill_empty
from tests.echo.test_text_encoder import encoder_folder
from tests.parallel_worker import ECHO, echo_batch

# only looked for: to import it would cost each test process a second, whatever its tests are
pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="no transformers here")
SIZES = {**dataclasses.asdict(ECHO), "text_depth": 0, "text_input": 32}


@pytest.fixture
def model(tmp_path):
    folder = encoder_folder(tmp_path / "t5", "t5_v11")

    def build(text_input: int = 32, tags: tuple[str, ...] = (), **loss):
        config = run_config(
            {
                "model": "echo",
                "data": {"tokenizer": "pieces", "vocab": str(folder / "tokenizer.json")},
                "audio": {"n_mels": 20},
                "echo": {**SIZES, "text_input": text_input, "text_tags": list(tags)},
                "echo_loss": {"latents": "mels", "text_encoder": str(folder), **loss},
                "optimizer": {"lr": 1e-3},
            }
        )
        tokenizer = build_tokenizer(config.data, config.echo.text_tags)
        return build_objective(config, tokenizer), config, folder

    return build


def test_a_frozen_encoder_is_no_part_of_the_model(model, tmp_path):
    frozen, _, folder = model()
    cached, _, _ = model(text_cache=str(tmp_path / "cache"))
    assert not [n for n in frozen.state_dict() if n.startswith("reader")]
    text = torch.tensor([[3, 4, 1, -1], [4, 1, -1, -1]])
    read = text >= 0
    want = FrozenTextEncoder(read_text_encoder(folder))(text.clamp(min=0), read)[read]
    frozen.train()
    found = frozen.text_input(text, read)
    assert not found.requires_grad and torch.equal(found[read], want)
    for _ in range(2):  # computed, then read from the disk
        assert torch.allclose(cached.text_input(text, read)[read], want, atol=1e-6)
    assert list((tmp_path / "cache").rglob("*.npy"))
    assert frozen.model_config()["text_encoder"] == {"kind": "t5", "frozen": True}


class Elsewhere(torch.Tensor):
    """Texts that say that they are on another device."""

    device = torch.device("meta")  # type: ignore[assignment]


def test_texts_to_keep_are_read_on_the_models_device(model, tmp_path):
    reader = model(text_cache=str(tmp_path / "cache"))[0].reader
    text = torch.tensor([[3, 4, 1, -1]]).as_subclass(Elsewhere)
    with pytest.raises(RuntimeError):  # nothing is computed there
        reader(text, text >= 0)
    (encoder,) = reader.frozen
    assert {p.device.type for p in encoder.parameters()} == {"meta"}


def test_another_encoder_may_learn_at_a_rate_of_its_own(model):
    trained, config, folder = model(text_encoder_lr=0.1)
    own = {n: p for n, p in trained.named_parameters() if n.startswith("reader.")}
    published = read_text_encoder(folder).tensors  # it begins as it was published
    now = trained.reader.network.state_dict()
    assert own and now.keys() == published.keys()
    assert all(np.array_equal(now[n].numpy(), t) for n, t in published.items())
    for kind in ("adamw", "muon"):
        rates: dict[int, float] = {}
        lost: dict[int, float] = {}  # of a weight in a step, by its decay
        for optimizer in build_optimizers(
            trained, dataclasses.replace(config.optimizer, name=kind)
        ):
            for g in optimizer.param_groups:
                rates |= {id(p): g["lr"] for p in g["params"]}
                lost |= {id(p): g["lr"] * g["weight_decay"] for p in g["params"]}
        for name, p in trained.named_parameters():
            rate = 1e-4 if name in own else 1e-3
            assert rates[id(p)] == pytest.approx(rate), (kind, name)
            assert lost[id(p)] in (0, pytest.approx(rate * config.optimizer.weight_decay))
    torch.nn.init.ones_(trained.transformer.out_proj.weight)
    trained(echo_batch(0))["flow"][0].backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in own.values())


def test_a_published_encoder_outlives_the_allocation_of_a_split_model(model):
    whole, config, folder = model(text_encoder_lr=0.1)
    with torch.device("meta"):
        empty = build_objective(config, whole.tokenizer)
    assert empty.transformer.out_proj.weight.is_meta
    fill_empty(empty, torch.device("cpu"), config.train.seed)
    assert empty.state_dict().keys() == whole.state_dict().keys()
    for name, value in empty.state_dict().items():
        assert torch.equal(value, whole.state_dict()[name]), name
    empty.eval()
    whole.eval()
    text = torch.tensor([[3, 4, 1, -1]])
    assert torch.equal(empty.text_input(text, text >= 0), whole.text_input(text, text >= 0))


@pytest.mark.parametrize("loss", [{}, {"text_cache": "cache"}, {"text_encoder_lr": 0.1}], ids=str)
def test_an_encoder_is_in_memory_once(model, tmp_path, monkeypatch, loss):
    monkeypatch.chdir(tmp_path)
    reader, text = model(**loss)[0].eval().reader, torch.tensor([[3, 4, 1, -1]])
    arrays = [weakref.ref(array) for array in reader.files.tensors.values()]
    first = reader(text, text >= 0)
    assert not reader.files.tensors and not any(array() is not None for array in arrays)
    assert torch.equal(reader(text, text >= 0), first)


def test_states_of_another_width_and_missing_folders_are_refused(model, tmp_path):
    with pytest.raises(CheckpointError, match="are 32 wide"):
        model(text_input=48)
    with pytest.raises(InputError, match="neither a folder nor a Hub repository"):
        model(text_encoder="no such/folder at all")


def test_an_encoder_that_was_trained_goes_into_the_folder(model, tmp_path):
    trained, _, folder = model(text_encoder_lr=0.1)
    with torch.no_grad():
        for p in trained.parameters():  # no layer at zero, no encoder as it was published
            p.add_(0.02 * torch.randn_like(p))
    trained.eval()
    saved = {"model_state_dict": trained.state_dict(), "config": trained.model_config(), "step": 9}
    torch.save(saved, tmp_path / "step_9.pt")
    pieces = tmp_path / "t5.json"  # of another name
    shutil.copy(folder / "tokenizer.json", pieces)
    convert(tmp_path / "step_9.pt", tmp_path / "once", vocab=pieces, dtype="float32")
    convert(tmp_path / "once", tmp_path / "twice", dtype="float32")
    assert "| text_encoder/model.safetensors |" in (tmp_path / "once" / "README.md").read_text()
    check_folders(trained, tmp_path, echo_batch(0).text[:, :6].clamp(max=4))


def check_folders(trained, folder, text: torch.Tensor) -> None:
    """The folders "once" and "twice" have the velocity of what was trained."""
    batch = echo_batch(0)
    kept = dataclasses.replace(
        batch,
        text=text,
        lens=torch.full_like(batch.lens, 48),
        drop_text=torch.zeros(4, dtype=torch.bool),
        drop_speaker=torch.zeros(4, dtype=torch.bool),
    )
    with torch.no_grad():
        want = trained.velocity(kept, kept.noise).numpy()
    for name, backend, within in (
        ("once", "torch", 2e-5),
        ("twice", "torch", 2e-5),
        ("twice", "mlx", 1e-4),
    ):
        engine: Any = load_engine(folder / name, backend, dtype="float32")
        assert engine.tokenizer.encode("hello there").tolist() == [3, 4]
        heard = kept.speaker.numpy() * (np.arange(16) < kept.heard[:, None].numpy())[..., None]
        given = kept.noise.numpy(), heard, text.numpy(), kept.time.numpy()
        got = engine.velocity(*given, prompt_frames_B=kept.heard.numpy())
        assert np.abs(got - want).max() <= within * np.abs(want).max()


def with_tag(batch, *columns: int):
    """A batch whose first text has the first tag in some places, and the text is not dropped."""
    text = batch.text.clamp(max=4)
    text[0, list(columns)] = TEXT_TAG
    return dataclasses.replace(batch, text=text, drop_text=torch.zeros(4, dtype=torch.bool))


@pytest.mark.parametrize("lr", [0.0, 0.1])
def test_tags_learn_beside_an_encoder(model, lr):
    trained, config, _ = model(tags=("<laugh>", "<sigh>"), text_encoder_lr=lr)
    torch.nn.init.ones_(trained.transformer.out_proj.weight)
    own = {n: p for n, p in trained.named_parameters() if "text_tag" in n or "reader" in n}
    assert [n for n in own if "text_tag" in n] == ["transformer.text_tag.weight"]
    trained(with_tag(echo_batch(0), 0, 2))["flow"][0].backward()
    grads = own["transformer.text_tag.weight"].grad
    assert grads[0].abs().min() > 0 and not grads[1].any()
    assert (len(own) > 1) == (lr > 0)  # a frozen encoder is no part of the model
    if lr:
        assert any(p.grad.abs().sum() > 0 for n, p in own.items() if "reader" in n)
    trained.zero_grad()
    trained(with_tag(echo_batch(0)))["flow"][0].backward()
    assert not own["transformer.text_tag.weight"].grad.any()  # and not None, in every process


def test_tags_go_into_the_folder(model, tmp_path):
    trained, _, folder = model(tags=("<laugh>", "<sigh>"))
    with torch.no_grad():
        for p in trained.parameters():
            p.add_(0.02 * torch.randn_like(p))
    trained.eval()
    saved = {"model_state_dict": trained.state_dict(), "config": trained.model_config(), "step": 9}
    torch.save(saved, tmp_path / "step_9.pt")
    given = {"vocab": folder / "tokenizer.json", "dtype": "float32"}
    convert(tmp_path / "step_9.pt", tmp_path / "once", **given)
    shutil.copytree(folder, tmp_path / "once" / "text_encoder")
    convert(tmp_path / "once", tmp_path / "twice", **given)
    for name in ("once", "twice"):
        tokenizer = open_release(tmp_path / name).tokenizer
        assert tokenizer.encode("hello <sigh> there").tolist() == [3, TEXT_TAG + 1, 4]
        assert "<laugh>, <sigh>" in (tmp_path / name / "README.md").read_text()
    check_folders(trained, tmp_path, with_tag(echo_batch(0), 0, 2).text[:, :6])


def test_tags_need_an_encoder_and_its_pieces():
    values = {"model": "echo", "echo": {"text_tags": ["<laugh>"], "text_input": 640}}
    with pytest.raises(InputError, match=r"for data\.tokenizer=pieces, and it is chars"):
        run_config(values)  # so that a dry run says so, too


def test_one_without_its_config_is_refused(model, tmp_path):
    trained, _, folder = model(text_encoder_lr=0.1)
    config = trained.model_config()
    del config["text_encoder_config"]
    saved = {"model_state_dict": trained.state_dict(), "config": config, "step": 9}
    torch.save(saved, tmp_path / "step_9.pt")
    with pytest.raises(CheckpointError, match=r"not its config\.json"):
        convert(tmp_path / "step_9.pt", tmp_path / "out", vocab=folder / "tokenizer.json")
