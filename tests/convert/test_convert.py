"""Converting: what went in comes out, in the published layout, and nothing is unpickled."""

from __future__ import annotations

import pickle
import re
import shutil
import sys

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors.numpy import load_file, save_file

from convert import convert, read_source, read_vocoder
from convert.__main__ import main
from convert.source import located
from nanospeech import load_engine
from nanospeech.config import ModelConfig
from nanospeech.errors import CheckpointError, InputError
from nanospeech.release.folder import DEFAULT, MODEL, shipped_vocoder
from tests.training import VOCAB, duration_model, samples, speech_model, trainer


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Checkpoints of a tiny speech and a tiny duration run."""
    folder = tmp_path_factory.mktemp("runs")
    model = speech_model(dim_head=64, heads=1)
    trainer(folder / "speech", model).train(samples(), 3, 4, max_duration=200)
    trainer(folder / "duration", duration_model()).train(samples(), 3, 4, max_duration=200)
    return folder


def release(runs, golden, output, *options) -> int:
    speech = runs / "speech" / "step_00000003.pt"
    duration = runs / "duration" / "step_00000003.pt"
    vocoder = golden / "vocos_pytorch_model.bin"
    command = [speech, "--duration", duration, "--vocoder", vocoder, "--output", output, *options]
    return main([str(part) for part in command])


@pytest.mark.parametrize("backend", ["torch", "mlx"])
def test_a_trained_model_speaks_after_conversion(runs, golden, tmp_path, backend):
    assert release(runs, golden, tmp_path / "out") == 0
    engine = load_engine(tmp_path / "out", backend=backend)
    assert engine.tokenizer.vocab == list(VOCAB)
    text = engine.tokenizer.encode("It was a large canoe.")[None]
    cond = np.full((1, 40, 100), -5.0, np.float32)
    assert engine.duration(cond, text)[0] > 0
    noise = np.random.default_rng(0).standard_normal((1, 60, 100)).astype(np.float32)
    velocity = engine.velocity(noise, noise * 0, text, np.array([0.5], np.float32))
    assert np.isfinite(velocity).all() and np.abs(velocity).max() > 0
    assert (tmp_path / "out" / "README.md").read_text().startswith("# out")


def test_imitates_is_stored_and_kept_by_later_conversions(runs, golden, tmp_path):
    def imitates_of(name: str) -> bool | None:
        return ModelConfig.load(tmp_path / name / "config.json").imitates

    release(runs, golden, tmp_path / "unknown")
    release(runs, golden, tmp_path / "own", "--no-imitates")
    release(runs, golden, tmp_path / "any", "--imitates")
    assert (imitates_of("unknown"), imitates_of("own"), imitates_of("any")) == (None, False, True)
    assert main([str(tmp_path / "own"), "--output", str(tmp_path / "again")]) == 0
    assert main([str(tmp_path / "own"), "--output", str(tmp_path / "now"), "--imitates"]) == 0
    assert imitates_of("again") is False and imitates_of("now") is True


def test_averaged_weights_are_exported_by_default_and_raw_on_request(runs, golden, tmp_path):
    release(runs, golden, tmp_path / "ema", "--dtype", "float32")
    release(runs, golden, tmp_path / "raw", "--dtype", "float32", "--weights", "raw")
    state = torch.load(runs / "speech" / "step_00000003.pt", weights_only=True)
    for kind, key in (("ema", "ema_state_dict"), ("raw", "model_state_dict")):
        tensors = load_file(tmp_path / kind / "model.safetensors")
        for name, value in state[key].items():
            assert np.array_equal(tensors[name], value.numpy()), (kind, name)


def test_float16_is_the_default(runs, golden, tmp_path):
    release(runs, golden, tmp_path / "out")
    for name in ("model", "duration", "vocoder"):
        tensors = load_file(tmp_path / "out" / f"{name}.safetensors")
        assert {t.dtype for t in tensors.values()} == {np.dtype(np.float16)}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"config": ["dit"]}, "config should be a mapping, got list"),
        ({"vocab": [0, 1, 2]}, "vocab should be a list of tokens"),
        ({"run": {"loss": 5}}, "loss should be a mapping, got int"),
        ({"language": 5}, "language should be str"),
        ({"language": "\ud800"}, "language is .* not valid UTF-8"),
        ({"imitates": "yes"}, "imitates should be bool"),
        ({"sampling": {"voices": "anna"}}, "voices should be a list of names"),
    ],
)
def test_what_a_checkpoint_says_of_itself_has_a_type(runs, tmp_path, capsys, change, word):
    state = torch.load(runs / "speech" / "step_00000003.pt", weights_only=True)
    within = change.keys() - state.keys()  # settings of its config
    (state["config"] if within else state).update(change)
    torch.save(state, tmp_path / "odd.pt")
    assert main([str(tmp_path / "odd.pt"), "--output", str(tmp_path / "out")]) == 2
    assert re.search(word, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (lambda t: t.mul(100).to(torch.int8), "int8, not plain floats"),
        (lambda t: t.to(torch.float8_e4m3fn), "float8_e4m3fn, not plain floats"),
        (lambda t: t > 0, "bool, not plain floats"),
        (lambda t: t.to_sparse(), "sparse_coo, not plain floats"),
    ],
)
def test_weights_that_are_no_floats_are_refused(runs, tmp_path, capsys, made, word):
    state = torch.load(runs / "speech" / "step_00000003.pt", weights_only=True)
    name = "transformer.proj_out.weight"
    state["ema_state_dict"][name] = made(state["ema_state_dict"][name])
    torch.save(state, tmp_path / "odd.pt")
    assert main([str(tmp_path / "odd.pt"), "--output", str(tmp_path / "out")]) == 2
    assert f"{name} of the checkpoint is {word}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "options", "word"),
    [
        (float("nan"), [], "checkpoint.*NaN"),
        (float("inf"), ["--dtype", "float32"], "checkpoint.*NaN"),
        (1e5, [], "too large.*float16.*--dtype float32"),
        (1e9, ["--quantize", "8", "--dtype", "float32"], "too large.*no --quantize"),
    ],
)
def test_weights_that_cannot_be_stored_are_refused(
    runs, golden, tmp_path, capsys, value, options, word
):
    state = torch.load(runs / "speech" / "step_00000003.pt", weights_only=True)
    name = "transformer.transformer_blocks.0.attn.to_q.weight"
    state["ema_state_dict"][name][0, 0] = value
    (tmp_path / "speech").mkdir()
    torch.save(state, tmp_path / "speech" / "step_00000003.pt")
    shutil.copytree(runs / "duration", tmp_path / "duration")
    assert release(tmp_path, golden, tmp_path / "out", *options) == 2
    assert re.search(word, capsys.readouterr().err)
    if value == 1e5:
        assert release(tmp_path, golden, tmp_path / "out", "--dtype", "float32") == 0
        assert load_file(tmp_path / "out" / "model.safetensors")[name][0, 0] == value


@pytest.mark.parametrize("flag", ["--name", "--licence"])
def test_a_name_or_a_licence_is_one_line_of_the_card(runs, golden, tmp_path, capsys, flag):
    for value in ("mit\ntags: [x]", "mit\u2028", " "):
        assert release(runs, golden, tmp_path / "out", flag, value) == 2
        assert f"{flag[2:]} is {value!r}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_whose_name_is_no_text_names_no_model(runs, golden, tmp_path, capsys):
    out = tmp_path / "caf\udce9"  # of a system in Latin-1
    assert release(runs, golden, out) == 2 and not out.exists()
    assert capsys.readouterr().err.count("\n") == 1
    if sys.platform == "linux":  # others have no such names
        assert release(runs, golden, out, "--name", "cafe") == 0


def test_a_conversion_that_fails_in_its_last_part_changes_nothing(runs, golden, tmp_path, capsys):
    spoilt, out = tmp_path / "runs", tmp_path / "out"
    shutil.copytree(runs, spoilt)
    path = next((spoilt / "duration").glob("step_*.pt"))
    state = torch.load(path, weights_only=True)
    name = min(n for n, t in state["ema_state_dict"].items() if t.is_floating_point())
    state["ema_state_dict"][name].view(-1)[0] = float("nan")
    torch.save(state, path)
    assert release(spoilt, golden, out) == 2 and "NaN" in capsys.readouterr().err
    assert not out.exists()
    assert release(runs, golden, out, "--lead", "0.2") == 0
    was = {f: f.read_bytes() for f in out.rglob("*") if f.is_file()}
    assert release(spoilt, golden, out) == 2
    assert {f: f.read_bytes() for f in out.rglob("*") if f.is_file()} == was


def test_upstream_checkpoint_with_averaged_weights_converts(golden, tmp_path):
    from safetensors.torch import load_file as load

    tensors = load(golden / "model.safetensors")
    ema = {"ema_model." + k: v for k, v in tensors.items()} | {"initted": torch.tensor(True)}
    state = {
        "model_state_dict": {k: v * 0 for k, v in tensors.items()},
        "ema_model_state_dict": ema,
    }
    torch.save({**state, "step": 5}, tmp_path / "up.pt")
    code = main(
        [str(tmp_path / "up.pt"), "--vocab", str(golden / "vocab.txt"), "--dtype", "float32"]
        + ["--output", str(tmp_path / "out")]
    )
    assert code == 0
    made = load_file(tmp_path / "out" / "model.safetensors")
    assert "mel_spec.mel_stft.spectrogram.window" not in made
    assert all(np.array_equal(value, tensors[name].numpy()) for name, value in made.items())
    assert ModelConfig.load(tmp_path / "out" / "config.json").dit.text_num_embeds == 33


def test_published_vocos_is_read_with_its_config(golden, tmp_path):
    shutil.copy(golden / "vocos_pytorch_model.bin", tmp_path / "pytorch_model.bin")
    shutil.copy(golden / "vocos_config.yaml", tmp_path / "config.yaml")
    config, tensors = read_vocoder(tmp_path)
    assert (config.dim, config.num_layers, config.n_mels) == (64, 2, 100)
    assert not any(name.startswith("feature_extractor") for name in tensors)
    text = (tmp_path / "config.yaml").read_text()
    for right, wrong, told in (
        ("num_layers: 2", "num_layers: 3", "num_layers=3"),
        ("padding: center", "padding: same", "24000 Hz with 'same' padding"),
        ("sample_rate: 24000", "sample_rate: 44100", "44100 Hz with 'center' padding"),
        ("backbone:", "spine:", "is not the config of a mel Vocos: 'backbone'"),
    ):
        (tmp_path / "config.yaml").write_text(text.replace(right, wrong))
        with pytest.raises(CheckpointError, match=told):
            read_vocoder(tmp_path)


def test_parts_of_the_model_that_ships_are_named_alike_in_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert located("nanospeech/default/imitator") == DEFAULT / "imitator"
    assert read_vocoder("nanospeech/default")[0] == shipped_vocoder()
    with pytest.raises(CheckpointError, match="none not found; name a run's folder"):
        read_vocoder("runs/none")


class Trap:
    def __reduce__(self):
        return (print, ("unpickled",))


def test_a_pickle_is_refused_and_never_run(tmp_path, capsys):
    (tmp_path / "trap.pt").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(CheckpointError, match="plain tensors"):
        read_source(tmp_path / "trap.pt")
    torch.save({"model_state_dict": Trap()}, tmp_path / "trap2.pt")
    with pytest.raises(CheckpointError):
        read_source(tmp_path / "trap2.pt")
    assert "unpickled" not in capsys.readouterr().out


@pytest.mark.parametrize("case", ["missing", "no vocabulary", "another vocabulary", "no text"])
def test_bad_input_ends_in_one_line_and_code_2(golden, tmp_path, capsys, case):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("a\nb")
    sound = DEFAULT / "voices/kumo.flac"
    command = {
        "missing": [str(tmp_path / "none.pt")],
        "no vocabulary": [str(golden / "model.safetensors")],
        "another vocabulary": [str(golden / "model.safetensors"), "--vocab", str(vocab)],
        "no text": [str(golden / "model.safetensors"), "--vocab", str(sound)],
    }[case]
    assert main([*command, "--output", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1 and "codec" not in err
    if case == "no text":
        assert f"{sound} is no vocabulary" in err and "a token a line" in err


def test_a_run_of_another_network_is_named_for_what_it_is(runs, tmp_path, capsys):
    speech, duration, out = runs / "speech", runs / "duration", tmp_path / "out"
    for command, told in (
        ([duration], "is a duration model, where a speech model is wanted"),
        ([speech, "--duration", speech], "is a speech model, where a duration model is wanted"),
        ([speech, "--vocoder", duration], "is a duration model, where a vocoder is wanted"),
    ):
        assert main([*map(str, command), "--output", str(out)]) == 2
        assert told in capsys.readouterr().err and not out.exists()


def test_sharded_checkpoints_are_converted_as_their_exports_are(tmp_path):
    from tests.training import samples, trainer

    trainer(tmp_path / "run").train(samples(), 2, 2, max_duration=200)
    folder = tmp_path / "run" / "step_00000002"
    for weights in ("ema", "raw"):
        one, two = (read_source(p, weights) for p in (folder, folder.with_suffix(".pt")))
        assert one.tensors.keys() == two.tensors.keys() and one.config == two.config
        assert all(torch.equal(one.tensors[n], two.tensors[n]) for n in one.tensors)
    assert read_source(tmp_path / "run").step == 2
    folder.with_suffix(".pt").unlink()  # train.export: never
    assert read_source(tmp_path / "run").step == 2
    (folder / "meta.json").unlink()
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        read_source(folder)


def test_a_release_folder_converts_to_itself(tiny_release, tmp_path):
    out = tmp_path / "out"
    assert main([str(tiny_release), "--output", str(out), "--dtype", "float32"]) == 0
    assert ModelConfig.load(out / "config.json") == ModelConfig.load(tiny_release / "config.json")
    for name in ("model", "duration", "vocoder"):
        old, new = (load_file(folder / f"{name}.safetensors") for folder in (tiny_release, out))
        assert new.keys() == {n for n in old if not n.startswith("mel_spec.")}
        assert all(np.array_equal(new[n], old[n]) for n in new)
    for file in ("vocab.txt", "voices/tone.txt", "voices/tone.wav"):
        assert (out / file).read_bytes() == (tiny_release / file).read_bytes()
    changed = tmp_path / "changed"
    vocoder = str(tiny_release / "vocoder.safetensors")
    options = ["--name", "other", "--temperature", "0.5", "--lead", "0.1", "--prompt-codec", "mp3"]
    options += ["--prompt-widen"]
    options += ["--cfg", "2", "--cfg-rescale", "0.7"]
    assert main([str(out), "--output", str(changed), *options, "--vocoder", vocoder]) == 0
    config = ModelConfig.load(changed / "config.json")
    assert (config.name, config.temperature, config.leading_pause) == ("other", 0.5, 0.1)
    assert (config.prompt_codec, config.cfg_strength, config.cfg_rescale) == ("mp3", 2, 0.7)
    assert config.prompt_widen
    assert config.default_voice == "tone"
    with pytest.raises(InputError, match=r"nobody is none of the voices in .*: tone"):
        convert(out, tmp_path / "mute", default_voice="nobody")
    assert not (tmp_path / "mute").exists()
    tensors = load_file(changed / "model.safetensors")
    assert {t.dtype for t in tensors.values()} == {np.dtype(np.float32)}


def test_a_folder_that_is_still_read_is_not_written_over(runs, golden, tiny_release, tmp_path):
    """Nor is anything written where an option names nothing: the old release stays as it is."""
    out = tmp_path / "out"
    release(runs, golden, out)
    shutil.copytree(tiny_release / "voices", out / "voices")
    was = {f: f.read_bytes() for f in sorted(out.rglob("*")) if f.is_file()}
    other = str(runs / "speech" / "step_00000003.pt")
    for options in (
        ["--like", str(out)],
        ["--voices", str(out / "voices")],
        ["--voices", str(tmp_path / "nowhere")],
        ["--card", str(tmp_path / "nowhere.md")],
    ):
        assert main([other, "--output", str(out), "--temperature", "0.3", *options]) == 2
        assert {f: f.read_bytes() for f in sorted(out.rglob("*")) if f.is_file()} == was


def test_nothing_of_an_earlier_conversion_is_left(runs, golden, tiny_release, tmp_path):
    """A part or a voice's weights of another model would be opened with the new one."""
    like, out = tmp_path / "like", tmp_path / "out"
    settings = ["--lead", "0.2", "--smooth", "0.25", "--prompt-codec", "mp3", "--prompt-widen"]
    release(runs, golden, like, *settings, "--licence", "cc0-1.0")
    shutil.copytree(tiny_release / "voices", like / "voices")
    shutil.copy(like / "voices/tone.wav", like / "voices/mine.wav")
    shutil.copy(like / "voices/tone.txt", like / "voices/mine.txt")
    release(runs, golden, out, "--quantize", "8")
    shutil.copytree(like / "voices", out / "voices")
    for name in ("tone.safetensors", "tone.json"):
        (out / "voices" / name).write_bytes(b"of another model")
    (out / "imitator").mkdir()
    (out / "velocity.onnx").write_bytes(b"of another model")
    speech = str(runs / "speech" / "step_00000003.pt")
    assert main([speech, "--output", str(out), "--voices", str(like / "voices")]) == 0
    assert (
        not (out / "duration.safetensors").exists() and not (out / "vocoder.safetensors").exists()
    )
    assert not (out / "imitator").exists() and not (out / "velocity.onnx").exists()
    assert {f.name for f in (out / "voices").glob("tone.*")} == {"tone.wav", "tone.txt"}
    load_engine(out, backend="torch")
    (out / "voices" / "tone.json").write_text("{}")
    assert main([speech, "--output", str(out)]) == 0  # no voices come in their place
    assert (out / "voices" / "tone.json").exists()
    shutil.rmtree(out)
    assert main([speech, "--output", str(out), "--like", str(like), "--default-voice", "mine"]) == 0
    assert {f.stem for f in (out / "voices").iterdir()} == {"tone", "mine"}
    wanted, made = (ModelConfig.load(folder / "config.json") for folder in (like, out))
    assert made.leading_pause == 0.2
    for name in ("leading_pause", "postfilter", "prompt_codec", "prompt_widen", "licence"):
        assert getattr(made, name) == getattr(wanted, name) != getattr(ModelConfig(), name), name
    assert main([speech, "--output", str(out), "--like", str(like), "--lead", "0"]) == 0
    assert ModelConfig.load(out / "config.json").leading_pause == 0


