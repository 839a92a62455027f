"""Golden batches of the duration model: what it reads and its loss, by hand.

The transformer is a stub whose states are its text's and its mel's; a head of known weights reads
them. Seconds and errors are worked out beside it in NumPy.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nanospeech.config import AudioConfig, DurationConfig
from nanospeech.engine.upsampling import total_seconds
from nanospeech.errors import InputError
from nanospeech_torch.train.data.batch import DurationBatch, LossConfig
from nanospeech_torch.train.data.batches import BatchPlan, StreamOptions
from nanospeech_torch.train.objectives.duration import DurationPredictor
from tests.train.test_golden_batches import BANDS, STATES, WIDTH, numbers

RATE = 93.75  # frames a second: 24,000 / 256
SAID = ((1, 2, 3, 4, 5), (0, 3, 2), (5, 4, 3, 1))
KNOWN, HEARD, TOTALS = (1, 0, 3), (7, 3, 2), (80, 50, 300)  # tokens, frames, frames


class Reader(torch.nn.Module):
    """Takes the place of a duration transformer: its states are its text's and its mel's."""

    def __init__(self, **options):
        super().__init__()
        self.config = DurationConfig(dim=WIDTH, n_mels=BANDS, **options)
        self.calls = []

    def forward(self, mel, text, lens):
        self.calls.append((mel.numpy(), text.numpy(), lens.numpy()))
        ids = torch.nn.functional.pad(text, (0, max(0, mel.shape[1] - text.shape[1])), value=-1)
        return torch.from_numpy(STATES)[ids[:, : mel.shape[1]] + 1] + mel.mean(-1, keepdim=True)


def duration_batch() -> DurationBatch:
    rng = np.random.default_rng(2)
    mel, text = np.zeros((3, 9, BANDS), np.float32), np.full((3, 6), -1)
    for b, ids in enumerate(SAID):
        mel[b, : HEARD[b]] = rng.standard_normal((HEARD[b], BANDS))
        text[b, : len(ids)] = ids
    arrays = {"mel": mel, "lens": TOTALS, "text": text, "prompt": HEARD, "known": KNOWN}
    return DurationBatch(**{k: torch.from_numpy(np.asarray(v)) for k, v in arrays.items()})


def duration(**options) -> tuple[DurationPredictor, Reader]:
    reader = Reader(**options)
    model = DurationPredictor(reader, None, AudioConfig(n_mels=BANDS))  # type: ignore[arg-type]
    with torch.no_grad():
        for p in model.to_pred.parameters():
            p.copy_(torch.linspace(0.4, 0.9, p.numel()).reshape(p.shape))
    return model, reader


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(x))


def states_by_hand(batch: DurationBatch, b: int, places: int) -> np.ndarray:
    """The reader's states: of text and mel, where there is any."""
    ids = [*SAID[b], *[-1] * (places - len(SAID[b]))]
    mel = np.zeros((places, BANDS), np.float32)
    mel[: HEARD[b]] = batch.mel[b, : HEARD[b]].numpy()
    return STATES[np.array(ids) + 1] + mel.mean(-1, keepdims=True)


def test_duration_loss_of_a_whole_clip():
    """|log(guess / seconds)|, as a share of the new speech: at most 4 times."""
    batch = duration_batch()
    model, reader = duration()
    loss = 0.0
    for b, (known, heard, total) in enumerate(zip(KNOWN, HEARD, TOTALS)):
        states = states_by_hand(batch, b, max(heard, len(SAID[b])))
        guess = softplus(states.mean(0) @ np.array([0.4, 0.9]))
        seconds = total / RATE
        new = seconds - (heard / RATE if known else 0)
        loss += abs(np.log(guess / seconds)) * min(seconds / new, 4)
    found = numbers(model(batch))  # type: ignore[arg-type]
    assert found == {"duration": pytest.approx((loss, 3), rel=1e-5)}
    [(mel, text, places)] = reader.calls
    assert places.tolist() == [7, 3, 4] and np.array_equal(mel[:, :9], batch.mel.numpy())
    assert np.array_equal(text, batch.text.numpy()) and model.weights() == {"duration": 1.0}
    assert model.loss == LossConfig(pair=1.0)  # each clip has a prompt, if any fits


