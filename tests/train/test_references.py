"""References: another recording of the speaker before a clip, with its words or without them."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from nanospeech.config import DiTConfig
from nanospeech.errors import DataError
from nanospeech_torch.dit import DiT
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.durations import DurationBatches
from nanospeech_torch.train.data.order import StreamState
from nanospeech_torch.train.data.speech import BatchPlan, SpeechBatches
from nanospeech_torch.train.objectives.flow import Nanospeech
from tests.train.shared import npy
from tests.train.test_data import DIGITS, NARROW, features, same, until
from tests.train.test_stream import write_tar


def test_a_reference_is_the_prompt_of_its_clip(tmp_path):
    mel, heard = (np.full((n, 4), n, np.float16) for n in (40, 30))
    meta = {"text": "c1", "target_duration": 40 / 93.75, "ref_text": "c2", "speaker": "x"}
    files = [("k.npy", npy(mel)), ("k.ref.npy", npy(heard)), ("k.json", json.dumps(meta).encode())]
    path = [str(write_tar(tmp_path / "r.tar", files))]
    one = until(features(path, loss=LossConfig(pair=1.0)), 1)[0]
    assert one.texts == ["c2 c1"] and one.batch.prompt[0] == 30 and one.batch.lens[0] == 70
    assert one.batch.mel[0, :30].eq(30).all() and one.batch.mel[0, 30:70].eq(40).all()
    assert until(features(path, loss=LossConfig(pair=0.0)), 1)[0].texts == ["c1"]
    for longest, texts in ((69, ["c1"]), (70, ["c2 c1"])):  # whether both together are too long
        tight = BatchPlan(1, longest, longest)
        assert until(features(path, tight, loss=LossConfig(pair=1.0)), 1)[0].texts == texts


def reference_shards(folder: Path, count: int, text: dict, heard_frames: int = 30) -> list[str]:
    """Clips of 60 frames with references of 30, whose numbers are 1 to 2 and 3 to 4."""
    rng, files = np.random.default_rng(0), []
    for i in range(count):
        mel, heard = rng.uniform(1, 2, (60, 4)), rng.uniform(3, 4, (heard_frames, 4))
        files += [(f"{i}.npy", npy(mel)), (f"{i}.ref.npy", npy(heard))]
        files += [(f"{i}.json", json.dumps({"text": f"c{i}", "speaker": "x", **text}).encode())]
    return [str(write_tar(folder / "ref.tar", files))]


@pytest.mark.parametrize("extra", [{}, {"ref_text": ""}, {"ref_text": None}, {"ref_text": " "}])
def test_a_reference_whose_words_are_not_known_is_a_prompt_too(tmp_path, extra):
    paths = reference_shards(tmp_path, 40, extra)
    loaded = until(features(paths, loss=LossConfig(pair=1.0)), 1)
    assert sorted(t for x in loaded for t in x.texts) == sorted(f"c{i}" for i in range(40))
    whole = 0
    for b in (x.batch for x in loaded):
        assert b.lens.eq(90).all() and b.prompt.eq(30).all() and b.wordless.eq(30).all()
        assert (b.mel[:, :30] >= 3).all() and (b.mel[:, 30:90] <= 2).all()
        assert not b.span[:, :30].any()  # there is nothing to read of what it says
        lengths = b.span.sum(1)
        assert (lengths >= 42).all()
        whole += int(lengths.eq(60).sum())
    assert 22 < whole < 38
    assert all(
        x.batch.wordless.eq(0).all() for x in until(features(paths, loss=LossConfig(pair=0.0)), 1)
    )


@pytest.mark.parametrize("kind", [SpeechBatches, DurationBatches])
def test_a_text_that_does_not_fit_behind_its_wordless_reference_is_left_out(tmp_path, kind):
    def lengths(**meta: str) -> list[int]:
        paths = reference_shards(tmp_path, 1, meta)
        plan = BatchPlan(3, 400, 130, buckets=4)
        batches = kind(paths, DIGITS, plan, NARROW, LossConfig(pair=1.0))
        return until(batches, 1)[0].batch.lens.tolist()

    with pytest.raises(DataError, match="1 more text than sound"):
        lengths(text="c" * 31)
    assert len(lengths(text="c" * 30)) == len(lengths(text="c" * 31, ref_text="c")) == 1


def test_a_duration_model_learns_the_new_speech_alone_behind_a_wordless_reference(tmp_path):
    paths = reference_shards(tmp_path, 30, {})
    for carry in (False, True):
        plan = BatchPlan(3, 400, 130, buckets=4, carry=carry)
        batches = DurationBatches(paths, DIGITS, plan, NARROW, LossConfig(pair=1.0))
        for b in (x.batch for x in until(batches, 1)):
            pace = b.prompt / 30
            assert b.known.eq(0).all() and ((pace > 0.8) & (pace < 1.2)).all()
            assert torch.allclose(b.lens.float(), 60 * pace, atol=1.1) and (b.text[:, 3:] < 0).all()


@pytest.mark.parametrize("carry", [False, True])
@pytest.mark.parametrize("extra", [{}, {"ref_text": "c9"}])
def test_going_on_keeps_the_references_of_clips_that_waited(tmp_path, carry, extra):
    paths, loss = reference_shards(tmp_path, 13, extra), LossConfig(pair=0.5)
    plan = BatchPlan(3, 400, 130, buckets=4, carry=carry)
    whole = list(islice(features(paths, plan, loss=loss), 14))
    assert any(len(x.place.waiting) for x in whole)
    for start in range(1, 10):
        place = StreamState.from_json(whole[start - 1].place.to_json())
        rest = islice(features(paths, plan, loss=loss, places={0: place}, consumed=start), 4)
        assert all(same(a, b) for a, b in zip(rest, whole[start:])), start


@pytest.mark.parametrize("upsampling", ["none", "average", "aligned"])
@pytest.mark.parametrize("p", [1, 2, 4])
def test_the_text_begins_where_a_wordless_reference_ends(tmp_path, upsampling, p):
    torch.manual_seed(0)
    sizes = {"dim": 32, "depth": 1, "heads": 1, "dim_head": 32, "text_dim": 16, "conv_layers": 1}
    more = {"n_mels": 4, "text_num_embeds": 12, "patch_size": p, "text_upsampling": upsampling}
    model = Nanospeech(DiT(DiTConfig(**sizes, **more, dropout=0.0)), DIGITS, NARROW)
    dit, before, end = model.transformer, 28 // p, 88 // p
    paths = reference_shards(tmp_path, 6, {"text": "c0123"}, heard_frames=28)
    known, alone = (
        until(features(paths, BatchPlan(6, 576, 96, buckets=1), loss=loss), 1)[0].batch
        for loss in (LossConfig(pair=1.0, drop_both=0.0), LossConfig(pair=0.0, drop_both=0.0))
    )
    known.mel[:, 28:88] = alone.mel[:, :60] = 3 * torch.randn(6, 60, 4)  # so that paths differ
    states, sums = {}, {}
    for b in (known, alone):
        hidden, index, sums[b is known] = model.place_tokens(b, b.mel)
        states[b is known] = model.text_states(dit, b, hidden, index)
    filler = dit.embed_filler(known.text)
    if upsampling == "none":
        text = torch.nn.functional.pad(known.text, (before, 0), value=-1)
        mask = torch.arange(96 // p) < end
        assert torch.equal(states[True], dit.embed_text(text, 96 // p, mask.expand(6, -1)))
    else:  # as in the clip by itself
        assert torch.equal(states[True][:, :before], filler.expand(6, before, -1))
        torch.testing.assert_close(states[True][:, before:end], states[False][:, : 60 // p])
    if upsampling == "aligned":
        assert sums[True]["prior"][1] == sums[False]["prior"][1] == 6 * 60 // p
        torch.testing.assert_close(sums[True]["duration"], sums[False]["duration"])
        torch.testing.assert_close(sums[True]["prior"], sums[False]["prior"])
    total, count = model(known)["flow"]
    assert torch.isfinite(total) and count == known.span.sum()