def test_voices_of_a_hub_release_come_along(runs, golden, tiny_release, tmp_path, monkeypatch):
    like = tmp_path / "like"
    release(runs, golden, like)
    shutil.copytree(tiny_release / "voices", like / "voices")
    for place in ("nanospeech.release.folder", "convert.source"):
        monkeypatch.setattr(f"{place}.resolve", lambda model: like)
    speech = str(runs / "speech" / "step_00000003.pt")
    assert main([speech, "--output", str(tmp_path / "out"), "--like", "someone/model"]) == 0
    assert (tmp_path / "out/voices/tone.wav").exists()


def test_a_duration_model_may_lie_in_a_release_folder(runs, golden, tmp_path):
    release(runs, golden, tmp_path / "one")
    speech = str(runs / "speech" / "step_00000003.pt")
    kept = load_file(tmp_path / "one/duration.safetensors")
    for n, given in enumerate((tmp_path / "one", tmp_path / "one/duration.safetensors")):
        out = tmp_path / f"out{n}"
        assert main([speech, "--output", str(out), "--duration", str(given)]) == 0
        found = load_file(out / "duration.safetensors")
        assert all(np.array_equal(found[name], kept[name]) for name in kept)
    assert main([speech, "--output", str(tmp_path / "bare")]) == 0
    words = [speech, "--output", str(tmp_path / "no"), "--duration", str(tmp_path / "bare")]
    assert main(words) == 2


