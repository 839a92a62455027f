"""Measures: rates of errors, likeness, quality, and models that tell speakers apart."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nanospeech.audio import wave as audio
from nanospeech.errors import BackendError, DataError, InputError
from nanospeech.evaluate import __main__ as evaluate
from nanospeech.evaluate import griffin_lim
from nanospeech.evaluate import report as evaluate_report
from nanospeech.evaluate.results import Result
from nanospeech.measure import metrics
from tests.evaluate.test_evaluate import ROOT, SHARD, recordings


def result(words: int, edits: int, seed: int = 0, **more) -> Result:
    text = " ".join(["word"] * words)
    return Result("a", 7, seed, text, text, words=words, edits=edits, chars=1, char_edits=0, **more)


def test_the_rate_of_a_row_weighs_by_words_and_by_length():
    found = evaluate_report.figures([result(10, 1), result(2, 2), result(4, 0)], ["wer"])
    assert found["wer"] == round(3 / 16, 4) and found["perfect"] == 1
    groups = evaluate_report.by_length([result(10, 1), result(2, 2), result(2, 0)])
    assert groups == {(1, 2): (0.5, 2), (9, 11): (0.1, 1)}
    assert "wer" not in evaluate_report.figures([result(0, 0)], ["wer"])  # "Hmm." has no words
    assert evaluate_report.figures([Result("a", 7, 0, "k", "t")], ["wer", "dnsmos", "rtf"]) == {
        "utterances": 1,
        "audio_seconds": 0,
    }


def test_librosa_is_compiled_where_neither_it_nor_the_home_can_be_written(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    (tmp_path / "file").touch()
    nowhere = tmp_path / "file" / "folder"
    for library, cache in (tmp_path, nowhere), (nowhere, tmp_path / "home" / "numba"):
        metrics.keep_compiled(library, cache)
        assert "NUMBA_CACHE_DIR" not in os.environ
    no_files = [path for path in [Path("/proc/self")] if path.is_dir()]  # where there is one
    for cache in nowhere, *no_files:
        monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
        metrics.keep_compiled(nowhere, cache)
        assert os.access(own := os.environ["NUMBA_CACHE_DIR"], os.W_OK)
    metrics.keep_compiled(nowhere, nowhere)
    assert os.environ["NUMBA_CACHE_DIR"] == own


def test_likeness_to_oneself_is_more_than_to_others():
    rng = np.random.default_rng(0)

    def speaker(n: int) -> np.ndarray:
        x = rng.standard_normal(64) + 0.5 * rng.standard_normal((n, 64))
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    one, other = speaker(20), speaker(20)
    assert metrics.to_mean(one[:1], one[:1]) == pytest.approx(1)
    assert metrics.to_others(one).mean() > 0.8 > 0.4 > metrics.to_mean(other, one).mean()
    assert metrics.to_others(one).mean() < metrics.to_mean(one, one).mean()


def noisy(wave: np.ndarray, level: float) -> np.ndarray:
    noise = np.random.default_rng(0).standard_normal(len(wave))
    return (wave + level * noise).astype(np.float32)


def test_dnsmos_prefers_clean_speech():
    pytest.importorskip("speechmos")
    clean = recordings()[0]
    found, worse = metrics.dnsmos(clean), metrics.dnsmos(noisy(clean, 0.05))
    assert found.keys() == {"ovrl", "sig", "bak", "p808"}
    assert all(1 <= worse[k] < found[k] <= 5 for k in found)
    with pytest.raises(InputError, match="empty"):
        metrics.dnsmos(np.zeros(0, np.float32))


def test_pesq_falls_with_noise():
    pytest.importorskip("pesq")
    clean = recordings()[0]
    values = [metrics.pesq_wb(clean, noisy(clean, level)) for level in (0, 0.002, 0.02)]
    assert 4.6 < values[0] < 4.7 and values[0] > values[1] > values[2] >= 1
    with pytest.raises(InputError, match="silent"):
        metrics.pesq_wb(clean, np.zeros_like(clean))


def test_a_recording_is_heard_again_through_its_mel(tmp_path, capsys):
    path, again = tmp_path / "a.wav", tmp_path / "b.wav"
    audio.write(path, recordings()[0])
    assert griffin_lim.main([str(path), str(again), "--iterations", "2"]) == 0
    assert abs(len(audio.read(again)) - len(recordings()[0])) <= 512
    assert griffin_lim.main([str(path), str(again), "--iterations", "-1"]) == 2
    assert "--iterations is -1" in capsys.readouterr().err


def test_an_encoder_knows_a_person_again(arguments):
    pytest.importorskip("resemblyzer")
    embed = metrics.load_encoder()
    hers = [embed(w) for w in recordings()]
    others = sorted((ROOT / "tests/fixtures/ljspeech").rglob("*.wav"))
    other = embed(audio.read(others[0]))
    assert all(np.linalg.norm(e) == pytest.approx(1, abs=1e-4) for e in hers)
    assert hers[0] @ hers[1] > hers[0] @ other
    with pytest.raises(InputError, match="silent"):
        embed(np.zeros(24_000, np.float32))
    args = arguments("--target", str(SHARD), "--limit", "1", metrics="similarity")
    summary = evaluate.run(args)
    assert 0.7 < summary["target_self"] <= 1 and summary["target_recordings"] == 4
    assert -1 <= summary["rows"][0]["target_similarity"] < summary["target_self"]
    assert -1 <= summary["rows"][0]["similarity"] <= 1
    args.target = [others[0]]
    with pytest.raises(DataError, match="two or more"):
        evaluate.run(args)


def test_an_x_vector_model_of_a_folder_is_an_encoder(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.WavLMConfig(
        **sizes, intermediate_size=16, conv_dim=(8,) * 7, tdnn_dim=(8, 8, 8, 8, 16),
        xvector_output_dim=12, num_conv_pos_embedding_groups=2, num_conv_pos_embeddings=16,
    )  # fmt: skip
    transformers.WavLMForXVector(config).save_pretrained(tmp_path)
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(tmp_path)
    embed = metrics.load_encoder(str(tmp_path))
    wave = recordings()[0]
    assert embed(wave).shape == (12,) and np.linalg.norm(embed(wave)) == pytest.approx(1, abs=1e-4)
    shutil.rmtree(tmp_path)
    with pytest.raises(InputError, match="cannot load the speaker model"):
        metrics.load_encoder(str(tmp_path))


def test_a_recogniser_measures_recordings(tmp_path, capsys):
    """With a real recogniser where one is at hand: NANOSPEECH_WHISPER names its folder."""
    pytest.importorskip("faster_whisper")
    pytest.importorskip("whisper_normalizer")
    if not (folder := os.environ.get("NANOSPEECH_WHISPER")):
        pytest.skip("NANOSPEECH_WHISPER is not set")
    argv = ["--recordings", str(SHARD), "--whisper", folder, "--out", str(tmp_path)]
    assert evaluate.main([*argv, "--metrics", "wer", "--jobs", "1"]) == 0
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert row["utterances"] == 4 and row["wer"] < 0.2


def test_a_size_that_cannot_be_downloaded_and_what_is_none_are_told_apart(monkeypatch):
    whisper = pytest.importorskip("faster_whisper")

    def unreachable(*_, **__):
        raise OSError("Name or service not known.")

    with pytest.raises(InputError, match="name a size or a folder"):
        metrics.load_whisper("none-such")
    monkeypatch.setattr(whisper, "WhisperModel", unreachable)
    with pytest.raises(BackendError, match="not known; it is downloaded once: connect"):
        metrics.load_whisper("base")


def test_a_language_that_the_recogniser_lacks_is_named():
    pytest.importorskip("ctranslate2")
    model = SimpleNamespace(supported_languages=["en", "de"])
    with pytest.raises(InputError, match="no language 'english'"):
        metrics.transcribe(model, np.zeros(100, np.float32), language="english")
