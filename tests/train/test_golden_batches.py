"""Golden batches: what each objective gives its network and makes of the answer, by hand.

The network is a stub that records its arguments and answers with a plain function of them. State,
condition, text, target and loss are worked out beside it in NumPy, item by item and frame by frame,
from the formulas of the papers; nothing is taken from the code under test.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nanospeech.config import AudioConfig, DiTConfig
from nanospeech.errors import InputError
from nanospeech_torch.train.data.batch import Batch, LossConfig
from nanospeech_torch.train.objectives.flow import Nanospeech

BANDS, WIDTH = 3, 2
MEAN, STD = -2.0, 1.5
RNG = np.random.default_rng(0)
STATES = RNG.standard_normal((7, WIDTH)).astype(np.float32)  # row 0 is the filler's
SOUNDS = RNG.standard_normal((6, BANDS)).astype(np.float32)  # mean mel of each token
LENS, PROMPTS, TIMES = (14, 11, 9, 13, 14), (4, 5, 3, 6, 2), (0.1, 0.4, 0.7, 0.75, 0.9)
SPANS = ((3, 14), (0, 8), (2, 9), (4, 12), (1, 14))
TEXTS = ((0, 1, 2, 3), (4, 5, 1), (2, 0), (3, 3, 5), (1, 2, 4, 0))
DROPPED = ((False, False), (True, False), (True, True), (False, False), (False, True))
VARIANTS = [(kind, patch) for kind in ("none", "average", "aligned") for patch in (1, 2)]


def answer(x, cond, text, time, gain):
    """The stub's velocity: every argument tells, each differently."""
    return gain * (0.5 * x - 0.25 * cond + text.mean(-1, keepdims=True) + time)


class Network(torch.nn.Module):
    """Takes the place of a DiT: records what it is given."""

    def __init__(self, upsampling: str, patch: int, gain: float = 1.0):
        super().__init__()
        self.config = DiTConfig(n_mels=BANDS, text_upsampling=upsampling, patch_size=patch)
        self.table = torch.nn.Parameter(torch.tensor(STATES))
        self.sounds = torch.nn.Parameter(torch.tensor(SOUNDS))
        self.aligner = SimpleNamespace(log_durations=self.log_durations)
        self.gain, self.calls, self.masks = gain, [], []
        self.hidden = self.speaker = None

    def forward(self, x, cond, text, time, lens):
        self.calls.append([v.detach().numpy() for v in (x, cond, text, time, lens)])
        each = text.repeat_interleave(self.config.patch_size, 1)[:, : x.shape[1]]
        return answer(x, cond, each, time[:, None, None], self.gain)

    def embed_tokens(self, text):
        return self.table[text + 1]

    def embed_text(self, text, places, mask, given):
        self.masks.append(mask.numpy())
        room = torch.full((len(text), max(0, places - text.shape[1])), -1)
        return self.table[torch.cat([text[:, :places], room], 1) + 1]

    def embed_filler(self, like):
        return self.table[:1][None]

    def token_means(self, text, speaker):
        self.speaker = speaker.detach().numpy()
        return self.sounds[text.clamp(min=0)] + 0.1 * speaker[:, None]

    def log_durations(self, hidden, speaker):
        self.hidden = hidden
        return 0.3 * hidden.sum(-1) + 0.2 * speaker.mean(-1)[:, None]


def golden_batch() -> Batch:
    """Five clips: with both conditions (twice), without audio, without both, without text."""
    rng = np.random.default_rng(1)
    frames, tokens = max(LENS) + 1, max(map(len, TEXTS)) + 1
    mel, noise = np.zeros((2, 5, frames, BANDS), np.float32)
    text, span = np.full((5, tokens), -1), np.zeros((5, frames), bool)
    for b, n in enumerate(LENS):
        mel[b, :n] = MEAN + STD * rng.standard_normal((n, BANDS))
        noise[b, :n] = rng.standard_normal((n, BANDS))
        text[b, : len(TEXTS[b])] = TEXTS[b]
        span[b, slice(*SPANS[b])] = True
    arrays = {"mel": mel, "lens": LENS, "text": text, "noise": noise, "span": span}
    arrays |= {"time": np.float32(TIMES), "prompt": PROMPTS}
    arrays |= {"drop_audio": [a for a, _ in DROPPED], "drop_text": [t for _, t in DROPPED]}
    return Batch(**{name: torch.from_numpy(np.asarray(v)) for name, v in arrays.items()})