def test_a_long_prompt_counts_four_times_at_most():
    batch = duration_batch()
    batch.prompt[0], batch.known[0] = 9, 2
    batch.lens[0] = 10  # a frame of new speech, which is taken for 0.1 seconds
    model, _ = duration()
    batch.mel[0, 7:9] = 0.5
    states = STATES[np.array([*SAID[0], *[-1] * 4]) + 1] + batch.mel[0].numpy().mean(-1)[:, None]
    guess = softplus(states.mean(0) @ np.array([0.4, 0.9]))
    seconds = 10 / RATE
    want = abs(np.log(guess / seconds)) * min(seconds / max(seconds - 9 / RATE, 0.1), 4)
    one = DurationBatch(**{k: v[:1] for k, v in vars(batch).items()})
    assert numbers(model(one))["duration"][0] == pytest.approx(want, rel=1e-5)  # type: ignore
    batch.lens[0], batch.prompt[0] = 200, 9
    far = DurationBatch(**{k: v[:1] for k, v in vars(batch).items()})
    far.prompt[:] = 190
    far.mel = torch.nn.functional.pad(far.mel, (0, 0, 0, 181))
    found = numbers(model(far))["duration"][0]  # type: ignore[arg-type]
    places = STATES[np.array([*SAID[0], *[-1] * 185]) + 1] + far.mel[0].numpy().mean(-1)[:, None]
    guess = softplus(places.mean(0) @ np.array([0.4, 0.9]))
    assert found == pytest.approx(abs(np.log(guess / (200 / RATE))) * 4, rel=1e-5)


@pytest.mark.parametrize("pace", [0.0, 0.3, 1.0])
def test_duration_loss_of_tokens(pace):
    """New tokens alone count, stretched by what the prompt took longer than it was thought to."""
    batch = duration_batch()
    model, reader = duration(pooling="tokens", pace=pace)
    weight, bias = np.array([0.4, 0.9]), 0.4
    loss = 0.0
    for b, (known, heard, total) in enumerate(zip(KNOWN, HEARD, TOTALS)):
        states = states_by_hand(batch, b, max(heard, len(SAID[b])))[: len(SAID[b])]
        each = 0.1 * softplus(states @ weight + bias)
        stretch = (heard / RATE / each[:known].sum()) ** pace if known else 1.0
        new = (total - (heard if known else 0)) / RATE
        lasts = total_seconds(each, known, heard / RATE, pace) - heard / RATE  # as in speaking
        assert lasts == pytest.approx(each[known:].sum() * stretch)
        loss += abs(np.log(lasts / new))
    assert numbers(model(batch)) == {"duration": pytest.approx((loss, 3), rel=1e-5)}  # type: ignore


@pytest.mark.parametrize("pooling", ["mean", "tokens"])
def test_a_predicted_duration_is_at_least_a_millisecond(pooling):
    batch = duration_batch()
    model, _ = duration(pooling=pooling, **({"pace": 1.0} if pooling == "tokens" else {}))
    with torch.no_grad():
        for p in model.to_pred.parameters():
            p.fill_(-40)
    batch.mel[:] = 0
    model.transformer.forward = lambda mel, text, lens: torch.ones(*mel.shape[:2], WIDTH)
    loss = 0.0
    for known, heard, total in zip(KNOWN, HEARD, TOTALS):
        new = (total - (heard if known else 0)) / RATE
        if pooling == "mean":
            loss += abs(np.log(1e-3 / (total / RATE))) * min(total / RATE / new, 4)
        else:
            loss += abs(np.log(1e-3 / new))
    assert numbers(model(batch))["duration"][0] == pytest.approx(loss, rel=1e-5)  # type: ignore


def test_seconds_are_asked_for_with_tensors():
    batch = duration_batch()
    model, _ = duration()
    seconds = model(batch.mel, batch.text, batch.prompt)
    assert isinstance(seconds, torch.Tensor) and seconds.shape == (3,) and (seconds > 0).all()
    with pytest.raises(InputError, match="no tokenizer"):
        model.batches([], BatchPlan(1, 9, 9), StreamOptions())
    moved = batch.to("cpu")
    assert all(torch.equal(v, getattr(moved, k)) for k, v in vars(batch).items())
