"""Batches for an EchoDiT: which clip is heard for which, what is bounded, and exact places.

Clips are arrays whose first channel is the clip's number and whose second is the frame's.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from nanospeech.errors import InputError
from nanospeech_torch.train.data.batches import BatchPlan, Loaded, StreamOptions
from nanospeech_torch.train.data.latents import EchoBatches, EchoLossConfig
from tests.train.shared import check_range, npy
from tests.train.test_echo import AUDIO, BYTES, NETWORK

PLAN = BatchPlan(4, 2000, 200, min_duration=1, buckets=1)


def latents(number: int, frames: int) -> np.ndarray:
    found = np.zeros((frames, 100), np.float16)
    found[:, 0], found[:, 1] = number, np.arange(frames)
    return found


def clip(number: int, speaker: str | None, frames: int = 60, text: str = "hey", **more) -> dict:
    meta = {"text": text, "speaker": speaker, **more}
    return {"__key__": str(number), "npy": npy(latents(number, frames)), "json": meta}


def stream(clips: list[dict], tokenizer=BYTES, plan: BatchPlan = PLAN, **options) -> EchoBatches:
    where = StreamOptions(**options)
    return EchoBatches(
        clips, tokenizer, plan, AUDIO, EchoLossConfig(latents="mels"), NETWORK, where
    )


def epoch(batches: EchoBatches) -> list[Loaded]:
    """The batches of one pass."""
    found = []
    for loaded in batches:
        if loaded.batch is not None:
            found.append(loaded)
        if loaded.epoch_ended is not None:
            return found
    raise AssertionError


def heard_by(batches: EchoBatches) -> dict[int, int]:
    """Of each clip of one pass the clip that is heard for it."""
    found = {}
    for b in (loaded.batch for loaded in epoch(batches)):
        found |= zip(b.mel[:, 0, 0].int().tolist(), b.speaker[:, 0, 0].int().tolist())
    return found


def test_clips_of_a_speaker_hear_each_other_and_others_themselves():
    clips = [clip(1, "a"), clip(2, None), clip(3, "a"), clip(4, "b"), clip(5, None), clip(6, "a")]
    assert heard_by(stream(clips)) == {1: 3, 3: 1, 2: 2, 4: 4, 5: 5, 6: 6}


def test_a_clip_with_a_reference_hears_it_and_no_other_clip():
    clips = [{**clip(n, "a"), "ref.npy": npy(latents(n + 10, 30))} for n in (1, 2)]
    assert heard_by(stream(clips)) == {1: 11, 2: 12}
    (loaded,) = epoch(stream(clips))
    assert loaded.batch.heard.tolist() == [30, 30]


@pytest.mark.parametrize(("frames", "heard"), [(1, 1), (2, 1), (61, 30), (128, 64), (200, 64)])
def test_at_most_half_of_a_clip_is_its_own_speakers(frames, heard):
    begins = set()
    for seed in range(30):
        (loaded,) = epoch(stream([clip(1, None, frames)], seed=seed))
        assert loaded.batch.heard.tolist() == [heard]
        part = loaded.batch.speaker[0, :, 1]
        assert (part == part[0] + torch.arange(heard)).all()
        begins.add(int(part[0]))
    assert max(begins) <= frames - heard
    assert len(begins) > 1 or frames == 1


def test_another_clip_is_heard_as_far_as_the_network_hears():
    assert NETWORK.max_speaker == 64
    (loaded,) = epoch(stream([clip(1, "a", 50), clip(2, "a", 90)]))
    assert dict(zip(loaded.batch.lens.tolist(), loaded.batch.heard.tolist())) == {50: 64, 90: 50}


def test_texts_are_no_longer_than_the_network_reads():
    longest = "x" * NETWORK.max_text
    (loaded,) = epoch(stream([clip(1, None, text=longest), clip(2, None, text=longest + "x")]))
    assert loaded.texts == [longest] and loaded.skipped == {"text too long": 1}
    (loaded,) = epoch(stream([clip(1, None, text="x")]))
    assert loaded.batch.text.tolist() == [[ord("x")]]


def test_a_text_without_tokens_is_counted():
    def tokenizer(texts: list[str]) -> list[list[int]]:
        if "refused" in texts:
            raise InputError("a text that the tokenizer refuses")
        return [[-1 if text == "none" else 5] for text in texts]

    for text in ("none", "refused"):
        (loaded,) = epoch(stream([clip(1, None, text=text), clip(2, None)], tokenizer))
        assert loaded.texts == ["hey"] and loaded.skipped == {"unusable text": 1}


def test_a_clip_that_cannot_be_decoded_costs_no_other():
    broken = {"__key__": "1", "wav": b"no audio", "json": {"text": "a", "duration": 0.5}}
    for speakers in (("a", "a"), ("a", "b"), (None, "b")):
        clips = [{**broken, "json": {**broken["json"], "speaker": speakers[0]}}]
        clips += [clip(2, speakers[1]), clip(3, "c")]
        (loaded,) = epoch(stream(clips))
        assert sorted(loaded.batch.mel[:, 0, 0].tolist()) == [2, 3]
        assert loaded.skipped == {"unreadable audio": 1}


def test_a_clip_needs_a_text():
    (loaded,) = epoch(stream([clip(1, None, text=""), clip(2, None)]))
    assert loaded.batch.mel[:, 0, 0].tolist() == [2] and loaded.skipped == {"without text": 1}


def test_batches_of_compiled_models_have_one_shape():
    clips = [clip(n, None, 20 + n, text="x" * n) for n in range(1, 5)]
    (loaded,) = epoch(stream(clips, plan=dataclasses.replace(PLAN, carry=True)))
    text, speaker = loaded.batch.text, loaded.batch.speaker
    assert text.shape == (4, NETWORK.max_text)
    assert speaker.shape == (4, NETWORK.max_speaker, 100)
    for n, ids, part, heard in zip(loaded.batch.mel[:, 0, 0], text, speaker, loaded.batch.heard):
        assert ids.tolist() == [ord("x")] * int(n) + [-1] * (NETWORK.max_text - int(n))
        assert not part[heard:].any()


@pytest.mark.parametrize("tail", [None, 8])
def test_a_batch_has_no_more_latents_than_it_may_with_its_padding(tail):
    """And no fewer clips than that allows."""
    most = 2 * NETWORK.max_latents
    plan = BatchPlan(100, most, 200, min_duration=1, buckets=10)
    batches = stream([clip(n, None, 20) for n in range(60)], plan=plan)
    batches.options = dataclasses.replace(batches.options, tail=tail)
    shapes = [loaded.batch.mel.shape[:2] for loaded in epoch(batches)]
    assert len(shapes) > 1
    for clips, length in shapes[:-1]:
        assert clips * length <= most < (clips + 1) * length


def test_clips_wait_for_a_partner_in_bounded_memory():
    """A clip of 200 frames takes 40 kB, and a megabyte may wait."""
    plan = dataclasses.replace(PLAN, pair_mb=1)
    for between, meets in ((20, True), (34, False)):
        others = [clip(n, f"speaker {n}", 200) for n in range(2, 2 + between)]
        clips = [clip(1, "a", 200), *others, clip(100, "a", 200)]
        assert (heard_by(stream(clips, plan=plan))[1] == 100) == meets


def test_a_stream_goes_on_from_any_place():
    clips = [clip(n, "abc"[n % 3] if n % 5 else None, 20 + n, "hey" + "y" * n) for n in range(17)]
    taken, whole = [], iter(stream(clips, seed=3))
    for _ in range(12):
        taken.append(next(whole))
    assert taken[-1].place.epoch > 0
    for start in range(1, 11):
        places = {0: taken[start - 1].place}
        again = iter(stream(clips, seed=3, places=places, consumed=start))
        for old in taken[start:]:
            new = next(again)
            assert old.texts == new.texts and old.place == new.place
            for field in dataclasses.fields(old.batch):
                name = field.name
                assert torch.equal(getattr(old.batch, name), getattr(new.batch, name)), name


def test_times_lie_between_noise_and_speech():
    drawn = np.array([[0.0, 0.0], [1.0, 1.0]])
    for stratify in (True, False):
        loss = EchoLossConfig(latents="mels", stratify=stratify)
        times = EchoBatches([], BYTES, PLAN, AUDIO, loss, NETWORK).times(drawn)
        assert times.dtype == torch.float32
        assert 0 < times[0] < 0.01 and 0.99 < times[1] < 1


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("drop_text", (0.0, 1.0), (-0.5, 1.5)),
        ("drop_speaker", (0.0, 1.0), (-0.5, 1.5)),
        ("tail", (None, 0, 1), (-1, -2)),
        ("duration", (0.0, 0.5), (-0.5,)),
        ("time_std", (0.1,), (0.0, -0.5)),
        ("text_encoder_lr", (0.0, 0.1), (-0.5,)),
        ("latents", ("mels",), ("mp3",)),
    ],
)
def test_numbers_outside_of_their_range_are_refused(name, allowed, refused):
    check_range(EchoLossConfig, name, allowed, refused, section="echo_loss.")


def test_a_trained_encoder_has_no_kept_states():
    with pytest.raises(InputError, match="text_cache keeps states of a frozen text encoder"):
        EchoLossConfig(text_encoder_lr=0.1, text_cache="states")
    assert EchoLossConfig(text_cache="states").text_cache == "states"