def normal(batch: Batch, b: int) -> np.ndarray:
    """x1 of an item: its normalised mel, without padding."""
    return (batch.mel[b, : LENS[b]].numpy() - MEAN) / STD


def means_of_patches(mel: np.ndarray, p: int) -> np.ndarray:
    return np.stack([mel[n : n + p].mean(0) for n in range(0, len(mel), p)])


def sounds_of(batch: Batch, b: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    """The speaker, as the prompt tells, and what its tokens sound like."""
    speaker = means_of_patches(normal(batch, b), p)[: -(-PROMPTS[b] // p)].mean(0)
    return speaker, SOUNDS[list(TEXTS[b])] + 0.1 * speaker


def best_path(patches: np.ndarray, sounds: np.ndarray) -> list[int]:
    """Of all monotonic paths with a patch for each token, the one of least squared distance."""
    paths = []
    for cuts in combinations(range(1, len(patches)), len(sounds) - 1):
        edges = (0, *cuts, len(patches))
        path = [t for t in range(len(sounds)) for _ in range(edges[t], edges[t + 1])]
        score = -0.5 * np.square(patches - sounds[path]).sum()
        paths.append((score, path))
    return max(paths)[1]


def spoken(batch: Batch, b: int, kind: str, p: int) -> list[int]:
    """The token of each patch of an item, as a place in its text."""
    patches, tokens = -(-LENS[b] // p), len(TEXTS[b])
    if kind == "aligned":
        return best_path(means_of_patches(normal(batch, b), p), sounds_of(batch, b, p)[1])
    each, rest = divmod(patches, tokens)  # F5-TTS v1: the last tokens get the remainder
    counts = [each + (t >= tokens - rest) for t in range(tokens)]
    return [t for t, count in enumerate(counts) for _ in range(count)]


def text_states(batch: Batch, b: int, kind: str, p: int) -> np.ndarray:
    """States of the text of each patch where it is not dropped."""
    patches, ids = -(-LENS[b] // p), np.array(TEXTS[b])
    if kind == "none":  # in the first places, and the filler behind
        return STATES[np.concatenate([ids + 1, np.zeros(patches - len(ids), int)])]
    return STATES[ids[spoken(batch, b, kind, p)] + 1]


def by_hand(batch: Batch, b: int, kind: str, p: int) -> dict[str, np.ndarray]:
    """State, condition, text and target of an item (arXiv 2210.02747; F5-TTS, section 3.1)."""
    x1, x0, t = normal(batch, b), batch.noise[b, : LENS[b]].numpy(), np.float32(TIMES[b])
    (first, last), (no_audio, no_text) = SPANS[b], DROPPED[b]
    cond = np.zeros_like(x1)
    for n in range(LENS[b]):
        if not first <= n < last and not no_audio:
            cond[n] = x1[n]
    text = text_states(batch, b, kind, p)
    text = np.repeat(STATES[:1], len(text), 0) if no_text else text
    return {"state": (1 - t) * x0 + t * x1, "cond": cond, "text": text, "target": x1 - x0}


def of_frames(text: np.ndarray, p: int, frames: int) -> np.ndarray:
    return np.repeat(text, p, 0)[:frames]


def speech(kind: str, p: int, **loss) -> tuple[Nanospeech, Network]:
    network = Network(kind, p)
    audio = AudioConfig(n_mels=BANDS, mel_mean=MEAN, mel_std=STD)
    config = LossConfig(**{"prior": 0.5, "duration": 0.25, **loss})
    return Nanospeech(network, None, audio, config), network  # type: ignore[arg-type]


def numbers(sums: dict) -> dict[str, tuple[float, float]]:
    return {name: (total.item(), count.item()) for name, (total, count) in sums.items()}


def flow_by_hand(batch: Batch, kind: str, p: int, target=None) -> tuple[float, int]:
    """Sum over the frames of the spans of the bands' mean squared error, and these frames."""
    total = count = 0
    for b in range(len(LENS)):
        want = by_hand(batch, b, kind, p)
        text = of_frames(want["text"], p, LENS[b])
        v = answer(want["state"], want["cond"], text, np.float32(TIMES[b]), 1.0)
        aim = want["target"] if target is None else target[b]
        for n in range(*SPANS[b]):
            total, count = total + np.square(v[n] - aim[n]).mean(), count + 1
    return float(total), count


def test_what_is_hidden_is_the_papers_and_what_docs_call_optional_is_off():
    c = LossConfig()
    # F5-TTS (arXiv 2410.06885), section 3.1
    assert (c.drop_audio, c.drop_both, c.min_span, c.max_span) == (0.3, 0.2, 0.7, 1.0)
    assert c.pair == 0.5 and c.warp == c.model_guidance == 0  # docs/training.md
    with pytest.raises(FrozenInstanceError):
        LossConfig().pair = 1.0  # type: ignore[misc]
    for good in ({"warp": 0.0}, {"warp": 0.5}, {"model_guidance": 0.0}, {"model_guidance": 0.99}):
        LossConfig(**good)
    for bad in ({"warp": 0.51}, {"warp": -0.1}, {"model_guidance": 1.0}, {"model_guidance": -0.1}):
        with pytest.raises(InputError, match=next(iter(bad))):
            LossConfig(**bad)


@pytest.mark.parametrize(("kind", "patch"), VARIANTS)
def test_speech_network_is_given_state_condition_text_and_time(kind, patch):
    batch = golden_batch()
    model, network = speech(kind, patch)
    model(batch)
    [(state, cond, text, time, lens)] = network.calls
    assert time.tolist() == np.float32(TIMES).tolist() and lens.tolist() == list(LENS)
    for b, n in enumerate(LENS):
        want = by_hand(batch, b, kind, patch)
        assert np.allclose(state[b, :n], want["state"], atol=1e-6)
        assert np.allclose(cond[b, :n], want["cond"], atol=1e-6)
        assert np.allclose(text[b, : -(-n // patch)], want["text"], atol=1e-6)
        assert not cond[b, n:].any() and not state[b, n:].any()
        for mask in network.masks:  # places of padding are no places for text
            assert np.flatnonzero(mask[b]).tolist() == list(range(-(-n // patch)))
    assert len(network.masks) == (kind == "none")


@pytest.mark.parametrize(("kind", "patch"), VARIANTS)
def test_speech_loss_is_that_of_the_formula(kind, patch):
    batch = golden_batch()
    model, _ = speech(kind, patch)
    found = numbers(model(batch))
    assert found["flow"] == pytest.approx(flow_by_hand(batch, kind, patch), rel=1e-5)
    assert found.keys() == ({"flow", "prior", "duration"} if kind == "aligned" else {"flow"})
    assert model.weights() == {"flow": 1.0, "prior": 0.5, "duration": 0.25}


@pytest.mark.parametrize("patch", [1, 2])
def test_aligner_losses_are_those_of_the_best_path(patch):
    """0.5 |y - mu|^2 in a mean over bands (Grad-TTS, eq. 14), and durations' Poisson deviance."""
    batch = golden_batch()
    model, network = speech("aligned", patch)
    sums = model(batch)
    found = numbers(sums)
    prior, patches, deviance, tokens = 0.0, 0, 0.0, 0
    slopes = np.zeros_like(SOUNDS)
    for b, ids in enumerate(TEXTS):
        speaker, sounds = sounds_of(batch, b, patch)
        assert np.allclose(network.speaker[b], speaker, atol=1e-6)
        y = means_of_patches(normal(batch, b), patch)
        path = best_path(y, sounds)
        prior += 0.5 * np.square(y - sounds[path]).mean(-1).sum()
        np.add.at(slopes, np.array(ids)[path], (sounds[path] - y) / BANDS)
        patches += len(y)
        for place, token in enumerate(ids):
            real = path.count(place)
            guess = 0.3 * STATES[token + 1].sum() + 0.2 * speaker.mean()
            deviance += np.exp(guess) - real - real * (guess - np.log(real))
            tokens += 1
    assert found["prior"] == pytest.approx((prior, patches), rel=1e-5)
    assert found["duration"] == pytest.approx((deviance, tokens), rel=1e-4)
    sums["prior"][0].backward()
    assert np.allclose(network.sounds.grad.numpy(), slopes, atol=1e-4)
    assert not network.hidden.requires_grad  # durations do not teach the text encoder


def test_a_guess_is_cut_at_the_exponential_of_7_patches():
    batch = golden_batch()
    model, network = speech("aligned", 1)
    network.aligner.log_durations = lambda hidden, speaker: torch.full(hidden.shape[:2], 9.0)
    deviance = 0.0
    for b, ids in enumerate(TEXTS):
        path = spoken(batch, b, "aligned", 1)
        for real in map(path.count, range(len(ids))):
            deviance += np.exp(7) - real - real * (7 - np.log(real))
    assert numbers(model(batch))["duration"][0] == pytest.approx(deviance, rel=1e-6)


def test_paths_are_searched_in_float32_whatever_the_rest_is_in():
    """Sounds that differ by little beside what they share: bfloat16 would not tell them apart."""
    batch = golden_batch()
    batch.mel = batch.mel + 20 * STD * (batch.mel != 0)
    model, network = speech("aligned", 1)
    with torch.no_grad():
        network.sounds += 20
    prior = 0.0
    for b, ids in enumerate(TEXTS):
        y = normal(batch, b)
        sounds = SOUNDS[list(ids)] + 20 + 0.1 * y[: PROMPTS[b]].mean(0)
        prior += 0.5 * np.square(y - sounds[best_path(y, sounds)]).mean(-1).sum()
    assert numbers(model(batch))["prior"][0] == pytest.approx(prior, rel=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert numbers(model(batch))["prior"][0] == pytest.approx(prior, rel=1e-4)


@pytest.mark.parametrize(("kind", "patch"), VARIANTS)
def test_model_guidance_moves_the_target_along_the_averages_own(kind, patch):
    """u + w (v(c) - v(none)) for t < 0.75 (arXiv 2502.12154); the null branch learns u itself."""
    batch, weight, gain = golden_batch(), 0.4, -0.7
    model, network = speech(kind, patch, model_guidance=weight)
    average = Network(kind, patch, gain)
    model.guide = (average,)  # type: ignore[assignment]
    aims, moved = [], []
    for b, (n, t) in enumerate(zip(LENS, np.float32(TIMES))):
        want = by_hand(batch, b, kind, patch)
        text = of_frames(want["text"], patch, n)
        with_conditions = answer(want["state"], want["cond"], text, t, gain)
        nothing = np.zeros_like(want["cond"]), np.repeat(STATES[:1], n, 0)
        without = answer(want["state"], *nothing, t, gain)
        moved.append(t < 0.75 and DROPPED[b] != (True, True))
        aims.append(want["target"] + (weight * (with_conditions - without) if moved[b] else 0))
    assert moved == [True, True, False, False, False]
    found = numbers(model.train()(batch))["flow"]
    assert found == pytest.approx(flow_by_hand(batch, kind, patch, aims), rel=1e-5)
    assert numbers(model.eval()(batch))["flow"] == pytest.approx(
        flow_by_hand(batch, kind, patch), rel=1e-5
    )
