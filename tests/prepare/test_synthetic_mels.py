"""Recordings' mels made again by a model, for a vocoder to learn from."""

import io
import json

import numpy as np

from nanospeech.audio import mel
from nanospeech.audio import wave as sound
from nanospeech_torch.prepare import synthetic_mels
from nanospeech_torch.train.data.segments import SegmentBatches
from nanospeech_torch.train.data.sources import TarSource
from tests.train.test_vocoder_gan import LOSS, PLAN, SHARD, samples


def test_a_model_makes_the_mels_of_recordings_again(tiny_aligned, tmp_path, capsys):
    command = [str(tiny_aligned), str(SHARD), "--voice", "tone", "--out", str(tmp_path / "made")]
    assert synthetic_mels.main([*command, "--since", "0.98", "0.98"]) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document["voice"] == "tone" and document["hours"] > 0 and not document["left_out"]
    [path] = (tmp_path / "made").glob("*.tar")
    made = [sample for _, sample in TarSource([path]).open(0)]
    assert {s["__key__"] for s in made} == {s["__key__"] for s in samples()}
    for sample in made:
        own = mel.log_mel(sound.read(sample["flac"]))
        features = np.load(io.BytesIO(sample["npy"]))
        assert features.dtype == np.float16 and len(own) - len(features) in (0, 1)
        # hardly noised: the model had little to say
        assert np.abs(features - own[: len(features)]).mean() < 0.2
    iter(SegmentBatches(made, None, PLAN, None, LOSS))
    assert synthetic_mels.main([*command, "--since", "0", "0"]) == 0
    again = [sample for _, sample in TarSource([path]).open(0)]
    features = np.load(io.BytesIO(again[0]["npy"]))
    assert np.abs(features - mel.log_mel(sound.read(again[0]["flac"]))[: len(features)]).mean() > 1
    assert synthetic_mels.main([*command, "--since", "0.9", "0.1"]) == 2
    assert "--since" in capsys.readouterr().err


def test_only_a_model_that_aligns_can_make_mels_again(tiny_release, tmp_path, capsys):
    assert synthetic_mels.main([str(tiny_release), str(SHARD), "--out", str(tmp_path)]) == 2
    assert "no aligned model" in capsys.readouterr().err