def test_a_yaml_file_beside_a_checkpoint_may_be_about_something_else(runs, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(runs / "speech" / "step_00000003.pt", folder)
    (folder / "notes.yml").write_text("- buy bread\n")
    assert main([str(folder / "step_00000003.pt"), "--output", str(tmp_path / "out")]) == 0
    named = ["--config", str(folder / "notes.yml")]
    assert main([str(folder / "step_00000003.pt"), "--output", str(tmp_path / "out"), *named]) == 2


def test_the_mean_of_two_models(make_release, tiny_aligned, tmp_path, capsys):
    one = make_release(text_upsampling="none", patch_size=2)
    two = tmp_path / "two"
    shutil.copytree(one, two)
    given = load_file(two / "model.safetensors")
    save_file({n: t + 1.0 for n, t in given.items()}, two / "model.safetensors")
    assert main([str(one), "--output", str(tmp_path / "mean"), "--average", str(two),
                 "--dtype", "float32"]) == 0  # fmt: skip
    found = load_file(tmp_path / "mean" / "model.safetensors")
    assert found.keys() == given.keys()
    assert all(np.allclose(found[n], t + 0.5, atol=1e-6) for n, t in given.items())
    for share in ("0", "0.25", "0.5", "1"):
        out = tmp_path / f"mean{share}"
        assert main([str(one), "--output", str(out), "--average", str(two), "--share", share,
                     "--dtype", "float32"]) == 0  # fmt: skip
        other = load_file(out / "model.safetensors")
        moved = 1 - float(share)
        assert all(np.allclose(other[n], t + moved, atol=1e-6) for n, t in given.items())
        if share == "0.5":
            assert all(np.array_equal(other[n], found[n]) for n in given)
    capsys.readouterr()
    average = ["--average", str(two)]
    for words, told in (
        ([*average, "--share", "1.1"], "--share is 1.1; choose 0 to 1"),
        ([*average, "--share", "nan"], "--share is nan"),
        (["--share", "0.7"], "--share goes with --average"),
    ):
        assert main([str(one), "--output", str(tmp_path / "x"), *words]) == 2
        assert told in capsys.readouterr().err
    assert main([str(one), "--output", str(tmp_path / "x"), "--average", str(tiny_aligned)]) == 2
    assert "another network" in capsys.readouterr().err
    name = "transformer.proj_out.weight"
    floats = {n: torch.from_numpy(t) for n, t in given.items()}
    rounded = floats | {name: floats[name].to(torch.float8_e4m3fn)}
    safetensors.torch.save_file(rounded, two / "model.safetensors")
    assert main([str(one), "--output", str(tmp_path / "x"), *average]) == 2
    assert f"{name} of the checkpoint is float8_e4m3fn" in capsys.readouterr().err


def test_a_release_in_float32_stays_so_when_it_is_converted_again(make_release, tmp_path):
    one = make_release(text_upsampling="none", patch_size=2)
    convert(one, tmp_path / "wide", dtype="float32")
    convert(tmp_path / "wide", tmp_path / "again", temperature=0.5)
    convert(tmp_path / "wide", tmp_path / "narrow", dtype="float16")
    convert(tmp_path / "narrow", tmp_path / "kept")
    names = ("wide", "again", "kept")
    wide, again, kept = (load_file(tmp_path / n / "model.safetensors") for n in names)
    assert all(np.array_equal(again[n], t) for n, t in wide.items())
    assert {t.dtype for t in again.values()} == {np.dtype(np.float32)}
    assert {t.dtype for t in kept.values()} == {np.dtype(np.float16)}
    # packed ones are for what is small
    convert(tmp_path / "wide", tmp_path / "packed", quantize=8)
    convert(tmp_path / "packed", tmp_path / "unpacked")
    packed, unpacked = (load_file(tmp_path / n / MODEL) for n in ("packed", "unpacked"))
    assert {t.dtype for t in unpacked.values()} == {np.dtype(np.float16)}
    assert {t.dtype for n, t in packed.items() if n in unpacked} <= {*map(np.dtype, ("f2", "u4"))}


def test_no_tensor_of_a_release_of_two_types_is_rounded(make_release, tmp_path):
    """The first one's type was taken for that of all."""
    one, mixed = make_release(text_upsampling="none", patch_size=2), tmp_path / "mixed"
    convert(one, mixed, dtype="float16")
    tensors, wide = (load_file(f / "model.safetensors") for f in (mixed, one))
    name = max(tensors, key=lambda n: tensors[n].size)
    save_file(tensors | {name: wide[name]}, mixed / "model.safetensors")
    assert name != min(tensors)
    convert(mixed, tmp_path / "again", temperature=0.5)
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert np.array_equal(again[name], wide[name]) and again.keys() == tensors.keys()


def test_a_voice_of_piper_is_told_to_be_a_graph(tmp_path, capsys):
    """It was called a pickle that could run code."""
    (tmp_path / "en_US-joe-medium.onnx").write_bytes(b"\x08\x08\x12\x07pytorch")
    words = [str(tmp_path / "en_US-joe-medium.onnx"), "--output", str(tmp_path / "out")]
    assert main(words) == 2 and not (tmp_path / "out").exists()
    assert "is an ONNX graph, as Piper's voices are" in capsys.readouterr().err
