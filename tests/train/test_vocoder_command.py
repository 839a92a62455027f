"""A vocoder trained, gone on with, exported and measured by the commands."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from nanospeech.audio import mel
from nanospeech.config import VocoderConfig
from nanospeech.errors import CheckpointError
from nanospeech.release.shapes import vocoder_config_from_shapes
from tests.backends.test_vocoder import ROOT, tone


def write_shard(path, count=4):
    """A real shard of short recordings."""
    import io
    import tarfile

    import soundfile as sf

    with tarfile.open(path, "w") as tar:
        for i in range(count):
            sound = io.BytesIO()
            sf.write(sound, tone(24_000, 110 + 30 * i), 24_000, format="WAV")
            meta = json.dumps({"text": f"clip {i}", "duration": 1.0}).encode()
            for name, content in ((f"k{i}.wav", sound.getvalue()), (f"k{i}.json", meta)):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


@pytest.fixture
def script(monkeypatch, capsys):
    """nanospeech train, and evaluate vocoder, as one function of options: what they print."""
    pytest.importorskip("accelerate")
    from nanospeech.commands import main

    def run(*options):
        capsys.readouterr()
        command = ["train"] if "--config" in options else ["evaluate", "vocoder"]
        code = main([*command, *(str(o) for o in options)])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    return run


def test_a_vocoder_trains_resumes_is_released_and_evaluated(tmp_path, script, tiny_release):
    torch = pytest.importorskip("torch")
    from convert import convert

    safetensors = pytest.importorskip("safetensors.numpy")
    write_shard(tmp_path / "a.tar")
    sizes = ["vocoder.dim=32", "vocoder.intermediate_dim=48", "vocoder.num_layers=2"]
    plan = ["total_steps=4", "save_step=3", "warmup_steps=2", "vocoder_loss.gan_from=0.5"]
    batch = ["data.batch_size=2", "vocoder_loss.frames=16", "train.log_every=2"]
    data = [f"data.shards={tmp_path / 'a.tar'}", "vocoder_loss.held_out=0.0"]
    recipe = ["--config", ROOT / "nanospeech" / "configs" / "vocoder_gan.yaml"]
    common = [*recipe, "--set", *sizes, *plan, *batch, *data, "mixed_precision='no'"]

    script(*common, f"run_dir={tmp_path / 'run'}")
    log = (tmp_path / "run" / "log.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in log] == ["step", "2", "4"]
    again = script(
        *common, f"run_dir={tmp_path / 'b'}", "--resume", tmp_path / "run" / "step_00000003"
    )
    assert "at step 3" in again
    whole, resumed = (
        torch.load(tmp_path / name / "step_00000004.pt", weights_only=True) for name in ("run", "b")
    )
    for kind in ("model_state_dict", "ema_state_dict"):
        assert all(torch.equal(v, resumed[kind][k]) for k, v in whole[kind].items())

    released = convert(tiny_release, tmp_path / "release", vocoder=tmp_path / "run")
    tensors = safetensors.load_file(tmp_path / "release" / "vocoder.safetensors")
    assert released.vocoder == VocoderConfig(dim=32, intermediate_dim=48, num_layers=2)
    assert vocoder_config_from_shapes({k: v.shape for k, v in tensors.items()}) == released.vocoder
    for name, average in whole["ema_state_dict"].items():
        kept = tensors[name.removeprefix("vocoder.")]
        assert kept.dtype == np.float32 and (kept == average.numpy()).all()  # as the release's

    options = ["--held-out", tmp_path / "a.tar", "--evaluate-clips", 1, "--iterations", 8]
    result = json.loads(script("--run", tmp_path / "run", *options))
    assert result["clips"] == 1 and result["step"] == 4
    table, folder = result["table"], tmp_path / "run" / "evaluation"
    apart = {name: table[name]["mel_distance"]["mean"] for name in table}
    assert apart["recording"] == 0 < apart["griffin_lim"] < apart["vocoder"]
    assert table["recording"].keys() < table["vocoder"].keys() >= {"mel_distance", "rtf"}
    for name in ("recording", "vocoder", "griffin_lim"):
        assert (folder / name / "k0.wav").exists()
    assert len((folder / "results.csv").read_text().splitlines()) == 4
    assert json.loads((folder / "summary.json").read_text()) == result
    # a folder of recordings and the released weights give the same
    options = ["--checkpoint", tmp_path / "release", "--waves", tmp_path / "again"]
    options += ["--iterations", 8]
    again = json.loads(script("--held-out", folder / "recording", *options))
    for name in ("vocoder", "griffin_lim"):
        assert again["table"][name]["mel_distance"]["mean"] == pytest.approx(apart[name], abs=0.02)


def test_checkpoints_and_exports_of_earlier_versions_are_read(tmp_path):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    from convert import read_vocoder
    from nanospeech_torch.vocoder import Vocos

    config: dict[str, Any] = {"dim": 32, "intermediate_dim": 48, "num_layers": 2}
    config["griffin_lim_iters"] = 3
    average = Vocos(VocoderConfig(**config)).state_dict()
    torch.save({"config": config, "average": average, "step": 6}, tmp_path / "checkpoint.pt")
    exported = tmp_path / "exported"
    exported.mkdir()
    safetensors.save_file(average, exported / "vocoder.safetensors")
    (exported / "vocoder.json").write_text(json.dumps(config))
    for path in (tmp_path, tmp_path / "checkpoint.pt", exported):
        found, tensors = read_vocoder(path)
        assert found == VocoderConfig(**config), path
        assert all(torch.equal(v, tensors[k]) for k, v in average.items()), path
    broken = {**average, "head.out.bias": average["head.out.bias"][1:]}
    torch.save({"config": config, "average": broken, "step": 6}, tmp_path / "broken.pt")
    with pytest.raises(CheckpointError, match=r"broken\.pt"):
        read_vocoder(tmp_path / "broken.pt")


def test_a_mel_prior_survives_a_run_and_a_release(tmp_path):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    from convert import read_vocoder
    from nanospeech_torch.vocoder import Vocos

    config = VocoderConfig(dim=32, intermediate_dim=48, num_layers=2, mel_prior=True)
    average = Vocos(config).state_dict()
    run = tmp_path / "checkpoint.pt"
    torch.save({"config": dataclasses.asdict(config), "average": average, "step": 6}, run)
    release = tmp_path / "release"
    release.mkdir()
    safetensors.save_file(average, release / "vocoder.safetensors")
    (release / "config.json").write_text(json.dumps({"vocoder": dataclasses.asdict(config)}))
    for path in (run, release, release / "vocoder.safetensors"):
        assert read_vocoder(path)[0] == config, path
    published = tmp_path / "published"
    published.mkdir()
    torch.save(average, published / "pytorch_model.bin")
    (published / "config.json").write_text('{"architectures": ["Other"]}')  # not ours to read
    assert read_vocoder(published)[0] == dataclasses.replace(config, mel_prior=False)
    (release / "config.json").unlink()  # no shape tells it
    assert read_vocoder(release)[0] == dataclasses.replace(config, mel_prior=False)


def test_griffin_lim_iters_survive_a_run_and_its_evaluation(tmp_path, script):
    torch = pytest.importorskip("torch")
    from nanospeech_torch.vocoder import Vocos

    config = VocoderConfig(dim=32, intermediate_dim=48, num_layers=2, griffin_lim_iters=3)
    state = {"config": dataclasses.asdict(config), "average": Vocos(config).state_dict(), "step": 6}
    torch.save(state, tmp_path / "checkpoint.pt")
    write_shard(tmp_path / "a.tar", 1)
    options = ["--held-out", tmp_path / "a.tar", "--iterations", 4]
    table = json.loads(script("--run", tmp_path, *options))["table"]
    # untrained, it is nearer than four iterations from random phases
    assert table["vocoder"]["mel_distance"]["mean"] < table["griffin_lim"]["mel_distance"]["mean"]


def test_evaluation_takes_the_clips_that_training_left_out(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    pytest.importorskip("torch")
    from nanospeech.corpus.held_out import is_held_out
    from nanospeech_torch.evaluate.vocoder import read_clips

    write_shard(tmp_path / "a.tar", 12)
    out = {f"k{i}" for i in range(12) if is_held_out(f"k{i}", share=0.3)}
    clips = read_clips([tmp_path / "a.tar"], lambda key: is_held_out(key, share=0.3), 100)
    assert out and {c.key for c in clips} == out
    assert [c.text for c in clips] == [f"clip {c.key[1:]}" for c in clips]
    assert len(read_clips([tmp_path / "a.tar"], lambda key: True, 5)) == 5


def test_a_mean_over_fewer_clips_says_so():
    pytest.importorskip("torch")
    from nanospeech_torch.evaluate.vocoder import summary

    rows = [{"pesq": 2.0, "rtf": 0.1}, {"pesq": float("nan"), "rtf": 0.3}]
    pesq, rtf = (summary(rows)[name] for name in ("pesq", "rtf"))
    assert pesq == {"mean": 2.0, "sd": 0.0, "clips": 1} and rtf == {"mean": 0.2, "sd": 0.1}


def test_griffin_lim_comes_back_to_the_mel(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from nanospeech.evaluate.griffin_lim import griffin_lim

    log_mel = mel.log_mel(tone(12_000))
    wave = griffin_lim(log_mel, 20)
    assert len(wave) == (len(log_mel) - 1) * 256
    assert np.abs(mel.log_mel(wave)[: len(log_mel)] - log_mel).mean() < 0.5
