"""The vocoder recipe for GPUs: its segments, its losses, its command, on a CPU."""

import io
import json
import signal
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nanospeech.audio.mel import log_mel
from nanospeech.audio.postfilter import postfilter
from nanospeech.audio.wave import flac_bytes
from nanospeech.config import PostfilterConfig, VocoderConfig
from nanospeech_torch.train.data.clips import Skip, features
from nanospeech_torch.train.objectives import vocoder_loss
from nanospeech_torch.vocoder import Vocos
from scripts.recipes.gpu_clips import HOP, gather, recording
from scripts.recipes.vocoder_gpu import Recipe, Trainer, main
from tests.backends.test_vocoder import tone

SMALL = Recipe(frames=16, segments=(1, 2, 2, 1), period_channels=2, spectrogram_channels=2)
TINY = VocoderConfig(dim=16, intermediate_dim=24, num_layers=1)


def waves():
    """Two recordings of different pitch, the second with a made mel that is one too high."""
    one, two = (0.3 * tone(12_000, pitch) for pitch in (150, 310))
    return [("one", one, None), ("two", two, log_mel(two) + 1)]


def clips(clear=None, spoken=()):
    return gather(waves(), list(spoken), clear, SMALL.frames, torch.device("cpu"))


def trainer(recipe=SMALL, **made):
    torch.manual_seed(0)
    return Trainer(Vocos(TINY), clips(**made), recipe)


@pytest.fixture
def spoken():
    return [np.random.default_rng(0).normal(-3, 1, (40, 100)).astype(np.float32)]


def test_a_segments_mel_wave_and_made_mel_are_of_the_same_frames(spoken):
    t = trainer(replace(SMALL, gain=(0.0, 0.0), sharpen=0.0), spoken=spoken)
    t.begin.copy_(t.clips.draw(t.counts, np.random.default_rng(1)))
    mel, truth, wave = t.batch()
    for row in range(t.real):
        first = int(t.begin[row])
        key, whole, made = waves()[int(first >= len(waves()[0][1]) // HOP)]
        at = first - (len(waves()[0][1]) // HOP if key == "two" else 0)
        own = log_mel(whole)[at : at + 16]
        assert abs(wave[row].numpy() - whole[at * HOP : (at + 15) * HOP]).max() < 1e-4
        assert abs(truth[row].numpy() - own)[:14].max() < 0.02  # the end is cut to whole hops
        wanted = own if row < t.own else made[at : at + 16]
        assert abs(mel[row].numpy() - wanted)[:14].max() < 0.02
    at = int(t.begin[-1])
    assert abs(mel[-1].numpy() - spoken[0][at : at + 16]).max() < 0.01
    assert len(wave) == len(truth) == len(mel) - 1


def test_gain_and_sharpening_are_those_of_the_engines(spoken):
    t = trainer(replace(SMALL, gain=(6.0, 6.0)), spoken=spoken)
    t.begin.copy_(t.clips.draw(t.counts, np.random.default_rng(1)))
    plain = trainer(replace(SMALL, gain=(0.0, 0.0), sharpen=0.0), spoken=spoken)
    plain.begin.copy_(t.begin)
    (mel, truth, wave), (mel0, truth0, wave0) = t.batch(), plain.batch()
    double = 10 ** (6 / 20)
    torch.testing.assert_close(wave, wave0 * double)
    torch.testing.assert_close(truth, truth0 + np.log(np.float32(double)))
    torch.testing.assert_close(mel[: t.own], truth[: t.own])  # recordings are never sharpened
    full = postfilter(mel0[-1].numpy(), PostfilterConfig(smooth=0.0, sharpen=1.0))
    added = (mel[-1] - np.log(np.float32(double)) - mel0[-1]).numpy()
    share = (
        added[abs(full - mel0[-1].numpy()) > 0.05]
        / (full - mel0[-1].numpy())[abs(full - mel0[-1].numpy()) > 0.05]
    )
    assert np.ptp(share) < 1e-2  # one share for a segment
    assert 0 <= share.mean() <= SMALL.sharpen


def test_kinds_of_segments_come_from_their_clips():
    c = clips(clear={"two"})
    first = len(waves()[0][1]) // HOP
    assert set(c.starts) == {"recordings", "clear", "made"}
    assert c.starts["recordings"].min() == 0
    assert c.starts["clear"].min() == c.starts["made"].min() == first
    assert "made" not in clips(clear={"one"}).starts
    drawn = c.draw(
        {"recordings": 50, "clear": 50, "made": 0, "spoken": 0}, np.random.default_rng(0)
    )
    assert drawn[:50].min() < first <= drawn[50:].min()


def test_features_are_matched_where_there_is_a_recording(
    spoken,
):
    t = trainer(spoken=spoken)
    t.begin.copy_(t.clips.draw(t.counts, np.random.default_rng(0)))
    _, _, wave = t.batch()
    fake = torch.randn(t.rows, wave.shape[1])
    true = t.judged(wave, vocoder_loss.spectrograms(wave), False)
    found = t.judged(fake, vocoder_loss.spectrograms(fake), False)
    _, matching = t.generator_losses(found, true)
    same = t.judged(fake[: t.real], vocoder_loss.spectrograms(fake[: t.real]), False)
    _, wanted = vocoder_loss.generator_losses(same, true)
    torch.testing.assert_close(matching, wanted, rtol=0.02, atol=1e-4)  # bfloat16
    other = fake.clone()
    other[t.real :] *= 3  # a spoken segment, to which no recording belongs
    _, again = t.generator_losses(t.judged(other, vocoder_loss.spectrograms(other), False), true)
    torch.testing.assert_close(again, matching)


def test_distances_are_the_formulas(spoken):
    made = {"mel": 2.0, "made_mel": 3.0, "input_mel_share": 0.75, "made_magnitude": 0.5}
    t = trainer(replace(SMALL, **made), spoken=spoken)
    t.begin.copy_(t.clips.draw(t.counts, np.random.default_rng(2)))
    mel, truth, wave = t.batch()
    fake = 0.1 * torch.randn(t.rows, wave.shape[1])
    spectra, true = vocoder_loss.spectrograms(fake), vocoder_loss.spectrograms(wave)
    total, distance = t.mel_distance(spectra, mel, truth)
    again = np.stack([log_mel(row) for row in fake.numpy()])[:, 2:-2]
    to_input = np.abs(again - mel[:, 2:-2].numpy()).mean((1, 2))
    to_truth = np.abs(again[: t.real] - truth[:, 2:-2].numpy()).mean((1, 2))
    wanted = 2 * to_input[: t.own].sum() + 3 * 0.75 * to_input[t.own :].sum()
    wanted = (wanted + 3 * 0.25 * to_truth[t.own :].sum()) / t.rows
    assert total.item() == pytest.approx(wanted, rel=1e-3)
    assert distance.item() == pytest.approx(to_input[: t.own].mean(), rel=1e-3)
    magnitude, convergence = t.spectral(spectra, true)
    weight, logs, errors = np.where(np.arange(t.real) < t.own, 1, 0.5), [], []
    for n_fft, of_true in true.items():
        f, r = spectra[n_fft][: t.real].abs().numpy(), of_true.abs().numpy()
        apart = np.abs(np.log(np.maximum(f, 1e-3)) - np.log(np.maximum(r, 1e-3))).mean((1, 2))
        logs.append((weight * apart).mean())
        error, size = (np.sqrt((x**2).sum((1, 2))) for x in (f - r, r))
        errors.append((weight * error / (size + 1e-3)).mean())
    assert magnitude.item() == pytest.approx(np.mean(logs), rel=1e-3)
    assert convergence.item() == pytest.approx(np.mean(errors), rel=1e-3)


def test_a_step_moves_the_vocoder_its_average_and_the_discriminators(spoken):
    t = trainer(spoken=spoken)
    before = [p.detach().clone() for p in t.vocoder.parameters()]
    judges = [p.detach().clone() for p in t.discriminators.parameters()]
    t.set_rates(1000, 0.0)
    t.begin.copy_(t.clips.draw(t.counts, np.random.default_rng(0)))
    t.step()
    moved = [(p - b).abs().max().item() for p, b in zip(t.vocoder.parameters(), before)]
    assert max(moved) == pytest.approx(SMALL.lr, rel=0.1)  # Adam's first step
    assert any((p != j).any() for p, j in zip(t.discriminators.parameters(), judges))
    for mean, b, p in zip(t.average, before, t.vocoder.parameters()):
        torch.testing.assert_close(mean, b + (1 - SMALL.ema) * (p - b))


def test_rates_rise_stay_and_fall():
    t = trainer()

    def rate(step, part):
        t.set_rates(step, part)
        return t.lr.item() / SMALL.lr

    assert rate(0, 0.0) == pytest.approx(1 / SMALL.warmup)
    assert rate(SMALL.warmup, 0.49) == pytest.approx(1)
    assert rate(5000, 0.75) == pytest.approx(0.5)
    assert rate(9000, 1.0) == pytest.approx(SMALL.last)


def test_a_loud_sound_is_softer_not_cut_off_as_in_the_mel_that_was_made_of_it():
    wave = 0.01 * tone(48_000, 150)
    wave[24_000:24_480] *= 50
    _, found, _ = recording("k", {"flac": flac_bytes(wave)}, 0.068)  # type: ignore[misc]
    assert np.abs(found).max() == pytest.approx(1)
    assert found == pytest.approx(wave / np.abs(wave).max(), abs=1e-3)


def test_damaged_and_silent_recordings_are_left_out_and_objects_refused():
    assert recording("k", {"mp3": b"no sound"}, 0.068) is None
    assert recording("k", {"json": b"{}"}, 0.068) is None
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    sound = flac_bytes(waves()[0][1])
    assert recording("k", {"flac": sound}, 0.068) is not None
    assert recording("k", {"flac": sound, "npy": pickled.getvalue()}, 0.068) is None
    with pytest.raises(Skip, match="unreadable features"):
        features(pickled.getvalue(), 100)


def write(path, files):
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


@pytest.fixture
def initial(tmp_path):
    """A folder with a vocoder, as `nanospeech convert --vocoder` reads one."""
    from safetensors.torch import save_file

    (tmp_path / "initial").mkdir()
    config = {"vocoder": vars(TINY)}
    (tmp_path / "initial/config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    save_file(Vocos(TINY).state_dict(), tmp_path / "initial/vocoder.safetensors")
    return tmp_path / "initial"


def test_the_command_trains_what_the_converter_reads(tmp_path, capsys, spoken, initial):
    from convert.vocoder import read_vocoder
    from nanospeech.prepare.shards import npy

    write(tmp_path / "a.tar", {f"{k}.flac": flac_bytes(w) for k, w, _ in waves()})
    made = {f"two.{k}": v for k, v in (("npy", npy(waves()[1][2])),)}
    write(tmp_path / "m.tar", {"two.flac": flac_bytes(waves()[1][1]), **made})
    write(tmp_path / "s.tar", {"x.npy": npy(spoken[0]), "x.ref.npy": npy(spoken[0][:5])})
    (tmp_path / "clear.txt").write_text("two\n")
    options = ["--recordings", tmp_path / "a.tar", "--made", tmp_path / "m.tar"]
    options += ["--spoken", tmp_path / "s.tar", "--clear", tmp_path / "clear.txt", "--cpu"]
    options += ["--minutes", "0.02", "--log-every", "1", "--held-out", "0"]
    small = ["frames=16", "segments=[1, 2, 2, 1]", "period_channels=2", "spectrogram_channels=2"]
    one = [initial, *options, "--set", *small, "--out", tmp_path / "run"]
    assert main([str(o) for o in one]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = (tmp_path / "run/log.csv").read_text().splitlines()
    assert len(rows) == 1 + found["steps"] > 1
    assert found["recipe"]["segments"] == [1, 2, 2, 1]
    config, tensors = read_vocoder(tmp_path / "run")
    assert config == TINY
    _, first = read_vocoder(initial)
    assert any((np.asarray(tensors[k]) != np.asarray(first[k])).any() for k in first)
    write(tmp_path / "b.tar", {"two.flac": flac_bytes(waves()[0][1])})  # another's, of that name
    twice = [initial, "--recordings", tmp_path / "b.tar", *options[1:]]
    assert main([str(o) for o in (*twice, "--out", tmp_path / "twice")]) == 2
    assert "a.tar has a recording two, as another shard has" in capsys.readouterr().err
    judges = tmp_path / "run/discriminators.safetensors"
    two = [tmp_path / "run", *options, "--discriminators", judges, "--set", *small]
    assert main([str(o) for o in (*two, "--out", tmp_path / "on")]) == 0


def test_a_terminated_run_is_saved_whole(tmp_path, initial):
    from convert.vocoder import read_vocoder
    from tests.forked import Forked, module

    write(tmp_path / "a.tar", {f"{k}.flac": flac_bytes(w) for k, w, _ in waves()})
    words = ["scripts.recipes.vocoder_gpu", str(initial), "--cpu", "--log-every", "1"]
    words += ["--recordings", str(tmp_path / "a.tar"), "--held-out", "0"]
    words += ["--minutes", "9", "--out", str(tmp_path / "run"), "--set", "frames=16"]
    words += ["segments=[1, 2, 2, 1]", "period_channels=2", "spectrogram_channels=2"]
    run = Forked(module, *words, env={})
    while run.poll() is None and '"step": 1' not in Path(run.output).read_text():
        time.sleep(0.01)
    run.send_signal(signal.SIGTERM)
    out, _ = run.communicate(timeout=60)
    found = json.loads(out.splitlines()[-1])
    assert (run.returncode, found["stopped_by"]) == (0, "SIGTERM")
    rows = (tmp_path / "run/log.csv").read_text().splitlines()
    assert len(rows) == 1 + found["steps"]
    assert read_vocoder(tmp_path / "run")[0] == TINY
    assert not list((tmp_path / "run").glob(".*"))


def test_wrong_fields_are_named(tmp_path, capsys, initial):
    words = [str(initial), "--recordings", "a.tar", "--out", str(tmp_path / "x"), "--set"]
    for wrong in ("rate=3", "lr", "lr=fast"):
        assert main([*words, wrong]) != 0
        assert "NAME=VALUE, a name of frames, segments" in capsys.readouterr().err
